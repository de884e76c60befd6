//! One table of keys. The update looks keys up in it; the help screen, `docs/keys.md` and the template of
//! `keymap.toml` are printed from it.
//!
//! A binding is one key or two keys after one another. Which keys an action has comes from the preset, then from the
//! person's file (`file`). Vim's normal mode is a language of its own and has its own table (`vim`).

mod file;
mod press;

use std::fmt::Write;

use crossterm::event::KeyEvent;

pub use file::read;
pub use press::Press;

use super::commands::COMMANDS;
use super::vim;

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
    SearchHistory,
    Stash,
    Editor,
    Unfold,
    Palette,
    PickFile,
    PasteClipboard,
    PageUp,
    PageDown,
    Follow,
    FocusTranscript,
    ToggleThinking,
    ToggleSpec,
    NewChat,
    Branches,
    Redraw,
    Help,
    ToggleMouse,
    Suspend,
    Edit(Edit),
    /// While the transcript has the keys.
    FocusDraft,
    LineUp,
    LineDown,
    Top,
    Bottom,
    /// The next key says what: a digit a code block, the same key the last answer.
    Copy,
}

/// Changes of the draft and of the caret in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    Left,
    Right,
    WordLeft,
    WordRight,
    LineStart,
    LineEnd,
    DeleteBack,
    DeleteForward,
    DeleteWordBack,
    DeleteWordForward,
    DeleteToStart,
    DeleteToEnd,
    Yank,
    Undo,
    Redo,
}

/// When a binding holds. What is more special comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    /// Only while the draft is empty; otherwise the key edits.
    EmptyDraft,
    /// Only while the transcript has the keys.
    Transcript,
}

/// Which keys there are to begin with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Preset {
    #[default]
    Default,
    Emacs,
    /// The default's keys, and a normal mode.
    Vim,
}

impl std::str::FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "default" => Ok(Self::Default),
            "emacs" => Ok(Self::Emacs),
            "vim" => Ok(Self::Vim),
            _ => Err("expected default, emacs or vim".into()),
        }
    }
}

pub struct Binding {
    /// In `keymap.toml`.
    pub name: &'static str,
    pub action: Action,
    pub when: When,
    keys: &'static [&'static str],
    /// Where the emacs preset has other ones.
    emacs: Option<&'static [&'static str]>,
    pub help: &'static str,
}

const fn on(
    name: &'static str,
    action: Action,
    when: When,
    keys: &'static [&'static str],
    help: &'static str,
) -> Binding {
    Binding { name, action, when, keys, emacs: None, help }
}

impl Binding {
    const fn emacs(self, keys: &'static [&'static str]) -> Self {
        Self { emacs: Some(keys), ..self }
    }

    /// The keys it has before anybody changes them.
    fn preset(&self, preset: Preset) -> &'static [&'static str] {
        match preset {
            Preset::Emacs => self.emacs.unwrap_or(self.keys),
            Preset::Default | Preset::Vim => self.keys,
        }
    }
}

use Action::Edit as E;
use When::{Always, EmptyDraft, Transcript};

#[rustfmt::skip] // One line a binding: it is read as a table.
pub const BINDINGS: &[Binding] = &[
    on("send", Action::Send, Always, &["enter"], "send; while an answer is written: queue"),
    // Some Windows terminals report Shift+Enter as Ctrl+Enter.
    on("newline", Action::Newline, Always, &["alt+enter", "ctrl+j", "shift+enter", "ctrl+enter"],
       "new line (Shift+Enter only where it differs); also \\ and Enter"),
    on("escape", Action::Escape, Always, &["esc"], "stop and keep the answer; close what is open").emacs(&["esc", "ctrl+g"]),
    on("interrupt", Action::Interrupt, Always, &["ctrl+c"], "clear the draft; twice quits"),
    on("quit", Action::Quit, EmptyDraft, &["ctrl+d"], "empty draft: quit").emacs(&["ctrl+d", "ctrl+x ctrl+c"]),
    on("previous", Action::Previous, Always, &["up"], "line up; at the top: edit the queue, earlier prompts").emacs(&["up", "ctrl+p"]),
    on("next", Action::Next, Always, &["down"], "line down; back to later prompts").emacs(&["down", "ctrl+n"]),
    on("complete", Action::Complete, Always, &["tab"], "complete a command, or a file after @"),
    on("search_history", Action::SearchHistory, Always, &["ctrl+r"], "search everything you asked"),
    on("stash", Action::Stash, Always, &["ctrl+s"], "put the draft aside; on an empty draft: bring it back").emacs(&["ctrl+x ctrl+s"]),
    on("editor", Action::Editor, Always, &["ctrl+g", "ctrl+x ctrl+e"], "write the draft in $VISUAL or $EDITOR").emacs(&["ctrl+x ctrl+e"]),
    on("unfold", Action::Unfold, Always, &["alt+e"], "open a folded paste"),
    on("palette", Action::Palette, Always, &["ctrl+p"], "everything that can be done, to search in").emacs(&["alt+x"]),
    on("pick_file", Action::PickFile, Always, &["ctrl+o"], "attach a picture: pick a file").emacs(&["ctrl+o", "ctrl+x ctrl+f"]),
    on("paste", Action::PasteClipboard, Always, &["alt+v", "ctrl+v"], "attach the clipboard's picture, paste its text").emacs(&["ctrl+x ctrl+v"]),
    on("page_up", Action::PageUp, Always, &["pgup"], "scroll back").emacs(&["pgup", "alt+v"]),
    on("page_down", Action::PageDown, Always, &["pgdn"], "scroll forward").emacs(&["pgdn", "ctrl+v"]),
    on("follow", Action::Follow, EmptyDraft, &["end"], "empty draft: to the newest text"),
    on("focus_transcript", Action::FocusTranscript, EmptyDraft, &["tab"], "empty draft: keys to the transcript, to scroll and copy"),
    on("thinking", Action::ToggleThinking, Always, &["ctrl+t"], "open or fold the thinking"),
    on("drafting", Action::ToggleSpec, EmptyDraft, &["ctrl+e"], "empty draft: MTP's guesses as a line, as a tint, off"),
    on("new_chat", Action::NewChat, Always, &["ctrl+n"], "new chat").emacs(&["ctrl+x k"]),
    on("branches", Action::Branches, Always, &["ctrl+b"], "branches of this conversation").emacs(&["ctrl+x b"]),
    on("redraw", Action::Redraw, Always, &["ctrl+l"], "redraw the screen"),
    on("help", Action::Help, Always, &["f1"], "this help"),
    on("mouse", Action::ToggleMouse, Always, &["f2"], "mouse on/off; off lets the terminal select text"),
    on("suspend", Action::Suspend, Always, &["ctrl+z"], "suspend to the shell"),

    on("left", E(Edit::Left), Always, &["left"], "a character back").emacs(&["left", "ctrl+b"]),
    on("right", E(Edit::Right), Always, &["right", "ctrl+f"], "a character forward"),
    on("word_left", E(Edit::WordLeft), Always, &["ctrl+left", "alt+left", "alt+b"], "a word back"),
    on("word_right", E(Edit::WordRight), Always, &["ctrl+right", "alt+right", "alt+f"], "a word forward"),
    on("line_start", E(Edit::LineStart), Always, &["home", "ctrl+a"], "start of the line"),
    on("line_end", E(Edit::LineEnd), Always, &["end", "ctrl+e"], "end of the line"),
    on("delete_back", E(Edit::DeleteBack), Always, &["backspace"], "delete back; at the start: take the last picture back"),
    on("delete_forward", E(Edit::DeleteForward), Always, &["delete", "ctrl+d"], "delete forward"),
    on("delete_word_back", E(Edit::DeleteWordBack), Always, &["ctrl+w", "ctrl+backspace", "alt+backspace"], "delete a word back"),
    on("delete_word_forward", E(Edit::DeleteWordForward), Always, &["alt+d", "ctrl+delete", "alt+delete"], "delete a word forward"),
    on("delete_to_start", E(Edit::DeleteToStart), Always, &["ctrl+u"], "delete to the start of the line"),
    on("delete_to_end", E(Edit::DeleteToEnd), Always, &["ctrl+k"], "delete to the end of the line"),
    on("yank", E(Edit::Yank), Always, &["ctrl+y"], "put back what was deleted last"),
    // Terminals send the same byte for the first three.
    on("undo", E(Edit::Undo), Always, &["ctrl+_", "ctrl+/", "ctrl+7"], "undo").emacs(&["ctrl+_", "ctrl+/", "ctrl+7", "ctrl+x u"]),
    on("redo", E(Edit::Redo), Always, &["alt+_", "alt+/"], "redo"),

    on("focus_draft", Action::FocusDraft, Transcript, &["tab", "esc", "i"], "back to the draft; so does any other letter"),
    on("line_up", Action::LineUp, Transcript, &["up", "k"], "a line back"),
    on("line_down", Action::LineDown, Transcript, &["down", "j"], "a line forward"),
    on("top", Action::Top, Transcript, &["home", "g"], "to the beginning"),
    on("bottom", Action::Bottom, Transcript, &["end", "G"], "to the newest text"),
    on("copy", Action::Copy, Transcript, &["y"], "then a digit: copy that code block; twice: the last answer"),
];

/// What the draft takes that no binding is needed for, for the help screen.
pub const TYPED: &[(&str, &str)] = &[
    ("@", "find a file; a picture is attached"),
    ("/", "a command"),
    ("//text", "sends /text as a message"),
];

/// The keys in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keymap {
    pub preset: Preset,
    /// In the order of [`BINDINGS`].
    keys: Vec<Vec<Sequence>>,
}

/// One key, or two after one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sequence(Press, Option<Press>);

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Action(Action),
    /// It may be the first of two.
    Begun,
    Nothing,
}

/// On what the meaning of a key depends.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    pub draft_is_empty: bool,
    pub in_transcript: bool,
}

impl Default for Keymap {
    fn default() -> Self {
        Self::new(Preset::Default)
    }
}

impl Keymap {
    pub fn new(preset: Preset) -> Self {
        let parsed = |keys: &str| Sequence::parse(keys).expect("a test parses all keys of the table");
        let keys = BINDINGS.iter().map(|it| it.preset(preset).iter().map(|keys| parsed(keys)).collect());
        Self { preset, keys: keys.collect() }
    }

    /// What a key means, after another one if that was the first of two.
    pub fn meaning(&self, first: Option<Press>, key: KeyEvent, situation: Situation) -> Meaning {
        let press = Press::from(key);
        // From the most special on.
        let mut whens = vec![Always];
        if situation.draft_is_empty {
            whens.insert(0, EmptyDraft);
        }
        if situation.in_transcript {
            whens.insert(0, Transcript);
        }
        let mut begun = false;
        for when in whens {
            for (binding, keys) in BINDINGS.iter().zip(&self.keys).filter(|(binding, _)| binding.when == when)
            {
                for Sequence(one, two) in keys {
                    match (first, two) {
                        (None, None) if *one == press => return Meaning::Action(binding.action),
                        (None, Some(_)) => begun |= *one == press,
                        (Some(first), Some(two)) if *one == first && *two == press => {
                            return Meaning::Action(binding.action);
                        }
                        _ => {}
                    }
                }
            }
        }
        if begun { Meaning::Begun } else { Meaning::Nothing }
    }

    /// Everything that a key may mean in the chat, alone or as the first of two.
    pub fn meanings(&self, key: KeyEvent) -> impl Iterator<Item = &'static Binding> {
        let press = Press::from(key);
        let of = BINDINGS.iter().zip(&self.keys);
        of.filter(move |(_, keys)| keys.iter().any(|keys| keys.0 == press)).map(|(binding, _)| binding)
    }

    /// How a person presses an action: its keys, the first `n` of them.
    pub fn label(&self, binding_idx: usize, n: usize) -> String {
        let labels: Vec<String> = self.keys[binding_idx].iter().take(n).map(Sequence::label).collect();
        if labels.is_empty() { "(no key)".to_owned() } else { labels.join(", ") }
    }

    /// The first key of an action, for hints; empty if it has none.
    pub fn hint(&self, action: Action) -> String {
        let idx = BINDINGS.iter().position(|binding| binding.action == action);
        idx.and_then(|idx| self.keys[idx].first()).map(Sequence::label).unwrap_or_default()
    }
}

impl Sequence {
    fn parse(text: &str) -> Result<Self, String> {
        let mut keys = text.split_whitespace().map(Press::parse);
        let first = keys.next().ok_or("expected the name of a key")??;
        let second = keys.next().transpose()?;
        match keys.next() {
            Some(_) => Err("at most two keys after one another".into()),
            None => Ok(Self(first, second)),
        }
    }

    fn label(&self) -> String {
        match self.1 {
            Some(second) => format!("{} {}", self.0.label(), second.label()),
            None => self.0.label(),
        }
    }

    /// One can't be told from the other when it is pressed.
    fn clashes(self, other: Self) -> bool {
        self.0 == other.0 && (self.1 == other.1 || self.1.is_none() || other.1.is_none())
    }
}

/// A part of the table, for readers.
pub struct Section {
    pub title: &'static str,
    first: usize,
    end: usize,
}

impl Section {
    /// With their places in the table.
    pub fn bindings(&self) -> impl Iterator<Item = (usize, &'static Binding)> {
        BINDINGS.iter().enumerate().take(self.end).skip(self.first)
    }
}

/// The table in parts: the chat, the draft, the transcript.
pub fn sections() -> [Section; 3] {
    let at = |name: &str| BINDINGS.iter().position(|it| it.name == name).expect("it is in the table");
    let (draft, transcript) = (at("left"), at("focus_draft"));
    [
        Section { title: "Keys", first: 0, end: draft },
        Section { title: "In the draft", first: draft, end: transcript },
        Section { title: "In the transcript", first: transcript, end: BINDINGS.len() },
    ]
}

/// The template of `keymap.toml`: every action with its keys, none of them changed.
pub fn template() -> String {
    let mut out = String::from(
        "# Keys of Loquat's chat. Every action is here with its keys of the default preset; take the # away from a line\n\
         # to change it. The keys that you list replace those of the preset; [] leaves an action without any.\n\
         #\n\
         # A key is a letter, a sign, or enter, esc, tab, space, backspace, delete, insert, up, down, left, right, home, end,\n\
         # pgup, pgdn, f1 … f12, after any of ctrl+, alt+ and shift+. Two keys with a space between are pressed one after\n\
         # the other: \"ctrl+x ctrl+e\". Terminals can't tell ctrl+i, ctrl+m, ctrl+h and ctrl+[ from Tab, Enter, Backspace\n\
         # and Esc, and ctrl+alt+letter types a character on some keyboards, so none of these can be used.\n\
         #\n\
         # `loquat config check` looks for mistakes and for keys that would do two things. Presets (default, emacs, vim):\n\
         # `loquat config set ui.keys vim`.\n",
    );
    for section in sections() {
        let _ = writeln!(out, "\n# {}", section.title);
        for (_, binding) in section.bindings() {
            let keys: Vec<String> = binding.keys.iter().map(|keys| format!("{keys:?}")).collect();
            let _ = writeln!(out, "\n# {}\n#{} = [{}]", binding.help, binding.name, keys.join(", "));
        }
    }
    out
}

/// All keys and commands as a page of Markdown.
pub fn reference() -> String {
    let mut out = String::from(
        "# Keys and commands\n\nOf the chat. This page is printed from the tables that the program looks keys and commands up in.\n",
    );
    let (default, emacs) = (Keymap::default(), Keymap::new(Preset::Emacs));
    for section in sections() {
        let _ = writeln!(out, "\n## {}\n\n| Keys | emacs | Name | Does |\n|---|---|---|---|", section.title);
        for (idx, binding) in section.bindings() {
            let (keys, other) = (default.label(idx, usize::MAX), emacs.label(idx, usize::MAX));
            let other = if keys == other { String::new() } else { other };
            let Binding { name, help, .. } = binding;
            let _ = writeln!(out, "| {keys} | {other} | `{name}` | {help} |");
        }
    }
    out.push_str("\n## Vim's normal mode\n\nWith `ui.keys = \"vim\"`, Esc leaves insert mode.\n\n| Keys | Does |\n|---|---|\n");
    for (keys, help) in vim::HELP {
        let _ = writeln!(out, "| {keys} | {help} |");
    }
    out.push_str("\n## Commands\n\n| Command | Does |\n|---|---|\n");
    for spec in COMMANDS {
        let usage = format!("/{} {}", spec.name, spec.arguments);
        let _ = writeln!(out, "| `{}` | {} |", usage.trim_end().replace('|', "\\|"), spec.help);
    }
    for (keys, help) in TYPED {
        let _ = writeln!(out, "| `{keys}` | {help} |");
    }
    out
}

#[cfg(test)]
mod tests;
