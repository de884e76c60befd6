//! What the command line means: complete, typed settings. The one function from one to the other.

use std::path::PathBuf;

use crate::cli::{ModelArgs, Switch, TurnArgs};
use crate::engine::generate::LoadOptions;
use crate::msg::{SamplingOptions, TurnOptions};

#[derive(Debug, Clone)]
pub struct Settings {
    pub load: LoadOptions,
    pub turn: TurnOptions,
    pub system: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "no model was named; pass --model DIR (or set LOQUAT_MODEL) with a folder that holds config.json, \
     tokenizer.json and the .safetensors files of a Qwen3.5-family model"
)]
pub struct NoModel;

impl Settings {
    /// # Errors
    /// [`NoModel`]: there is no default model yet.
    pub fn new(model: ModelArgs, turn: TurnArgs) -> Result<Self, NoModel> {
        let dir: PathBuf = model.model.filter(|dir| !dir.as_os_str().is_empty()).ok_or(NoModel)?;
        let context_tokens = model.context.map(|tokens| tokens as usize);
        Ok(Self {
            load: LoadOptions { dir, device: model.device, context_tokens },
            turn: TurnOptions {
                sampling: SamplingOptions {
                    temperature: turn.temperature,
                    top_k: turn.top_k,
                    top_p: turn.top_p,
                    min_p: turn.min_p,
                    presence_penalty: turn.presence_penalty,
                    frequency_penalty: turn.frequency_penalty,
                    repetition_penalty: turn.repetition_penalty,
                    seed: turn.seed,
                },
                max_tokens: turn.max_tokens.map(|tokens| tokens as usize),
                thinking: turn.think.map(|switch| switch == Switch::On),
            },
            system: turn.system.filter(|system| !system.trim().is_empty()),
        })
    }
}
