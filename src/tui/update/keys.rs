//! Keys: what each action of the keymap does.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::tui::attach::Draft;
use crate::tui::commands::{self, Line};
use crate::tui::effect::{Effect, Work};
use crate::tui::keymap::{Action, Edit, Meaning, Press, Situation};
use crate::tui::page::{Page, PageKind};
use crate::tui::state::{Focus, Model, State};
use crate::tui::theme::Tone;
use crate::tui::view;
use crate::tui::vim::{Edge, Taken};

use super::{
    attach, back_to_draft, compare, completion, copy, follow, list, models, new_chat, notify, picker, quit,
    scroll, slash, slide, stop, turns,
};

/// A second Ctrl+C within this time quits.
const QUIT_WINDOW: Duration = Duration::from_secs(2);

pub fn key(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    // Windows and some enhanced keyboards report releases too.
    if key.kind == KeyEventKind::Release {
        return Vec::new();
    }
    let first = state.begun.take();
    let situation = Situation {
        draft_is_empty: state.composer.is_empty(),
        in_transcript: state.focus == Focus::Transcript,
    };
    let meaning = state.keymap.meaning(first, key, situation);
    let action = match meaning {
        Meaning::Action(action) => Some(action),
        Meaning::Begun | Meaning::Nothing => None,
    };
    if action != Some(Action::Interrupt) {
        state.quit_armed_until = None;
    }
    if state.page.is_some()
        && let Some(effects) = page_key(state, key, action)
    {
        return effects;
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
    if std::mem::take(&mut state.copies) && !means_the_same_everywhere(action) {
        return copy::pressed(state, key.code);
    }
    if let Some(effects) = completion::key(state, key) {
        return effects;
    }
    if state.focus == Focus::Draft
        && first.is_none()
        && let Some(vim) = &mut state.vim
    {
        match vim.key(key, &mut state.composer) {
            Taken::Yes => {
                state.history.stop_browsing();
                return completion::refresh(state);
            }
            Taken::Over(Edge::First) => return act(state, Action::Previous),
            Taken::Over(Edge::Last) => return act(state, Action::Next),
            Taken::No => {}
        }
    }
    let mut effects = match meaning {
        Meaning::Action(action) => act(state, action),
        Meaning::Begun => {
            state.begun = Some(key.into());
            notify(state, Tone::Faint, format!("{} …", Press::from(key).label()), 3);
            return Vec::new();
        }
        Meaning::Nothing => match first {
            // The second of two keys is never typed.
            Some(first) => {
                let keys = format!("{} {}", first.label(), Press::from(key).label());
                notify(state, Tone::Warning, format!("{keys} does nothing"), 3);
                Vec::new()
            }
            None => {
                type_char(state, key);
                Vec::new()
            }
        },
    };
    effects.extend(completion::refresh(state));
    effects
}

/// Types a character, wherever the keys went until now. In normal mode none gets here.
fn type_char(state: &mut State, key: KeyEvent) {
    let modifiers = key.modifiers.difference(KeyModifiers::SHIFT);
    // Ctrl+Alt is AltGr on some systems, and then the character is meant.
    if let KeyCode::Char(c) = key.code
        && (modifiers.is_empty() || modifiers == KeyModifiers::CONTROL | KeyModifiers::ALT)
    {
        state.focus = Focus::Draft;
        state.history.stop_browsing();
        state.composer.type_char(c);
    }
}

fn edit(state: &mut State, edit: Edit) {
    let takes_back = edit == Edit::DeleteBack && state.composer.is_at_start();
    if takes_back && state.attached.pop().is_some() {
        return;
    }
    state.history.stop_browsing();
    state.composer.edit(edit);
}

fn means_the_same_everywhere(action: Option<Action>) -> bool {
    matches!(action, Some(Action::Interrupt | Action::Redraw | Action::Suspend))
}

pub fn act(state: &mut State, action: Action) -> Vec<Effect> {
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
        // Everything that can be completed offers itself.
        Action::Complete => {}
        Action::SearchHistory => list::open_prompts(state),
        Action::Stash => return stash(state),
        Action::Editor => {
            notify(state, Tone::Faint, "The draft is in the editor", 2);
            return vec![Effect::Write(state.composer.text())];
        }
        Action::Unfold => {
            if !state.composer.unfold() {
                notify(state, Tone::Faint, "Nothing is folded in the draft", 3);
            }
        }
        Action::Palette => list::open_palette(state),
        Action::PageUp => slide(state, -page(state)),
        Action::PageDown => slide(state, page(state)),
        Action::Follow | Action::Bottom => follow(state),
        Action::Top => scroll(state, isize::MIN),
        Action::LineUp => scroll(state, -1),
        Action::LineDown => scroll(state, 1),
        Action::FocusTranscript if state.transcript.is_unused() => {}
        Action::FocusTranscript => state.focus = Focus::Transcript,
        Action::FocusDraft => state.focus = Focus::Draft,
        Action::Copy => state.copies = true,
        Action::ToggleThinking => state.thinking_open = !state.thinking_open,
        Action::ToggleSpec => slash::show_drafts(state, state.spec_view.next()),
        Action::Help => state.page = Some(Page::new(PageKind::Help)),
        Action::ToggleMouse => return set_mouse(state, !state.mouse),
        Action::PickFile => return picker::open(state),
        Action::PasteClipboard => return vec![Effect::Work(Work::ReadClipboard)],
        Action::NewChat => return new_chat(state),
        Action::Branches => list::open_branches(state),
        // A terminal may have lost the pictures too.
        Action::Redraw => return [vec![Effect::Redraw], attach::make_previews(state)].concat(),
        Action::Suspend => return vec![Effect::Suspend],
        Action::Edit(change) => edit(state, change),
    }
    Vec::new()
}

/// Puts the draft with its pictures aside, or brings back what was put aside last.
fn stash(state: &mut State) -> Vec<Effect> {
    if state.composer.is_blank() && state.attached.is_empty() {
        let Some(draft) = state.stash.pop() else {
            notify(state, Tone::Faint, "Nothing was put aside", 3);
            return Vec::new();
        };
        back_to_draft(state, [draft]);
        return attach::inspect_unknown(state);
    }
    let draft = Draft { text: state.composer.text(), attached: std::mem::take(&mut state.attached) };
    state.composer.clear();
    state.stash.push(draft);
    let key = state.keymap.hint(Action::Stash);
    notify(state, Tone::Faint, format!("Put aside · {key} on an empty draft brings it back"), 4);
    Vec::new()
}

/// Keys of a page over the screen; `None` for those that mean the same everywhere.
fn page_key(state: &mut State, key: KeyEvent, action: Option<Action>) -> Option<Vec<Effect>> {
    let page = isize::from(i16::try_from(state.height / 2).unwrap_or(i16::MAX));
    let rows = match key.code {
        _ if means_the_same_everywhere(action) => return None,
        KeyCode::Enter if matches!(state.page, Some(Page { what: PageKind::Compare(_), .. })) => {
            return compare::take(state);
        }
        KeyCode::Esc | KeyCode::F(1) | KeyCode::Enter | KeyCode::Char('q') => {
            state.page = None;
            return Some(Vec::new());
        }
        KeyCode::Left | KeyCode::Right => {
            if let Some(Page { what: PageKind::Compare(compared), .. }) = &mut state.page {
                compared.turn(key.code == KeyCode::Right);
            }
            return Some(Vec::new());
        }
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::PageUp => -page,
        KeyCode::PageDown | KeyCode::Char(' ') => page,
        KeyCode::Home => isize::MIN,
        KeyCode::End => isize::MAX,
        // Whoever types on wants to write; the text must not go to where it can't be seen.
        KeyCode::Char(_) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
            state.page = None;
            return None;
        }
        _ => return Some(Vec::new()),
    };
    scroll_page(state, rows);
    Some(Vec::new())
}

/// Moves the open page, negative towards its beginning.
pub fn scroll_page(state: &mut State, rows: isize) {
    let last_top = view::page::last_top(state);
    if let Some(open) = &mut state.page {
        open.top = open.top.saturating_add_signed(rows).min(last_top);
    }
}

pub fn send(state: &mut State) -> Vec<Effect> {
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
    if state.picker.take().is_some() || state.models.open.take().is_some() || state.page.take().is_some() {
        return Vec::new();
    }
    state.focus = Focus::Draft;
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

pub fn set_mouse(state: &mut State, on: bool) -> Vec<Effect> {
    state.mouse = on;
    let key = state.keymap.hint(Action::ToggleMouse);
    let text = match on {
        true => format!("Mouse on: the wheel scrolls · {key} gives it back to the terminal"),
        false => "Mouse off: the terminal selects text".to_owned(),
    };
    notify(state, Tone::Faint, text, 4);
    vec![Effect::CaptureMouse(on)]
}

/// Rows of one page, with two left over for orientation.
fn page(state: &State) -> isize {
    let height = state.areas().map_or(1, |areas| areas.transcript.height);
    isize::from(i16::try_from(height.saturating_sub(2).max(1)).unwrap_or(i16::MAX))
}
