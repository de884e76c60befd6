//! Gated full attention: q/k norm, partial rotary positions, grouped queries, and a sigmoid gate.

use burn::tensor::activation::softmax;
use burn::tensor::{Tensor, TensorData};

use super::linear::Linear;
use super::norm::RmsNorm;
use super::rope::rotate;
use super::{Loader, ModelConfig, OpenDevice, Step, WeightsError, each_sequence, join};
use crate::engine::cache::Kv;
use crate::engine::kernels::attention::{self, Sees};

/// Added to the scores of positions a token must not see. Finite, because WGSL has no infinity literal and
/// the softmax of a finite number can't give NaN.
const HIDDEN: f32 = -1e30;
/// Scores held at once: 64 MiB. Long prompts are attended in blocks of queries.
pub const MAX_SCORES: usize = 16 << 20;
/// On a GPU the keys are read in multiples of this, so that kernels are compiled and tuned for few shapes.
const GPU_KEY_BLOCK: usize = 64;

pub struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    q_norm: RmsNorm,
    k_norm: RmsNorm,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
}

impl Attention {
    pub fn load(config: &ModelConfig, loader: &Loader) -> Result<Self, WeightsError> {
        let (heads, kv_heads, head_dim) =
            (config.num_attention_heads, config.num_key_value_heads, config.head_dim);
        let hidden = config.hidden_size;
        let norm = |name| RmsNorm::zero_centred(loader, name, head_dim, config.rms_norm_eps);
        Ok(Self {
            // Per head: the rows of the query, then those of the gate.
            q_proj: loader.linear("q_proj.weight", heads * 2 * head_dim, hidden)?,
            k_proj: loader.linear("k_proj.weight", kv_heads * head_dim, hidden)?,
            v_proj: loader.linear("v_proj.weight", kv_heads * head_dim, hidden)?,
            o_proj: loader.linear("o_proj.weight", hidden, heads * head_dim)?,
            q_norm: norm("q_norm.weight")?,
            k_norm: norm("k_norm.weight")?,
            num_attention_heads: heads,
            num_key_value_heads: kv_heads,
            head_dim,
        })
    }

    /// `x [t, hidden_size]`, already normed; the keys and values of each sequence in `step` are added to its own.
    pub fn forward<'a>(
        &self,
        x: Tensor<2>,
        states: impl Iterator<Item = &'a mut Kv>,
        step: &Step,
    ) -> Tensor<2> {
        let [t, _] = x.dims();
        let (heads, kv_heads, d) = (self.num_attention_heads, self.num_key_value_heads, self.head_dim);

        let [query_and_gate, k, v] = Linear::forward_all([&self.q_proj, &self.k_proj, &self.v_proj], x);
        let query_and_gate = query_and_gate.reshape([t, heads, 2 * d]);
        let q = rotate(self.q_norm.forward(query_and_gate.clone().narrow(2, 0, d)), &step.rotation);
        let gate = query_and_gate.narrow(2, d, d).reshape([t, heads * d]);
        let k = rotate(self.k_norm.forward(k.reshape([t, kv_heads, d])), &step.rotation);
        let v = v.reshape([t, kv_heads, d]);
        let q = q * (d as f64).powf(-0.5);
        let attended = each_sequence(states.zip(&step.shares), step, |(kv, share)| {
            kv.append(share.of(&k), share.of(&v));
            self.attend(share.of(&q), kv, share.mask.as_ref())
        });
        self.o_proj.forward(attention::gate(join(attended, 0), gate))
    }

    /// `q [t, heads, head_dim]`, scaled, against the cached keys that each token may see: `[t, heads * head_dim]`.
    fn attend(&self, q: Tensor<3>, kv: &Kv, mask: Option<&Tensor<2>>) -> Tensor<2> {
        let Some(mask) = mask else {
            let (keys, values) = kv.whole();
            return attention::attend(&q, keys, values, kv.len(), Sees::Past);
        };
        let [t, heads, d] = q.dims();
        let group = heads / self.num_key_value_heads;
        // Key/value head h serves query heads h * group .. (h + 1) * group.
        let q = q.reshape([t, self.num_key_value_heads, group, d]).permute([1, 2, 0, 3]);
        let n_keys = mask.dims()[1];
        let (keys, values) = kv.first(n_keys);
        let block = (MAX_SCORES / (heads * n_keys)).clamp(1, t);
        let blocks = (0..t).step_by(block).map(|start| {
            let n = block.min(t - start);
            let mask = mask.clone().narrow(0, start, n);
            attend_block(q.clone().narrow(2, start, n), keys.clone(), values.clone(), mask)
        });
        join(blocks.collect(), 0)
    }
}

/// Queries `[kv_heads, group, n, head_dim]` against keys and values `[kv_heads, keys, head_dim]`:
/// `[n, heads * head_dim]`. `mask [n, keys]` is added to the scores.
fn attend_block(q: Tensor<4>, keys: Tensor<3>, values: Tensor<3>, mask: Tensor<2>) -> Tensor<2> {
    let [kv_heads, group, n, d] = q.dims();
    let n_keys = keys.dims()[1];
    let scores = q.reshape([kv_heads, group * n, d]).matmul(keys.swap_dims(1, 2));
    let scores = scores.reshape([kv_heads, group, n, n_keys]) + mask.unsqueeze();
    let weights = softmax(scores, 3).reshape([kv_heads, group * n, n_keys]);
    let attended = weights.matmul(values).reshape([kv_heads, group, n, d]);
    attended.permute([2, 0, 1, 3]).reshape([n, kv_heads * group * d])
}

/// What to add to the scores `[t, keys]` of tokens `start..start + t`, so that none sees a later one. `None` on the
/// CPU, whose own attention knows.
pub fn causal_mask(start: usize, t: usize, device: &OpenDevice) -> Option<Tensor<2>> {
    if !device.is_gpu {
        return None;
    }
    let n_keys = (start + t).next_multiple_of(GPU_KEY_BLOCK);
    let row = |token: usize| (0..n_keys).map(move |key| if key <= start + token { 0.0 } else { HIDDEN });
    let mask: Vec<f32> = (0..t).flat_map(row).collect();
    Some(Tensor::from_data(TensorData::new(mask, [t, n_keys]), &device.tensors))
}
