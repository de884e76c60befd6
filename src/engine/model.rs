//! The text model: embed, hybrid layers, norm, head.
//!
//! Written once for every device in Burn operations and the few of `kernels`. Activations are `[t, width]`
//! in f32, without a batch axis; weights stay in the format of the checkpoint.
//! Source of the mathematics: the reference implementation of `qwen3_5` in Hugging Face transformers.

pub mod attention;
pub mod delta_net;
pub mod linear;
pub mod mlp;
pub mod norm;
pub mod rope;

use std::path::Path;

use burn::tensor::{Tensor, TensorData};

use self::attention::Attention;
use self::delta_net::DeltaNet;
use self::linear::Linear;
use self::mlp::Mlp;
use self::norm::RmsNorm;
use self::rope::{Positions, Rope};
use super::cache::{Cache, LayerState};
use super::config::{LayerType, ModelConfig};
use super::device::OpenDevice;
use super::weights::{Checkpoint, Weight, WeightsError};

/// What mixes the tokens of a layer.
enum Mixer {
    Delta(Box<DeltaNet>),
    Attention(Box<Attention>),
}

struct Layer {
    input_layernorm: RmsNorm,
    mixer: Mixer,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

/// A loaded model. It holds weights only; what was read so far is in the [`Cache`].
pub struct Model {
    pub config: ModelConfig,
    pub device: OpenDevice,
    /// Rows are looked up on the host: a token needs one of 248,320.
    embed_tokens: Weight,
    rope: Rope,
    layers: Vec<Layer>,
    norm: RmsNorm,
    lm_head: Linear,
}

impl Model {
    /// Takes every weight of the text model from `checkpoint`.
    ///
    /// # Errors
    /// [`WeightsError`] names the tensor that is missing or has another shape than `config` says.
    pub fn load(
        config: ModelConfig,
        checkpoint: &Checkpoint,
        dir: &Path,
        device: OpenDevice,
    ) -> Result<Self, WeightsError> {
        // A multimodal repository has the first prefix, a text-only export the second.
        let prefix = ["model.language_model.", "model."]
            .into_iter()
            .find(|prefix| checkpoint.contains(&format!("{prefix}embed_tokens.weight")))
            .ok_or_else(|| WeightsError::Missing {
                name: "model.embed_tokens.weight".into(),
                dir: dir.to_owned(),
            })?;
        let loader = Loader { checkpoint, device: &device, prefix: prefix.to_owned() };

        let vocabulary = [config.vocab_size, config.hidden_size];
        let embed_tokens = loader.weight("embed_tokens.weight", &vocabulary)?;
        let tied = config.tie_word_embeddings.unwrap_or_else(|| !checkpoint.contains("lm_head.weight"));
        let head = match tied {
            true => embed_tokens.clone(),
            false => checkpoint.weight("lm_head.weight", &vocabulary)?,
        };
        let layers = config
            .layer_types
            .iter()
            .enumerate()
            .map(|(i, layer_type)| {
                let loader = loader.inside(&format!("layers.{i}."));
                Ok(Layer {
                    input_layernorm: loader.norm("input_layernorm.weight", &config)?,
                    mixer: match layer_type {
                        LayerType::LinearAttention => {
                            Mixer::Delta(Box::new(DeltaNet::load(&config, &loader.inside("linear_attn."))?))
                        }
                        LayerType::FullAttention => Mixer::Attention(Box::new(Attention::load(
                            &config,
                            &loader.inside("self_attn."),
                        )?)),
                    },
                    post_attention_layernorm: loader.norm("post_attention_layernorm.weight", &config)?,
                    mlp: Mlp::load(&config, &loader.inside("mlp."))?,
                })
            })
            .collect::<Result<_, WeightsError>>()?;
        Ok(Self {
            embed_tokens,
            rope: Rope::new(&config.rope),
            layers,
            norm: loader.norm("norm.weight", &config)?,
            lm_head: Linear::new(head, &device),
            config,
            device,
        })
    }

    /// An empty cache for this model.
    pub fn new_cache(&self) -> Cache {
        Cache::new(&self.config, &self.device)
    }

    /// Runs the tokens that follow what `cache` holds, and leaves them in it.
    ///
    /// Gives the hidden states after the final norm, `[t, hidden_size]`. `taps` collects the residual stream:
    /// what enters the first layer, then what leaves each layer.
    ///
    /// # Panics
    /// If an id is not below `vocab_size` or `ids` is empty; the caller checks its input.
    pub fn forward(
        &self,
        ids: &[u32],
        cache: &mut Cache,
        mut taps: Option<&mut Vec<Tensor<2>>>,
    ) -> Tensor<2> {
        let start = cache.len();
        let positions = Positions::text(start, ids.len());
        let step = Step {
            rotation: self.rope.rotation(&positions, &self.device.tensors),
            mask: attention::causal_mask(start, ids.len(), &self.device),
        };
        let rows = self.embed_tokens.gather_rows(ids);
        let data = TensorData::new(rows, [ids.len(), self.config.hidden_size]);
        let mut x = Tensor::<2>::from_data(data, &self.device.tensors);
        for (layer, state) in self.layers.iter().zip(cache.layers_mut()) {
            if let Some(taps) = taps.as_deref_mut() {
                taps.push(x.clone());
            }
            let normed = layer.input_layernorm.forward(x.clone());
            x = x + match (&layer.mixer, state) {
                (Mixer::Delta(mixer), LayerState::Delta(state)) => mixer.forward(normed, state),
                (Mixer::Attention(mixer), LayerState::Kv(kv)) => mixer.forward(normed, kv, &step),
                _ => unreachable!("the cache was made for this model's layer types"),
            };
            let normed = layer.post_attention_layernorm.forward(x.clone());
            x = x + layer.mlp.forward(normed);
        }
        cache.push_tokens(ids);
        if let Some(taps) = taps {
            taps.push(x.clone());
        }
        self.norm.forward(x)
    }

    /// Logits `[t, vocab_size]` of hidden states that left [`Self::forward`].
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.lm_head.forward(hidden)
    }
}

/// What all attention layers of one forward pass share.
pub struct Step {
    pub rotation: rope::Rotation,
    pub mask: Option<Tensor<2>>,
}

/// Takes tensors under a prefix of a checkpoint to a device.
pub struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    device: &'a OpenDevice,
    prefix: String,
}

impl Loader<'_> {
    fn inside(&self, name: &str) -> Loader<'_> {
        Loader { checkpoint: self.checkpoint, device: self.device, prefix: format!("{}{name}", self.prefix) }
    }

    fn weight(&self, name: &str, shape: &[usize]) -> Result<Weight, WeightsError> {
        self.checkpoint.weight(&format!("{}{name}", self.prefix), shape)
    }

    /// A small tensor in f32, on the host.
    pub fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, WeightsError> {
        self.checkpoint.values(&format!("{}{name}", self.prefix), shape)
    }

    pub fn linear(&self, name: &str, rows: usize, columns: usize) -> Result<Linear, WeightsError> {
        Ok(Linear::new(self.weight(name, &[rows, columns])?, self.device))
    }

    /// A vector of f32 on the device.
    pub fn vector(&self, values: &[f32]) -> Tensor<1> {
        Tensor::from_floats(values, &self.device.tensors)
    }

    /// A zero-centred norm over the hidden size.
    fn norm(&self, name: &str, config: &ModelConfig) -> Result<RmsNorm, WeightsError> {
        RmsNorm::zero_centred(self, name, config.hidden_size, config.rms_norm_eps)
    }
}

#[cfg(test)]
mod tests;
