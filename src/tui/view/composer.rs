//! The draft with its frame, caret and hints.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::widgets::{Block, BorderType};

use crate::tui::keymap::Action;
use crate::tui::layout::Areas;
use crate::tui::state::{Focus, State};
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::Row;
use crate::tui::vim::Mode;
use crate::tui::wrap::{display_width, drawable, shorten};

use super::owned_line;

pub fn draw(frame: &mut Frame, state: &State, theme: Theme, areas: Areas) {
    let (area, inner) = (areas.composer, areas.draft());
    if areas.framed {
        let mode = match &state.vim {
            Some(vim) if vim.mode == Mode::Normal => " NORMAL ",
            Some(_) => " INSERT ",
            None => "",
        };
        let block = Block::bordered()
            .border_type(BorderType::Rounded)
            .border_style(theme.style(Tone::Faint))
            .title_top(owned_line(vec![(Tone::Active, mode.to_owned())], theme).right_aligned())
            .title_bottom(owned_line(hints(state, usize::from(area.width)), theme));
        frame.render_widget(block, area);
    } else {
        frame.render_widget(
            owned_line(vec![(Tone::Active, "›".to_owned())], theme),
            Rect { height: 1, ..area },
        );
    }
    let view = state.composer.view(usize::from(inner.height));
    if state.composer.is_empty() {
        let text = if state.active.is_some() { "Write the next message…" } else { "Write a message…" };
        frame.render_widget(
            owned_line(vec![(Tone::Faint, shorten(text, usize::from(inner.width)))], theme),
            inner,
        );
    }
    for (text, y) in view.rows.into_iter().zip(inner.y..inner.bottom()) {
        let row =
            if state.composer.has_folds() { with_folds(&text) } else { vec![(Tone::Text, drawable(&text))] };
        frame.render_widget(owned_line(row, theme), Rect { y, height: 1, ..inner });
    }
    if areas.framed {
        draw_overflow_marks(frame, theme, area, view.hidden_above, view.hidden_below);
    }
    if state.page.is_none() && state.picker.is_none() && state.focus == Focus::Draft {
        let (row, column) = view.caret;
        frame.set_cursor_position(Position { x: inner.x + column as u16, y: inner.y + row as u16 });
    }
}

/// The hints that fit on the lower edge of the frame, most needed first.
fn hints(state: &State, width: usize) -> Row {
    let key = |action| state.keymap.hint(action);
    let enter = if state.active.is_some() { "queue" } else { "send" };
    let all = match state.focus {
        Focus::Draft => {
            let pictures = state.sees().then(|| (key(Action::PickFile), "picture"));
            let all =
                [(key(Action::Send), enter), (key(Action::Newline), "newline"), ("/".into(), "commands")];
            let all = all.into_iter().chain(pictures).chain([(key(Action::Help), "help")]);
            all.collect::<Vec<_>>()
        }
        Focus::Transcript => vec![
            (key(Action::FocusDraft), "write"),
            (key(Action::LineUp), "back"),
            (key(Action::LineDown), "forward"),
            (key(Action::Copy), "copy"),
        ],
    };
    let all = all.into_iter().filter(|(key, _)| !key.is_empty());
    let mut row = Row::new();
    let mut used = 4;
    for (key, does) in all {
        let separator = if row.is_empty() { " " } else { " · " };
        used += display_width(separator) + key.len() + 1 + does.len();
        if used > width {
            break;
        }
        row.push((Tone::Faint, separator.to_owned()));
        row.push((Tone::Key, key));
        row.push((Tone::Faint, format!(" {does}")));
    }
    if !row.is_empty() {
        row.push((Tone::Faint, " ".to_owned()));
    }
    row
}

/// Labels of folded pastes stand out.
fn with_folds(text: &str) -> Row {
    let mut row = Row::new();
    let mut rest = text;
    while let Some(start) = rest.find("[Pasted ") {
        let end = rest[start..].find(']').map_or(rest.len(), |end| start + end + 1);
        row.push((Tone::Text, drawable(&rest[..start])));
        row.push((Tone::Key, rest[start..end].to_owned()));
        rest = &rest[end..];
    }
    row.push((Tone::Text, drawable(rest)));
    row
}

fn draw_overflow_marks(frame: &mut Frame, theme: Theme, area: Rect, above: bool, below: bool) {
    let mark = |text: &str| owned_line(vec![(Tone::Active, text.to_owned())], theme);
    let x = area.right() - 3;
    if above {
        frame.render_widget(mark("↑"), Rect { x, y: area.y, width: 1, height: 1 });
    }
    if below {
        frame.render_widget(mark("↓"), Rect { x, y: area.bottom() - 1, width: 1, height: 1 });
    }
}
