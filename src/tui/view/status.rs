//! The lines between the transcript and the draft: what is going on, and what waits.

use ratatui::Frame;
use ratatui::layout::Rect;

use crate::chat::Channel;
use crate::sanitize::one_line;
use crate::tui::layout::WIDE;
use crate::tui::state::{Model, Scroll, State, frame_idx};
use crate::tui::theme::{Theme, Tone};
use crate::tui::transcript::{Answer, Entry, Phase, Row};
use crate::tui::wrap::{display_width, shorten};

use super::owned_line;

const BUSY: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

pub fn draw(frame: &mut Frame, state: &State, theme: Theme, area: Rect) {
    let width = usize::from(area.width);
    let below = below(state);
    let below_width = below.as_ref().map_or(0, |(_, text)| display_width(text) + 2);
    let room = width.saturating_sub(2 + below_width);
    let mut row: Row = vec![(Tone::Text, " ".to_owned())];
    let mut used = 0;
    for (tone, text) in left(state) {
        let text = shorten(&text, room.saturating_sub(used));
        used += display_width(&text);
        row.push((tone, text));
    }
    if let Some(below) = below {
        let gap = width.saturating_sub(used + below_width);
        row.push((Tone::Text, " ".repeat(gap)));
        row.push(below);
    }
    frame.render_widget(owned_line(row, theme), area);
}

pub fn draw_queue(frame: &mut Frame, state: &State, theme: Theme, area: Rect) {
    let Some(last) = state.queue.back() else { return };
    let hint = if state.composer.is_empty() && area.width >= WIDE { "Up edits it" } else { "" };
    let head = format!(" queue {}: ", state.queue.len());
    let room = usize::from(area.width).saturating_sub(display_width(&head) + display_width(hint) + 4);
    // A queued message may be megabytes long; a row shows its beginning.
    let pictures = match last.attached.len() {
        0 => String::new(),
        1 => " +1 picture".to_owned(),
        n => format!(" +{n} pictures"),
    };
    let room = room.saturating_sub(display_width(&pictures));
    let beginning: String = last.text.chars().take(room).collect();
    let cut = if beginning.len() < last.text.len() { "…" } else { "" };
    let text = beginning.replace(['\n', '\t'], " ");
    let text = format!("\"{}\"{pictures}", shorten(&format!("{text}{cut}"), room));
    let gap = (usize::from(area.width))
        .saturating_sub(display_width(&head) + display_width(&text) + hint.len() + 1);
    let row = vec![
        (Tone::Active, head),
        (Tone::Text, text),
        (Tone::Text, " ".repeat(gap)),
        (Tone::Faint, hint.to_owned()),
    ];
    frame.render_widget(owned_line(row, theme), area);
}

/// The mark that there is more below what is in sight.
fn below(state: &State) -> Option<(Tone, String)> {
    let (tone, text) = match state.scroll {
        Scroll::Follow => return None,
        Scroll::At { .. } if state.new_below => (Tone::Active, "↓ new below"),
        Scroll::At { .. } => (Tone::Faint, "↓ more below"),
    };
    let key = if state.width >= WIDE { " · End" } else { "" };
    Some((tone, format!("{text}{key}")))
}

fn left(state: &State) -> Row {
    if state.copies {
        return vec![(Tone::Active, "Copy: a digit is that code block, y the last answer".to_owned())];
    }
    if let Some(notice) = &state.notice {
        return vec![(notice.tone, notice.text.clone())];
    }
    if let Some(compacting) = &state.compacting {
        let stopping = state.active.is_some_and(|active| active.stopping);
        return busy(state, &format!("summing up · {} tok", compacting.n_tokens), stopping);
    }
    if let Some(active) = state.active {
        let answer = state.transcript.entries().rev().find_map(|entry| match entry {
            Entry::Answer(answer) if answer.turn == active.turn => Some(answer),
            _ => None,
        });
        if let Some(answer) = answer {
            return busy(state, &doing(answer, active.stopping), active.stopping);
        }
    }
    match &state.model {
        Model::Loading => busy(
            state,
            &format!("loading the model · {} s", (state.now.saturating_sub(state.loading_since)).as_secs()),
            true,
        ),
        Model::Failed => vec![(Tone::Error, "no model".to_owned())],
        // The list has it already.
        Model::Ready(_) if state.models.open.is_some() => vec![(Tone::Faint, idle(state))],
        Model::Ready(_) => match state.models.download_line() {
            Some(line) => vec![(Tone::Active, line), (Tone::Faint, " · /model".to_owned())],
            None => vec![(Tone::Faint, idle(state))],
        },
    }
}

fn busy(state: &State, text: &str, final_word: bool) -> Row {
    let mark = BUSY[frame_idx(state.now) as usize % BUSY.len()];
    let mut row = vec![(Tone::Active, format!("{mark} ")), (Tone::Faint, text.to_owned())];
    if !final_word && state.width >= WIDE {
        row.push((Tone::Faint, " · Esc stops".to_owned()));
    }
    row
}

fn doing(answer: &Answer, stopping: bool) -> String {
    if stopping {
        return "stopping".to_owned();
    }
    match answer.phase {
        Phase::Waiting => "waiting for the model".to_owned(),
        Phase::Looking { picture, pictures, percent } => {
            format!("looking at picture {picture} of {pictures} · {percent} %")
        }
        Phase::Reading { done, total } => format!("reading prompt {done}/{total}"),
        Phase::Writing(channel) => {
            let word = match channel {
                Channel::Thinking => "thinking",
                Channel::Answer => "answering",
            };
            let speed = answer.stats.tokens_per_second().map(|speed| format!(" · {speed:.1} tok/s"));
            format!("{word}{} · {} tok", speed.unwrap_or_default(), answer.stats.completion_tokens)
        }
        Phase::Ended(_) => String::new(),
    }
}

/// What will hold for the next message.
fn idle(state: &State) -> String {
    let thinking = match state.options.max_thinking {
        Some(most) => format!("thinking up to {most}"),
        None if state.thinks() => "thinking on".to_owned(),
        None => "thinking off".to_owned(),
    };
    let mut parts = vec!["ready".to_owned(), thinking];
    if let Some(number) = state.editing.and_then(|node| state.transcript.number_of(node)) {
        parts.insert(0, format!("editing [{number}]"));
    }
    match &state.persona {
        Some(name) => parts.push(format!("persona {}", one_line(name))),
        None if state.chat.system.is_some() => parts.push("system prompt".to_owned()),
        None => {}
    }
    parts.extend(state.schema.as_ref().map(|name| format!("schema {}", one_line(name))));
    if state.chat.summary.is_some() {
        parts.push("summed up".to_owned());
    }
    match state.stash.len() {
        0 => {}
        1 => parts.push("1 draft put aside".to_owned()),
        n => parts.push(format!("{n} drafts put aside")),
    }
    if let Some(mtp) = state.options.mtp {
        parts.push(format!("mtp {mtp}"));
    }
    for (name, value) in crate::tui::commands::values(&state.options) {
        parts.extend(value.map(|value| format!("{name} {value}")));
    }
    parts.join(" · ")
}
