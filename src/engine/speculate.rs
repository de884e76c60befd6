//! How many tokens to draft: the depth that has been giving the most tokens per second on this device.
//!
//! A round drafts `k` tokens and judges them in one pass of the trunk; it yields one token and those drafts that
//! were right. Acceptance is measured by position, the time of a round by its depth; both forget what was long ago.

use std::collections::VecDeque;
use std::time::Duration;

use crate::msg::{MAX_DRAFTS, Mtp};

/// Times of a depth that are remembered.
const MEMORY_TIMES: usize = 8;
/// Depths of the first rounds: what is known after one look each may be a neighbour's noise.
const FIRST: [usize; 9] = [2, 0, 4, 0, 2, 4, 4, 0, 2];
/// What is believed of a position before it was tried, and for how many trials' worth.
const PRIOR_ACCEPTANCE: f64 = 0.7;
const PRIOR_TRIALS: f64 = 2.0;
/// Trials beyond which older ones fade.
const MEMORY_TRIALS: f64 = 60.0;
/// Rounds between two looks at a depth that isn't the best one.
const EXPLORE_EVERY: usize = 32;
/// Drafting must promise this much more than plain decoding.
const MIN_GAIN: f64 = 1.05;

/// What is known about drafting on this device with this model.
pub struct Speculation {
    /// Right guesses and guesses judged, by position.
    accepted: [f64; MAX_DRAFTS],
    judged: [f64; MAX_DRAFTS],
    /// Of a round by its depth, from 0 (plain).
    times: [Times; MAX_DRAFTS + 1],
    rounds: usize,
}

/// The latest times of rounds of one depth, in seconds.
#[derive(Default)]
struct Times {
    latest: VecDeque<f64>,
}

impl Times {
    fn note(&mut self, seconds: f64) {
        self.latest.truncate(MEMORY_TIMES - 1);
        self.latest.push_front(seconds);
    }

    /// What it takes when nothing interrupts it: a quarter of the times is shorter.
    fn typical(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.latest.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) / 4).copied()
    }
}

impl Default for Speculation {
    fn default() -> Self {
        Self {
            accepted: [PRIOR_ACCEPTANCE * PRIOR_TRIALS; MAX_DRAFTS],
            judged: [PRIOR_TRIALS; MAX_DRAFTS],
            times: Default::default(),
            rounds: 0,
        }
    }
}

impl Speculation {
    /// Drafts for the next round.
    pub fn depth(&mut self, mode: Mtp) -> usize {
        match mode {
            Mtp::Off => 0,
            Mtp::Depth(depth) => usize::from(depth).min(MAX_DRAFTS),
            Mtp::Auto => {
                self.rounds += 1;
                self.auto()
            }
        }
    }

    fn auto(&self) -> usize {
        if let Some(depth) = FIRST.get(self.rounds - 1) {
            return *depth;
        }
        let best = self.best();
        if !self.rounds.is_multiple_of(EXPLORE_EVERY) {
            return best;
        }
        let others = match best {
            0 => [2, 1, 4],
            _ => [(best + 1).min(MAX_DRAFTS), best - 1, 0],
        };
        others[self.rounds / EXPLORE_EVERY % others.len()]
    }

    fn best(&self) -> usize {
        let plain = self.rate(0);
        let candidates = (1..=MAX_DRAFTS).map(|depth| (depth, self.rate(depth)));
        let (depth, rate) = candidates.max_by(|a, b| a.1.total_cmp(&b.1)).expect("there are depths");
        if rate > MIN_GAIN * plain { depth } else { 0 }
    }

    /// Tokens per second at a depth, measured or estimated.
    fn rate(&self, depth: usize) -> f64 {
        let mut expected = 1.0;
        let mut reached = 1.0;
        for position in 0..depth {
            reached *= self.accepted[position] / self.judged[position];
            expected += reached;
        }
        expected / self.round_seconds(depth)
    }

    /// On the line through the nearest measured depths.
    fn round_seconds(&self, depth: usize) -> f64 {
        if let Some(seconds) = self.times[depth].typical() {
            return seconds;
        }
        let measured = |depth: usize| self.times[depth].typical().map(|seconds| (depth as f64, seconds));
        let mut below = (0..depth).rev().filter_map(measured);
        let above = (depth + 1..=MAX_DRAFTS).find_map(measured);
        match (below.next(), above.or_else(|| below.next())) {
            (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) / (x1 - x0) * (depth as f64 - x0),
            (Some((_, seconds)), None) | (None, Some((_, seconds))) => seconds,
            (None, None) => 1.0,
        }
    }

    /// A round of `drafted` guesses, of which the first `accepted` were right, took so long.
    pub fn note(&mut self, drafted: usize, accepted: usize, time: Duration) {
        for position in 0..drafted.min(accepted + 1) {
            self.judged[position] += 1.0;
            self.accepted[position] += f64::from(u8::from(position < accepted));
            if self.judged[position] > MEMORY_TRIALS {
                self.judged[position] *= 0.5;
                self.accepted[position] *= 0.5;
            }
        }
        self.times[drafted].note(time.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs rounds on a device where a round of depth k takes `1 + k * per_draft` and each guess is right with a
    /// regular pattern of the given share.
    fn settled(per_draft: f64, share: f64) -> usize {
        settled_among(per_draft, share, |_| 1.0)
    }

    /// The same where a round of a number takes longer by a factor.
    fn settled_among(per_draft: f64, share: f64, disturbed: impl Fn(usize) -> f64) -> usize {
        let mut speculation = Speculation::default();
        let mut luck = 0.0;
        for round in 0..400 {
            let depth = speculation.depth(Mtp::Auto);
            let mut accepted = 0;
            while accepted < depth {
                luck += share;
                if luck < 1.0 {
                    break;
                }
                luck -= 1.0;
                accepted += 1;
            }
            let seconds = (1.0 + depth as f64 * per_draft) / 100.0;
            let time = Duration::from_secs_f64(seconds * disturbed(round));
            speculation.note(depth, accepted, time);
        }
        speculation.best()
    }

    #[test]
    fn cheap_good_drafts_go_deep_and_dear_or_bad_ones_stop() {
        assert!(settled(0.1, 0.95) >= 4);
        assert!((1..=3).contains(&settled(0.3, 0.7)));
        assert_eq!(settled(1.2, 0.9), 0);
        assert_eq!(settled(0.4, 0.1), 0);
    }

    #[test]
    fn a_neighbour_who_interrupts_every_third_round_changes_little() {
        let interrupted = |round: usize| if round.is_multiple_of(3) { 4.0 } else { 1.0 };
        assert!(settled_among(0.1, 0.95, interrupted) >= 3);
        assert_eq!(settled_among(1.2, 0.9, interrupted), 0);
    }

    #[test]
    fn a_fixed_depth_is_kept() {
        let mut speculation = Speculation::default();
        assert_eq!(speculation.depth(Mtp::Off), 0);
        assert_eq!(speculation.depth(Mtp::Depth(5)), 5);
        assert_eq!(speculation.depth(Mtp::Depth(200)), MAX_DRAFTS);
    }
}
