//! How many tokens to draft: the depth that has been giving the most tokens per second on this device.
//!
//! A round drafts `k` tokens and judges them in one pass of the trunk; it yields one token and those drafts that
//! were right. Acceptance is measured by position, the time of a round by its depth; both are averages that forget.

use std::time::Duration;

use crate::msg::{MAX_DRAFTS, Mtp};

/// Weight of a new measurement.
const NEW: f64 = 0.15;
/// A round that took longer than so many usual ones was interrupted by something else.
const MAX_RISE: f64 = 2.0;
/// What is believed of a position before it was tried, and for how many trials' worth.
const PRIOR_ACCEPTANCE: f64 = 0.7;
const PRIOR_TRIALS: f64 = 2.0;
/// Trials beyond which older ones fade.
const MEMORY_TRIALS: f64 = 60.0;
/// Rounds between two looks at a depth that isn't the best one.
const EXPLORE_EVERY: usize = 48;
/// Drafting must promise this much more than plain decoding.
const MIN_GAIN: f64 = 1.05;

/// What is known about drafting on this device with this model.
pub struct Speculation {
    /// Right guesses and guesses judged, by position.
    accepted: [f64; MAX_DRAFTS],
    judged: [f64; MAX_DRAFTS],
    /// Seconds of a round by its depth, from 0 (plain).
    seconds: [Option<f64>; MAX_DRAFTS + 1],
    rounds: usize,
}

impl Default for Speculation {
    fn default() -> Self {
        Self {
            accepted: [PRIOR_ACCEPTANCE * PRIOR_TRIALS; MAX_DRAFTS],
            judged: [PRIOR_TRIALS; MAX_DRAFTS],
            seconds: [None; MAX_DRAFTS + 1],
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
        // Two points make a line, from which the other depths are estimated.
        for depth in [2, 0] {
            if self.seconds[depth].is_none() {
                return depth;
            }
        }
        let best = self.best();
        if self.rounds.is_multiple_of(EXPLORE_EVERY) {
            // In turn the one above, the one below, and none.
            return match self.rounds / EXPLORE_EVERY % 3 {
                0 => (best + 1).min(MAX_DRAFTS),
                1 => best.saturating_sub(1),
                _ => 0,
            };
        }
        best
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
        if let Some(seconds) = self.seconds[depth] {
            return seconds;
        }
        let measured = |depth: usize| self.seconds[depth].map(|seconds| (depth as f64, seconds));
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
        let seconds = time.as_secs_f64();
        let before = &mut self.seconds[drafted];
        *before =
            Some(before.map_or(seconds, |before| before + NEW * (seconds.min(MAX_RISE * before) - before)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs rounds on a device where a round of depth k takes `1 + k * per_draft` and each guess is right with a
    /// regular pattern of the given share.
    fn settled(per_draft: f64, share: f64) -> usize {
        let mut speculation = Speculation::default();
        let mut luck = 0.0;
        for _ in 0..400 {
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
            let time = Duration::from_secs_f64((1.0 + depth as f64 * per_draft) / 100.0);
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
    fn a_fixed_depth_is_kept() {
        let mut speculation = Speculation::default();
        assert_eq!(speculation.depth(Mtp::Off), 0);
        assert_eq!(speculation.depth(Mtp::Depth(5)), 5);
        assert_eq!(speculation.depth(Mtp::Depth(200)), MAX_DRAFTS);
    }
}
