//! Draws the state. Every part is a function of the state and the theme; nothing is decided here.

pub mod page;

mod attached;
mod chat;
mod composer;
mod drafts;
mod header;
mod list;
mod models;
mod picker;
mod status;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::pictures::preview::Preview;
use super::state::State;
use super::theme::{Theme, Tone};
use super::transcript::Row;

/// Draws the whole screen. The state must have been laid out for this size.
pub fn draw(frame: &mut Frame, state: &State, theme: Theme) {
    // The terminal may have another size than the state heard of: a resize is still on its way.
    let screen = frame.area();
    let areas =
        state.areas().filter(|areas| screen.width >= state.width && screen.height >= areas.composer.bottom());
    let Some(areas) = areas else {
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
    if let Some(spec) = areas.spec {
        drafts::draw(frame, state, theme, spec);
    }
    if let Some(queue) = areas.queue {
        status::draw_queue(frame, state, theme, queue);
    }
    if let Some(chips) = areas.chips {
        attached::draw(frame, state, theme, chips);
    }
    composer::draw(frame, state, theme, areas);
    if let Some(open) = &state.page {
        page::draw(frame, state, open, theme);
    } else if let Some(open) = &state.list {
        list::draw(frame, state, open, theme);
    } else if let Some(open) = &state.picker {
        picker::draw(frame, state, open, theme);
    } else if let Some(open) = &state.models.open {
        models::draw(frame, state, open, theme, areas.transcript);
    } else if let Some(completion) = &state.completion {
        attached::draw_completion(frame, theme, completion, areas);
    }
}

/// Pictures in sight, by the row where they begin, for terminals that draw them outside of the cells.
pub fn pixels(state: &State) -> Vec<(i32, Preview)> {
    let in_picker =
        state.picker.as_ref().and_then(|picker| match &picker.look_at(&picker.current()?.path)?.seen {
            Ok(seen) => seen.preview.clone(),
            Err(_) => None,
        });
    if state.picker.is_some() {
        return in_picker.map(|preview| (0, preview)).into_iter().collect();
    }
    match state.areas() {
        Some(areas) if !is_covered(state) => {
            let height = usize::from(areas.transcript.height);
            let previews = state.transcript.previews(state.top_row(height), height);
            let from_top = |y| i32::from(areas.transcript.y) + y;
            previews.into_iter().map(|(y, preview)| (from_top(y), preview.clone())).collect()
        }
        _ => Vec::new(),
    }
}

/// Something is drawn over the transcript. Pixels outside of the cells would show through it, and what it leaves
/// behind would stay on them.
fn is_covered(state: &State) -> bool {
    state.has_overlay() || state.completion.as_ref().is_some_and(|it| it.searching || !it.matches.is_empty())
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
