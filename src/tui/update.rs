//! How the state changes: `(State, Msg) -> effects`, without clocks, files or channels.

mod attach;
mod compact;
mod compare;
mod completion;
mod copy;
mod examine;
pub mod history;
mod keys;
mod list;
mod models;
mod overflow;
mod picker;
mod session;
mod slash;
mod turns;

use std::time::Duration;

use ratatui::layout::Position;

use crate::msg::{Command, ConversationId};
use crate::sanitize;

use super::attach::{Draft, Kind};
use super::composer;
use super::effect::{Effect, Work};
use super::keymap::Action;
use super::msg::{Done, Msg};
use super::pictures::paths;
use super::state::{Focus, Model, Notice, Scroll, State, frame_idx};
use super::theme::Tone;

/// A slide of more rows would show nothing.
const MAX_SLIDE: isize = 200;

pub fn update(state: &mut State, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::Tick(now) => {
            tick(state, now);
            return Vec::new();
        }
        _ => state.dirty = true,
    }
    match msg {
        Msg::Tick(_) => Vec::new(),
        Msg::Key(key) => keys::key(state, key),
        Msg::Paste(text) => paste(state, text),
        Msg::Wheel(rows) if state.list.is_some() => {
            list::move_by(state, rows.signum());
            Vec::new()
        }
        Msg::Wheel(rows) if state.picker.is_some() => picker::move_by(state, rows.signum()),
        Msg::Wheel(rows) if state.models.open.is_some() => {
            state.models.move_by(rows.signum());
            Vec::new()
        }
        Msg::Wheel(rows) if state.page.is_some() => {
            keys::scroll_page(state, rows);
            Vec::new()
        }
        Msg::Wheel(rows) => {
            slide(state, rows);
            Vec::new()
        }
        Msg::Click { column, row } => click(state, column, row),
        Msg::Resize { width, height } => resize(state, width, height),
        Msg::Session(event) => session::event(state, event),
        Msg::SessionClosed => {
            session::closed(state);
            Vec::new()
        }
        // A terminal forgets the pictures of a screen that was left.
        Msg::Resumed => [vec![Effect::Redraw], attach::make_previews(state)].concat(),
        Msg::Graphics(graphics) if graphics == state.graphics => Vec::new(),
        Msg::Graphics(graphics) => {
            state.graphics = graphics;
            attach::make_previews(state)
        }
        Msg::Focus(on) => {
            state.is_focused = on;
            // Some terminals forget the pictures of a window that was behind another.
            let forgets = on && state.graphics.draws_outside_cells();
            if forgets { vec![Effect::Redraw] } else { Vec::new() }
        }
        Msg::Done(done) => finished(state, done),
    }
}

fn tick(state: &mut State, now: Duration) {
    if state.is_animating() && frame_idx(now) != frame_idx(state.now) {
        state.dirty = true;
    }
    state.now = now;
    if state.slide != 0 {
        // Half of the rest, so that it begins fast and ends softly.
        let step = state.slide / 2 + state.slide.signum() * (state.slide % 2).abs();
        state.slide -= step;
        scroll(state, step);
        state.dirty = true;
    }
    // There is more to be wrapped.
    state.dirty |= !state.transcript.is_settled();
    if state.notice.take_if(|notice| notice.until <= now).is_some() {
        state.dirty = true;
    }
    state.quit_armed_until.take_if(|until| *until <= now);
}

fn resize(state: &mut State, width: u16, height: u16) -> Vec<Effect> {
    let back_again = (state.width, state.height) == (width, height);
    (state.width, state.height) = (width, height);
    state.composer.set_width(super::layout::draft_width(width, height));
    // A window made smaller and at once as large as before has lost cells that a comparison of frames
    // takes to be still there.
    if back_again { vec![Effect::Redraw] } else { picker::resized(state) }
}

/// Pasted bytes are text, whatever they are: nothing in them is a key.
fn paste(state: &mut State, text: String) -> Vec<Effect> {
    if state.picker.is_some() {
        return Vec::new();
    }
    if let Some(list) = &mut state.list {
        // Whoever pastes into a list looks for that.
        list.filter.push_str(&sanitize::one_line(&text.chars().take(400).collect::<String>()));
        return list::filtered(state);
    }
    state.page = None;
    state.focus = Focus::Draft;
    state.models.open = None;
    // Dropping a file on a terminal pastes its path.
    let readings = paths::pasted(&text, state.home.as_deref());
    if readings.is_empty() || !attach::might_see(state) {
        insert(state, &text)
    } else {
        vec![Effect::Work(Work::CheckPaste { text, readings })]
    }
}

fn insert(state: &mut State, text: &str) -> Vec<Effect> {
    // Terminals send the newlines of a paste as carriage returns.
    let text = sanitize::clean(&text.replace("\r\n", "\n").replace('\r', "\n"));
    state.history.stop_browsing();
    state.composer.paste(&text);
    if state.composer.has_folds() && composer::is_big(&text) {
        let key = state.keymap.hint(Action::Unfold);
        notify(state, Tone::Faint, format!("Folded; it is sent in full · {key} opens it"), 5);
    }
    completion::refresh(state)
}

/// The result of some work.
fn finished(state: &mut State, done: Done) -> Vec<Effect> {
    match done {
        Done::Preview { picture, preview } => {
            attach::previewed(state, picture, preview);
            Vec::new()
        }
        Done::PasteChecked { text, files: None } => insert(state, &text),
        Done::PasteChecked { files: Some(files), .. } => attach::files(state, Kind::Still, files),
        Done::Clipboard(clip) => attach::clipboard(state, clip),
        Done::FilesFound(files) => completion::found(state, files),
        Done::FolderListed { folder, entries } => picker::listed(state, &folder, entries),
        Done::LookedAt(look) => picker::looked(state, look),
        Done::Kept(result) => {
            if let Err(problem) = result {
                let text = format!("Only for this time: {}", sanitize::one_line(&problem));
                notify(state, Tone::Warning, text, 8);
            }
            Vec::new()
        }
        Done::Written(result) => {
            match result {
                Ok(text) => {
                    let text = sanitize::clean(&text.replace("\r\n", "\n"));
                    state.composer.set_text(text.trim_end_matches('\n'));
                }
                Err(problem) => notify(state, Tone::Error, sanitize::one_line(&problem), 8),
            }
            let mut effects = completion::refresh(state);
            effects.extend(attach::make_previews(state));
            effects
        }
        Done::Cropped { picture, part } => attach::cropped(state, picture, part),
        Done::FilesRead(result) => attach::files_read(state, result),
        Done::SchemaRead(result) => {
            slash::schema_read(state, result);
            Vec::new()
        }
        Done::Configured(Ok(setting)) => {
            notify(
                state,
                Tone::Faint,
                format!("{} holds from the next start", sanitize::one_line(&setting)),
                6,
            );
            Vec::new()
        }
        Done::Report(Ok(text)) => {
            note(state, Tone::Faint, text);
            follow(state);
            Vec::new()
        }
        Done::Configured(Err(problem)) | Done::Report(Err(problem)) => {
            notify(state, Tone::Error, sanitize::one_line(&problem), 8);
            Vec::new()
        }
        Done::ThemeRefused(problem) => {
            notify(state, Tone::Error, sanitize::one_line(&problem), 8);
            Vec::new()
        }
        Done::Highlighted(done) => {
            state.transcript.recolour(&done);
            state.highlights.fill(done);
            Vec::new()
        }
        Done::Exported(result) => {
            copy::exported(state, result);
            Vec::new()
        }
    }
}

fn notify(state: &mut State, tone: Tone, text: impl Into<String>, seconds: u64) {
    let until = state.now + Duration::from_secs(seconds);
    state.notice = Some(Notice { tone, text: text.into(), until });
}

fn note(state: &mut State, tone: Tone, text: impl Into<String>) {
    let text = sanitize::clean(&text.into());
    state.transcript.note(tone, text);
    state.new_below = state.scroll != Scroll::Follow;
}

/// Moves the transcript by rows, bit by bit if pages slide.
fn slide(state: &mut State, rows: isize) {
    match state.smooth {
        true => state.slide = (state.slide + rows).clamp(-MAX_SLIDE, MAX_SLIDE),
        false => scroll(state, rows),
    }
}

/// The left button: the caret goes there, a list's line is chosen, what is below comes into sight.
fn click(state: &mut State, column: u16, row: u16) -> Vec<Effect> {
    let covered =
        state.page.is_some() || state.list.is_some() || state.picker.is_some() || state.models.open.is_some();
    let Some(areas) = state.areas().filter(|_| !covered) else { return Vec::new() };
    let position = Position { x: column, y: row };
    if areas.composer.contains(position) {
        let inner = areas.draft();
        state.focus = Focus::Draft;
        let row = usize::from(row.saturating_sub(inner.y));
        let column = usize::from(column.saturating_sub(inner.x));
        state.composer.point_at(row, column, usize::from(inner.height));
        return completion::refresh(state);
    }
    if areas.status.contains(position) {
        follow(state);
    }
    if areas.transcript.contains(position) {
        let height = usize::from(areas.transcript.height);
        let at = state.top_row(height) + usize::from(row - areas.transcript.y);
        if state.transcript.is_thinking_head(at) {
            state.thinking_open = !state.thinking_open;
        }
    }
    Vec::new()
}

/// Moves the transcript by rows, negative towards the beginning.
fn scroll(state: &mut State, rows: isize) {
    state.layout();
    let Some(areas) = state.areas() else { return };
    let height = usize::from(areas.transcript.height);
    let last_top = state.transcript.n_rows().saturating_sub(height);
    let top = state.top_row(height).saturating_add_signed(rows);
    if top >= last_top {
        follow(state);
        return;
    }
    let (mut entry_idx, mut row_idx) = (0, top);
    while entry_idx < state.transcript.len() && state.transcript.entry_rows(entry_idx).len() <= row_idx {
        row_idx -= state.transcript.entry_rows(entry_idx).len();
        entry_idx += 1;
    }
    state.scroll = Scroll::At { entry_idx, row_idx };
}

fn follow(state: &mut State) {
    state.slide = 0;
    state.scroll = Scroll::Follow;
    state.new_below = false;
}

/// Sends the first waiting message, if nothing is in its way.
/// A line that was typed as a whole: a command or a message.
pub fn typed(state: &mut State, line: &str) -> Vec<Effect> {
    state.composer.set_text(line);
    keys::send(state)
}

fn send_queued(state: &mut State) -> Vec<Effect> {
    if state.active.is_some() || !matches!(state.model, Model::Ready(_)) {
        return Vec::new();
    }
    match state.queue.pop_front() {
        Some(draft) => turns::start(state, draft),
        None => Vec::new(),
    }
}

/// Puts waiting messages back into the draft, when they can't be sent as they were meant.
fn queue_to_draft(state: &mut State) {
    let queue = std::mem::take(&mut state.queue);
    back_to_draft(state, queue);
}

/// Puts messages before what is in the draft.
fn back_to_draft(state: &mut State, drafts: impl IntoIterator<Item = Draft>) {
    let (mut texts, mut attached) = (Vec::new(), Vec::new());
    for draft in drafts {
        texts.push(draft.text);
        attached.extend(draft.attached);
    }
    if texts.is_empty() {
        return;
    }
    if !state.composer.is_blank() {
        texts.push(state.composer.text());
    }
    state.composer.set_text(&texts.join("\n\n"));
    state.attached.splice(..0, attached);
}

fn new_chat(state: &mut State) -> Vec<Effect> {
    state.last_conversation = ConversationId(state.last_conversation.0 + 1);
    let effects = turns::leave(state, state.last_conversation);
    notify(state, Tone::Faint, "New chat", 3);
    effects
}

/// Asks for the end of the answer being made. It stays active until the session manager agrees.
fn stop(state: &mut State) -> Vec<Effect> {
    match &mut state.active {
        Some(active) if !active.stopping => {
            active.stopping = true;
            vec![Effect::Send(Command::Cancel { turn: active.turn })]
        }
        _ => Vec::new(),
    }
}

fn quit(state: &mut State) -> Vec<Effect> {
    let mut effects = stop(state);
    effects.push(Effect::Quit);
    effects
}
