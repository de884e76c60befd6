//! Everything that can happen to the interface, as data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::KeyEvent;

use crate::msg::{Event, PictureId};

use super::markdown::highlight;
use super::picker::Look;
use super::pictures::clipboard::Clip;
use super::pictures::files::FolderEntry;
use super::pictures::graphics::Graphics;
use super::pictures::preview::Preview;

#[derive(Debug, Clone, PartialEq)]
pub enum Msg {
    Key(KeyEvent),
    Paste(String),
    /// Lines scrolled by the mouse wheel, negative towards the beginning.
    Wheel(isize),
    /// The mouse's left button was pressed.
    Click {
        column: u16,
        row: u16,
    },
    Resize {
        width: u16,
        height: u16,
    },
    /// Time since the start. Comes before each batch of other messages, and when [`next_tick`] asks for it.
    ///
    /// [`next_tick`]: super::state::State::next_tick
    Tick(Duration),
    Session(Event),
    /// The session manager is gone.
    SessionClosed,
    /// The process was stopped and runs again: nothing on the screen can be relied on.
    Resumed,
    /// What pictures the terminal can show.
    Graphics(Graphics),
    /// The terminal's window got or lost the keyboard.
    Focus(bool),
    /// The result of some work.
    Done(Done),
}

/// The results of [`Work`](super::effect::Work), in the same order.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// `None` if the picture can't be drawn.
    Preview {
        picture: PictureId,
        preview: Option<Preview>,
    },
    /// `files` is `None` if the paste is just text.
    PasteChecked {
        text: String,
        files: Option<Vec<PathBuf>>,
    },
    /// An error is a sentence.
    Clipboard(Result<Clip, String>),
    FilesFound(Vec<String>),
    FolderListed {
        folder: PathBuf,
        entries: Result<Vec<FolderEntry>, String>,
    },
    LookedAt(Look),
    /// An error is a sentence.
    Kept(Result<(), String>),
    /// The draft as the editor left it; an error is a sentence.
    Written(Result<String, String>),
    /// The part that was cut out, as a picture file; an error is a sentence.
    Cropped {
        picture: PictureId,
        part: Result<Arc<[u8]>, String>,
    },
    /// Names and texts; an error is a sentence.
    FilesRead(Result<Vec<(String, String)>, String>),
    /// Its name and content; an error is a sentence.
    SchemaRead(Result<(String, serde_json::Value), String>),
    /// The setting; an error is a sentence.
    Configured(Result<String, String>),
    /// An error is a sentence.
    /// Of the program, to be read.
    Report(Result<String, String>),
    /// A theme can't be used; a sentence.
    ThemeRefused(String),
    Highlighted(Vec<highlight::Done>),
    /// The file that was written; an error is a sentence.
    Exported(Result<PathBuf, String>),
}
