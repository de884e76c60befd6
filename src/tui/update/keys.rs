//! Keys: what each action of the keymap does.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::tui::attach::Draft;
use crate::tui::commands::{self, Line};
use crate::tui::effect::{Effect, Work};
use crate::tui::keymap::{self, Action};
use crate::tui::state::{Help, HelpPage, Model, State};
use crate::tui::theme::Tone;
use crate::tui::view::help;

use super::{
    attach, back_to_draft, completion, follow, list, models, new_chat, notify, picker, quit, scroll, slash,
    stop, turns,
};

/// A second Ctrl+C within this time quits.
const QUIT_WINDOW: Duration = Duration::from_secs(2);

pub fn key(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    // Windows and some enhanced keyboards report releases too.
    if key.kind == KeyEventKind::Release {
        return Vec::new();
    }
    let action = keymap::resolve(key, state.composer.is_empty());
    if action != Some(Action::Interrupt) {
        state.quit_armed_until = None;
    }
    if state.help.is_some() && help_key(state, key, action) {
        return Vec::new();
    }
    if state.picker.is_some() && !means_the_same_everywhere(action) {
        return picker::key(state, key);
    }
    if state.list.is_some() && !means_the_same_everywhere(action) {
        return list::key(state, key);
    }
    if state.models.open.is_some()
        && !means_the_same_everywhere(action)
        && let Some(effects) = models::key(state, key)
    {
        return effects;
    }
    if let Some(effects) = completion::key(state, key) {
        return effects;
    }
    let mut effects = match action {
        Some(action) => act(state, action),
        None => {
            edit(state, key);
            Vec::new()
        }
    };
    effects.extend(completion::refresh(state));
    effects
}

fn edit(state: &mut State, key: KeyEvent) {
    let takes_back = key.code == KeyCode::Backspace && key.modifiers.is_empty();
    if takes_back && state.composer.is_at_start() && state.attached.pop().is_some() {
        return;
    }
    if state.composer.key(key) {
        state.history.stop_browsing();
    }
}

fn means_the_same_everywhere(action: Option<Action>) -> bool {
    matches!(action, Some(Action::Interrupt | Action::Redraw | Action::Suspend))
}

fn act(state: &mut State, action: Action) -> Vec<Effect> {
    match action {
        Action::Send => return send(state),
        Action::Newline => {
            state.history.stop_browsing();
            state.composer.newline();
        }
        Action::Escape if state.editing.take().is_some() => notify(state, Tone::Faint, "Not edited", 3),
        Action::Escape => return stop(state),
        Action::Interrupt => return interrupt(state),
        Action::Quit => return quit(state),
        Action::Previous => previous(state),
        Action::Next => next(state),
        Action::Complete => complete(state),
        Action::PageUp => scroll(state, -page(state)),
        Action::PageDown => scroll(state, page(state)),
        Action::Follow => follow(state),
        Action::ToggleThinking => state.thinking_open = !state.thinking_open,
        Action::ToggleSpec => slash::show_drafts(state, state.spec_view.next()),
        Action::Help => state.help = Some(Help { page: HelpPage::All, top: 0 }),
        Action::ToggleMouse => return toggle_mouse(state),
        Action::PickFile => return picker::open(state),
        Action::PasteClipboard => return vec![Effect::Work(Work::ReadClipboard)],
        Action::NewChat => return new_chat(state),
        Action::Branches => list::open_branches(state),
        // A terminal may have lost the pictures too.
        Action::Redraw => return [vec![Effect::Redraw], attach::make_previews(state)].concat(),
        Action::Suspend => return vec![Effect::Suspend],
    }
    Vec::new()
}

/// Keys of the help screen; false for those that mean the same everywhere.
fn help_key(state: &mut State, key: KeyEvent, action: Option<Action>) -> bool {
    let Some(open) = state.help else { return false };
    let page = isize::from(i16::try_from(state.height / 2).unwrap_or(i16::MAX));
    let rows = match (key.code, action) {
        _ if means_the_same_everywhere(action) => return false,
        (KeyCode::Esc | KeyCode::F(1) | KeyCode::Enter | KeyCode::Char('q'), _) => {
            state.help = None;
            return true;
        }
        (KeyCode::Up | KeyCode::Char('k'), _) => -1,
        (KeyCode::Down | KeyCode::Char('j'), _) => 1,
        (KeyCode::PageUp, _) => -page,
        (KeyCode::PageDown | KeyCode::Char(' '), _) => page,
        (KeyCode::Home, _) => isize::MIN,
        (KeyCode::End, _) => isize::MAX,
        // Whoever types on wants to write; the text must not go to where it can't be seen.
        (KeyCode::Char(_), _) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
            state.help = None;
            return false;
        }
        _ => return true,
    };
    let last_top = help::last_top(open.page, state.width, state.height);
    let top = open.top.saturating_add_signed(rows).min(last_top);
    state.help = Some(Help { top, ..open });
    true
}

fn send(state: &mut State) -> Vec<Effect> {
    if state.composer.backslash_newline() {
        return Vec::new();
    }
    if state.composer.is_blank() {
        if !state.attached.is_empty() {
            notify(state, Tone::Warning, "Type a question about the picture, then Enter sends both", 5);
        }
        return Vec::new();
    }
    state.notice = None;
    let text = state.composer.text();
    let text = text.trim_matches('\n').trim_end();
    match commands::parse(text) {
        Err(problem) => {
            notify(state, Tone::Error, problem, 8);
            Vec::new()
        }
        Ok(Line::Command(command)) => {
            accept_draft(state, text);
            slash::run(state, command)
        }
        Ok(Line::Message(message)) => match state.model {
            Model::Failed => {
                notify(state, Tone::Error, "Not sent: there is no model to answer", 8);
                Vec::new()
            }
            Model::Ready(_) if state.active.is_none() => {
                let draft = take_draft(state, text, message);
                turns::start(state, draft)
            }
            Model::Ready(_) | Model::Loading => {
                let draft = take_draft(state, text, message);
                state.queue.push_back(draft);
                Vec::new()
            }
        },
    }
}

fn accept_draft(state: &mut State, text: &str) {
    state.history.push(text.to_owned());
    state.composer.clear();
}

/// The draft as a message with its pictures.
fn take_draft(state: &mut State, typed: &str, text: String) -> Draft {
    accept_draft(state, typed);
    Draft { text, attached: std::mem::take(&mut state.attached) }
}

fn interrupt(state: &mut State) -> Vec<Effect> {
    if state.picker.take().is_some() || state.models.open.take().is_some() {
        return Vec::new();
    }
    if state.list.is_some() {
        return list::close(state);
    }
    if state.quit_armed_until.is_some() {
        return quit(state);
    }
    state.quit_armed_until = Some(state.now + QUIT_WINDOW);
    let text = if !state.composer.is_empty() {
        let draft = state.composer.text();
        state.history.push(draft);
        state.composer.clear();
        "Draft cleared, Up brings it back · Ctrl+C again quits"
    } else if !state.attached.is_empty() {
        state.attached.clear();
        "Pictures taken back · Ctrl+C again quits"
    } else if state.active.is_some() {
        "Esc stops the answer · Ctrl+C again quits"
    } else {
        "Ctrl+C again quits"
    };
    notify(state, Tone::Warning, text, QUIT_WINDOW.as_secs());
    Vec::new()
}

fn previous(state: &mut State) {
    if state.composer.is_empty() {
        if let Some(draft) = state.queue.pop_back() {
            back_to_draft(state, [draft]);
            return;
        }
    } else if state.composer.up() || !state.history.is_browsing() {
        return;
    }
    if let Some(prompt) = state.history.previous() {
        state.composer.set_text(prompt);
    }
}

fn next(state: &mut State) {
    if state.composer.down() || !state.history.is_browsing() {
        return;
    }
    if let Some(prompt) = state.history.next() {
        state.composer.set_text(prompt);
    }
}

/// Completes a command to the first that fits, ready for its arguments.
fn complete(state: &mut State) {
    if let Some(spec) = commands::matching(&state.composer.text()).first() {
        let space = if spec.arguments.is_empty() { "" } else { " " };
        state.composer.set_text(&format!("/{}{space}", spec.name));
    }
}

fn toggle_mouse(state: &mut State) -> Vec<Effect> {
    state.mouse = !state.mouse;
    let text = if state.mouse { "Mouse wheel on; F2 gives the mouse back" } else { "Mouse wheel off" };
    notify(state, Tone::Faint, text, 4);
    vec![Effect::CaptureMouse(state.mouse)]
}

/// Rows of one page, with two left over for orientation.
fn page(state: &State) -> isize {
    let height = state.areas().map_or(1, |areas| areas.transcript.height);
    isize::from(i16::try_from(height.saturating_sub(2).max(1)).unwrap_or(i16::MAX))
}
