//! The first line: model and device on the left, how full the context is on the right.

use ratatui::Frame;
use ratatui::layout::Rect;

use crate::sanitize::one_line;
use crate::tui::layout::WIDE;
use crate::tui::state::{Model, State};
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::Row;
use crate::tui::wrap::{display_width, shorten};

use super::owned_line;

const METER_CELLS: usize = 8;

pub fn draw(frame: &mut Frame, state: &State, theme: Theme, area: Rect) {
    let width = usize::from(area.width);
    let wide = area.width >= WIDE;
    let meter = meter(state, wide);
    let meter_width = row_width(&meter);
    // A space before the left part, one after the right part, two between them.
    let room = width.saturating_sub(meter_width + 4);
    let mut row: Row = vec![(Tone::Text, " ".to_owned())];
    row.extend(name(state, wide, room));
    let gap = width.saturating_sub(row_width(&row) + meter_width + 1);
    let title = if wide { title(state, gap) } else { String::new() };
    let gap = gap.saturating_sub(display_width(&title));
    row.push((Tone::Text, " ".repeat(gap)));
    row.push((Tone::Faint, title));
    row.extend(meter);
    frame.render_widget(owned_line(row, theme), area);
}

fn name(state: &State, wide: bool, room: usize) -> Row {
    let brand = "loquat";
    match &state.model {
        Model::Ready(info) if wide => {
            let rest = format!("{} · {}", info.name, info.device);
            let room = room.saturating_sub(brand.len() + 2);
            vec![(Tone::Brand, brand.to_owned()), (Tone::Text, format!("  {}", shorten(&rest, room)))]
        }
        Model::Ready(info) => vec![(Tone::Text, shorten(&info.name, room))],
        Model::Loading | Model::Failed => {
            let rest = if state.model == Model::Failed { "no model" } else { "" };
            let room = room.saturating_sub(brand.len() + 2);
            vec![(Tone::Brand, brand.to_owned()), (Tone::Faint, format!("  {}", shorten(rest, room)))]
        }
    }
}

/// What the conversation is called, where there is room between the others.
fn title(state: &State, room: usize) -> String {
    const MIN: usize = 12;
    const MAX: usize = 40;
    // Two spaces on the left, three on the right.
    let room = room.saturating_sub(5).min(MAX);
    match state.title() {
        Some(title) if room >= MIN => format!("{}   ", shorten(&one_line(&title), room)),
        _ => String::new(),
    }
}

fn meter(state: &State, wide: bool) -> Row {
    let Model::Ready(info) = &state.model else { return Row::new() };
    let total = info.context_tokens.max(1);
    let used = state.context_used;
    let tone = if used * 10 >= total * 9 { Tone::Warning } else { Tone::Faint };
    let figures = format!("{}/{}", tokens(used), tokens(total));
    if !wide {
        return vec![(tone, figures)];
    }
    // Anything used shows at least one cell.
    let full = (used * METER_CELLS).div_ceil(total).min(METER_CELLS);
    let bar_tone = if tone == Tone::Warning { tone } else { Tone::Active };
    vec![
        (Tone::Faint, "ctx ".to_owned()),
        (bar_tone, "▰".repeat(full)),
        (Tone::Faint, "▱".repeat(METER_CELLS - full)),
        (tone, format!(" {figures}")),
    ]
}

/// `950`, `1.2k`, `32k`: the context sizes people know are multiples of 1024.
fn tokens(count: usize) -> String {
    match count {
        0..1000 => count.to_string(),
        _ if count.is_multiple_of(1024) => format!("{}k", count / 1024),
        1000..100_000 => format!("{:.1}k", count as f64 / 1024.0),
        _ => format!("{}k", count / 1024),
    }
}

fn row_width(row: &Row) -> usize {
    row.iter().map(|(_, text)| display_width(text)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_counts_are_short() {
        assert_eq!(
            [0, 950, 1234, 11_469, 32_768, 262_144].map(tokens),
            ["0", "950", "1.2k", "11.2k", "32k", "256k"]
        );
    }
}
