//! Pictures on their way to a message: what pasted text means, files, the clipboard, and pictures in the
//! terminal. What takes time here is called by effects, away from the interface's loop.
//!
//! The model never sees what is read here: the session manager reads the files that are sent.

pub mod clipboard;
pub mod files;
pub mod graphics;
pub mod paths;
pub mod preview;
