//! The file picker: a folder on the left, the picture under the cursor on the right.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::widgets::{Block, BorderType, Clear, Padding};

use crate::sanitize::{clean, one_line};
use crate::tui::picker::{Picker, PickerAreas};
use crate::tui::pictures::files::FolderEntry;
use crate::tui::state::State;
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::Row;
use crate::tui::wrap::{display_width, shorten};

use super::attached::shorten_left;
use super::owned_line;

pub fn draw(frame: &mut Frame, state: &State, picker: &Picker, theme: Theme) {
    let areas = PickerAreas::new(state.width, state.height);
    draw_frame(frame, picker, theme, areas.frame);
    draw_filter(frame, picker, theme, areas.filter);
    draw_list(frame, picker, theme, areas.list);
    let Some(entry) = picker.current() else { return };
    let look = picker.look_at(&entry.path);
    let mut facts = Vec::new();
    if !entry.is_folder {
        facts.push(bytes(entry.n_bytes));
    }
    match look.map(|look| &look.seen) {
        Some(Ok(seen)) => {
            facts.insert(0, format!("{}x{}", seen.width, seen.height));
            if let (Some(area), Some(preview)) = (areas.preview, &seen.preview) {
                preview.draw(area, 0, frame.buffer_mut());
            }
        }
        Some(Err(problem)) => facts.push(one_line(problem)),
        None => {}
    }
    let text = shorten(&facts.join(" · "), usize::from(areas.facts.width));
    frame.render_widget(owned_line(vec![(Tone::Faint, text)], theme), areas.facts);
}

fn draw_frame(frame: &mut Frame, picker: &Picker, theme: Theme, area: Rect) {
    let room = usize::from(area.width.saturating_sub(4));
    let folder = one_line(&picker.folder.to_string_lossy());
    let title = format!(" {} ", shorten_left(&folder, room.saturating_sub(2)));
    let hints = [" Enter attaches · Backspace up · Esc closes ", " Esc closes ", ""];
    let hint = hints.into_iter().find(|hint| display_width(hint) <= room).unwrap_or_default();
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.style(Tone::Faint))
        .padding(Padding::horizontal(1))
        .title(owned_line(vec![(Tone::Brand, title)], theme))
        .title_bottom(owned_line(vec![(Tone::Faint, hint.to_owned())], theme));
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
}

fn draw_filter(frame: &mut Frame, picker: &Picker, theme: Theme, area: Rect) {
    if area.is_empty() {
        return;
    }
    let typed = shorten_left(&picker.filter, usize::from(area.width).saturating_sub(3));
    let caret = area.x + 2 + display_width(&typed) as u16;
    let text = match picker.filter.is_empty() {
        true => (Tone::Faint, shorten("type to search here", usize::from(area.width).saturating_sub(2))),
        false => (Tone::Text, typed),
    };
    frame.render_widget(owned_line(vec![(Tone::Active, "› ".to_owned()), text], theme), area);
    frame.set_cursor_position(Position { x: caret.min(area.right().saturating_sub(1)), y: area.y });
}

fn draw_list(frame: &mut Frame, picker: &Picker, theme: Theme, area: Rect) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let shown = picker.shown();
    let said = match &picker.entries {
        None => Some((Tone::Faint, "reading…")),
        Some(Err(problem)) => Some((Tone::Error, problem.as_str())),
        Some(Ok(_)) if !shown.is_empty() => None,
        Some(Ok(entries)) if entries.is_empty() => Some((Tone::Faint, "no pictures here")),
        Some(Ok(_)) => Some((Tone::Faint, "nothing of that name")),
    };
    if let Some((tone, text)) = said {
        let row = vec![(tone, shorten(&clean(text), width))];
        frame.render_widget(owned_line(row, theme), Rect { height: area.height.min(1), ..area });
    }
    // The cursor stays in the middle, as far as there is something around it.
    let first = picker.selected.saturating_sub(height / 2).min(shown.len().saturating_sub(height));
    for ((idx, entry), y) in shown.into_iter().enumerate().skip(first).zip(area.y..area.bottom()) {
        frame.render_widget(
            owned_line(entry_row(entry, idx == picker.selected, width), theme),
            Rect { y, height: 1, ..area },
        );
    }
}

fn entry_row(entry: &FolderEntry, is_selected: bool, width: usize) -> Row {
    let mark = if is_selected { "› " } else { "  " };
    let slash = if entry.is_folder { "/" } else { "" };
    let name = format!("{}{slash}", shorten(&entry.name, width.saturating_sub(2 + slash.len())));
    let tone = match (is_selected, entry.is_folder) {
        (true, _) => Tone::Selected,
        (false, true) => Tone::Key,
        (false, false) => Tone::Text,
    };
    vec![(Tone::Active, mark.to_owned()), (tone, name)]
}

/// `950 B`, `2.1 MB`.
fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.0} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!([950, 12_345, 2_123_456].map(bytes), ["950 B", "12 kB", "2.1 MB"]);
    }
}
