//! The transcript, or the welcome of an empty chat.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::tui::state::{Model, State};
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::Row;
use crate::tui::wrap::display_width;

use super::{line, owned_line};

/// Pictures stand below the text of their message.
const INDENT: u16 = 2;

pub fn draw(frame: &mut Frame, state: &State, theme: Theme, area: Rect) {
    let height = usize::from(area.height);
    let top = state.top_row(height);
    let mut n_drawn = 0;
    for (row, y) in state.transcript.rows(top, height).zip(area.y..) {
        frame.render_widget(line(row, theme), Rect { y, height: 1, ..area });
        n_drawn += 1;
    }
    if !(state.graphics.draws_outside_cells() && super::is_covered(state)) {
        let inner = Rect { x: area.x + INDENT, width: area.width.saturating_sub(INDENT), ..area };
        for (y, preview) in state.transcript.previews(top, height) {
            preview.draw(inner, y, frame.buffer_mut());
        }
    }
    if state.transcript.is_unused() && state.model != Model::Failed {
        draw_welcome(
            frame,
            theme,
            state.sees(),
            Rect { y: area.y + n_drawn, height: area.height - n_drawn, ..area },
        );
    }
}

fn draw_welcome(frame: &mut Frame, theme: Theme, sees: bool, area: Rect) {
    let hint =
        |key: &str, text: &str| vec![(Tone::Key, format!("{key:>9}")), (Tone::Faint, format!("  {text}"))];
    let mut hints = vec![
        hint("Enter", "sends your message"),
        hint("Esc", "stops and keeps an answer"),
        hint("/ or F1", "shows commands and keys"),
    ];
    if sees {
        hints.insert(1, hint("Ctrl+O", "attaches a picture"));
    }
    let mut rows: Vec<Row> = Vec::new();
    if usize::from(area.height) >= hints.len() + 4 {
        rows.push(vec![(Tone::Brand, "loquat".to_owned())]);
        rows.push(vec![(Tone::Faint, "Nothing you write leaves this machine.".to_owned())]);
        rows.push(Row::new());
    }
    let width_of = |row: &Row| row.iter().map(|(_, text)| display_width(text)).sum::<usize>();
    let hints_width = hints.iter().map(width_of).max().unwrap_or(0);
    let n_rows = rows.len() + hints.len();
    let top = area.y + area.height.saturating_sub(n_rows as u16) / 2;
    let centred = |width: usize| usize::from(area.width).saturating_sub(width) / 2;
    let hints_margin = centred(hints_width);
    let headings = rows.into_iter().map(|row| (centred(width_of(&row)), row));
    let lines = headings.chain(hints.into_iter().map(|row| (hints_margin, row)));
    for ((margin, row), y) in lines.zip(top..area.bottom()) {
        let mut centred: Line = owned_line(row, theme);
        centred.spans.insert(0, " ".repeat(margin).into());
        frame.render_widget(centred, Rect { y, height: 1, ..area });
    }
}
