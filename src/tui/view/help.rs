//! The help screen, printed from the tables of keys and commands.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, BorderType, Clear, Padding};

use crate::tui::commands::COMMANDS;
use crate::tui::keymap::{BINDINGS, EDITING};
use crate::tui::state::{Help, HelpPage};
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::Row;
use crate::tui::wrap::wrap_line;

use super::{line, owned_line};

const MAX_WIDTH: u16 = 84;
/// Frame and padding on both sides.
const FRAME_COLUMNS: u16 = 4;

pub fn draw(frame: &mut Frame, help: Help, theme: Theme) {
    let area = area(frame.area());
    let rows = rows(help.page, area.width);
    let height = usize::from(inner_height(area));
    let top = help.top.min(rows.len().saturating_sub(height));
    let more = if rows.len() > height { " Up/Down scroll · Esc closes " } else { " Esc closes " };
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.style(Tone::Faint))
        .padding(Padding::horizontal(1))
        .title(owned_line(vec![(Tone::Brand, " Help ".to_owned())], theme))
        .title_bottom(owned_line(vec![(Tone::Faint, more.to_owned())], theme));
    let inner = block.inner(area);
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
    for (row, y) in rows.iter().skip(top).zip(inner.y..inner.bottom()) {
        frame.render_widget(line(row, theme), Rect { y, height: 1, ..inner });
    }
}

/// The furthest row that may be at the top, on a screen of this size.
pub fn last_top(page: HelpPage, width: u16, height: u16) -> usize {
    let area = area(Rect { x: 0, y: 0, width, height });
    rows(page, area.width).len().saturating_sub(usize::from(inner_height(area)))
}

fn area(screen: Rect) -> Rect {
    let width = screen.width.min(MAX_WIDTH);
    let margin = if screen.height >= 20 { 1 } else { 0 };
    Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + margin,
        width,
        height: screen.height.saturating_sub(2 * margin),
    }
}

fn inner_height(area: Rect) -> u16 {
    area.height.saturating_sub(2)
}

fn rows(page: HelpPage, width: u16) -> Vec<Row> {
    let width = usize::from(width.saturating_sub(FRAME_COLUMNS));
    let mut rows = Vec::new();
    heading("Keys", &mut rows);
    for binding in BINDINGS {
        item(binding.label, binding.help, width, &mut rows);
    }
    heading("In the draft", &mut rows);
    for (keys, help) in EDITING {
        item(keys, help, width, &mut rows);
    }
    if page == HelpPage::All {
        heading("Commands", &mut rows);
        for spec in COMMANDS {
            item(&format!("/{} {}", spec.name, spec.arguments), spec.help, width, &mut rows);
        }
        item("//text", "sends /text as a message", width, &mut rows);
    }
    rows
}

fn heading(text: &str, rows: &mut Vec<Row>) {
    if !rows.is_empty() {
        rows.push(Row::new());
    }
    rows.push(vec![(Tone::Brand, text.to_owned())]);
}

/// Names on the left, explanations on the right; one below the other where there is no room for both.
fn item(name: &str, help: &str, width: usize, rows: &mut Vec<Row>) {
    const NAMES: usize = 29;
    let beside = width >= 60;
    let margin = if beside { NAMES } else { 2 };
    let mut left = if beside { format!("{name:<NAMES$}") } else { name.to_owned() };
    if !beside {
        rows.push(vec![(Tone::Key, std::mem::take(&mut left))]);
    }
    for range in wrap_line(help, width.saturating_sub(margin).max(1)) {
        let text = (Tone::Text, help[range].trim_end().to_owned());
        let left = std::mem::take(&mut left);
        rows.push(vec![(Tone::Key, format!("{left:<margin$}")), text]);
    }
}
