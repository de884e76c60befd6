//! The vision tower's part of `config.json`, checked like the rest.

use serde_json::{Map, Value};

use super::{ConfigError, MAX_DIM, ParseError};

/// More blocks than any tower of the family by a factor of ten.
const MAX_DEPTH: usize = 270;

/// The vision tower, with the names of `vision_config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisionConfig {
    pub depth: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_heads: usize,
    pub patch_size: usize,
    pub temporal_patch_size: usize,
    pub spatial_merge_size: usize,
    /// Rows and columns of the table of learned positions: the root of `num_position_embeddings`.
    pub position_side: usize,
    pub out_hidden_size: usize,
}

/// Colours of a pixel.
pub const CHANNELS: usize = 3;

impl VisionConfig {
    /// `text_hidden_size` is the width of the features that the text model takes.
    pub(super) fn from_json(json: &Map<String, Value>, text_hidden_size: usize) -> Result<Self, ParseError> {
        let dim = |key: &str, default: Option<usize>| match json.get(key).filter(|value| !value.is_null()) {
            None => default.ok_or_else(|| format!("vision_config.{key} is missing")),
            Some(value) => value
                .as_u64()
                .and_then(|n| usize::try_from(n).ok())
                .filter(|n| (1..=MAX_DIM).contains(n))
                .ok_or_else(|| format!("vision_config.{key} is {value}, expected a whole number")),
        };
        let positions = dim("num_position_embeddings", Some(2304))?;
        let config = Self {
            depth: dim("depth", None)?,
            hidden_size: dim("hidden_size", None)?,
            intermediate_size: dim("intermediate_size", None)?,
            num_heads: dim("num_heads", None)?,
            patch_size: dim("patch_size", Some(16))?,
            temporal_patch_size: dim("temporal_patch_size", Some(2))?,
            spatial_merge_size: dim("spatial_merge_size", Some(2))?,
            position_side: positions.isqrt(),
            out_hidden_size: dim("out_hidden_size", Some(text_hidden_size))?,
        };
        let other_mathematics = [
            ("in_channels", json.get("in_channels").is_some_and(|n| n.as_u64() != Some(CHANNELS as u64))),
            (
                "hidden_act",
                json.get("hidden_act").is_some_and(|act| act.as_str() != Some("gelu_pytorch_tanh")),
            ),
            (
                "deepstack_visual_indexes",
                json.get("deepstack_visual_indexes")
                    .is_some_and(|list| list.as_array().is_none_or(|list| !list.is_empty())),
            ),
        ];
        if let Some((key, _)) = other_mathematics.iter().find(|(_, differs)| *differs) {
            return Err(ConfigError::NotYet { what: format!("this model's vision_config.{key}") }.into());
        }
        config.check(positions, text_hidden_size)?;
        Ok(config)
    }

    fn check(&self, positions: usize, text_hidden_size: usize) -> Result<(), String> {
        if self.depth > MAX_DEPTH {
            return Err(format!("vision_config.depth is {}, more than {MAX_DEPTH}", self.depth));
        }
        if self.position_side * self.position_side != positions {
            return Err(format!("num_position_embeddings ({positions}) is not a square"));
        }
        // The rotary embedding gives a quarter of a head to each of row, column, row, column.
        if !self.hidden_size.is_multiple_of(4 * self.num_heads) {
            let (width, heads) = (self.hidden_size, self.num_heads);
            return Err(format!("vision hidden_size ({width}) is not a multiple of 4 x num_heads ({heads})"));
        }
        if self.out_hidden_size != text_hidden_size {
            let out = self.out_hidden_size;
            return Err(format!("out_hidden_size ({out}) is not the text hidden_size ({text_hidden_size})"));
        }
        let sizes = [self.patch_size, self.temporal_patch_size, self.spatial_merge_size];
        if sizes.iter().any(|n| *n > 64) || self.patch_values() > MAX_DIM || self.merged_size() > MAX_DIM {
            return Err(format!("patch, temporal and merge sizes {sizes:?} are too large"));
        }
        Ok(())
    }

    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.num_heads
    }

    /// Numbers of one patch: channels, frames, rows, columns.
    pub fn patch_values(&self) -> usize {
        CHANNELS * self.temporal_patch_size * self.patch_size * self.patch_size
    }

    /// Width of the patches that are merged into one token, side by side.
    pub fn merged_size(&self) -> usize {
        self.spatial_merge_size * self.spatial_merge_size * self.hidden_size
    }

    /// Sides of what the tower takes are multiples of this many pixels; a square of it becomes one token.
    pub fn factor(&self) -> usize {
        self.patch_size * self.spatial_merge_size
    }
}
