//! The line that shows how drafting goes: the latest steps, acceptance by position, tokens per step.

use ratatui::Frame;
use ratatui::layout::Rect;

use crate::tui::drafts;
use crate::tui::state::State;
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::Row;
use crate::tui::wrap::display_width;

use super::owned_line;

const HEAD: &str = " spec ";
/// The lane keeps at least four steps of three drafts.
const MIN_LANE: usize = 15;

pub fn draw(frame: &mut Frame, state: &State, theme: Theme, area: Rect) {
    let Some(stats) = state.drafting() else { return };
    let room = usize::from(area.width).saturating_sub(HEAD.len() + 1);
    let per_step = format!("   {}", drafts::per_step(stats).unwrap_or_default());
    // First positions say most; those that don't fit are in /stats.
    let mut positions = String::new();
    for (idx, position) in drafts::positions(&stats.drafts).enumerate() {
        let gap = if idx == 0 { "   " } else { "  " };
        let used = [&positions, gap, &position, &per_step].map(display_width).iter().sum::<usize>();
        if used + MIN_LANE > room {
            break;
        }
        positions += gap;
        positions += &position;
    }
    let columns = room.saturating_sub(display_width(&positions) + display_width(&per_step));
    let mut row: Row = vec![(Tone::Faint, HEAD.to_owned())];
    row.extend(drafts::lane(&stats.drafts, columns));
    row.push((Tone::Faint, positions));
    row.push((Tone::Text, per_step));
    frame.render_widget(owned_line(row, theme), area);
}
