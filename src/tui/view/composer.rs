//! The draft with its frame, caret and hints, and the commands that fit what is being typed.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::widgets::{Block, BorderType, Clear, Padding};

use crate::tui::commands;
use crate::tui::layout::Areas;
use crate::tui::state::State;
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::Row;
use crate::tui::wrap::{display_width, drawable, shorten};

use super::owned_line;

pub fn draw(frame: &mut Frame, state: &State, theme: Theme, areas: Areas) {
    let area = areas.composer;
    let inner = if areas.framed {
        let block = Block::bordered()
            .border_type(BorderType::Rounded)
            .border_style(theme.style(Tone::Faint))
            .padding(Padding::horizontal(1))
            .title_bottom(owned_line(hints(state, usize::from(area.width)), theme));
        let inner = block.inner(area);
        frame.render_widget(block, area);
        inner
    } else {
        frame.render_widget(
            owned_line(vec![(Tone::Active, "›".to_owned())], theme),
            Rect { height: 1, ..area },
        );
        Rect { x: area.x + 2, width: area.width - 2, ..area }
    };
    let view = state.composer.view(usize::from(inner.height));
    if state.composer.is_empty() {
        let text = if state.active.is_some() { "Write the next message…" } else { "Write a message…" };
        frame.render_widget(
            owned_line(vec![(Tone::Faint, shorten(text, usize::from(inner.width)))], theme),
            inner,
        );
    }
    for (text, y) in view.rows.into_iter().zip(inner.y..inner.bottom()) {
        frame.render_widget(
            owned_line(vec![(Tone::Text, drawable(&text))], theme),
            Rect { y, height: 1, ..inner },
        );
    }
    if areas.framed {
        draw_overflow_marks(frame, theme, area, view.hidden_above, view.hidden_below);
    }
    if state.help.is_none() && state.picker.is_none() {
        let (row, column) = view.caret;
        frame.set_cursor_position(Position { x: inner.x + column as u16, y: inner.y + row as u16 });
    }
}

/// A list just above the draft, while the name of a command is being typed.
pub fn draw_matching_commands(frame: &mut Frame, state: &State, theme: Theme, areas: Areas) {
    let specs = commands::matching(&state.composer.text());
    let room = areas.status.y.saturating_sub(areas.transcript.y);
    let n_rows = (specs.len() as u16).min(room);
    if n_rows == 0 {
        return;
    }
    let area = Rect { y: areas.status.y - n_rows, height: n_rows, ..areas.transcript };
    frame.render_widget(Clear, area);
    for (spec, y) in specs.into_iter().zip(area.y..area.bottom()) {
        let usage = format!("/{} {}", spec.name, spec.arguments);
        let help = shorten(spec.help, usize::from(area.width).saturating_sub(22));
        let row = vec![(Tone::Key, format!("  {usage:<19}")), (Tone::Faint, format!(" {help}"))];
        frame.render_widget(owned_line(row, theme), Rect { y, height: 1, ..area });
    }
}

/// The hints that fit on the lower edge of the frame, most needed first.
fn hints(state: &State, width: usize) -> Row {
    let enter = if state.active.is_some() { "queue" } else { "send" };
    let pictures = if state.sees() { Some(("Ctrl+O", "picture")) } else { None };
    let all = [("Enter", enter), ("Alt+Enter", "newline"), ("/", "commands")];
    let all = all.into_iter().chain(pictures).chain([("F1", "help")]);
    let mut row = Row::new();
    let mut used = 4;
    for (key, does) in all {
        let separator = if row.is_empty() { " " } else { " · " };
        used += display_width(separator) + key.len() + 1 + does.len();
        if used > width {
            break;
        }
        row.push((Tone::Faint, separator.to_owned()));
        row.push((Tone::Key, key.to_owned()));
        row.push((Tone::Faint, format!(" {does}")));
    }
    if !row.is_empty() {
        row.push((Tone::Faint, " ".to_owned()));
    }
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
