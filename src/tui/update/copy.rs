//! Taking text out of the chat: into the clipboard, and into files. Always the source, never what is painted.

use std::path::PathBuf;

use crossterm::event::KeyCode;

use crate::chat::export::{Format, export};
use crate::sanitize::one_line;
use crate::tui::commands::Copied;
use crate::tui::effect::{Effect, Work};
use crate::tui::markdown::code_blocks;
use crate::tui::pictures::paths;
use crate::tui::state::State;
use crate::tui::theme::Tone;
use crate::tui::transcript::Entry;

use super::notify;

pub fn copy(state: &mut State, what: Copied) -> Vec<Effect> {
    let found = match what {
        Copied::LastAnswer => last_answer(state).ok_or_else(|| "There is no answer yet".to_owned()),
        Copied::Message(number) => match state.transcript.numbered(number) {
            Some((_, entry)) => Ok((text_of(entry).to_owned(), format!("message [{number}]"))),
            None => Err(format!("There is no message [{number}]")),
        },
        Copied::Code(number) => code(state, number),
    };
    match found {
        Ok((text, name)) => {
            let n_lines = text.lines().count();
            let lines = if n_lines == 1 { "1 line".to_owned() } else { format!("{n_lines} lines") };
            notify(state, Tone::Faint, format!("Copied {name}, {lines}"), 4);
            vec![Effect::Copy(text)]
        }
        Err(problem) => {
            notify(state, Tone::Warning, problem, 5);
            Vec::new()
        }
    }
}

/// The key after the one that copies: a digit is a code block, the key again the last answer.
pub fn pressed(state: &mut State, key: KeyCode) -> Vec<Effect> {
    match key {
        KeyCode::Char(c) if c.is_ascii_digit() => {
            copy(state, Copied::Code(c.to_digit(10).unwrap_or_default() as usize))
        }
        KeyCode::Char('y') => copy(state, Copied::LastAnswer),
        _ => {
            notify(state, Tone::Faint, "Nothing copied: a digit is a code block, y the last answer", 4);
            Vec::new()
        }
    }
}

fn last_answer(state: &State) -> Option<(String, String)> {
    let answer = state.transcript.entries().rev().find(|entry| matches!(entry, Entry::Answer(_)))?;
    Some((text_of(answer).to_owned(), "the last answer".to_owned()))
}

fn text_of(entry: &Entry) -> &str {
    match entry {
        Entry::User(question) => question.raw(),
        Entry::Answer(answer) => answer.text.raw(),
        Entry::Note { text, .. } => text,
    }
}

/// Code blocks are numbered through the whole chat.
fn code(state: &State, number: usize) -> Result<(String, String), String> {
    let answers = state.transcript.entries().filter_map(|entry| match entry {
        Entry::Answer(answer) => Some(answer.text.raw()),
        Entry::User(_) | Entry::Note { .. } => None,
    });
    let blocks: Vec<String> = answers.flat_map(code_blocks).map(|block| block.code).collect();
    let n_blocks = blocks.len();
    let found = number.checked_sub(1).and_then(|at| blocks.into_iter().nth(at));
    match found {
        Some(text) => Ok((text, format!("code block {number}"))),
        None if n_blocks == 0 => Err("There is no code block yet".to_owned()),
        None => Err(format!("There is no code block {number}; the last one is {n_blocks}")),
    }
}

/// Writes the conversation into a new file.
pub fn export_to(state: &mut State, format: Format, file: &str) -> Vec<Effect> {
    if state.chat.is_empty() {
        notify(state, Tone::Warning, "Nothing was said yet", 5);
        return Vec::new();
    }
    let path = match paths::arguments(file, state.home.as_deref()) {
        Ok(paths) if paths.is_empty() => default_name(state, format),
        Ok(mut paths) if paths.len() == 1 => paths.remove(0),
        Ok(_) => {
            notify(state, Tone::Error, "/export writes one file; quote a name with spaces", 8);
            return Vec::new();
        }
        Err(problem) => {
            notify(state, Tone::Error, problem, 8);
            return Vec::new();
        }
    };
    let mut chat = state.chat.clone();
    chat.title = state.title();
    vec![Effect::Work(Work::Export { path, text: export(&chat, format) })]
}

fn default_name(state: &State, format: Format) -> PathBuf {
    match state.stored {
        Some(stored) => format!("loquat-{}.{format}", stored.0).into(),
        None => format!("loquat-chat.{format}").into(),
    }
}

/// An error is a sentence.
pub fn exported(state: &mut State, result: Result<PathBuf, String>) {
    match result {
        Ok(path) => {
            let text = format!("Written: {}", one_line(&path.to_string_lossy()));
            notify(state, Tone::Faint, text, 6);
        }
        Err(problem) => notify(state, Tone::Error, one_line(&problem), 8),
    }
}
