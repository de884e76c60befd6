//! The person's own keys: `keymap.toml` beside the other settings.

use std::path::{Path, PathBuf};

use crate::paths;
use crate::tui::keymap::{self, Keymap, Preset};

use super::edit::write;
use super::files::{ConfigError, read};

const FILE: &str = "keymap.toml";

/// # Errors
/// `NoHome`.
pub fn file() -> Result<PathBuf, ConfigError> {
    Ok(paths::config().ok_or(ConfigError::NoHome)?.join(FILE))
}

/// The keys of a preset with the person's changes.
///
/// # Errors
/// A sentence about a mistake in the file.
pub fn load(preset: Preset) -> Result<Keymap, String> {
    let Ok(path) = file() else { return Ok(Keymap::new(preset)) };
    match read(&path).map_err(|error| error.to_string())? {
        Some(text) => check(&path, &text, preset),
        None => Ok(Keymap::new(preset)),
    }
}

/// # Errors
/// A sentence about the first mistake.
pub fn check(path: &Path, text: &str, preset: Preset) -> Result<Keymap, String> {
    keymap::read(text, preset).map_err(|why| format!("{}: {why}", path.display()))
}

/// Whether a file is one of keys, by its name.
pub fn is_keymap(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == FILE)
}

/// Opens it in the person's editor; a new one has every action with its keys.
///
/// # Errors
/// A sentence.
pub fn edit(preset: Preset) -> Result<(), String> {
    let said = |error: ConfigError| error.to_string();
    let path = file().map_err(said)?;
    if read(&path).map_err(said)?.is_none() {
        write(&path, &keymap::template()).map_err(said)?;
    }
    crate::tui::edit(&path)?;
    load(preset).map(drop)
}
