//! The hybrid cache: what the model remembers of the tokens it has read, one typed entry per layer.
//!
//! A full-attention layer keeps keys and values, which can be cut at any length. A linear layer keeps a fixed
//! state that can't be undone, only restored. Going back is therefore possible to a [`Checkpoint`] and to
//! nothing else, and always for all layers together.

pub mod mtp;
pub mod saved;

use burn::tensor::Tensor;

use self::mtp::{MtpState, Waiting};
use super::config::{LayerType, ModelConfig};
use super::device::OpenDevice;
use super::kernels::delta::{RuleInput, delta_steps};

/// Keys and values are allocated in steps of at least this many tokens.
const KV_BLOCK: usize = 256;

/// What stands at a place of the prompt, for comparing prompts: a token id or, as all tokens of pictures have
/// the same id, a number made from the picture's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenKey(u64);

impl From<u32> for TokenKey {
    fn from(id: u32) -> Self {
        Self(id.into())
    }
}

impl TokenKey {
    /// The key of a picture's tokens, from a hash of its content and size.
    pub fn of_picture(hash: [u8; 8]) -> Self {
        // Above all token ids.
        Self(u64::from_le_bytes(hash) | 1 << 63)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this checkpoint is not of the cache's present past: the cache was reset or went back behind it")]
pub struct StaleCheckpoint;

/// Everything that a model has read, in the form it needs to go on. A copy costs its memory when it goes on.
#[derive(Clone)]
pub struct Cache {
    layers: Vec<LayerState>,
    /// Of a model whose drafts are wanted.
    pub mtp: Option<MtpState>,
    tokens: Vec<TokenKey>,
    /// Where on the rotary axes the next token of text stands. Less than the number of tokens after a picture.
    next_position: i64,
    empty: Moment,
    /// Serial numbers of the checkpoints that can still be restored, oldest first.
    restorable: Vec<u64>,
    next_serial: u64,
}

#[derive(Clone)]
pub enum LayerState {
    Kv(Kv),
    Delta(DeltaState),
}

/// A cache has the layer types of its model.
impl LayerState {
    pub(super) fn kv_mut(&mut self) -> &mut Kv {
        match self {
            Self::Kv(kv) => kv,
            Self::Delta(_) => unreachable!("the layer is one of full attention"),
        }
    }

    pub(super) fn delta_mut(&mut self) -> &mut DeltaState {
        match self {
            Self::Delta(state) => state,
            Self::Kv(_) => unreachable!("the layer is linear"),
        }
    }
}

/// A moment to which a cache can go back: the states of the linear layers, and a length for the others.
/// One costs the linear states in memory, 18 MiB for the 0.8B model.
#[derive(Clone)]
pub struct Checkpoint {
    serial: u64,
    moment: Moment,
}

/// What it takes to put a whole cache back, besides the keys and values, which are cut.
#[derive(Clone)]
struct Moment {
    len: usize,
    next_position: i64,
    delta: Vec<DeltaState>,
    mtp: Option<(usize, Waiting)>,
}

impl Checkpoint {
    /// How many tokens the cache held.
    pub fn len(&self) -> usize {
        self.moment.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Cache {
    /// `drafts` says whether the model has an MTP head that is to be used.
    pub fn new(config: &ModelConfig, device: &OpenDevice, drafts: bool) -> Self {
        let layers: Vec<LayerState> = config
            .layer_types
            .iter()
            .map(|layer_type| match layer_type {
                LayerType::FullAttention => LayerState::Kv(Kv::new(config, device)),
                LayerType::LinearAttention => LayerState::Delta(DeltaState::zero(config, device)),
            })
            .collect();
        let mtp = drafts.then(|| MtpState::new(Kv::new(config, device)));
        Self {
            empty: Moment::new(&layers, mtp.as_ref(), 0, 0),
            layers,
            mtp,
            tokens: Vec::new(),
            next_position: 0,
            restorable: Vec::new(),
            next_serial: 0,
        }
    }

    /// How many tokens it holds.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The tokens it holds.
    pub fn tokens(&self) -> &[TokenKey] {
        &self.tokens
    }

    pub fn next_position(&self) -> i64 {
        self.next_position
    }

    pub(super) fn layers_mut(&mut self) -> &mut [LayerState] {
        &mut self.layers
    }

    pub(super) fn push_tokens(&mut self, keys: &[TokenKey], next_position: i64) {
        self.tokens.extend_from_slice(keys);
        self.next_position = next_position;
    }

    /// After a forward pass over a draft of `t` tokens of text: keeps the first `n` of them, as if the others had
    /// never been run.
    pub fn keep(&mut self, n: usize, t: usize) {
        let len = self.len() - t + n;
        for layer in &mut self.layers {
            match layer {
                LayerState::Kv(kv) => kv.len = len,
                LayerState::Delta(state) => state.keep(n),
            }
        }
        if let Some(mtp) = &mut self.mtp {
            mtp.drop_last(t - n);
        }
        self.tokens.truncate(len);
        self.next_position -= (t - n) as i64;
    }

    /// Forgets everything. Memory for keys and values is kept.
    pub fn reset(&mut self) {
        self.restorable.clear();
        let empty = self.empty.clone();
        self.restore(&empty);
    }

    /// Remembers the present moment.
    pub fn checkpoint(&mut self) -> Checkpoint {
        self.note(Moment::new(&self.layers, self.mtp.as_ref(), self.len(), self.next_position))
    }

    /// A moment of its past, behind those noted before, becomes one that can be gone back to.
    fn note(&mut self, moment: Moment) -> Checkpoint {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.restorable.push(serial);
        Checkpoint { serial, moment }
    }

    /// Goes back to `checkpoint`. Checkpoints taken after it become stale.
    ///
    /// # Errors
    /// [`StaleCheckpoint`] if the tokens before it are no longer those it was taken behind; the cache is
    /// then unchanged.
    pub fn rewind(&mut self, checkpoint: &Checkpoint) -> Result<(), StaleCheckpoint> {
        let index = self.restorable.binary_search(&checkpoint.serial).map_err(|_| StaleCheckpoint)?;
        self.restorable.truncate(index + 1);
        self.restore(&checkpoint.moment);
        Ok(())
    }

    fn restore(&mut self, moment: &Moment) {
        let mut delta = moment.delta.iter();
        for layer in &mut self.layers {
            match layer {
                LayerState::Kv(kv) => kv.len = moment.len,
                LayerState::Delta(state) => {
                    *state = delta.next().expect("one saved state per linear layer").clone();
                }
            }
        }
        if let (Some(mtp), Some((len, waiting))) = (&mut self.mtp, &moment.mtp) {
            mtp.restore(*len, waiting.clone());
        }
        self.tokens.truncate(moment.len);
        self.next_position = moment.next_position;
    }
}

impl Moment {
    fn new(layers: &[LayerState], mtp: Option<&MtpState>, len: usize, next_position: i64) -> Self {
        let mtp = mtp.map(|mtp| (mtp.len(), mtp.waiting()));
        Self { len, next_position, delta: deltas(layers).cloned().collect(), mtp }
    }
}

fn deltas(layers: &[LayerState]) -> impl Iterator<Item = &DeltaState> {
    layers.iter().filter_map(|layer| match layer {
        LayerState::Delta(state) => Some(state),
        LayerState::Kv(_) => None,
    })
}

/// Keys (normed and rotated) and values of one full-attention layer, each `[kv_heads, capacity, head_dim]`.
#[derive(Clone)]
pub struct Kv {
    /// `None` only while an append moves them out: a second handle would force a copy of the whole.
    tensors: Option<(Tensor<3>, Tensor<3>)>,
    len: usize,
}

impl Kv {
    pub(super) fn new(config: &ModelConfig, device: &OpenDevice) -> Self {
        let shape = [config.num_key_value_heads, KV_BLOCK, config.head_dim];
        let zeros = || Tensor::zeros(shape, &device.tensors);
        Self { tensors: Some((zeros(), zeros())), len: 0 }
    }

    /// Of keys and values `[kv_heads, len, head_dim]`.
    fn of(keys: Tensor<3>, values: Tensor<3>) -> Self {
        let len = keys.dims()[1];
        let with_room = |whole| grown(whole, len, len + 1);
        Self { tensors: Some((with_room(keys), with_room(values))), len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `k`, `v` `[t, kv_heads, head_dim]`.
    pub fn append(&mut self, k: Tensor<3>, v: Tensor<3>) {
        let t = k.dims()[0];
        let (keys, values) = self.tensors.take().expect("only an append takes them, and it puts them back");
        let write = |whole: Tensor<3>, part: Tensor<3>| {
            let [heads, capacity, d] = whole.dims();
            let needed = self.len + t;
            let whole = match needed > capacity {
                true => grown(whole, self.len, needed),
                false => whole,
            };
            whole.slice_assign([0..heads, self.len..needed, 0..d], part.swap_dims(0, 1))
        };
        self.tensors = Some((write(keys, k), write(values, v)));
        self.len += t;
    }

    /// Keys and values with the room behind them.
    pub fn whole(&self) -> (&Tensor<3>, &Tensor<3>) {
        let (keys, values) = self.tensors.as_ref().expect("only an append takes them, and it puts them back");
        (keys, values)
    }

    /// The first `n` keys and values. `n` may exceed the length up to the capacity: the rest is finite, and
    /// the caller masks it.
    pub fn first(&self, n: usize) -> (Tensor<3>, Tensor<3>) {
        let (keys, values) = self.whole();
        (keys.clone().narrow(1, 0, n), values.clone().narrow(1, 0, n))
    }
}

/// The room that keys and values get when they outgrow what they have.
pub fn capacity_for(needed: usize) -> usize {
    (needed + needed / 2).next_multiple_of(KV_BLOCK)
}

/// A copy with room for `needed` tokens and half as many again, so that n appends copy O(n) in total.
fn grown(whole: Tensor<3>, len: usize, needed: usize) -> Tensor<3> {
    let [heads, _, d] = whole.dims();
    let capacity = capacity_for(needed);
    let larger = Tensor::zeros([heads, capacity, d], &whole.device());
    match len {
        0 => larger,
        _ => larger.slice_assign([0..heads, 0..len, 0..d], whole.narrow(1, 0, len)),
    }
}

/// What it takes to put a linear layer back to some token of a draft.
#[derive(Clone)]
pub struct Draft {
    /// The recurrent state before the draft.
    pub before: Tensor<3>,
    /// Inputs of the convolution, from the rows before the draft on.
    pub window: Tensor<2>,
    /// What the delta rule read. Replaying a few steps costs one walk over the state, where a snapshot after
    /// each token would cost a state of memory and of writing per token.
    pub input: RuleInput,
}

/// What a linear layer carries from token to token.
#[derive(Clone)]
pub struct DeltaState {
    /// Inputs of the convolution for the tokens before the next one: `[conv_kernel - 1, conv_dim]`.
    pub conv: Tensor<2>,
    /// `[value_heads, d_k, d_v]`; `None` only while a forward pass moves it, so that it can change in place.
    recurrent: Option<Tensor<3>>,
    /// Set by a forward pass over a draft, until it is decided how much of it stays.
    pub draft: Option<Draft>,
}

impl DeltaState {
    pub(super) fn zero(config: &ModelConfig, device: &OpenDevice) -> Self {
        let conv = [config.linear_conv_kernel_dim - 1, config.conv_dim()];
        let recurrent =
            [config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim];
        Self {
            conv: Tensor::zeros(conv, &device.tensors),
            recurrent: Some(Tensor::zeros(recurrent, &device.tensors)),
            draft: None,
        }
    }

    /// Keeps the first `n` tokens of the draft.
    fn keep(&mut self, n: usize) {
        let Some(Draft { before, window, input }) = self.draft.take() else { return };
        if n == input.n_tokens() {
            return;
        }
        let rows = self.conv.dims()[0];
        self.conv = window.narrow(0, n, rows).mul_scalar(1.0);
        self.recurrent = Some(match n {
            0 => before,
            _ => delta_steps(input.first(n), before).1,
        });
    }

    pub fn take_recurrent(&mut self) -> Tensor<3> {
        self.recurrent.take().expect("a forward pass puts the state back")
    }

    pub fn put_recurrent(&mut self, state: Tensor<3>) {
        self.recurrent = Some(state);
    }
}
