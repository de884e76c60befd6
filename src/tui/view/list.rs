//! The list over the chat: what to choose from, with a line to type into above it.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::widgets::{Block, BorderType, Clear};

use crate::tui::list::{self, Item, Kind, List};
use crate::tui::state::State;
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::Row;
use crate::tui::wrap::{display_width, drawable, shorten};

use super::attached::shorten_left;
use super::owned_line;

pub fn draw(frame: &mut Frame, state: &State, list: &List, theme: Theme) {
    let area = list.frame(state.room());
    // Beside it nothing could be read that isn't cut.
    frame.render_widget(Clear, Rect { x: 0, width: state.width, ..area });
    draw_frame(frame, list, theme, area);
    draw_input(
        frame,
        list,
        theme,
        Rect { x: area.x + 2, y: area.y + 1, width: area.width.saturating_sub(4), height: 1 },
    );
    draw_items(frame, list, theme, list::room(area));
}

fn draw_frame(frame: &mut Frame, list: &List, theme: Theme, area: Rect) {
    let room = usize::from(area.width.saturating_sub(4));
    let title = match list.kind {
        Kind::History => " Conversations ",
        Kind::Branches => " Branches of this conversation ",
        Kind::Themes => " Themes ",
        Kind::Prompts => " Asked before ",
        Kind::Palette => " Everything that can be done ",
        Kind::Personas => " Personas ",
        Kind::Presets => " Sampling presets ",
        Kind::TooLong => " This doesn't fit into the context ",
    };
    let hints: &[&str] = match (list.kind, &list.renaming) {
        (_, Some(_)) => &[" Enter renames · Esc leaves it ", " Enter · Esc ", ""],
        (Kind::History, None) => &[
            " Enter opens · Ctrl+R renames · Del deletes · Ctrl+U takes back · Esc closes ",
            " Enter · Ctrl+R name · Del · Ctrl+U undo ",
            " Esc closes ",
            "",
        ],
        (Kind::Themes, None) => &[" Enter keeps it · Esc goes back ", ""],
        (Kind::Prompts, None) => &[
            " Enter puts it into the draft · Ctrl+R the next one · Esc closes ",
            " Enter takes it · Esc closes ",
            "",
        ],
        (Kind::Palette, None) => &[" Enter does it · Esc closes ", " Esc closes ", ""],
        (Kind::Personas | Kind::Presets, None) => &[" Enter takes it · Esc closes ", " Esc closes ", ""],
        (Kind::TooLong, None) => &[" Enter does it · Esc leaves it as it is ", " Enter · Esc ", ""],
        (Kind::Branches, None) => &[" Enter goes there · Esc closes ", " Esc closes ", ""],
    };
    let hint = hints.iter().find(|hint| display_width(hint) <= room).copied().unwrap_or_default();
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.style(Tone::Faint))
        .title(owned_line(vec![(Tone::Brand, title.to_owned())], theme))
        .title_bottom(owned_line(vec![(Tone::Faint, hint.to_owned())], theme));
    frame.render_widget(block, area);
}

fn draw_input(frame: &mut Frame, list: &List, theme: Theme, area: Rect) {
    if area.is_empty() {
        return;
    }
    let (label, typed) = match &list.renaming {
        Some(title) => ("title: ", title),
        None => ("› ", &list.filter),
    };
    let room = usize::from(area.width).saturating_sub(display_width(label) + 1);
    let shown = shorten_left(typed, room);
    let caret = area.x + (display_width(label) + display_width(&shown)) as u16;
    let hint = match list.kind {
        Kind::History => "type words to search in everything that was said",
        _ => "type to search here",
    };
    let text = match typed.is_empty() && list.renaming.is_none() {
        true => (Tone::Faint, shorten(hint, room)),
        false => (Tone::Text, shown),
    };
    frame.render_widget(owned_line(vec![(Tone::Active, label.to_owned()), text], theme), area);
    frame.set_cursor_position(Position { x: caret.min(area.right().saturating_sub(1)), y: area.y });
}

fn draw_items(frame: &mut Frame, list: &List, theme: Theme, area: Rect) {
    let width = usize::from(area.width);
    let shown = list.shown();
    let said = match &list.items {
        None => Some("looking…"),
        Some(_) if !shown.is_empty() => None,
        Some(_) if list.filter.is_empty() && list.kind == Kind::Prompts => Some("nothing was asked yet"),
        Some(_) if list.filter.is_empty() => Some("nothing is kept yet"),
        Some(_) => Some("nothing found"),
    };
    if let Some(text) = said {
        let row = vec![(Tone::Faint, shorten(text, width))];
        frame.render_widget(owned_line(row, theme), Rect { height: area.height.min(1), ..area });
    }
    let rows: Vec<(usize, Row)> = shown
        .iter()
        .enumerate()
        .flat_map(|(idx, item)| {
            item_rows(item, idx == list.selected, width).into_iter().map(move |row| (idx, row))
        })
        .collect();
    // The cursor stays in the middle, as far as there is something around it.
    let height = usize::from(area.height);
    let cursor = rows.iter().position(|(idx, _)| *idx == list.selected).unwrap_or(0);
    let first = cursor.saturating_sub(height / 2).min(rows.len().saturating_sub(height));
    for ((_, row), y) in rows.into_iter().skip(first).zip(area.y..area.bottom()) {
        frame.render_widget(owned_line(row, theme), Rect { y, height: 1, ..area });
    }
}

fn item_rows(item: &Item, is_selected: bool, width: usize) -> Vec<Row> {
    let mark = if is_selected { "› " } else { "  " };
    let tone = if is_selected { Tone::Selected } else { Tone::Text };
    let current = if item.is_current { " (here)" } else { "" };
    // A narrow screen keeps the text.
    let facts = if width >= 50 { item.facts.as_str() } else { "" };
    let fixed = 2 + display_width(current) + display_width(facts) + 1;
    let text = shorten(&drawable(&item.text), width.saturating_sub(fixed));
    let gap = width.saturating_sub(fixed + display_width(&text)) + 1;
    let mut rows = vec![vec![
        (Tone::Active, mark.to_owned()),
        (tone, text),
        (Tone::Faint, current.to_owned()),
        (Tone::Faint, format!("{:gap$}{facts}", "")),
    ]];
    if let Some(excerpt) = &item.excerpt {
        let text = shorten(&drawable(excerpt), width.saturating_sub(4));
        rows.push(vec![(Tone::Faint, format!("    {text}"))]);
    }
    rows
}
