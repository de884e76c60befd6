//! `loquat history`: kept conversations from the shell. What was asked for goes to standard output, for people and
//! pipes alike; stored text is cleaned before it reaches a terminal.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::chat::export::{Format, export};
use crate::cli::HistoryCommand;
use crate::msg::{Found, StoredId};
use crate::sanitize::{clean, one_line};
use crate::store::{Store, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a title needs at least one letter")]
    Untitled,
    #[error("{path} can't be written: {source}")]
    Output { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Print(#[from] io::Error),
}

/// # Errors
/// [`HistoryError`] says what is missing or can't be used.
pub fn run(folder: &Path, command: &HistoryCommand) -> Result<(), HistoryError> {
    let store = Store::open(folder)?;
    match command {
        HistoryCommand::List { json } => list(&store.find("")?, *json),
        HistoryCommand::Search { words, json } => list(&store.find(&words.join(" "))?, *json),
        HistoryCommand::Show { id } => {
            let text = export(&store.load(StoredId(*id))?.conversation, Format::Markdown);
            // A file or another program gets what was said, byte for byte.
            print(&if io::stdout().is_terminal() { clean(&text) } else { text })
        }
        HistoryCommand::Rename { id, title } => {
            let title = title.join(" ");
            let title = title.trim();
            if title.is_empty() {
                return Err(HistoryError::Untitled);
            }
            store.rename(StoredId(*id), title)?;
            print(&format!("{id} is now called: {}\n", one_line(title)))
        }
        HistoryCommand::Delete { id } => {
            let title = store.delete(StoredId(*id))?;
            print(&format!(
                "deleted: {}\n`loquat history undelete {id}` takes it back within 30 days\n",
                one_line(&title)
            ))
        }
        HistoryCommand::Undelete { id } => {
            let title = store.undelete(StoredId(*id))?;
            print(&format!("back again: {}\n", one_line(&title)))
        }
        HistoryCommand::Export { id, format, output } => {
            let text = export(&store.load(StoredId(*id))?.conversation, *format);
            match output {
                Some(path) => write_new(path, &text)
                    .map_err(|source| HistoryError::Output { path: path.clone(), source }),
                None => print(&text),
            }
        }
    }
}

/// The latest conversation, or the one that is asked for, exists.
///
/// # Errors
/// If it doesn't, or the history can't be used.
pub fn check(folder: &Path, id: Option<i64>) -> Result<(), StoreError> {
    let store = Store::open(folder)?;
    match id {
        Some(id) => store.check(StoredId(id)),
        None => store.latest().map(drop),
    }
}

fn list(found: &[Found], as_json: bool) -> Result<(), HistoryError> {
    let mut out = String::new();
    for found in found {
        if as_json {
            let object = json!({
                "id": found.stored.0,
                "title": found.title,
                "changed": found.changed,
                "messages": found.n_messages,
                "excerpt": found.excerpt,
            });
            out.push_str(&format!("{object}\n"));
            continue;
        }
        let messages = if found.n_messages == 1 { "message" } else { "messages" };
        out.push_str(&format!(
            "{:>5}  {}  {:>4} {messages:<8}  {}\n",
            found.stored.0,
            found.changed,
            found.n_messages,
            one_line(&found.title)
        ));
        if let Some(excerpt) = &found.excerpt {
            out.push_str(&format!("       {}\n", one_line(excerpt)));
        }
    }
    print(&out)
}

fn print(text: &str) -> Result<(), HistoryError> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        // Whoever reads has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Never over a file that is there.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

/// The line that says how a conversation goes on another day.
pub fn farewell(stored: StoredId, title: &str) -> String {
    format!("`loquat resume {}` goes on with: {}", stored.0, one_line(title))
}
