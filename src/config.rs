//! The configuration: which settings there are, and files that set them.
//!
//! A setting is found in the first of these that has it: a flag, an environment variable, the file of `--config`,
//! `.loquat.toml` of the working folder (harmless settings only), the person's own file. What none of them has is the
//! program's or the model's default. Settings that no file knows are errors: a typo must not go unseen.
//!
//! `fill` puts what the files say where no flag and no variable said anything, so that nothing else of the program
//! knows of files.

pub mod commands;
mod edit;
mod files;
pub mod keys;
mod named;

use std::env;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::chat::Detail;
use crate::cli::{Cli, SavedStates, Switch};
use crate::engine::device::DeviceChoice;
use crate::engine::weights::quantised::Quant;
use crate::msg::{Mtp, Think};
use crate::remote::RemoteOptions;
use crate::tui::{Images, Mode, Notify, Overflow, Preset, SpecView};

pub use files::{Config, ConfigError, Origin, RemoteEntry};

/// A setting.
pub struct Key {
    /// With its table: `sampling.top_p`.
    pub name: &'static str,
    /// Stands for it in the environment.
    pub variable: Option<&'static str>,
    /// A stranger's folder may set it: it opens no file, keeps nothing, and says nothing to the model.
    pub is_harmless: bool,
    /// `true` and `false` in files; on and off elsewhere.
    pub is_switch: bool,
    check: fn(&str) -> Result<(), String>,
}

const fn key(
    name: &'static str,
    variable: Option<&'static str>,
    is_harmless: bool,
    check: fn(&str) -> Result<(), String>,
) -> Key {
    Key { name, variable, is_harmless, is_switch: false, check }
}

const fn switch(name: &'static str, variable: Option<&'static str>, is_harmless: bool) -> Key {
    Key { name, variable, is_harmless, is_switch: true, check: parses::<Switch> }
}

#[rustfmt::skip] // One line a setting: it is read as a table.
pub const KEYS: [Key; 33] = [
    key("model", Some("LOQUAT_MODEL"), false, text),
    key("models_folder", Some("HF_HUB_CACHE"), false, text),
    key("device", Some("LOQUAT_DEVICE"), false, parses::<DeviceChoice>),
    key("context", Some("LOQUAT_CONTEXT"), false, context),
    key("quant", Some("LOQUAT_QUANT"), false, parses::<Quant>),
    key("saved_states", Some("LOQUAT_SAVED_STATES"), false, parses::<SavedStates>),
    key("system", None, false, text),
    Key { is_switch: true, ..key("think", None, true, parses::<Think>) },
    key("max_tokens", None, true, parses::<std::num::NonZeroU32>),
    key("mtp", None, true, parses::<Mtp>),
    key("detail", None, true, parses::<Detail>),
    key("log", Some("LOQUAT_LOG"), false, parses::<log::LevelFilter>),
    key("overflow", None, true, parses::<Overflow>),
    key("persona", None, true, text),
    key("preset", None, true, text),
    key("sampling.temperature", None, true, number),
    key("sampling.top_k", None, true, parses::<usize>),
    key("sampling.top_p", None, true, number),
    key("sampling.min_p", None, true, number),
    key("sampling.presence_penalty", None, true, number),
    key("sampling.frequency_penalty", None, true, number),
    key("sampling.repetition_penalty", None, true, number),
    key("sampling.seed", None, true, parses::<u64>),
    switch("history.save", Some("LOQUAT_HISTORY"), false),
    key("history.keep_days", None, false, parses::<u32>),
    key("ui.theme", Some("LOQUAT_THEME"), true, text),
    key("ui.images", Some("LOQUAT_IMAGES"), true, parses::<Images>),
    key("ui.keys", None, true, parses::<Preset>),
    switch("ui.mouse", None, true),
    switch("ui.smooth_scroll", None, true),
    key("ui.drafting", None, true, parses::<SpecView>),
    key("ui.mode", None, true, parses::<Mode>),
    key("ui.notify", None, true, parses::<Notify>),
];

fn text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() { Err("expected some text".into()) } else { Ok(()) }
}

fn parses<T: FromStr<Err: ToString>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(drop).map_err(|error| error.to_string())
}

/// The sampler knows the limits of each.
fn number(text: &str) -> Result<(), String> {
    match text.parse::<f32>() {
        Ok(number) if number.is_finite() => Ok(()),
        _ => Err("expected a number".into()),
    }
}

fn context(text: &str) -> Result<(), String> {
    match text.parse::<u32>() {
        Ok(16..) => Ok(()),
        _ => Err("expected a number of tokens, at least 16".into()),
    }
}

/// The setting with this name.
///
/// # Errors
/// A sentence with the name that was meant, if one is near.
pub fn known(name: &str) -> Result<&'static Key, String> {
    KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        let near = crate::tui::nearest(name, KEYS.iter().map(|key| key.name));
        let hint = near.map_or_else(
            || "`loquat config show` lists all".to_owned(),
            |near| format!("did you mean {near}?"),
        );
        format!("there is no setting {name}; {hint}")
    })
}

/// The server that `--engine`, its variable or the files name.
///
/// # Errors
/// A sentence, if there is none of this name, or its key is missing.
pub fn remote(flag: Option<&str>, config: &Config) -> Result<Option<RemoteOptions>, String> {
    let variable = env::var("LOQUAT_ENGINE").ok().filter(|name| !name.is_empty());
    let Some(name) = flag.map(str::to_owned).or(variable) else { return Ok(None) };
    if name == "local" {
        return Ok(None);
    }
    if name.starts_with("http://") || name.starts_with("https://") {
        let url = name.trim_end_matches('/').to_owned();
        return Ok(Some(RemoteOptions { name: url.clone(), url, ..RemoteOptions::default() }));
    }
    let entry = config.remote(&name).ok_or_else(|| {
        format!("there is no server {name}; `loquat config edit` can add it: [remote.{name}] with its url")
    })?;
    let url = entry.url.as_deref().ok_or_else(|| format!("[remote.{name}] has no url"))?;
    let key = match &entry.key_env {
        None => None,
        Some(variable) => Some(env::var(variable).map_err(|_| {
            format!("the key of {name} is missing: the environment variable {variable} is not set")
        })?),
    };
    Ok(Some(RemoteOptions {
        name,
        url: url.trim_end_matches('/').to_owned(),
        model: entry.model.clone(),
        key,
        parallel: entry.parallel,
        context_tokens: entry.context,
    }))
}

/// The folder of models that a file names, unless the environment names one.
pub fn models_folder(config: &Config) -> Option<PathBuf> {
    let (key, folder, _) = config.get("models_folder")?;
    variable(key).is_none().then(|| folder.into())
}

/// Every file that holds here, the file of keys apart, and what is wrong with it.
pub fn files(explicit: Option<&Path>, folder: &Path) -> Vec<(PathBuf, Result<(), String>)> {
    let usual = [Some(folder.join(files::PROJECT_FILE)), edit::user_file().ok()];
    let there = usual.into_iter().flatten().filter(|path| path.symlink_metadata().is_ok());
    let check = |path: &Path| match files::read(path) {
        Ok(Some(text)) => files::check_text(path, &text).map_err(|error| error.to_string()),
        Ok(None) => Err(format!("there is no file {}", path.display())),
        Err(error) => Err(error.to_string()),
    };
    explicit.map(Path::to_owned).into_iter().chain(there).map(|path| (path.clone(), check(&path))).collect()
}

/// Environment variables that stand for a setting and can't be its value, and why.
pub fn wrong_variables() -> Vec<(&'static str, String)> {
    let wrong = |key: &Key| {
        let value = variable(key)?;
        (key.check)(&value)
            .err()
            .map(|why| (key.variable.unwrap_or(key.name), format!("can't be {value:?}: {why}")))
    };
    KEYS.iter().filter_map(wrong).collect()
}

/// Whose keys hold.
pub fn preset(config: &Config) -> Preset {
    config.get("ui.keys").and_then(|(_, value, _)| value.parse().ok()).unwrap_or_default()
}

/// Remembers a setting in the person's own file.
///
/// # Errors
/// A sentence.
pub fn keep(name: &str, value: &str) -> Result<(), String> {
    let path = edit::user_file().map_err(|error| error.to_string())?;
    edit::set(&path, name, value).map_err(|error| error.to_string())
}

/// Puts what the files say where nothing else was said.
///
/// # Errors
/// A sentence about a value that can't be used.
pub fn fill(cli: &mut Cli, config: &Config) -> Result<(), ConfigError> {
    let (model, turn, screen) = (&mut cli.model, &mut cli.turn, &mut cli.screen);
    fill_one(&mut model.model, config, "model")?;
    fill_one(&mut model.models_folder, config, "models_folder")?;
    fill_one(&mut model.device, config, "device")?;
    fill_one(&mut model.context, config, "context")?;
    fill_one(&mut model.quant, config, "quant")?;
    fill_one(&mut model.saved_states, config, "saved_states")?;
    fill_one(&mut turn.system, config, "system")?;
    fill_one(&mut turn.think, config, "think")?;
    fill_one(&mut turn.max_tokens, config, "max_tokens")?;
    fill_one(&mut turn.mtp, config, "mtp")?;
    fill_one(&mut turn.detail, config, "detail")?;
    fill_one(&mut turn.temperature, config, "sampling.temperature")?;
    fill_one(&mut turn.top_k, config, "sampling.top_k")?;
    fill_one(&mut turn.top_p, config, "sampling.top_p")?;
    fill_one(&mut turn.min_p, config, "sampling.min_p")?;
    fill_one(&mut turn.presence_penalty, config, "sampling.presence_penalty")?;
    fill_one(&mut turn.frequency_penalty, config, "sampling.frequency_penalty")?;
    fill_one(&mut turn.repetition_penalty, config, "sampling.repetition_penalty")?;
    fill_one(&mut turn.seed, config, "sampling.seed")?;
    fill_one(&mut screen.theme, config, "ui.theme")?;
    fill_one(&mut screen.images, config, "ui.images")?;
    fill_one(&mut screen.keys, config, "ui.keys")?;
    fill_one(&mut screen.mouse, config, "ui.mouse")?;
    fill_one(&mut screen.smooth_scroll, config, "ui.smooth_scroll")?;
    fill_one(&mut screen.drafting, config, "ui.drafting")?;
    fill_one(&mut screen.mode, config, "ui.mode")?;
    fill_one(&mut screen.notify, config, "ui.notify")?;
    fill_one(&mut screen.overflow, config, "overflow")?;
    fill_one(&mut screen.persona, config, "persona")?;
    fill_one(&mut screen.preset, config, "preset")?;
    fill_one(&mut cli.history.keep_days, config, "history.keep_days")?;
    fill_one(&mut cli.log, config, "log")?;
    let mut saves = cli.history.no_history.then_some(Switch::Off);
    fill_one(&mut saves, config, "history.save")?;
    cli.history.no_history = saves == Some(Switch::Off);
    Ok(())
}

fn fill_one<T: FromStr<Err: ToString>>(
    slot: &mut Option<T>,
    config: &Config,
    name: &str,
) -> Result<(), ConfigError> {
    let Some((key, value, origin)) = config.get(name) else { return Ok(()) };
    if slot.is_some() || variable(key).is_some() {
        return Ok(());
    }
    let parsed = value.parse().map_err(|error: T::Err| ConfigError::Value {
        origin: origin.clone(),
        name: key.name,
        value: value.to_owned(),
        why: error.to_string(),
    })?;
    *slot = Some(parsed);
    Ok(())
}

/// What the environment says; an empty variable says nothing.
pub fn variable(key: &Key) -> Option<String> {
    let value = env::var_os(key.variable?)?;
    Some(value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests;
