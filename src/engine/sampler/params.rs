//! Sampling settings: what the model's files say, what its card recommends, what the person wants.

use std::path::Path;

use serde::Deserialize;

use super::SamplerError;
use crate::engine::model_file::{self, ModelFileError};
use crate::msg::SamplingOptions;

/// A real one has under 1 kB.
const GENERATION_CONFIG_LIMIT_BYTES: u64 = 1 << 20;

/// Complete settings; every value holds what its comment says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy: the best token, and nothing else matters but the penalties.
    pub temperature: f32,
    /// 0 is off.
    pub top_k: usize,
    /// In (0, 1]; 1 is off.
    pub top_p: f32,
    /// In [0, 1]; 0 is off.
    pub min_p: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    /// From 0.01; 1 is off.
    pub repetition_penalty: f32,
}

/// What the recommendations depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    pub thinking: bool,
    /// Whether the model thinks unless told otherwise (`prompt::thinks_by_default`).
    pub thinks_by_default: bool,
    /// 0.8B and 2B have a table of their own: dense, with `hidden_size` up to 2048.
    pub is_small: bool,
    pub has_images: bool,
}

/// What we read of generation_config.json. Values out of range are ignored: the file is a default, and
/// a person can do nothing about it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GenerationConfig {
    pub do_sample: Option<bool>,
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub repetition_penalty: Option<f32>,
    eos_token_id: Option<TokenIds>,
}

/// The file has one id or a list of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum TokenIds {
    One(u32),
    Several(Vec<u32>),
}

impl GenerationConfig {
    /// Reads generation_config.json of a model folder. A folder without one, or with one that is not
    /// valid JSON, has no wishes.
    ///
    /// # Errors
    /// If the file is there but can't be read, or is far too large.
    pub fn open(dir: &Path) -> Result<Self, ModelFileError> {
        let path = dir.join("generation_config.json");
        let text = model_file::read_text_if_present(&path, GENERATION_CONFIG_LIMIT_BYTES)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// The ids that end an answer; empty if the file names none.
    pub fn eos_token_ids(&self) -> &[u32] {
        match &self.eos_token_id {
            None => &[],
            Some(TokenIds::One(id)) => std::slice::from_ref(id),
            Some(TokenIds::Several(ids)) => ids,
        }
    }
}

impl SamplingParams {
    /// Always the likeliest token, nothing else.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        repetition_penalty: 1.0,
    };

    /// The settings of a turn. A person's wish comes first. Then, in the mode the model is in by default,
    /// what its generation_config.json says: the file describes that mode only (Qwen3.6's has the
    /// values for thinking), so in the other mode the card's recommendation comes before the file.
    ///
    /// # Errors
    /// `Param` if a wish makes no sense, such as a negative temperature.
    pub fn resolve(
        options: &SamplingOptions,
        config: &GenerationConfig,
        mode: Mode,
    ) -> Result<Self, SamplerError> {
        check(options)?;
        let recommended = recommendation(mode);
        let base = match mode.thinking == mode.thinks_by_default {
            true => config.apply_to(recommended),
            false => recommended,
        };
        Ok(Self {
            temperature: options.temperature.unwrap_or(base.temperature),
            top_k: options.top_k.unwrap_or(base.top_k),
            top_p: options.top_p.unwrap_or(base.top_p),
            min_p: options.min_p.unwrap_or(base.min_p),
            presence_penalty: options.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: options.frequency_penalty.unwrap_or(base.frequency_penalty),
            repetition_penalty: options.repetition_penalty.unwrap_or(base.repetition_penalty),
        })
    }
}

impl GenerationConfig {
    fn apply_to(&self, base: SamplingParams) -> SamplingParams {
        let temperature = match self.do_sample {
            Some(false) => Some(0.0),
            _ => self.temperature.filter(|t| is_temperature(*t)),
        };
        SamplingParams {
            temperature: temperature.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.filter(|p| is_top_p(*p)).unwrap_or(base.top_p),
            min_p: self.min_p.filter(|p| is_min_p(*p)).unwrap_or(base.min_p),
            presence_penalty: self
                .presence_penalty
                .filter(|p| is_penalty(*p))
                .unwrap_or(base.presence_penalty),
            frequency_penalty: self
                .frequency_penalty
                .filter(|p| is_penalty(*p))
                .unwrap_or(base.frequency_penalty),
            repetition_penalty: self
                .repetition_penalty
                .filter(|p| is_repetition_penalty(*p))
                .unwrap_or(base.repetition_penalty),
        }
    }
}

/// The model cards' table for general use (Qwen3.5; 3.6 and 3.8 differ only in lower presence
/// penalties, and nothing in their files tells them apart).
fn recommendation(mode: Mode) -> SamplingParams {
    let (temperature, top_p, presence_penalty) = match (mode.is_small, mode.thinking, mode.has_images) {
        (false, true, _) => (1.0, 0.95, 1.5),
        (false, false, _) => (0.7, 0.8, 1.5),
        (true, true, false) => (1.0, 0.95, 1.5),
        (true, true, true) => (0.6, 0.95, 0.0),
        (true, false, false) => (1.0, 1.0, 2.0),
        (true, false, true) => (0.7, 0.8, 1.5),
    };
    SamplingParams {
        temperature,
        top_k: 20,
        top_p,
        min_p: 0.0,
        presence_penalty,
        frequency_penalty: 0.0,
        repetition_penalty: 1.0,
    }
}

/// Far above any use; keeps the arithmetic finite.
const MOST: f32 = 100.0;

fn is_temperature(value: f32) -> bool {
    (0.0..=MOST).contains(&value)
}

fn is_top_p(value: f32) -> bool {
    value > 0.0 && value <= 1.0
}

fn is_min_p(value: f32) -> bool {
    (0.0..=1.0).contains(&value)
}

fn is_penalty(value: f32) -> bool {
    (-MOST..=MOST).contains(&value)
}

fn is_repetition_penalty(value: f32) -> bool {
    (0.01..=MOST).contains(&value)
}

/// Whether a person's wishes make sense.
///
/// # Errors
/// `Param` names the first that does not.
pub fn check(options: &SamplingOptions) -> Result<(), SamplerError> {
    type Rule = (&'static str, Option<f32>, fn(f32) -> bool, &'static str);
    let rules: [Rule; 6] = [
        ("temperature", options.temperature, is_temperature, "from 0 to 100"),
        ("top_p", options.top_p, is_top_p, "above 0 and at most 1"),
        ("min_p", options.min_p, is_min_p, "from 0 to 1"),
        ("presence_penalty", options.presence_penalty, is_penalty, "from -100 to 100"),
        ("frequency_penalty", options.frequency_penalty, is_penalty, "from -100 to 100"),
        ("repetition_penalty", options.repetition_penalty, is_repetition_penalty, "from 0.01 to 100"),
    ];
    for (name, value, is_allowed, wanted) in rules {
        if let Some(got) = value.filter(|value| !is_allowed(*value)) {
            return Err(SamplerError::Param { name, wanted, got });
        }
    }
    Ok(())
}
