//! Pages over the screen: a frame with rows that scroll. The help is printed from the tables of keys and commands.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, BorderType, Clear, Padding};

use crate::msg::PromptPiece;
use crate::sanitize::clean;
use crate::tui::commands::COMMANDS;
use crate::tui::keymap::{Preset, TYPED, sections};
use crate::tui::markdown;
use crate::tui::page::{Compared, ContextMap, Page, PageKind};
use crate::tui::state::State;
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::{Row, figures};
use crate::tui::vim;
use crate::tui::wrap::{display_width, drawable, shorten, wrap_line};

use super::{line, owned_line};

const MAX_WIDTH: u16 = 92;
/// Frame and padding on both sides.
const FRAME_COLUMNS: u16 = 4;

pub fn draw(frame: &mut Frame, state: &State, page: &Page, theme: Theme) {
    let area = area(state.room(), page);
    let rows = rows(state, page, text_width(area));
    let height = usize::from(inner_height(area));
    let top = page.top.min(rows.len().saturating_sub(height));
    let room = usize::from(area.width.saturating_sub(4));
    let mut hints = vec![];
    if rows.len() > height {
        hints.push("Up/Down scroll");
    }
    match &page.what {
        PageKind::Compare(compared) if compared.answers.len() > 2 => {
            hints.extend(["Left/Right another one", "Enter goes on with the right one"]);
        }
        PageKind::Compare(_) => hints.push("Enter goes on with the right one"),
        PageKind::Context(_) => hints.push("/drop N leaves a message out"),
        PageKind::Help | PageKind::Keys | PageKind::Prompt(_) => {}
    }
    hints.push("Esc closes");
    let hint = (0..hints.len())
        .map(|skip| format!(" {} ", hints[skip..].join(" · ")))
        .find(|hint| display_width(hint) <= room);
    let title = match page.what {
        PageKind::Help | PageKind::Keys => " Help ",
        PageKind::Context(_) => " What fills the context ",
        PageKind::Prompt(_) => " What the model reads ",
        PageKind::Compare(_) => " Two answers ",
    };
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.style(Tone::Faint))
        .padding(Padding::horizontal(1))
        .title(owned_line(vec![(Tone::Brand, shorten(title, room))], theme))
        .title_bottom(owned_line(vec![(Tone::Faint, hint.unwrap_or_default())], theme));
    let inner = block.inner(area);
    frame.render_widget(Clear, state.room());
    frame.render_widget(block, area);
    for (row, y) in rows.iter().skip(top).zip(inner.y..inner.bottom()) {
        frame.render_widget(line(row, theme), Rect { y, height: 1, ..inner });
    }
}

/// The furthest row that may be at the top.
pub fn last_top(state: &State) -> usize {
    let Some(page) = &state.page else { return 0 };
    let area = area(state.room(), page);
    rows(state, page, text_width(area)).len().saturating_sub(usize::from(inner_height(area)))
}

fn area(room: Rect, page: &Page) -> Rect {
    let width = match page.what {
        PageKind::Compare(_) => room.width,
        _ => room.width.min(MAX_WIDTH),
    };
    Rect { x: room.x + (room.width - width) / 2, width, ..room }
}

fn inner_height(area: Rect) -> u16 {
    area.height.saturating_sub(2)
}

fn text_width(area: Rect) -> usize {
    usize::from(area.width.saturating_sub(FRAME_COLUMNS)).max(1)
}

/// What is on a page, for so many columns.
pub fn rows(state: &State, page: &Page, width: usize) -> Vec<Row> {
    match &page.what {
        PageKind::Help => help(state, true, width),
        PageKind::Keys => help(state, false, width),
        PageKind::Context(map) => context(map, width),
        PageKind::Prompt(pieces) => prompt(pieces, width),
        PageKind::Compare(compared) => compare(state, compared, width),
    }
}

fn help(state: &State, with_commands: bool, width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for section in sections() {
        heading(section.title, &mut rows);
        for (idx, binding) in section.bindings() {
            // The first two say it; `docs/keys.md` has all.
            item(&state.keymap.label(idx, 2), binding.help, width, &mut rows);
        }
    }
    if state.keymap.preset == Preset::Vim {
        heading("Normal mode", &mut rows);
        vim::HELP.iter().for_each(|(keys, help)| item(keys, help, width, &mut rows));
    }
    if with_commands {
        heading("Commands", &mut rows);
        for spec in COMMANDS {
            item(&format!("/{} {}", spec.name, spec.arguments), spec.help, width, &mut rows);
        }
        TYPED.iter().for_each(|(keys, help)| item(keys, help, width, &mut rows));
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

/// A bar for each message, as long as its share of the context.
fn context(map: &ContextMap, width: usize) -> Vec<Row> {
    const BAR: usize = 20;
    let (total, limit) = (map.total(), map.limit.max(1));
    let free = limit.saturating_sub(total);
    let cells = width.min(60);
    let full = (total * cells).div_ceil(limit).min(cells);
    let mut rows = vec![
        vec![(Tone::Active, "▰".repeat(full)), (Tone::Faint, "▱".repeat(cells - full))],
        vec![
            (Tone::Strong, format!("{total} of {limit} tokens")),
            (Tone::Faint, format!(" · {} % · {free} left for answers", total * 100 / limit)),
        ],
        Row::new(),
    ];
    let largest = map.parts.iter().map(|part| part.tokens()).max().unwrap_or(1).max(1);
    let whos = map.parts.iter().map(|part| display_width(&part.who)).max().unwrap_or(0);
    let bar_width = if width >= 60 { BAR } else { 0 };
    for part in &map.parts {
        let bar = (part.tokens() * bar_width).div_ceil(largest);
        let pictures = match part.picture_tokens {
            0 => String::new(),
            n => format!("  {n} of them pictures"),
        };
        let gap = whos - display_width(&part.who);
        let head = format!("{}{}  {:>6}  ", part.who, " ".repeat(gap), part.tokens());
        let bar = format!("{}{}", "█".repeat(bar), " ".repeat(bar_width - bar));
        let used = display_width(&head) + bar_width + display_width(&pictures);
        let text = shorten(&drawable(&part.beginning), width.saturating_sub(used + 2));
        rows.push(vec![
            (Tone::Text, head),
            (Tone::Active, bar),
            (Tone::Faint, format!("  {text}")),
            (Tone::Faint, pictures),
        ]);
    }
    rows
}

fn prompt(pieces: &[PromptPiece], width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for piece in pieces {
        rows.push(vec![(Tone::Faint, format!("── {} tok ", piece.tokens))]);
        for text in clean(&piece.text).lines() {
            rows.extend(
                wrap_line(text, width)
                    .into_iter()
                    .map(|range| vec![(Tone::Text, drawable(text[range].trim_end()))]),
            );
        }
    }
    rows
}

/// Two columns; on a narrow screen one below the other.
fn compare(state: &State, compared: &Compared, width: usize) -> Vec<Row> {
    let beside = width >= 60;
    let columns = if beside { (width - 3) / 2 } else { width };
    let column = |at: usize| -> Vec<Row> {
        let Some(node) = compared.answers.get(at).and_then(|id| state.chat.node(*id)) else {
            return Vec::new();
        };
        let head = format!("Answer {} of {}", at + 1, compared.answers.len());
        let mut rows = vec![vec![(Tone::Assistant, head)]];
        if let Some(answered) = &node.answered {
            let stats = (&answered.figures).into();
            let mut facts = vec![answered.model.clone()];
            facts.extend(figures(&stats));
            facts.push(format!("seed {}", answered.figures.seed));
            rows.push(vec![(Tone::Faint, shorten(&clean(&facts.join(" · ")), columns))]);
        }
        rows.push(Row::new());
        let text = clean(node.message.plain_text().trim());
        let before = rows.len();
        markdown::render(&text, Default::default(), columns, before, 0, &state.highlights, &mut rows);
        rows
    };
    let (left, mut right) = (column(compared.left), column(compared.right));
    if !beside {
        let mut rows = left;
        rows.push(Row::new());
        rows.append(&mut right);
        return rows;
    }
    let n_rows = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    let mut rows = Vec::with_capacity(n_rows);
    for _ in 0..n_rows {
        let mut row = left.next().unwrap_or_default();
        let used: usize = row.iter().map(|(_, text)| display_width(text)).sum();
        row.push((Tone::Text, " ".repeat(columns.saturating_sub(used))));
        row.push((Tone::Faint, " │ ".to_owned()));
        row.extend(right.next().unwrap_or_default());
        rows.push(row);
    }
    rows
}
