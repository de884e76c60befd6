//! Reading configuration files and checking them.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::edit::user_file;
use super::named::Named;
use super::{KEYS, Key, known};

/// Settings of a project, in its folder.
pub const PROJECT_FILE: &str = ".loquat.toml";

/// Where a value was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Flag,
    Variable(&'static str),
    File(PathBuf),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path} can't be read: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} can't be written: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("{path}, line {line}: {why}")]
    Syntax { path: PathBuf, line: usize, why: String },
    #[error("{path}: {why}")]
    Unknown { path: PathBuf, why: String },
    #[error("{path}: a folder may not set {name}; it belongs into your own file (`loquat config path`)")]
    Harmful { path: PathBuf, name: &'static str },
    #[error("{origin}: {name} can't be {value:?}: {why}")]
    Value { origin: Origin, name: &'static str, value: String, why: String },
    #[error("there is no home folder for a configuration; LOQUAT_CONFIG_DIR names one")]
    NoHome,
}

/// What the files say, the first one with a setting counts.
#[derive(Debug, Default)]
pub struct Config {
    files: Vec<Checked>,
}

/// A server of `--engine`, as a file has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteEntry {
    pub url: Option<String>,
    pub model: Option<String>,
    /// The environment variable that holds the key; keys are never written in files.
    pub key_env: Option<String>,
    pub parallel: Option<usize>,
    pub context: Option<usize>,
}

/// A file that has nothing wrong.
#[derive(Debug)]
struct Checked {
    path: PathBuf,
    values: Vec<(&'static str, String)>,
    remotes: Vec<(String, RemoteEntry)>,
    /// Personas and presets, by their whole names.
    named: Vec<(Named, String)>,
}

impl Config {
    /// Reads the file of `--config`, the folder's and the person's, as far as they are there.
    ///
    /// # Errors
    /// [`ConfigError`] about the first mistake in any of them.
    pub fn load(explicit: Option<&Path>, folder: &Path) -> Result<Self, ConfigError> {
        let mut files = Vec::new();
        if let Some(path) = explicit {
            let text = read(path)?.ok_or_else(|| ConfigError::Read {
                path: path.to_owned(),
                source: io::ErrorKind::NotFound.into(),
            })?;
            files.push(check(path, &text, false)?);
        }
        let project = folder.join(PROJECT_FILE);
        if let Some(text) = read(&project)? {
            files.push(check(&project, &text, true)?);
        }
        if let Ok(path) = user_file()
            && let Some(text) = read(&path)?
        {
            files.push(check(&path, &text, false)?);
        }
        Ok(Self { files })
    }

    /// The server with this name; the first file that has it counts.
    pub fn remote(&self, name: &str) -> Option<&RemoteEntry> {
        let all = self.files.iter().flat_map(|file| &file.remotes);
        all.into_iter().find(|(known, _)| known == name).map(|(_, entry)| entry)
    }

    /// Personas and presets, the most important file's first.
    pub(super) fn named(&self) -> impl DoubleEndedIterator<Item = &(Named, String)> {
        self.files.iter().flat_map(|file| &file.named)
    }

    /// The value of a setting and where it is from.
    pub fn get(&self, name: &str) -> Option<(&'static Key, &str, Origin)> {
        let key = KEYS.iter().find(|key| key.name == name)?;
        self.files.iter().find_map(|file| {
            let (_, value) = file.values.iter().find(|(set, _)| *set == name)?;
            Some((key, value.as_str(), Origin::File(file.path.clone())))
        })
    }
}

pub fn read(path: &Path) -> Result<Option<String>, ConfigError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConfigError::Read { path: path.to_owned(), source }),
    }
}

/// Looks for mistakes in a file.
///
/// # Errors
/// [`ConfigError`] about the first one.
pub fn check_text(path: &Path, text: &str) -> Result<(), ConfigError> {
    let is_project = path.file_name().is_some_and(|name| name == PROJECT_FILE);
    check(path, text, is_project).map(drop)
}

fn check(path: &Path, text: &str, is_project: bool) -> Result<Checked, ConfigError> {
    let table: Table = toml::from_str(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1),
        why: error.message().to_owned(),
    })?;
    let mut found = Vec::new();
    flatten("", &table, &mut found);
    let (mut values, mut named) = (Vec::new(), Vec::new());
    let mut remotes: Vec<(String, RemoteEntry)> = Vec::new();
    for (name, value) in found {
        if let Some(rest) = name.strip_prefix("remote.") {
            // A stranger's folder must not lead questions to a stranger's server.
            if is_project {
                return Err(ConfigError::Harmful { path: path.to_owned(), name: "remote" });
            }
            note_remote(&mut remotes, rest, &value).map_err(|why| ConfigError::Unknown {
                path: path.to_owned(),
                why: format!("{name}: {why}"),
            })?;
            continue;
        }
        if let Some(one) = Named::parse(&name) {
            let harmless = one.check(&value).map_err(|why| ConfigError::Unknown {
                path: path.to_owned(),
                why: format!("{name}: {why}"),
            })?;
            if is_project && !harmless {
                return Err(ConfigError::Harmful { path: path.to_owned(), name: "personas" });
            }
            named.push((one, value));
            continue;
        }
        let key = known(&name).map_err(|why| ConfigError::Unknown { path: path.to_owned(), why })?;
        // A theme that is a path opens a file.
        let opens_file = key.name == "ui.theme" && value.contains(['/', '\\', '.']);
        if is_project && (!key.is_harmless || opens_file) {
            return Err(ConfigError::Harmful { path: path.to_owned(), name: key.name });
        }
        (key.check)(&value).map_err(|why| ConfigError::Value {
            origin: Origin::File(path.to_owned()),
            name: key.name,
            value: value.clone(),
            why,
        })?;
        values.push((key.name, value));
    }
    Ok(Checked { path: path.to_owned(), values, remotes, named })
}

/// `office.url` and its like.
fn note_remote(remotes: &mut Vec<(String, RemoteEntry)>, rest: &str, value: &str) -> Result<(), String> {
    let (name, field) = rest.rsplit_once('.').ok_or("a server is a table of its own, [remote.NAME]")?;
    if !remotes.iter().any(|(known, _)| known == name) {
        remotes.push((name.to_owned(), RemoteEntry::default()));
    }
    let (_, entry) = remotes.iter_mut().find(|(known, _)| known == name).expect("it was just put there");
    let text = || Some(value.to_owned()).filter(|text| !text.trim().is_empty());
    let number = || match value.parse() {
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => Err(format!("{value:?} is not a number above 0")),
    };
    match field {
        "url" => entry.url = text(),
        "model" => entry.model = text(),
        "key_env" => entry.key_env = text(),
        "parallel" => entry.parallel = number()?,
        "context" => entry.context = number()?,
        _ => return Err("a server has url, model, key_env, parallel and context".into()),
    }
    Ok(())
}

fn flatten(prefix: &str, table: &Table, out: &mut Vec<(String, String)>) {
    for (name, value) in table {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) => flatten(&name, inner, out),
            Value::String(text) => out.push((name, text.clone())),
            // The words that flags take.
            Value::Boolean(on) => out.push((name, if *on { "on" } else { "off" }.to_owned())),
            other => out.push((name, other.to_string())),
        }
    }
}
