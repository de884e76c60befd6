//! What the update wants done, as data; the loop does it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::msg::{Command, PictureId};

use super::commands::Region;
use super::markdown::highlight::Block;
use super::pictures::graphics::Graphics;

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send this to the session manager.
    Send(Command),
    /// Draw every cell again: something else wrote on the screen.
    Redraw,
    /// Give the terminal back and stop the process, as the shell's Ctrl+Z does.
    Suspend,
    /// Ask the terminal for wheel events, or leave the mouse to it.
    CaptureMouse(bool),
    /// Let the person write this draft in their editor; the terminal is given back meanwhile.
    Write(String),
    /// Put this into the clipboard.
    Copy(String),
    /// Draw in this theme from now on.
    Theme(String),
    /// Tell a person who looks elsewhere.
    Notify(String),
    /// Do this beside the loop; its result comes back as a message.
    Work(Work),
    Quit,
}

/// Work that takes time: files, pictures, the clipboard.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Make an attached picture ready to be drawn.
    Preview {
        picture: PictureId,
        bytes: Arc<[u8]>,
        place: Place,
    },
    /// Find out whether a paste names picture files, in one of these readings.
    CheckPaste {
        text: String,
        readings: Vec<Vec<PathBuf>>,
    },
    ReadClipboard,
    Highlight(Vec<Block>),
    /// Write a conversation to a new file.
    Export {
        path: PathBuf,
        text: String,
    },
    /// Remember a setting for the next start.
    Keep {
        setting: &'static str,
        value: String,
    },
    /// Cut a part out of an attached picture.
    Crop {
        picture: PictureId,
        bytes: Arc<[u8]>,
        region: Region,
    },
    /// Read text files for the draft.
    ReadFiles(Vec<PathBuf>),
    /// Read what answers are to be held to.
    ReadSchema(PathBuf),
    /// Change any setting for the next start.
    Configure {
        setting: String,
        value: String,
    },
    /// Say what a setting is and where from, or all of them.
    ShowSettings(String),
    /// Look for what is wrong on this machine.
    Diagnose,
    /// Find the files below the working folder.
    FindFiles,
    ListFolder(PathBuf),
    /// Decode the picture under the picker's cursor.
    LookAt {
        path: PathBuf,
        place: Place,
    },
}

/// The room for a picture, in characters, and how it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub graphics: Graphics,
    pub columns: u16,
    pub rows: u16,
}
