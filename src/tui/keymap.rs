//! One table of keys. The update looks keys up in it and the help screen prints it.
//!
//! Editing keys inside the draft are the composer's own; the table only lists them for the help screen.
//! Never bound: Ctrl+I, Ctrl+M and Ctrl+[ (the same bytes as Tab, Enter and Esc), and Ctrl+Alt+letters
//! (AltGr on some systems).

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Send,
    Newline,
    /// Closes what is open, or stops the answer.
    Escape,
    /// Clears the draft; a second time quits.
    Interrupt,
    Quit,
    Previous,
    Next,
    Complete,
    PageUp,
    PageDown,
    Follow,
    ToggleThinking,
    ToggleSpec,
    Help,
    ToggleMouse,
    PickFile,
    PasteClipboard,
    NewChat,
    Branches,
    Redraw,
    Suspend,
}

/// When a binding holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    /// Only while the draft is empty; otherwise the key edits.
    EmptyDraft,
}

pub struct Binding {
    pub keys: &'static [(KeyModifiers, KeyCode)],
    pub when: When,
    pub action: Action,
    /// How the help screen names the keys.
    pub label: &'static str,
    pub help: &'static str,
}

const NONE: KeyModifiers = KeyModifiers::NONE;
const CONTROL: KeyModifiers = KeyModifiers::CONTROL;
const ALT: KeyModifiers = KeyModifiers::ALT;
const SHIFT: KeyModifiers = KeyModifiers::SHIFT;

const fn on(
    keys: &'static [(KeyModifiers, KeyCode)],
    when: When,
    action: Action,
    label: &'static str,
    help: &'static str,
) -> Binding {
    Binding { keys, when, action, label, help }
}

use KeyCode::{Char, Down, End, Enter, Esc, F, PageDown, PageUp, Tab, Up};
use When::{Always, EmptyDraft};

#[rustfmt::skip] // One line a binding: it is read as a table.
pub const BINDINGS: &[Binding] = &[
    on(&[(NONE, Enter)], Always, Action::Send, "Enter", "send; while an answer is written: queue"),
    // Some Windows terminals report Shift+Enter as Ctrl+Enter.
    on(&[(ALT, Enter), (SHIFT, Enter), (CONTROL, Enter), (CONTROL, Char('j'))], Always, Action::Newline,
       "Alt+Enter, Ctrl+J, \\ Enter", "new line (and Shift+Enter, where it differs)"),
    on(&[(NONE, Esc)], Always, Action::Escape, "Esc", "stop and keep the answer; close what is open"),
    on(&[(CONTROL, Char('c'))], Always, Action::Interrupt, "Ctrl+C", "clear the draft; twice quits"),
    on(&[(CONTROL, Char('d'))], EmptyDraft, Action::Quit, "Ctrl+D", "quit, when the draft is empty"),
    on(&[(NONE, Up)], Always, Action::Previous, "Up", "empty draft: edit the queue, earlier prompts"),
    on(&[(NONE, Down)], Always, Action::Next, "Down", "back to later prompts"),
    on(&[(NONE, Tab)], Always, Action::Complete, "Tab", "complete a command or a file after @"),
    on(&[(CONTROL, Char('o'))], Always, Action::PickFile, "Ctrl+O", "attach a picture: pick a file"),
    on(&[(ALT, Char('v'))], Always, Action::PasteClipboard, "Alt+V", "attach the clipboard's picture, paste its text"),
    on(&[(NONE, PageUp)], Always, Action::PageUp, "PgUp", "scroll back"),
    on(&[(NONE, PageDown)], Always, Action::PageDown, "PgDn", "scroll forward"),
    on(&[(NONE, End)], EmptyDraft, Action::Follow, "End", "to the newest text, when the draft is empty"),
    on(&[(CONTROL, Char('t'))], Always, Action::ToggleThinking, "Ctrl+T", "open or fold the thinking"),
    on(&[(CONTROL, Char('e'))], EmptyDraft, Action::ToggleSpec, "Ctrl+E", "empty draft: MTP's guesses, ▮ right ▯ wrong"),
    on(&[(CONTROL, Char('n'))], Always, Action::NewChat, "Ctrl+N", "new chat"),
    on(&[(CONTROL, Char('b'))], Always, Action::Branches, "Ctrl+B", "branches of this conversation"),
    on(&[(CONTROL, Char('l'))], Always, Action::Redraw, "Ctrl+L", "redraw the screen"),
    on(&[(NONE, F(1))], Always, Action::Help, "F1", "this help"),
    on(&[(NONE, F(2))], Always, Action::ToggleMouse, "F2", "mouse wheel on/off; off lets you select text"),
    on(&[(CONTROL, Char('z'))], Always, Action::Suspend, "Ctrl+Z", "suspend to the shell"),
];

/// Editing keys, for the help screen: (keys, what they do).
pub const EDITING: &[(&str, &str)] = &[
    ("@", "find a file; a picture is attached"),
    ("Backspace at the start", "take the last picture back"),
    ("Ctrl+A, Ctrl+E", "start and end of the line"),
    ("Ctrl+Left, Ctrl+Right", "by words"),
    ("Ctrl+W", "delete a word"),
    ("Ctrl+U, Ctrl+K", "delete to the start, to the end of the line"),
    ("Ctrl+Y, Ctrl+_", "paste what was deleted, undo"),
];

/// What a key does, if it is bound.
pub fn resolve(key: KeyEvent, draft_is_empty: bool) -> Option<Action> {
    let pressed = (key.modifiers & (CONTROL | ALT | SHIFT), lower(key.code));
    let holds = |when| match when {
        Always => true,
        EmptyDraft => draft_is_empty,
    };
    BINDINGS
        .iter()
        .find(|binding| holds(binding.when) && binding.keys.contains(&pressed))
        .map(|binding| binding.action)
}

/// With Caps Lock some terminals send Ctrl+C as Ctrl and a capital letter.
fn lower(code: KeyCode) -> KeyCode {
    match code {
        Char(c) => Char(c.to_ascii_lowercase()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_bound_twice() {
        for (i, a) in BINDINGS.iter().enumerate() {
            for b in &BINDINGS[i + 1..] {
                assert!(!a.keys.iter().any(|key| b.keys.contains(key)), "{} and {}", a.label, b.label);
            }
        }
    }

    #[test]
    fn keys_that_terminals_cannot_tell_apart_are_free() {
        for binding in BINDINGS {
            for (modifiers, code) in binding.keys {
                let same_byte = matches!(code, Char('i' | 'm' | 'h' | '['));
                assert!(!(modifiers.contains(CONTROL) && same_byte), "{}", binding.label);
                assert!(!modifiers.contains(CONTROL | ALT), "{}", binding.label);
            }
        }
    }
}
