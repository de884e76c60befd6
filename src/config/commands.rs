//! `loquat config`: what holds and why, and changing it.

use std::env;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap::parser::ValueSource;

use crate::cli::{Cli, ConfigCommand};
use crate::sanitize::one_line;
use crate::tui::{self, Preset};

use super::edit::{TEMPLATE, set, user_file, write};
use super::files::{Config, ConfigError, Origin, check_text, read};
use super::{KEYS, Key, keys, known, preset, variable};

/// # Errors
/// A sentence.
pub fn run(command: &ConfigCommand, explicit: Option<&Path>) -> Result<(), String> {
    let said = |error: ConfigError| error.to_string();
    match command {
        ConfigCommand::Show { origin } => {
            let mut out = String::new();
            for (line, from) in all(explicit, &flags())? {
                match origin {
                    true => out.push_str(&format!("{line:<44} # {}\n", one_line(&from.to_string()))),
                    false if from != Origin::Default => out.push_str(&format!("{line}\n")),
                    false => {}
                }
            }
            print(&out)
        }
        ConfigCommand::Path => print(&format!("{}\n", user_file().map_err(said)?.display())),
        ConfigCommand::Get { name } => {
            known(name)?;
            match holds(&load(explicit)?, name) {
                (Some(value), _) => print(&format!("{}\n", one_line(&value))),
                (None, _) => Err(format!("{name} is not set: the default holds (`loquat config show`)")),
            }
        }
        ConfigCommand::Set { name, value } => {
            let path = explicit.map_or_else(user_file, |path| Ok(path.to_owned())).map_err(said)?;
            set(&path, name, value).map_err(said)
        }
        ConfigCommand::Check { file: Some(file) } => {
            let text =
                read(file).map_err(said)?.ok_or_else(|| format!("there is no file {}", file.display()))?;
            match keys::is_keymap(file) {
                true => keys::check(file, &text, Preset::Default).map(drop),
                false => check_text(file, &text).map_err(said),
            }
        }
        ConfigCommand::Check { file: None } => keys::load(preset(&load(explicit)?)).map(drop),
        ConfigCommand::Edit { keys: true } => keys::edit(preset(&load(explicit)?)),
        ConfigCommand::Edit { keys: false } => edit(),
    }
}

/// Every setting in a line, and where its value is from.
fn all(explicit: Option<&Path>, flags: &[(&'static str, String)]) -> Result<Vec<(String, Origin)>, String> {
    let config = load(explicit)?;
    let line = |key: &'static Key| {
        let given = flags.iter().find(|(name, _)| *name == key.name);
        let (value, from) = match given {
            Some((_, value)) => (Some(value.clone()), Origin::Flag),
            None => holds(&config, key.name),
        };
        match value {
            Some(value) => (format!("{} = {}", key.name, shown(key, &value)), from),
            None => (format!("{} is not set", key.name), from),
        }
    };
    Ok(KEYS.iter().map(line).collect())
}

/// For people, inside a chat: one setting, or all, and where their values are from. Flags hold for the chat and are
/// told by it.
///
/// # Errors
/// A sentence.
pub fn report(explicit: Option<&Path>, name: &str) -> Result<String, String> {
    let all = all(explicit, &[])?;
    if !name.is_empty() {
        known(name)?;
    }
    let path = user_file().map_err(|error| error.to_string())?;
    let mut out = match name {
        "" => format!("Settings of {} and the environment (/config NAME VALUE changes one)", path.display()),
        _ => String::new(),
    };
    let mut unset = Vec::new();
    for (key, (line, from)) in KEYS.iter().zip(all).filter(|(key, _)| name.is_empty() || key.name == name) {
        if name.is_empty() && from == Origin::Default {
            unset.push(key.name);
            continue;
        }
        let newline = if out.is_empty() { "" } else { "\n" };
        out.push_str(&format!("{newline}{line:<44} {}", one_line(&from.to_string())));
    }
    if !unset.is_empty() {
        out.push_str(&format!("\nNot set, so their defaults hold: {}", unset.join(", ")));
    }
    Ok(out)
}

fn load(explicit: Option<&Path>) -> Result<Config, String> {
    Config::load(explicit, &env::current_dir().unwrap_or_default()).map_err(|error| error.to_string())
}

/// Settings that the command line gives.
fn flags() -> Vec<(&'static str, String)> {
    let whole = Cli::command().get_matches();
    // Flags for all commands are known to the last one.
    let last = std::iter::successors(Some(&whole), |matches| Some(matches.subcommand()?.1)).last();
    let Some(matches) = last else { return Vec::new() };
    let given = |key: &'static Key| {
        let id = key.name.rsplit('.').next().unwrap_or(key.name);
        let value = matches.try_get_raw(id).ok()??.next_back()?.to_string_lossy().into_owned();
        (matches.value_source(id) == Some(ValueSource::CommandLine)).then_some((key.name, value))
    };
    let mut flags: Vec<(&'static str, String)> = KEYS.iter().filter_map(given).collect();
    if matches.get_flag("no_history") {
        flags.push(("history.save", "off".into()));
    }
    flags
}

/// What holds without any flag.
fn holds(config: &Config, name: &str) -> (Option<String>, Origin) {
    let key = KEYS.iter().find(|key| key.name == name);
    if let Some(key) = key
        && let (Some(value), Some(variable)) = (variable(key), key.variable)
    {
        return (Some(value), Origin::Variable(variable));
    }
    match config.get(name) {
        Some((_, value, origin)) => (Some(value.to_owned()), origin),
        None => (None, Origin::Default),
    }
}

/// As it stands in a file.
fn shown(key: &Key, value: &str) -> String {
    let is_bare = value.parse::<f64>().is_ok_and(f64::is_finite);
    match one_line(value).as_str() {
        "on" if key.is_switch => "true".into(),
        "off" if key.is_switch => "false".into(),
        text if is_bare => text.into(),
        text => toml::Value::from(text).to_string(),
    }
}

/// Opens the person's file in their editor, and looks for mistakes afterwards.
fn edit() -> Result<(), String> {
    let path = user_file().map_err(|error| error.to_string())?;
    if read(&path).map_err(|error| error.to_string())?.is_none() {
        write(&path, TEMPLATE).map_err(|error| error.to_string())?;
    }
    tui::edit(&path)?;
    let text = read(&path).map_err(|error| error.to_string())?.unwrap_or_default();
    check_text(&path, &text).map_err(|error| error.to_string())
}

fn print(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| error.to_string()),
    }
}
