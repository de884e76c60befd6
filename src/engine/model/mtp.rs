//! Multi-token prediction: the head that guesses the token after the next one.
//!
//! From the trunk's state of a token (after the final norm) and the embedding of the token that follows it, one
//! decoder layer with a cache of its own makes a state whose logits, by the trunk's head, guess one token further.
//! That state may take the trunk's place for a further guess.
//! Source: `Qwen3_5MultiTokenPredictor` of vLLM and `MtpModel` of transformers; positions as in vLLM.

use std::iter;

use burn::tensor::Tensor;

use super::linear::Linear;
use super::norm::RmsNorm;
use super::{Layer, Loader, ModelConfig, Step, WeightsError};
use crate::engine::cache::LayerState;
use crate::engine::config::LayerType;
use crate::engine::weights::Checkpoint;

/// Prefixes that the head's tensors have in released and in converted files.
const PREFIXES: [&str; 3] = ["mtp.", "model.mtp.", "language_model.mtp."];

pub struct Mtp {
    pre_fc_norm_embedding: RmsNorm,
    pre_fc_norm_hidden: RmsNorm,
    fc: Linear,
    layer: Layer,
    norm: RmsNorm,
}

impl Mtp {
    /// The prefix of the head's tensors, if the checkpoint has them: many converted ones don't.
    pub fn prefix(checkpoint: &Checkpoint) -> Option<&'static str> {
        PREFIXES.into_iter().find(|prefix| checkpoint.contains(&format!("{prefix}fc.weight")))
    }

    /// `loader` stands at the head's prefix.
    pub fn load(config: &ModelConfig, loader: &Loader) -> Result<Self, WeightsError> {
        let hidden = config.hidden_size;
        // No config says what the head's layer is; the models with experts have them here too.
        let inside = loader.inside("layers.0.");
        let moe = config.moe.as_ref().filter(|_| inside.contains("mlp.gate.weight"));
        Ok(Self {
            pre_fc_norm_embedding: loader.norm("pre_fc_norm_embedding.weight", config)?,
            pre_fc_norm_hidden: loader.norm("pre_fc_norm_hidden.weight", config)?,
            fc: loader.linear("fc.weight", hidden, 2 * hidden)?,
            layer: Layer::load(config, LayerType::FullAttention, moe, &inside)?,
            norm: loader.norm("norm.weight", config)?,
        })
    }

    /// States `hidden [t, hidden_size]` of tokens, and `next [t, hidden_size]`, the embeddings of the tokens that
    /// follow each of them, to states of the same shape. `cache` goes on by `t` tokens.
    pub fn forward(
        &self,
        hidden: Tensor<2>,
        next: Tensor<2>,
        cache: &mut LayerState,
        step: &Step,
    ) -> Tensor<2> {
        let parts = vec![self.pre_fc_norm_embedding.forward(next), self.pre_fc_norm_hidden.forward(hidden)];
        let x = self.fc.forward(Tensor::cat(parts, 1));
        self.norm.forward(self.layer.forward(x, iter::once(cache), step))
    }
}
