//! Whether a model fits into memory: what it takes, by term, known from its config and the headers of its files before
//! anything is loaded.
//!
//! The sum is for a context that is full. A model that is far too large is refused by it in a moment, where loading
//! would bring the whole machine to a halt. Plain arithmetic: how much memory there is says `ram.rs`.

use std::fmt;
use std::path::Path;

use super::cache;
use super::checkpoints;
use super::config::vision::VisionConfig;
use super::config::{ConfigError, LayerType, ModelConfig};
use super::generate::PREFILL_CHUNK;
use super::model::attention::MAX_SCORES;
use super::model::mtp::Mtp;
use super::vision::encoder;
use super::vision::processor_config::ProcessorConfig;
use super::weights::groups::Group;
use super::weights::quantised::{Bits, Quant};
use super::weights::{Checkpoint, TensorFacts};
use crate::chat::Detail;
pub use crate::units::ByteSize;

/// Suggested contexts are multiples of this many tokens.
pub const CONTEXT_STEP: usize = 256;
const F32: u64 = size_of::<f32>() as u64;
/// The program with its threads, before it has read anything (22 MiB with the demo model).
const PROGRAM_BYTES: u64 = 24 << 20;
/// Of a tokenizer, for each token: its text, its number and its merge, in maps for both directions. Measured 500 with
/// a vocabulary of 248,320.
const TOKENIZER_BYTES: u64 = 512;

/// Where several conversations are answered at the same time, one may fill its context; the others have so many tokens.
const TOKENS_OF_OTHERS: u64 = 2_048;

/// A model, and where it is to run.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    pub config: &'a ModelConfig,
    pub weights: Weights,
    pub has_mtp: bool,
    /// The largest picture that the model takes.
    pub picture_pixels: u64,
    pub is_gpu: bool,
    /// What plain matrices are quantised to.
    pub bits: Option<Bits>,
    /// Conversations that are answered at the same time.
    pub parallel: usize,
}

/// Bytes of weights once they are loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weights {
    pub text: u64,
    /// `None` if the model doesn't see.
    pub vision: Option<u64>,
}

/// What a model takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    pub weights: u64,
    pub vision: u64,
    pub kv_cache: u64,
    /// Of the linear layers: the present one, and what a draft may have to go back to.
    pub states: u64,
    /// Earlier states, to which a conversation may go back.
    pub checkpoints: u64,
    /// The larger one of what it takes to read a piece of a prompt and to look at a picture.
    pub workspace: u64,
    pub program: u64,
}

impl Needs {
    pub fn terms(&self) -> [(&'static str, u64); 7] {
        [
            ("weights", self.weights),
            ("vision tower", self.vision),
            ("KV cache", self.kv_cache),
            ("linear states", self.states),
            ("checkpoints", self.checkpoints),
            ("workspace", self.workspace),
            ("program and tokenizer", self.program),
        ]
    }

    pub fn total(&self) -> u64 {
        self.terms().iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes))
    }
}

impl Weights {
    /// Of the tensors that are loaded.
    pub fn of(tensors: &[TensorFacts], config: &ModelConfig, is_gpu: bool, bits: Option<Bits>) -> Self {
        let has_head = tensors.iter().any(|tensor| tensor.group == Group::Head);
        let is_tied = config.tie_word_embeddings.unwrap_or(!has_head);
        let bytes = |is_wanted: &dyn Fn(Group) -> bool| {
            let wanted = tensors.iter().filter(|tensor| is_wanted(tensor.group));
            wanted.fold(0u64, |sum, tensor| sum.saturating_add(tensor.loaded_bytes(is_gpu, bits)))
        };
        let is_text = |group| match group {
            Group::Layers | Group::Experts | Group::Mtp => true,
            Group::Head => !is_tied,
            // Rows are looked up in the file; as a head it is uploaded like one.
            Group::Embedding => !is_gpu || is_tied,
            Group::Vision | Group::Other => false,
        };
        let has_tower = config.vision.is_some() && tensors.iter().any(|t| t.group == Group::Vision);
        Self { text: bytes(&is_text), vision: has_tower.then(|| bytes(&|group| group == Group::Vision)) }
    }
}

impl<'a> Plan<'a> {
    /// Of the model in `dir`. Reads no weights, only what headers say of them.
    ///
    /// # Errors
    /// If the limits of pictures can't be read.
    pub fn new(
        dir: &Path,
        config: &'a ModelConfig,
        checkpoint: &Checkpoint,
        is_gpu: bool,
        bits: Option<Bits>,
    ) -> Result<Self, ConfigError> {
        let weights = Weights::of(&checkpoint.tensors(), config, is_gpu, bits);
        let tower = config.vision.as_ref().filter(|_| weights.vision.is_some());
        let limits = tower.map(|tower| ProcessorConfig::open(dir, tower)).transpose()?;
        Ok(Self {
            config,
            weights,
            has_mtp: Mtp::prefix(checkpoint).is_some(),
            picture_pixels: limits.map_or(0, |limits| limits.image.max_pixels),
            is_gpu,
            bits,
            parallel: 1,
        })
    }

    /// As many conversations at a time as fit, up to `wanted`.
    pub fn share(&mut self, wanted: usize, context_tokens: usize, available: Option<u64>) {
        let fits = |parallel: &usize| {
            let plan = Self { parallel: *parallel, ..*self };
            available.is_none_or(|available| plan.check(context_tokens, available).is_ok())
        };
        self.parallel = (2..=wanted).rev().find(fits).unwrap_or(1);
    }

    /// The first that fits of those that `quant` allows, else the last of them.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn choose(
        dir: &Path,
        config: &'a ModelConfig,
        checkpoint: &Checkpoint,
        is_gpu: bool,
        quant: Quant,
        context_tokens: usize,
        available: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let forms: &[Option<Bits>] = match quant {
            Quant::None => &[None],
            Quant::To(Bits::Eight) => &[Some(Bits::Eight)],
            Quant::To(Bits::Four) => &[Some(Bits::Four)],
            Quant::Auto => &[None, Some(Bits::Eight), Some(Bits::Four)],
        };
        let mut plan = Self::new(dir, config, checkpoint, is_gpu, forms[0])?;
        for bits in &forms[1..] {
            if available.is_none_or(|available| plan.check(context_tokens, available).is_ok()) {
                break;
            }
            // Nothing else depends on it.
            plan.weights = Weights::of(&checkpoint.tensors(), config, is_gpu, *bits);
            plan.bits = *bits;
        }
        Ok(plan)
    }

    /// What it takes with a full context of so many tokens. More tokens never take less.
    pub fn needs(&self, context_tokens: usize) -> Needs {
        let config = self.config;
        let n_kv = (config.n_layers(LayerType::FullAttention) + usize::from(self.has_mtp)) as u64;
        // The zeros behind what was read are no memory of their own on the CPU until they are written.
        let room = match self.is_gpu {
            true => cache::capacity_for(context_tokens),
            false => context_tokens,
        } as u64;
        let others = self.parallel as u64 - 1;
        let room = room.saturating_add(others * room.min(TOKENS_OF_OTHERS));
        let kv_of_layer = room.saturating_mul(config.kv_bytes_per_token() as u64);
        // When keys outgrow their room, the old ones of one layer are there beside the new.
        let kv_cache = kv_of_layer.saturating_mul(n_kv).saturating_add(kv_of_layer / 2);
        let vision = self.weights.vision.and(config.vision.as_ref());
        Needs {
            weights: self.weights.text,
            vision: self.weights.vision.unwrap_or_default(),
            kv_cache,
            states: config.state_bytes() as u64 * (self.parallel as u64 + u64::from(self.has_mtp)),
            checkpoints: checkpoints::most_bytes(config, self.parallel) as u64,
            workspace: prefill_bytes(config, context_tokens as u64)
                .max(vision.map_or(0, |vision| picture_bytes(vision, self.picture_pixels))),
            program: PROGRAM_BYTES + TOKENIZER_BYTES * config.vocab_size as u64,
        }
    }

    /// The largest context of at most `most` tokens that needs no more than `available` bytes.
    pub fn largest_context(&self, most: usize, available: u64) -> Option<usize> {
        if self.needs(most).total() <= available {
            return Some(most);
        }
        // All steps below `low` fit, none from `high` on does.
        let (mut low, mut high) = (1, most.div_ceil(CONTEXT_STEP));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.needs(middle * CONTEXT_STEP).total() <= available {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Some((low - 1) * CONTEXT_STEP).filter(|tokens| *tokens > 0)
    }

    /// Refuses what doesn't fit.
    ///
    /// # Errors
    /// [`TooBig`] with the numbers.
    pub fn check(&self, context_tokens: usize, available: u64) -> Result<(), TooBig> {
        let needs = self.needs(context_tokens);
        match needs.total() <= available {
            true => Ok(()),
            false => Err(TooBig {
                needs,
                available,
                context_tokens,
                fitting_context: self.largest_context(context_tokens, available),
            }),
        }
    }
}

/// Activations of one piece of a prompt at the end of a context of `n` tokens: those of the widest kind of layer, and
/// the residual stream around it.
fn prefill_bytes(config: &ModelConfig, n: u64) -> u64 {
    let t = n.min(PREFILL_CHUNK as u64);
    let [hidden, heads, kv_heads, d] =
        [config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim]
            .map(|n| n as u64);
    let (conv, value) = (config.conv_dim() as u64, config.linear_value_dim() as u64);
    // The convolution's window twice; what comes out of it; gates and outputs.
    let linear = t * (3 * conv + 6 * value);
    // Queries with their gates, thrice; scores with and without the mask; the mask; keys and values in one piece.
    let scores = (MAX_SCORES as u64).min(heads * t * n);
    let attention = 6 * t * heads * d + 2 * scores + t * n + 2 * n * kv_heads * d;
    let inner = match &config.moe {
        None => config.intermediate_size as u64,
        Some(moe) => {
            let shared = moe.shared_expert_intermediate_size.unwrap_or_default() as u64;
            let tokens = moe.num_experts_per_tok as u64;
            shared.max(tokens * (hidden + moe.moe_intermediate_size as u64))
        }
    };
    let feed_forward = 3 * t * inner;
    (linear.max(attention).max(feed_forward) + 6 * t * hidden).saturating_mul(F32)
}

/// What it takes to look at a picture as large as it may be, and as pictures are made unless told otherwise.
fn picture_bytes(vision: &VisionConfig, most_pixels: u64) -> u64 {
    let patch_pixels = (vision.patch_size * vision.patch_size) as u64;
    encoder::workspace_bytes(vision, Detail::default().max_pixels().min(most_pixels) / patch_pixels)
}

/// A model that doesn't fit, and what would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooBig {
    pub needs: Needs,
    pub available: u64,
    pub context_tokens: usize,
    pub fitting_context: Option<usize>,
}

impl std::error::Error for TooBig {}

impl fmt::Display for TooBig {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let terms = self.needs.terms().into_iter().filter(|(_, bytes)| *bytes > 0);
        let terms: Vec<String> = terms.map(|(name, bytes)| format!("{name} {}", ByteSize(bytes))).collect();
        write!(
            f,
            "with a context of {} tokens the model needs {} of memory, and {} are available ({}); ",
            self.context_tokens,
            ByteSize(self.needs.total()),
            ByteSize(self.available),
            terms.join(", "),
        )?;
        match self.fitting_context {
            Some(tokens) => write!(f, "--context {tokens} fits, and --force loads it as it is"),
            None => f.write_str(
                "no context would fit: take a smaller model, or one with fewer bits per weight, or load it all the \
                 same with --force",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
