//! `config.json` read into a [`ModelConfig`] whose every relation holds; nothing downstream checks again.
//!
//! Accepts the nested form (`text_config` inside a multimodal config) and the flat text-only form, and the
//! older places of the rope values. Unknown keys are ignored, as the reference implementation does.

pub mod vision;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::vision::VisionConfig;
use super::built_in;
use super::gguf::folder;
use super::model_file::{self, ModelFileError};

/// Largest `config.json` that is read; real ones have a few KiB.
pub(super) const CONFIG_LIMIT_BYTES: u64 = 4 << 20;
/// More layers than any model of the family by a factor of ten: beyond it the file is damaged or hostile.
const MAX_LAYERS: usize = 1024;
/// `intermediate_size` of a model with experts that doesn't say it: the reference's default.
const DENSE_INTERMEDIATE_SIZE: usize = 5632;
/// Upper bound of every width, so that products of two of them can't overflow.
const MAX_DIM: usize = 1 << 24;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("there is no model at {0}: the folder doesn't exist")]
    NoFolder(PathBuf),
    #[error(
        "{0} is not a folder; give a .gguf file, or the folder that holds config.json and the .safetensors files"
    )]
    NotAFolder(PathBuf),
    #[error("{0} has no config.json, so it is not a model folder in Hub layout, and no .gguf file")]
    NoConfig(PathBuf),
    #[error(transparent)]
    File(#[from] ModelFileError),
    #[error("{path} is not valid: {why}")]
    Invalid { path: PathBuf, why: String },
    #[error(
        "model type {model_type:?} is not supported; Loquat runs the Qwen3.5 family ({})",
        MODEL_TYPES.map(|(name, _)| name).join(", ")
    )]
    UnknownModelType { model_type: String },
    #[error("{what} is not supported yet")]
    NotYet { what: String },
}

/// The members of the family, which differ in their feed-forward part and in what a missing key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Dense,
    Moe,
    Next,
}

const MODEL_TYPES: [(&str, Member); 5] = [
    ("qwen3_5", Member::Dense),
    ("qwen3_5_text", Member::Dense),
    ("qwen3_5_moe", Member::Moe),
    ("qwen3_5_moe_text", Member::Moe),
    ("qwen3_next", Member::Next),
];

impl Member {
    /// Also the name, as a constant of ours.
    fn of(model_type: &str) -> Option<(&'static str, Self)> {
        MODEL_TYPES.into_iter().find(|(name, _)| *name == model_type)
    }
}

/// What mixes the tokens in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerType {
    LinearAttention,
    FullAttention,
}

/// The text model, with the names of `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Which member of the family it is.
    pub model_type: &'static str,
    pub vocab_size: usize,
    pub hidden_size: usize,
    /// Width of dense feed-forward layers.
    pub intermediate_size: usize,
    /// The experts of sparse feed-forward layers, if the model has such layers.
    pub moe: Option<MoeConfig>,
    pub layer_types: Vec<LayerType>,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub linear_num_key_heads: usize,
    pub linear_num_value_heads: usize,
    pub linear_key_head_dim: usize,
    pub linear_value_head_dim: usize,
    pub linear_conv_kernel_dim: usize,
    pub rms_norm_eps: f64,
    pub rope: RopeConfig,
    /// `None` when the config doesn't say; then a missing `lm_head.weight` means tied.
    pub tie_word_embeddings: Option<bool>,
    pub max_position_embeddings: usize,
    /// Stop ids named by the config; `generation_config.json` has the last word.
    pub eos_token_ids: Vec<u32>,
    /// The vision tower, if the checkpoint has one.
    pub vision: Option<VisionConfig>,
}

/// Mixture of experts, with the names of `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeConfig {
    pub num_experts: usize,
    pub num_experts_per_tok: usize,
    pub moe_intermediate_size: usize,
    /// Width of the expert that all tokens go through; `None` if there isn't one.
    pub shared_expert_intermediate_size: Option<usize>,
    /// Whether the weights of the chosen experts are made to sum to one.
    pub norm_topk_prob: bool,
    /// Which layers have experts; the others are dense.
    pub sparse_layers: Vec<bool>,
}

impl MoeConfig {
    pub fn n_sparse_layers(&self) -> usize {
        self.sparse_layers.iter().filter(|is_sparse| **is_sparse).count()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    pub theta: f64,
    /// Channels of a head that rotate: `partial_rotary_factor * head_dim`.
    pub rotary_dim: usize,
    /// How many frequencies belong to the time, height and width axes.
    pub mrope_section: [usize; 3],
}

impl ModelConfig {
    /// Reads and checks `dir/config.json`.
    ///
    /// # Errors
    /// Each variant of [`ConfigError`] names the file and what is wrong in it.
    pub fn open(dir: &Path) -> Result<Self, ConfigError> {
        match fs::metadata(dir) {
            Err(_) if built_in::is_built_in(dir) => {}
            Err(_) => return Err(ConfigError::NoFolder(dir.to_owned())),
            Ok(meta) if !meta.is_dir() && !folder::is_gguf(dir) => {
                return Err(ConfigError::NotAFolder(dir.to_owned()));
            }
            Ok(_) => {}
        }
        let path = dir.join("config.json");
        let json =
            read_json(&path, CONFIG_LIMIT_BYTES)?.ok_or_else(|| ConfigError::NoConfig(dir.to_owned()))?;
        Self::from_json(&json).map_err(|error| match error {
            ParseError::Invalid(why) => ConfigError::Invalid { path, why },
            ParseError::Config(error) => error,
        })
    }

    fn from_json(json: &Value) -> Result<Self, ParseError> {
        let root = json.as_object().ok_or("it is not a JSON object")?;
        let model_type = root.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let (model_type, member) = Member::of(model_type)
            .ok_or_else(|| ConfigError::UnknownModelType { model_type: model_type.to_owned() })?;
        let text = match root.get("text_config") {
            None => root,
            Some(Value::Object(text)) => text,
            Some(_) => return Err("text_config is not an object".into()),
        };
        if let Some(text_type) = text.get("model_type").and_then(Value::as_str)
            && Member::of(text_type).is_none_or(|(_, text_member)| text_member != member)
        {
            return Err(format!("model_type is {model_type:?} with a text_config of {text_type:?}").into());
        }
        let keys = Keys { text, root };
        keys.refuse_other_mathematics()?;

        let num_hidden_layers = keys.dim("num_hidden_layers", None)?;
        if num_hidden_layers > MAX_LAYERS {
            return Err(format!("num_hidden_layers is {num_hidden_layers}, more than {MAX_LAYERS}").into());
        }
        let num_attention_heads = keys.dim("num_attention_heads", None)?;
        let head_dim = keys.dim("head_dim", Some(256))?;
        let hidden_size = keys.dim("hidden_size", None)?;
        let config = Self {
            model_type,
            vocab_size: keys.dim("vocab_size", None)?,
            hidden_size,
            // Models all of whose layers have experts leave it out.
            intermediate_size: keys
                .dim("intermediate_size", (member != Member::Dense).then_some(DENSE_INTERMEDIATE_SIZE))?,
            moe: moe(&keys, member, num_hidden_layers)?,
            layer_types: layer_types(&keys, num_hidden_layers)?,
            num_attention_heads,
            num_key_value_heads: keys.dim("num_key_value_heads", Some(num_attention_heads))?,
            head_dim,
            linear_num_key_heads: keys.dim("linear_num_key_heads", Some(16))?,
            linear_num_value_heads: keys.dim("linear_num_value_heads", Some(32))?,
            linear_key_head_dim: keys.dim("linear_key_head_dim", Some(128))?,
            linear_value_head_dim: keys.dim("linear_value_head_dim", Some(128))?,
            linear_conv_kernel_dim: keys.dim("linear_conv_kernel_dim", Some(4))?,
            rms_norm_eps: keys.number("rms_norm_eps", 1e-6)?,
            rope: rope(&keys, head_dim)?,
            tie_word_embeddings: keys.tied(),
            max_position_embeddings: keys.dim("max_position_embeddings", Some(262_144))?,
            eos_token_ids: token_ids(text.get("eos_token_id").or_else(|| root.get("eos_token_id"))),
            vision: match root.get("vision_config").filter(|value| !value.is_null()) {
                None => None,
                Some(Value::Object(vision)) => Some(VisionConfig::from_json(vision, hidden_size)?),
                Some(_) => return Err("vision_config is not an object".into()),
            },
        };
        config.check()?;
        Ok(config)
    }

    /// The relations between values that the model code relies on.
    fn check(&self) -> Result<(), String> {
        let groups = [
            (
                "num_attention_heads",
                self.num_attention_heads,
                "num_key_value_heads",
                self.num_key_value_heads,
            ),
            (
                "linear_num_value_heads",
                self.linear_num_value_heads,
                "linear_num_key_heads",
                self.linear_num_key_heads,
            ),
        ];
        for (name, many, divisor_name, few) in groups {
            if !many.is_multiple_of(few) {
                return Err(format!("{name} ({many}) is not a multiple of {divisor_name} ({few})"));
            }
        }
        if self.linear_conv_kernel_dim < 2 {
            return Err("linear_conv_kernel_dim must be at least 2".into());
        }
        if !(self.rms_norm_eps > 0.0 && self.rms_norm_eps < 1.0) {
            return Err(format!("rms_norm_eps is {}", self.rms_norm_eps));
        }
        if let Some(moe) = &self.moe
            && moe.num_experts_per_tok > moe.num_experts
        {
            return Err(format!(
                "num_experts_per_tok ({}) is more than num_experts ({})",
                moe.num_experts_per_tok, moe.num_experts
            ));
        }
        let largest = [
            ("query and gate rows", self.num_attention_heads.saturating_mul(2 * self.head_dim)),
            ("linear key width", self.linear_num_key_heads.saturating_mul(self.linear_key_head_dim)),
            ("linear value width", self.linear_num_value_heads.saturating_mul(self.linear_value_head_dim)),
        ];
        match largest.iter().find(|(_, width)| *width > MAX_DIM) {
            Some((name, width)) => Err(format!("{name} would be {width}, more than {MAX_DIM}")),
            None => Ok(()),
        }
    }

    /// The experts of layer `i`, or `None` if it is dense.
    pub fn moe_of_layer(&self, i: usize) -> Option<&MoeConfig> {
        self.moe.as_ref().filter(|moe| moe.sparse_layers[i])
    }

    /// Width of all query (or all key) heads of a linear layer together.
    pub fn linear_key_dim(&self) -> usize {
        self.linear_num_key_heads * self.linear_key_head_dim
    }

    /// Width of all value heads of a linear layer together.
    pub fn linear_value_dim(&self) -> usize {
        self.linear_num_value_heads * self.linear_value_head_dim
    }

    /// Channels of the causal convolution: queries, keys and values.
    pub fn conv_dim(&self) -> usize {
        2 * self.linear_key_dim() + self.linear_value_dim()
    }

    pub fn n_layers(&self, layer_type: LayerType) -> usize {
        self.layer_types.iter().filter(|t| **t == layer_type).count()
    }

    /// Bytes that each token adds to the KV cache of one full-attention layer (f32 keys and values).
    pub fn kv_bytes_per_token(&self) -> usize {
        self.num_key_value_heads * self.head_dim * 2 * size_of::<f32>()
    }

    /// Bytes of the f32 states of all linear layers, whatever was read.
    pub fn state_bytes(&self) -> usize {
        let recurrent = self.linear_value_dim() * self.linear_key_head_dim;
        let conv = (self.linear_conv_kernel_dim - 1) * self.conv_dim();
        self.n_layers(LayerType::LinearAttention) * (recurrent + conv) * size_of::<f32>()
    }
}

/// Parses a JSON file of bounded size; `None` if it doesn't exist.
pub(super) fn read_json(path: &Path, limit_bytes: u64) -> Result<Option<Value>, ConfigError> {
    let Some(text) = model_file::read_text_if_present(path, limit_bytes)? else { return Ok(None) };
    let invalid =
        |error: serde_json::Error| ConfigError::Invalid { path: path.to_owned(), why: error.to_string() };
    serde_json::from_str(&text).map(Some).map_err(invalid)
}

/// One id or a list of them; anything else is none.
fn token_ids(value: Option<&Value>) -> Vec<u32> {
    let id = |v: &Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(ids)) => ids.iter().filter_map(id).collect(),
        Some(one) => id(one).into_iter().collect(),
        None => Vec::new(),
    }
}

enum ParseError {
    Invalid(String),
    Config(ConfigError),
}

impl From<String> for ParseError {
    fn from(why: String) -> Self {
        Self::Invalid(why)
    }
}

impl From<&str> for ParseError {
    fn from(why: &str) -> Self {
        Self::Invalid(why.to_owned())
    }
}

impl From<ConfigError> for ParseError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// Looks keys up in the text part first, then at the top level.
struct Keys<'a> {
    text: &'a Map<String, Value>,
    root: &'a Map<String, Value>,
}

impl Keys<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.text.get(key).or_else(|| self.root.get(key)).filter(|v| !v.is_null())
    }

    /// A width or count between 1 and [`MAX_DIM`].
    fn dim(&self, key: &str, default: Option<usize>) -> Result<usize, String> {
        let Some(value) = self.get(key) else {
            return default.ok_or_else(|| format!("{key} is missing"));
        };
        value
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| (1..=MAX_DIM).contains(n))
            .ok_or_else(|| format!("{key} is {value}, expected a whole number from 1 to {MAX_DIM}"))
    }

    /// Values that no released model of the family has, and that would need other mathematics than ours.
    /// Ignoring one would give fluent nonsense.
    fn refuse_other_mathematics(&self) -> Result<(), ParseError> {
        let not_yet = |what: String| Err(ParseError::Config(ConfigError::NotYet { what }));
        let act = self.get("hidden_act").map_or("silu", |act| act.as_str().unwrap_or_default());
        if act != "silu" {
            return not_yet(format!("hidden_act {act:?}"));
        }
        let interleaved = self.get("rope_parameters").and_then(|rope| rope.get("mrope_interleaved"));
        for (name, value, expected) in [
            ("attention_bias", self.get("attention_bias"), false),
            ("attn_output_gate", self.get("attn_output_gate"), true),
            ("mrope_interleaved", interleaved, true),
        ] {
            if value.is_some_and(|value| value.as_bool() != Some(expected)) {
                return not_yet(format!("{name} other than {expected}"));
            }
        }
        Ok(())
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, String> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| format!("{key} is {value}, expected true or false")),
        }
    }

    fn number(&self, key: &str, default: f64) -> Result<f64, String> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_f64().ok_or_else(|| format!("{key} is {value}, expected a number")),
        }
    }

    /// Tied if either level says so; `None` if neither says anything.
    fn tied(&self) -> Option<bool> {
        let said = [self.text, self.root].map(|m| m.get("tie_word_embeddings").and_then(Value::as_bool));
        match said {
            [None, None] => None,
            _ => Some(said.contains(&Some(true))),
        }
    }
}

fn layer_types(keys: &Keys, num_hidden_layers: usize) -> Result<Vec<LayerType>, String> {
    let Some(value) = keys.get("layer_types") else {
        let interval = keys.dim("full_attention_interval", Some(4))?;
        let layer_type = |i: usize| match (i + 1).is_multiple_of(interval) {
            true => LayerType::FullAttention,
            false => LayerType::LinearAttention,
        };
        return Ok((0..num_hidden_layers).map(layer_type).collect());
    };
    let list = value.as_array().ok_or("layer_types is not a list")?;
    if list.len() != num_hidden_layers {
        return Err(format!("layer_types has {} entries for {num_hidden_layers} layers", list.len()));
    }
    list.iter()
        .map(|layer| match layer.as_str() {
            Some("linear_attention") => Ok(LayerType::LinearAttention),
            Some("full_attention") => Ok(LayerType::FullAttention),
            _ => Err(format!("layer_types has the unknown entry {layer}")),
        })
        .collect()
}

/// The experts, with the reference's defaults. `qwen3_5_moe` has them in every layer and always normalises;
/// `qwen3_next` has keys for both.
fn moe(keys: &Keys, member: Member, num_hidden_layers: usize) -> Result<Option<MoeConfig>, String> {
    let (num_experts, num_experts_per_tok) = match member {
        Member::Dense => return Ok(None),
        Member::Moe => (256, 8),
        Member::Next => (512, 10),
    };
    let shared = match keys.get("shared_expert_intermediate_size").and_then(Value::as_u64) {
        Some(0) => None,
        _ => Some(keys.dim("shared_expert_intermediate_size", Some(512))?),
    };
    let mut moe = MoeConfig {
        num_experts: keys.dim("num_experts", Some(num_experts))?,
        num_experts_per_tok: keys.dim("num_experts_per_tok", Some(num_experts_per_tok))?,
        moe_intermediate_size: keys.dim("moe_intermediate_size", Some(512))?,
        shared_expert_intermediate_size: shared,
        norm_topk_prob: true,
        sparse_layers: vec![true; num_hidden_layers],
    };
    if member == Member::Next {
        moe.norm_topk_prob = keys.flag("norm_topk_prob", true)?;
        let step = keys.dim("decoder_sparse_step", Some(1))?;
        let dense = match keys.get("mlp_only_layers") {
            None => Vec::new(),
            Some(value) => value
                .as_array()
                .and_then(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>())
                .ok_or_else(|| format!("mlp_only_layers is {value}, expected a list of layers"))?,
        };
        let is_sparse = |i: usize| (i + 1).is_multiple_of(step) && !dense.contains(&(i as u64));
        moe.sparse_layers = (0..num_hidden_layers).map(is_sparse).collect();
    }
    Ok(Some(moe))
}

/// New files keep the rope values in `rope_parameters`, older ones in `rope_scaling` and flat keys.
fn rope(keys: &Keys, head_dim: usize) -> Result<RopeConfig, String> {
    let empty = Map::new();
    let nested = |key: &str| match keys.get(key) {
        None => Ok(&empty),
        Some(value) => value.as_object().ok_or_else(|| format!("{key} is {value}, expected an object")),
    };
    let (new, old) = (nested("rope_parameters")?, nested("rope_scaling")?);
    let find =
        |key: &str| new.get(key).or_else(|| old.get(key)).or_else(|| keys.get(key)).filter(|v| !v.is_null());
    let number = |key: &str, default: f64| match find(key) {
        None => Ok(default),
        Some(value) => value.as_f64().ok_or_else(|| format!("{key} is {value}, expected a number")),
    };

    let rope_type = find("rope_type").or_else(|| find("type")).and_then(Value::as_str).unwrap_or("default");
    if !["default", "mrope"].contains(&rope_type) {
        return Err(format!("rope type {rope_type:?} is not supported"));
    }
    let theta = number("rope_theta", 1e7)?;
    if !(theta.is_finite() && theta > 1.0) {
        return Err(format!("rope_theta is {theta}"));
    }
    let factor = number("partial_rotary_factor", 0.25)?;
    let rotary_dim = (head_dim as f64 * factor) as usize;
    if !(0.0..=1.0).contains(&factor) || rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
        return Err(format!("partial_rotary_factor {factor} of head_dim {head_dim} is not an even width"));
    }
    let half = rotary_dim / 2;
    let mrope_section = match find("mrope_section") {
        None => [11, 11, 10].map(|n: usize| n.min(half)),
        Some(value) => {
            let numbers: Option<Vec<usize>> = value
                .as_array()
                .map(|list| list.iter().filter_map(Value::as_u64).map(|n| n as usize).collect());
            let section: [usize; 3] = numbers
                .and_then(|list| list.try_into().ok())
                .ok_or_else(|| format!("mrope_section is {value}, expected three whole numbers"))?;
            if section.iter().any(|n| *n > half) {
                return Err(format!("mrope_section {section:?} exceeds the {half} frequencies"));
            }
            section
        }
    };
    Ok(RopeConfig { theta, rotary_dim, mrope_section })
}

#[cfg(test)]
mod tests;
