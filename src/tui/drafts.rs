//! What drafting did, in words and marks: each step of the model judges the drafts made before it.
//!
//! The marks differ in shape, not only in colour.

use std::str::FromStr;

use crate::msg::{DraftStats, RECENT_STEPS, TurnStats};

use super::theme::Tone;
use super::transcript::Row;

const ACCEPTED: &str = "▮";
const REJECTED: &str = "▯";
/// A step that judged no draft.
const UNDRAFTED: &str = "·";

/// Whether drafts are shown above the message that is being written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpecView {
    Off,
    #[default]
    Lane,
    /// The line, and in the answers what was guessed.
    Tint,
}

impl FromStr for SpecView {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "lane" => Ok(Self::Lane),
            "tint" => Ok(Self::Tint),
            _ => Err("expected off, lane or tint".into()),
        }
    }
}

impl SpecView {
    pub fn next(self) -> Self {
        match self {
            Self::Lane => Self::Tint,
            Self::Tint => Self::Off,
            Self::Off => Self::Lane,
        }
    }
}

/// `MTP 1.83 tok/step (accepted 71 %)`; `None` if nothing was drafted.
pub fn summary(stats: &TurnStats) -> Option<String> {
    let share = percent(stats.drafts.acceptance()?);
    Some(format!("MTP {} (accepted {share})", per_step(stats)?))
}

/// `1.83 tok/step`; `None` if nothing was drafted.
pub fn per_step(stats: &TurnStats) -> Option<String> {
    stats.tokens_per_step().map(|tokens| format!("{tokens:.2} tok/step"))
}

/// `pos1 88 %` and so on: how often the draft at each position was right.
pub fn positions(drafts: &DraftStats) -> impl Iterator<Item = String> {
    drafts.by_position().enumerate().map(|(idx, share)| format!("pos{} {}", idx + 1, percent(share)))
}

/// The latest steps that fit into so many columns, the newest last.
pub fn lane(drafts: &DraftStats, columns: usize) -> Row {
    let n_noted = RECENT_STEPS.min(drafts.steps as usize);
    let noted = &drafts.recent[RECENT_STEPS - n_noted..];
    let mut first = noted.len();
    let mut used = 0;
    for (drafted, _) in noted.iter().rev() {
        let gap = usize::from(used > 0);
        used += gap + usize::from(*drafted).max(1);
        if used > columns {
            break;
        }
        first -= 1;
    }
    let mut row = Row::new();
    for (drafted, accepted) in &noted[first..] {
        let gap = if row.is_empty() { "" } else { " " };
        let (drafted, accepted) = (usize::from(*drafted), usize::from(*accepted));
        row.push((Tone::Accepted, format!("{gap}{}", ACCEPTED.repeat(accepted))));
        let rest = if drafted == 0 { UNDRAFTED.to_owned() } else { REJECTED.repeat(drafted - accepted) };
        row.push((Tone::Faint, rest));
    }
    row
}

/// Only what is all reads as all.
fn percent(share: f64) -> String {
    let rounded = (share * 100.0).round();
    format!("{} %", if share < 1.0 { rounded.min(99.0) } else { rounded })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(steps: &[(usize, usize)]) -> DraftStats {
        let mut drafts = DraftStats::default();
        steps.iter().for_each(|(drafted, accepted)| drafts.note(*drafted, *accepted));
        drafts
    }

    fn text(drafts: &DraftStats, columns: usize) -> String {
        lane(drafts, columns).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn the_lane_shows_the_latest_steps_that_fit_whole() {
        let drafts = noted(&[(3, 2), (3, 3), (1, 0), (0, 0), (2, 1)]);
        assert_eq!(text(&drafts, 80), "▮▮▯ ▮▮▮ ▯ · ▮▯");
        assert_eq!(text(&drafts, 14), "▮▮▯ ▮▮▮ ▯ · ▮▯");
        assert_eq!(text(&drafts, 13), "▮▮▮ ▯ · ▮▯");
        assert_eq!(text(&drafts, 2), "▮▯");
        assert_eq!(text(&drafts, 1), "");
        assert_eq!(text(&DraftStats::default(), 80), "");
        let many = noted(&[(1, 1); 40]);
        assert_eq!(text(&many, 80).matches('▮').count(), RECENT_STEPS);
    }

    #[test]
    fn the_figures_are_those_of_the_answer() {
        let drafts = noted(&[(2, 2), (2, 0), (0, 0), (1, 1)]);
        assert_eq!(positions(&drafts).collect::<Vec<_>>(), ["pos1 67 %", "pos2 50 %"]);
        let stats = TurnStats { completion_tokens: 8, drafts, ..TurnStats::default() };
        assert_eq!(summary(&stats).unwrap(), "MTP 1.75 tok/step (accepted 60 %)");
        assert_eq!(summary(&TurnStats { drafts: noted(&[(0, 0)]), ..stats }), None);
    }

    #[test]
    fn a_share_is_all_only_if_none_is_missing() {
        assert_eq!([0.0, 0.714, 0.999, 1.0].map(percent), ["0 %", "71 %", "99 %", "100 %"]);
    }
}
