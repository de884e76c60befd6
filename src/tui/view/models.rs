//! The list of models, over the chat: what this machine has, what there is to choose, and the download.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::widgets::{Block, BorderType, Clear, Padding};

use crate::tui::models::{Choice, DownloadState, Line, ModelAreas, ModelList, Models};
use crate::tui::state::State;
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::Row;
use crate::tui::wrap::{display_width, shorten};
use crate::units::ByteSize;

use super::owned_line;

pub fn draw(frame: &mut Frame, state: &State, list: &ModelList, theme: Theme, transcript: Rect) {
    let Some(areas) = ModelAreas::new(transcript, state.note_rows()) else { return };
    let lines = state.models.lines();
    let selected = state.models.selected_idx();
    draw_frame(frame, state, list, theme, areas.frame, lines.get(selected));
    let width = usize::from(areas.list.width);
    let facts = shorten(&facts(&state.models), width);
    frame.render_widget(owned_line(vec![(Tone::Faint, facts)], theme), areas.facts);
    draw_filter(frame, list, theme, areas.filter);

    let height = usize::from(areas.list.height);
    let details = lines.get(selected).filter(|_| list.shows_details).map(details).unwrap_or_default();
    let list_height = height.saturating_sub(details.len()).max(1);
    // The cursor stays in the middle, as far as there is something around it.
    let first = selected.saturating_sub(list_height / 2).min(lines.len().saturating_sub(list_height));
    let rows = lines.iter().enumerate().skip(first).take(list_height);
    let names =
        lines.iter().filter(|line| matches!(line, Line::Model(_))).map(|line| display_width(line.name()));
    let longest = names.max().unwrap_or(0);
    let rows = rows.map(|(idx, line)| row(line, idx == selected, width, longest));
    let details = details.into_iter().map(|text| vec![(Tone::Faint, shorten(&text, width))]);
    for (row, y) in rows.chain(details).zip(areas.list.y..areas.list.bottom()) {
        frame.render_widget(owned_line(row, theme), Rect { y, height: 1, ..areas.list });
    }
    if let Some((tone, text)) = bottom(state) {
        frame.render_widget(owned_line(vec![(tone, shorten(&text, width))], theme), areas.bottom);
    }
}

fn draw_frame(
    frame: &mut Frame,
    state: &State,
    list: &ModelList,
    theme: Theme,
    area: Rect,
    line: Option<&Line>,
) {
    let room = usize::from(area.width.saturating_sub(4));
    let title =
        if list.is_welcome { " Welcome to Loquat: choose a model, or just type " } else { " Models " };
    let running = state.models.download.as_ref().filter(|it| it.state == DownloadState::Running);
    let is_running = |name: &str| running.is_some_and(|it| it.name == name);
    let enter = match line {
        Some(Line::Model(choice)) if choice.is_here() => "Enter uses it",
        Some(Line::Search(_)) => "Enter searches",
        Some(line) if is_running(line.name()) => "Enter pauses",
        _ => "Enter downloads",
    };
    let esc = match (list.is_welcome, running.is_some()) {
        (_, true) => "Del cancels · Esc: go on in the background",
        (true, false) => "Esc or typing: chat with the built-in demo model",
        (false, false) => "Esc closes",
    };
    let hints = [
        format!(" {enter} · Tab details · F3 context · F4 folder · {esc} "),
        format!(" {enter} · Tab details · {esc} "),
        format!(" {enter} · Esc closes "),
        String::new(),
    ];
    let hint = hints.into_iter().find(|hint| display_width(hint) <= room).unwrap_or_default();
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.style(Tone::Faint))
        .padding(Padding::horizontal(1))
        .title(owned_line(vec![(Tone::Brand, shorten(title, room))], theme))
        .title_bottom(owned_line(vec![(Tone::Faint, hint)], theme));
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
}

fn facts(models: &Models) -> String {
    let Some(machine) = &models.machine else { return "looking at this machine…".into() };
    let mut facts = Vec::new();
    let speed = machine.bandwidth_bytes.map(|bytes| format!(", read at {}/s", ByteSize(bytes)));
    let speed = speed.unwrap_or_default();
    facts.extend(machine.memory_bytes.map(|bytes| format!("{} of memory free{speed}", ByteSize(bytes))));
    facts.extend(machine.disk_bytes.map(|bytes| format!("{} of disk free", ByteSize(bytes))));
    facts.extend(machine.folder.as_ref().map(|folder| format!("models in {folder}")));
    facts.extend(models.context_tokens.map(|tokens| format!("context {tokens}")));
    if machine.offline {
        facts.insert(0, "offline".into());
    }
    facts.join(" · ")
}

fn draw_filter(frame: &mut Frame, list: &ModelList, theme: Theme, area: Rect) {
    if list.is_welcome {
        let text = "Nothing you write leaves this machine. Only what concerns models is asked of the Hub.";
        let row = vec![(Tone::Faint, shorten(text, usize::from(area.width)))];
        return frame.render_widget(owned_line(row, theme), area);
    }
    let room = usize::from(area.width).saturating_sub(3);
    let text = match list.filter.is_empty() {
        true => (Tone::Faint, shorten("type to search, or any OWNER/NAME of the Hub", room)),
        false => (Tone::Text, shorten(&list.filter, room)),
    };
    let caret = area.x + 2 + display_width(&shorten(&list.filter, room)) as u16;
    frame.render_widget(owned_line(vec![(Tone::Active, "› ".to_owned()), text], theme), area);
    frame.set_cursor_position(Position { x: caret.min(area.right().saturating_sub(1)), y: area.y });
}

fn row(line: &Line, is_selected: bool, width: usize, longest: usize) -> Row {
    let mark = if is_selected { "› " } else { "  " };
    let tone = if is_selected { Tone::Selected } else { Tone::Text };
    let room = width.saturating_sub(2);
    let (name, rest) = match line {
        Line::Search(words) => (format!("search the Hub for {words}"), String::new()),
        Line::Named(name) => ((*name).to_owned(), "on the Hub, if it is there".into()),
        Line::Model(choice) => (choice.row.name.clone(), about(choice)),
    };
    let name_width = (room * 2 / 5).min(longest.max(24)).max(12).min(room);
    let name = shorten(&name, name_width);
    let gap = name_width.saturating_sub(display_width(&name));
    let rest = shorten(&rest, room.saturating_sub(name_width + 1));
    vec![
        (Tone::Active, mark.to_owned()),
        (tone, name),
        (Tone::Text, " ".repeat(gap + 1)),
        (Tone::Faint, rest),
    ]
}

/// Where it is or how large, and whether it fits.
fn about(choice: &Choice) -> String {
    let place = match (&choice.row.store, choice.row.bytes) {
        (Some(store), _) if store == "Hub cache" => "here, 0 B to download".into(),
        (Some(store), _) => format!("here ({store}), 0 B to download"),
        (None, Some(bytes)) => ByteSize(bytes).to_string(),
        (None, None) => choice.row.about.clone(),
    };
    let parts = [place, choice.verdict()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

/// The sum behind the verdict.
fn details(line: &Line) -> Vec<String> {
    let Line::Model(choice) = line else { return Vec::new() };
    let mut rows = vec![choice.row.about.clone()];
    match &choice.judgement {
        Some(Ok(judged)) if !judged.terms.is_empty() => {
            let terms = judged.terms.iter().filter(|(_, bytes)| *bytes > 0);
            let terms: Vec<String> =
                terms.map(|(name, bytes)| format!("{name} {}", ByteSize(*bytes))).collect();
            let (needs, tokens) = (ByteSize(judged.needs_bytes), judged.context_tokens);
            rows.push(format!("with a context of {tokens} tokens it takes {needs} of memory:"));
            rows.extend(terms.chunks(3).map(|terms| terms.join(", ")));
        }
        Some(Ok(_)) => rows.push("a smaller one is too big already".into()),
        Some(Err(why)) => rows.push(why.clone()),
        None => {}
    }
    rows.retain(|row| !row.is_empty());
    rows
}

fn bottom(state: &State) -> Option<(Tone, String)> {
    let models = &state.models;
    let tone = match models.download.as_ref().map(|download| &download.state) {
        Some(DownloadState::Failed(_)) => Tone::Error,
        _ => Tone::Active,
    };
    match models.download_line() {
        Some(line) => Some((tone, line)),
        None => models.searched.clone().map(|text| (Tone::Faint, text)),
    }
}
