//! The pictures that go with the draft, one a row, and the files offered behind an `@`.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Clear;

use crate::tui::completion::{Completion, Kind};
use crate::tui::layout::Areas;
use crate::tui::state::State;
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::Row;
use crate::tui::wrap::{display_width, drawable, shorten};

use super::owned_line;

/// Longer usages don't push the others' explanations to the right.
const MAX_USAGE: usize = 28;

pub fn draw(frame: &mut Frame, state: &State, theme: Theme, area: Rect) {
    let width = usize::from(area.width).saturating_sub(2);
    let height = usize::from(area.height);
    let n_hidden = match state.attached.len() {
        n if n <= height => 0,
        n => n - (height - 1),
    };
    let labels = state.attached.iter().enumerate().map(|(idx, attached)| {
        let tone = if attached.facts.is_some() { Tone::Text } else { Tone::Faint };
        (tone, attached.chip(idx + 1, width))
    });
    // The newest are in sight; the row above them counts the others.
    let summary = (n_hidden > 0).then(|| (Tone::Faint, summary(state, n_hidden, height == 1)));
    let rows = summary.into_iter().chain(labels.skip(n_hidden));
    for ((tone, text), y) in rows.zip(area.y..area.bottom()) {
        let row = vec![(Tone::Text, " ".to_owned()), (tone, shorten(&text, width))];
        frame.render_widget(owned_line(row, theme), Rect { y, height: 1, ..area });
    }
}

fn summary(state: &State, n_hidden: usize, is_all: bool) -> String {
    let facts = state.attached.iter().filter_map(|attached| attached.facts);
    let tokens: usize = facts.map(|facts| facts.tokens).sum();
    match (is_all, tokens) {
        (true, 0) => format!("[{n_hidden} pictures]"),
        (true, _) => format!("[{n_hidden} pictures · {tokens} tok]"),
        (false, 0) => format!("[{n_hidden} more]"),
        (false, _) => format!("[{n_hidden} more · {tokens} tok in all]"),
    }
}

/// A list just above the draft.
pub fn draw_completion(frame: &mut Frame, theme: Theme, completion: &Completion, areas: Areas) {
    let mut rows: Vec<Row> = Vec::new();
    let width = usize::from(areas.transcript.width);
    if completion.searching {
        rows.push(vec![(Tone::Faint, "  looking for files…".to_owned())]);
    }
    // Usages stand in one column, as far as they are short.
    let usages = completion.matches.iter().map(|offer| display_width(&offer.shown));
    let column = usages.filter(|width| *width <= MAX_USAGE).max().unwrap_or(0);
    for (idx, offer) in completion.matches.iter().enumerate() {
        let is_selected = idx == completion.selected;
        let plain = if completion.kind == Kind::File { Tone::Text } else { Tone::Key };
        let (mark, tone) = if is_selected { ("› ", Tone::Selected) } else { ("  ", plain) };
        let shown = shorten_left(&offer.shown, width.saturating_sub(2));
        let gap = column.saturating_sub(display_width(&shown)) + 2;
        let used = 2 + display_width(&shown) + gap;
        let help = shorten(&offer.help, width.saturating_sub(used));
        let mut row = vec![(Tone::Active, mark.to_owned()), (tone, shown)];
        if !help.is_empty() {
            row.push((Tone::Faint, format!("{:gap$}{help}", "")));
        }
        rows.push(row);
    }
    let room = usize::from(areas.status.y.saturating_sub(areas.transcript.y));
    let first = (completion.selected + 1).saturating_sub(room);
    let n_rows = rows.len().min(room) as u16;
    if n_rows == 0 {
        return;
    }
    let area = Rect { y: areas.status.y - n_rows, height: n_rows, ..areas.transcript };
    frame.render_widget(Clear, area);
    for (row, y) in rows.into_iter().skip(first).zip(area.y..area.bottom()) {
        frame.render_widget(owned_line(row, theme), Rect { y, height: 1, ..area });
    }
}

/// Cuts a path in front: its end says more.
pub fn shorten_left(path: &str, width: usize) -> String {
    use unicode_segmentation::UnicodeSegmentation;
    let path = drawable(path);
    if display_width(&path) <= width {
        return path;
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut used = 1;
    for grapheme in path.graphemes(true).rev() {
        used += display_width(grapheme);
        if used > width {
            break;
        }
        kept.push(grapheme);
    }
    let mark = if width > 0 { "…" } else { "" };
    mark.chars().map(String::from).chain(kept.into_iter().rev().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_keeps_its_end() {
        assert_eq!(shorten_left("a/b/c.png", 9), "a/b/c.png");
        assert_eq!(shorten_left("a/b/c.png", 6), "…c.png");
        assert_eq!(shorten_left("漢字.png", 7), "…字.png");
        assert_eq!(shorten_left("abc", 0), "");
    }
}
