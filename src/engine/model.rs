//! The text model: embed, hybrid layers, norm, head.
//!
//! Written once for every device in Burn operations and the few of `kernels`. Activations are `[t, width]`
//! in f32, without a batch axis; weights stay in the format of the checkpoint.
//! Source of the mathematics: the reference implementations of `qwen3_5`, `qwen3_5_moe` and `qwen3_next` in Hugging
//! Face transformers.

pub mod attention;
pub mod delta_net;
pub mod linear;
pub mod mlp;
pub mod moe;
pub mod mtp;
pub mod norm;
pub mod rope;

use std::ops::Range;
use std::path::Path;

use burn::tensor::{Tensor, TensorData};

use self::attention::Attention;
use self::delta_net::DeltaNet;
pub use self::delta_net::MAX_STEPS;
use self::linear::Linear;
use self::mlp::Mlp;
use self::moe::Moe;
use self::mtp::Mtp;
use self::norm::RmsNorm;
use self::rope::{Positions, Rope};
use super::cache::mtp::{MtpState, Rows};
use super::cache::{Cache, LayerState, TokenKey};
use super::config::{LayerType, ModelConfig, MoeConfig};
use super::device::OpenDevice;
use super::kernels::pool;
use super::shortlist::Shortlist;
pub use super::weights::WeightsError;
use super::weights::{Checkpoint, Weight};

/// What mixes the tokens of a layer.
enum Mixer {
    Delta(Box<DeltaNet>),
    Attention(Box<Attention>),
}

/// What a layer does with each token alone.
enum FeedForward {
    Dense(Mlp),
    Sparse(Moe),
}

struct Layer {
    input_layernorm: RmsNorm,
    mixer: Mixer,
    post_attention_layernorm: RmsNorm,
    mlp: FeedForward,
}

impl Layer {
    /// `moe` are the layer's experts, if it has some.
    fn load(
        config: &ModelConfig,
        layer_type: LayerType,
        moe: Option<&MoeConfig>,
        loader: &Loader,
    ) -> Result<Self, WeightsError> {
        let mixer = match layer_type {
            LayerType::LinearAttention => {
                Mixer::Delta(Box::new(DeltaNet::load(config, &loader.inside("linear_attn."))?))
            }
            LayerType::FullAttention => {
                Mixer::Attention(Box::new(Attention::load(config, &loader.inside("self_attn."))?))
            }
        };
        let (hidden, inside) = (config.hidden_size, loader.inside("mlp."));
        let mlp = match moe {
            None => FeedForward::Dense(Mlp::load(hidden, config.intermediate_size, &inside)?),
            Some(moe) => FeedForward::Sparse(Moe::load(hidden, moe, &inside)?),
        };
        Ok(Self {
            input_layernorm: loader.norm("input_layernorm.weight", config)?,
            mixer,
            post_attention_layernorm: loader.norm("post_attention_layernorm.weight", config)?,
            mlp,
        })
    }

    /// `states` are those of the sequences in `step`.
    fn forward<'a>(
        &self,
        x: Tensor<2>,
        states: impl Iterator<Item = &'a mut LayerState>,
        step: &Step,
    ) -> Tensor<2> {
        let normed = self.input_layernorm.forward(x.clone());
        let x = x + match &self.mixer {
            Mixer::Delta(mixer) => mixer.forward(normed, states.map(LayerState::delta_mut), step),
            Mixer::Attention(mixer) => mixer.forward(normed, states.map(LayerState::kv_mut), step),
        };
        let normed = self.post_attention_layernorm.forward(x.clone());
        x + match &self.mlp {
            FeedForward::Dense(mlp) => mlp.forward(normed),
            FeedForward::Sparse(moe) => moe.forward(normed),
        }
    }
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
    /// Guesses further tokens; not every checkpoint has it.
    mtp: Option<Mtp>,
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
        let loader = Loader::new(checkpoint, &device, prefix);

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
                Layer::load(&config, *layer_type, config.moe_of_layer(i), &loader)
            })
            .collect::<Result<_, WeightsError>>()?;
        let mtp = Mtp::prefix(checkpoint)
            .map(|prefix| Mtp::load(&config, &Loader::new(checkpoint, &device, prefix)))
            .transpose()?;
        Ok(Self {
            embed_tokens,
            mtp,
            rope: Rope::new(&config.rope),
            layers,
            norm: loader.norm("norm.weight", &config)?,
            lm_head: Linear::new(head, &device),
            config,
            device,
        })
    }

    /// An empty cache for this model, without what only drafts need.
    pub fn new_cache(&self) -> Cache {
        Cache::new(&self.config, &self.device, false)
    }

    /// An empty cache from which drafts can be made, if the model can.
    pub fn new_drafting_cache(&self) -> Cache {
        Cache::new(&self.config, &self.device, self.mtp.is_some())
    }

    pub fn can_draft(&self) -> bool {
        self.mtp.is_some()
    }

    /// Runs tokens of text that follow what `cache` holds, and leaves them in it.
    ///
    /// Gives the hidden states after the final norm, `[t, hidden_size]`. `taps` collects the residual stream:
    /// what enters the first layer, then what leaves each layer.
    ///
    /// # Panics
    /// If an id is not below `vocab_size` or `ids` is empty; the caller checks its input.
    pub fn forward(&self, ids: &[u32], cache: &mut Cache, taps: Option<&mut Vec<Tensor<2>>>) -> Tensor<2> {
        self.forward_tokens(Tokens::text(ids, cache.next_position()), cache, taps)
    }

    /// The same for tokens among which there may be pictures.
    ///
    /// # Panics
    /// As [`Self::forward`], and if the parts of `tokens` don't have the same length.
    pub fn forward_tokens(
        &self,
        tokens: Tokens,
        cache: &mut Cache,
        taps: Option<&mut Vec<Tensor<2>>>,
    ) -> Tensor<2> {
        self.forward_together(vec![(tokens, cache)], taps)
    }

    /// The same for several sequences, each with its own cache: the weights are read once for all of them. On the CPU
    /// a sequence gets the numbers that it would get alone, to the last bit, in passes of so few tokens (32) that linear
    /// layers take dot products. The hidden states come one sequence after the other.
    ///
    /// # Panics
    /// As [`Self::forward_tokens`], and without a sequence.
    pub fn forward_together(
        &self,
        mut sequences: Vec<(Tokens, &mut Cache)>,
        mut taps: Option<&mut Vec<Tensor<2>>>,
    ) -> Tensor<2> {
        let mut positions = Positions::default();
        let mut shares = Vec::with_capacity(sequences.len());
        for (tokens, cache) in &sequences {
            let t = tokens.ids.len();
            assert_eq!(t, tokens.keys.len());
            assert!(!tokens.is_draft || t <= MAX_STEPS);
            shares.push(Share {
                rows: positions.len()..positions.len() + t,
                mask: attention::causal_mask(cache.len(), t, &self.device),
                is_draft: tokens.is_draft,
            });
            positions.extend(&tokens.positions);
        }
        let rotation = self.rope.rotation(&positions, &self.device.tensors);
        let step = Step { rotation, is_gpu: self.device.is_gpu, shares };
        let ids: Vec<u32> = sequences.iter().flat_map(|(tokens, _)| tokens.ids).copied().collect();
        let mut embeds = self.embed(&ids);
        for ((tokens, _), share) in sequences.iter_mut().zip(&step.shares) {
            for (at, features) in std::mem::take(&mut tokens.features) {
                let ([n, width], at) = (features.dims(), share.rows.start + at);
                embeds = embeds.slice_assign([at..at + n, 0..width], features);
            }
        }
        let mut x = embeds.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            if let Some(taps) = taps.as_deref_mut() {
                taps.push(x.clone());
            }
            x = layer.forward(x, sequences.iter_mut().map(|(_, cache)| &mut cache.layers_mut()[i]), &step);
        }
        if let Some(taps) = taps {
            taps.push(x.clone());
        }
        let hidden = self.norm.forward(x);
        for ((tokens, cache), share) in sequences.into_iter().zip(&step.shares) {
            cache.push_tokens(&tokens.keys, tokens.next_position);
            if let Some(mtp) = &mut cache.mtp {
                mtp.push(share.of(&hidden), share.of(&embeds), &tokens.positions);
            }
        }
        hidden
    }

    /// What the layers need to know of the tokens of one sequence, behind `len` others.
    fn step(&self, len: usize, positions: &Positions) -> Step {
        Step {
            rotation: self.rope.rotation(positions, &self.device.tensors),
            is_gpu: self.device.is_gpu,
            shares: vec![Share {
                rows: 0..positions.len(),
                mask: attention::causal_mask(len, positions.len(), &self.device),
                is_draft: false,
            }],
        }
    }

    /// Lets the MTP head read what the trunk has read. Without it the head would know the end of a long prompt
    /// only, and guess badly.
    pub fn catch_up(&self, cache: &mut Cache) {
        if let (Some(head), Some(state)) = (&self.mtp, &mut cache.mtp)
            && let Some(rows) = state.take_known()
        {
            self.fill(head, state, rows);
        }
    }

    fn fill(&self, head: &Mtp, state: &mut MtpState, rows: Rows) -> Tensor<2> {
        let step = self.step(state.len(), &rows.positions);
        head.forward(rows.hidden, rows.next, state.kv_mut(), &step)
    }

    /// Guesses what follows `next`, the token that comes after those in the cache: at most `depth` tokens. `choose`
    /// takes the logits of each guess, of the tokens on the shortlist where there is one, and says which it is; it may
    /// give up.
    ///
    /// # Errors
    /// Those of `choose`.
    pub fn draft<E>(
        &self,
        next: u32,
        depth: usize,
        cache: &mut Cache,
        shortlist: Option<&Shortlist>,
        mut choose: impl FnMut(Guess) -> Result<Option<u32>, E>,
    ) -> Result<Vec<u32>, E> {
        let mut position = cache.next_position();
        let (Some(head), Some(state)) = (&self.mtp, &mut cache.mtp) else { return Ok(Vec::new()) };
        let Some(rows) = state.take_all(self.embed(&[next])) else { return Ok(Vec::new()) };
        let states = self.fill(head, state, rows);
        let n = states.dims()[0];
        let mut hidden = states.narrow(0, n - 1, 1);
        let known = state.len();
        let mut drafts = Vec::with_capacity(depth);
        while let Some(id) = choose(self.guess(&hidden, shortlist))? {
            drafts.push(id);
            if drafts.len() == depth {
                break;
            }
            let rows = Rows { hidden, next: self.embed(&[id]), positions: Positions::text(position, 1) };
            hidden = self.fill(head, state, rows);
            position += 1;
        }
        // What was made from guesses is made anew from the trunk's states, once they are judged.
        state.truncate(known);
        Ok(drafts)
    }

    fn guess<'a>(&self, hidden: &Tensor<2>, shortlist: Option<&'a Shortlist>) -> Guess<'a> {
        let short =
            shortlist.and_then(|list| Some((list, self.lm_head.forward_rows(hidden, list.ranges())?)));
        match short {
            Some((list, logits)) => Guess { logits, shortlist: Some(list) },
            None => Guess { logits: self.lm_head.forward(hidden.clone()), shortlist: None },
        }
    }

    /// Runs `next`, the token that comes after those in the cache, and the drafts behind it. Until [`Cache::keep`]
    /// says how many of them stay, all of them can be taken back.
    pub fn judge(&self, next: u32, drafts: &[u32], cache: &mut Cache) -> Tensor<2> {
        let ids: Vec<u32> = [next].into_iter().chain(drafts.iter().copied()).collect();
        let tokens = Tokens { is_draft: true, ..Tokens::text(&ids, cache.next_position()) };
        self.forward_tokens(tokens, cache, None)
    }

    /// Embeddings `[t, hidden_size]`.
    fn embed(&self, ids: &[u32]) -> Tensor<2> {
        let rows = self.embed_tokens.gather_rows(ids);
        Tensor::from_data(TensorData::new(rows, [ids.len(), self.config.hidden_size]), &self.device.tensors)
    }

    /// Logits `[t, vocab_size]` of hidden states that left [`Self::forward`].
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.lm_head.forward(hidden)
    }
}

/// What `work` makes of each sequence of a pass. On the CPU each core takes whole sequences: what is done for one is too
/// little to be shared.
pub fn each_sequence<T: Send, R: Send>(
    sequences: impl Iterator<Item = T>,
    step: &Step,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    match step.is_gpu {
        true => sequences.map(work).collect(),
        false => pool::map(sequences.collect(), work),
    }
}

/// Pieces side by side along `dim`; one piece is left as it is.
pub fn join<const D: usize>(mut pieces: Vec<Tensor<D>>, dim: usize) -> Tensor<D> {
    match pieces.len() {
        1 => pieces.remove(0),
        _ => Tensor::cat(pieces, dim),
    }
}

/// Tokens for one forward pass.
pub struct Tokens<'a> {
    pub ids: &'a [u32],
    pub keys: Vec<TokenKey>,
    pub positions: Positions,
    /// Features of pictures `[n, hidden_size]`, and the index of the token whose embedding the first replaces.
    pub features: Vec<(usize, Tensor<2>)>,
    /// Where the text after these tokens stands.
    pub next_position: i64,
    /// Whether some of the tokens may be taken back by [`Cache::keep`]; then there are at most [`MAX_STEPS`].
    pub is_draft: bool,
}

impl<'a> Tokens<'a> {
    /// Text whose first token stands at `position`.
    pub fn text(ids: &'a [u32], position: i64) -> Self {
        Self {
            ids,
            keys: ids.iter().copied().map(TokenKey::from).collect(),
            positions: Positions::text(position, ids.len()),
            features: Vec::new(),
            next_position: position + ids.len() as i64,
            is_draft: false,
        }
    }
}

/// Logits of one guess.
pub struct Guess<'a> {
    /// `[1, vocab_size]`, or those of the tokens on the list.
    pub logits: Tensor<2>,
    pub shortlist: Option<&'a Shortlist>,
}

/// What all layers of one forward pass share. Whatever treats each token alone treats those of all sequences at once.
pub struct Step {
    pub rotation: rope::Rotation,
    pub is_gpu: bool,
    /// One for each sequence.
    pub shares: Vec<Share>,
}

/// The part of a pass that belongs to one sequence.
pub struct Share {
    pub rows: Range<usize>,
    /// For attention.
    pub mask: Option<Tensor<2>>,
    /// As in [`Tokens`].
    pub is_draft: bool,
}

impl Share {
    /// The sequence's rows of `all`.
    pub fn of<const D: usize>(&self, all: &Tensor<D>) -> Tensor<D> {
        match self.rows.len() == all.dims()[0] {
            true => all.clone(),
            false => all.clone().narrow(0, self.rows.start, self.rows.len()),
        }
    }
}

/// Takes tensors under a prefix of a checkpoint to a device.
pub struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    device: &'a OpenDevice,
    prefix: String,
}

impl<'a> Loader<'a> {
    pub fn new(checkpoint: &'a Checkpoint, device: &'a OpenDevice, prefix: &str) -> Self {
        Self { checkpoint, device, prefix: prefix.to_owned() }
    }

    /// The same, under a longer prefix.
    pub fn inside(&self, name: &str) -> Loader<'_> {
        Loader { checkpoint: self.checkpoint, device: self.device, prefix: format!("{}{name}", self.prefix) }
    }

    /// How the file orders value heads, see [`Checkpoint::has_tiled_value_heads`].
    pub fn has_tiled_value_heads(&self) -> bool {
        self.checkpoint.has_tiled_value_heads()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.checkpoint.contains(&format!("{}{name}", self.prefix))
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

    /// A linear layer whose stored weight has more than two axes: all but the first are the input.
    pub fn flat_linear(&self, name: &str, shape: &[usize]) -> Result<Linear, WeightsError> {
        let mut weight = self.weight(name, shape)?;
        weight.shape = vec![shape[0], shape[1..].iter().product()];
        Ok(Linear::new(weight, self.device))
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
