//! Changing the person's own file, comments and all.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, Value};

use crate::paths;

use super::files::{ConfigError, check_text, read};
use super::known;

/// A new file: every setting with its comment, none of them set.
pub const TEMPLATE: &str = include_str!("../../config/default.toml");

/// # Errors
/// `NoHome`.
pub fn user_file() -> Result<PathBuf, ConfigError> {
    Ok(paths::config().ok_or(ConfigError::NoHome)?.join("config.toml"))
}

/// Sets a value in a file, which is begun if it isn't there.
///
/// # Errors
/// [`ConfigError`]; the file is as it was then.
pub fn set(path: &Path, name: &str, value: &str) -> Result<(), ConfigError> {
    let unknown = |why| ConfigError::Unknown { path: path.to_owned(), why };
    let key = known(name).map_err(unknown)?;
    let text = read(path)?.unwrap_or_else(|| TEMPLATE.to_owned());
    // Finds out first what is wrong with it, with its line.
    check_text(path, &text)?;
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| unknown(error.message().to_owned()))?;
    let (table, last) = match key.name.split_once('.') {
        Some((table, last)) => {
            let item = document.entry(table).or_insert_with(|| Item::Table(Table::new()));
            (item.as_table_like_mut().ok_or_else(|| unknown(format!("{table} is no table")))?, last)
        }
        None => (document.as_table_mut() as &mut dyn toml_edit::TableLike, key.name),
    };
    let mut new = typed(value);
    match table.get_mut(last).and_then(Item::as_value_mut) {
        // What stands behind it in its line stays.
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => drop(table.insert(last, Item::Value(new))),
    }
    let changed = document.to_string();
    check_text(path, &changed)?;
    write(path, &changed)
}

/// A number or a switch as such, everything else as text.
fn typed(value: &str) -> Value {
    if let Ok(number) = value.parse::<i64>() {
        return number.into();
    }
    if let Ok(number) = value.parse::<f64>()
        && number.is_finite()
    {
        return number.into();
    }
    match value {
        "true" => true.into(),
        "false" => false.into(),
        text => text.into(),
    }
}

/// Whole or not at all.
pub fn write(path: &Path, text: &str) -> Result<(), ConfigError> {
    let failed = |source| ConfigError::Write { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let unfinished = path.with_extension(format!("{}.part", std::process::id()));
    let written = fs::File::create(&unfinished).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&unfinished, path)).map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        failed(error)
    })
}
