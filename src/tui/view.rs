//! Draws the state. Every part is a function of the state and the theme; nothing is decided here.

pub mod help;

mod chat;
mod composer;
mod header;
mod status;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::state::State;
use super::theme::{Theme, Tone};
use super::transcript::Row;

/// Draws the whole screen. The state must have been laid out for this size.
pub fn draw(frame: &mut Frame, state: &State, theme: Theme) {
    // The terminal may have another size than the state heard of: a resize is still on its way.
    let screen = frame.area();
    let Some(areas) = state.areas().filter(|_| screen.width >= state.width && screen.height >= state.height)
    else {
        frame.render_widget(Line::styled("too small", theme.style(Tone::Warning)), first_row(screen));
        return;
    };
    header::draw(frame, state, theme, areas.header);
    if let Some(rule) = areas.rule {
        frame
            .render_widget(Line::styled("─".repeat(usize::from(rule.width)), theme.style(Tone::Faint)), rule);
    }
    chat::draw(frame, state, theme, areas.transcript);
    status::draw(frame, state, theme, areas.status);
    if let Some(queue) = areas.queue {
        status::draw_queue(frame, state, theme, queue);
    }
    composer::draw(frame, state, theme, areas);
    if let Some(open) = state.help {
        help::draw(frame, open, theme);
    } else {
        composer::draw_matching_commands(frame, state, theme, areas);
    }
}

fn first_row(area: Rect) -> Rect {
    Rect { height: area.height.min(1), ..area }
}

fn line(row: &Row, theme: Theme) -> Line<'_> {
    row.iter().map(|(tone, text)| Span::styled(text.as_str(), theme.style(*tone))).collect()
}

fn owned_line(row: Row, theme: Theme) -> Line<'static> {
    row.into_iter().map(|(tone, text)| Span::styled(text, theme.style(tone))).collect()
}
