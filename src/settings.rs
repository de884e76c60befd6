//! What the command line means: complete, typed settings. The one function from one to the other.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::chat::Detail;
use crate::cli::{HistoryArgs, ModelArgs, SavedStates, Switch, TurnArgs};
use crate::engine::built_in;
use crate::engine::device::DeviceChoice;
use crate::engine::generate::LoadOptions;
use crate::engine::sampler;
use crate::engine::states::StateOptions;
use crate::engine::weights::quantised::Quant;
use crate::msg::{SamplingOptions, TurnOptions};
use crate::paths;
use crate::remote::RemoteOptions;

/// What took longer to read than this is saved, unless told otherwise.
const WORTH_SAVING: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct Settings {
    pub load: LoadOptions,
    pub turn: TurnOptions,
    pub system: Option<String>,
    /// For pictures that don't say otherwise.
    pub detail: Detail,
    /// The server that is asked in place of a model of this machine.
    pub remote: Option<RemoteOptions>,
    /// A model that isn't here may be downloaded.
    pub pull: bool,
    /// Whether chats are kept.
    pub keeps_chats: bool,
}

/// Where conversations are kept.
///
/// # Errors
/// A sentence, for a user without a home.
pub fn history_folder() -> Result<PathBuf, String> {
    let data =
        paths::data().ok_or("there is no home folder to keep a history in; LOQUAT_DATA_DIR names one")?;
    Ok(data.join("history"))
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("the environment variable {name} is {value:?}: {why}")]
    Environment { name: &'static str, value: String, why: String },
    #[error(transparent)]
    Sampling(#[from] sampler::SamplerError),
}

impl Settings {
    /// The same for a batch: many conversations, each of which is over when it is answered.
    pub fn without_states(mut self) -> Self {
        self.load.states = None;
        self
    }

    /// With so many turns at the same time, if there is memory for them.
    pub fn answering(mut self, parallel: usize) -> Self {
        self.load.parallel = parallel;
        self
    }

    /// Flags come before environment variables; an empty variable counts as none.
    ///
    /// # Errors
    /// `Environment` and `Sampling` for values out of range.
    pub fn new(model: ModelArgs, turn: TurnArgs, history: &HistoryArgs) -> Result<Self, SettingsError> {
        let keeps_chats: Option<Switch> = match history.no_history {
            true => Some(Switch::Off),
            false => from_environment("LOQUAT_HISTORY")?,
        };
        let context: Option<u32> = match model.context {
            Some(context) => Some(context),
            None => from_environment("LOQUAT_CONTEXT")?,
        };
        let device: Option<DeviceChoice> = match model.device {
            Some(device) => Some(device),
            None => from_environment("LOQUAT_DEVICE")?,
        };
        let saved_states: Option<SavedStates> = match model.saved_states {
            Some(saved_states) => Some(saved_states),
            None => from_environment("LOQUAT_SAVED_STATES")?,
        };
        let quant: Option<Quant> = match model.quant {
            Some(quant) => Some(quant),
            None => from_environment("LOQUAT_QUANT")?,
        };
        let sampling = SamplingOptions {
            temperature: turn.temperature,
            top_k: turn.top_k,
            top_p: turn.top_p,
            min_p: turn.min_p,
            presence_penalty: turn.presence_penalty,
            frequency_penalty: turn.frequency_penalty,
            repetition_penalty: turn.repetition_penalty,
            seed: turn.seed,
        };
        sampler::check(&sampling)?;
        let dir = model.model.or_else(|| env::var_os("LOQUAT_MODEL").map(PathBuf::from));
        let dir = dir.filter(|dir| !dir.as_os_str().is_empty());
        let mut options = TurnOptions {
            sampling,
            max_tokens: turn.max_tokens.map(|tokens| tokens as usize),
            mtp: turn.mtp,
            ..TurnOptions::default()
        };
        if let Some(think) = turn.think {
            think.apply(&mut options);
        }
        Ok(Self {
            load: LoadOptions {
                parallel: 1,
                is_default: dir.is_none(),
                dir: match dir {
                    None => built_in::DIR.into(),
                    Some(dir) if dir.as_os_str() == built_in::NAME => built_in::DIR.into(),
                    Some(dir) => dir,
                },
                device: device.unwrap_or_default(),
                context_tokens: context.map(|tokens| tokens as usize),
                force: model.force,
                quant: quant.unwrap_or_default(),
                quantised: paths::cache().map(|cache| cache.join("weights")),
                states: states(saved_states.unwrap_or_default()),
            },
            turn: options,
            system: turn.system.filter(|system| !system.trim().is_empty()),
            detail: turn.detail.unwrap_or_default(),
            remote: None,
            pull: model.pull,
            keeps_chats: keeps_chats != Some(Switch::Off),
        })
    }
}

/// What is set in `first`, and in its absence what is set in `second`.
pub fn over(first: &SamplingOptions, second: &SamplingOptions) -> SamplingOptions {
    SamplingOptions {
        temperature: first.temperature.or(second.temperature),
        top_k: first.top_k.or(second.top_k),
        top_p: first.top_p.or(second.top_p),
        min_p: first.min_p.or(second.min_p),
        presence_penalty: first.presence_penalty.or(second.presence_penalty),
        frequency_penalty: first.frequency_penalty.or(second.frequency_penalty),
        repetition_penalty: first.repetition_penalty.or(second.repetition_penalty),
        seed: first.seed.or(second.seed),
    }
}

fn states(saved: SavedStates) -> Option<StateOptions> {
    let worth = match saved {
        SavedStates::Off => return None,
        SavedStates::Auto => WORTH_SAVING,
        SavedStates::Always => Duration::ZERO,
    };
    Some(StateOptions { folder: paths::cache()?.join("states"), worth })
}

/// What goes into the log file.
///
/// # Errors
/// `Environment`.
pub fn log_level(flag: Option<log::LevelFilter>) -> Result<log::LevelFilter, SettingsError> {
    let level = match flag {
        Some(level) => Some(level),
        None => from_environment("LOQUAT_LOG")?,
    };
    Ok(level.unwrap_or(log::LevelFilter::Warn))
}

fn from_environment<T: FromStr<Err: ToString>>(name: &'static str) -> Result<Option<T>, SettingsError> {
    let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    match value.parse() {
        Ok(parsed) => Ok(Some(parsed)),
        Err(error) => Err(SettingsError::Environment { name, value, why: error.to_string() }),
    }
}
