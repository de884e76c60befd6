//! Settings that a person names: personas (system prompts) and sampling presets.

use crate::msg::SamplingOptions;

use super::{Config, known};

/// `personas.NAME.system` or `sampling.presets.NAME.KEY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    Persona(String),
    Preset { name: String, key: String },
}

impl Named {
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(name) = name.strip_prefix("personas.").and_then(|rest| rest.strip_suffix(".system")) {
            return Some(Self::Persona(name.to_owned()));
        }
        let (name, key) = name.strip_prefix("sampling.presets.")?.rsplit_once('.')?;
        Some(Self::Preset { name: name.to_owned(), key: key.to_owned() })
    }

    /// Whether a stranger's folder may set it, if there is nothing wrong with it.
    pub fn check(&self, value: &str) -> Result<bool, String> {
        match self {
            Self::Persona(name) if name == "off" => Err("off means none; call it otherwise".into()),
            Self::Persona(_) if value.trim().is_empty() => Err("expected some text".into()),
            Self::Persona(_) => Ok(false),
            Self::Preset { key, .. } => {
                let key = known(&format!("sampling.{key}"))?;
                (key.check)(value).map_err(|why| format!("can't be {value:?}: {why}"))?;
                Ok(true)
            }
        }
    }
}

impl Config {
    /// System prompts by name.
    pub fn personas(&self) -> Vec<(String, String)> {
        let mut personas: Vec<(String, String)> = Vec::new();
        for (named, value) in self.named() {
            if let Named::Persona(name) = named
                && !personas.iter().any(|(known, _)| known == name)
            {
                personas.push((name.clone(), value.clone()));
            }
        }
        personas
    }

    /// Sampling presets by name; two are always there, unless they are replaced.
    pub fn presets(&self) -> Vec<(String, SamplingOptions)> {
        let precise = SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() };
        let mut presets =
            vec![("model".to_owned(), SamplingOptions::default()), ("precise".to_owned(), precise)];
        let is_replaced =
            |name: &str| self.named().any(|(it, _)| matches!(it, Named::Preset { name: n, .. } if n == name));
        presets.retain(|(name, _)| !is_replaced(name));
        // What counts most is put in last.
        for (named, value) in self.named().rev() {
            let Named::Preset { name, key } = named else { continue };
            let at = presets.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                presets.push((name.clone(), SamplingOptions::default()));
                presets.len() - 1
            });
            put(&mut presets[at].1, key, value);
        }
        presets
    }
}

/// The value was checked when the file was read.
fn put(sampling: &mut SamplingOptions, key: &str, value: &str) {
    match key {
        "temperature" => sampling.temperature = value.parse().ok(),
        "top_k" => sampling.top_k = value.parse().ok(),
        "top_p" => sampling.top_p = value.parse().ok(),
        "min_p" => sampling.min_p = value.parse().ok(),
        "presence_penalty" => sampling.presence_penalty = value.parse().ok(),
        "frequency_penalty" => sampling.frequency_penalty = value.parse().ok(),
        "repetition_penalty" => sampling.repetition_penalty = value.parse().ok(),
        "seed" => sampling.seed = value.parse().ok(),
        _ => {}
    }
}
