//! Gated delta net: the linear-attention layers.
//!
//! On the CPU, and when they are few, tokens go through the delta rule one after the other (`kernels::delta` states
//! it); a GPU runs a prompt in chunks, where the steps of a chunk become one triangular system.
//! Source: `torch_recurrent_gated_delta_rule` and `torch_chunk_gated_delta_rule` of the reference.
//! Knows nothing of padding: the caller passes only real tokens.

mod chunked;
mod in_proj;

use burn::tensor::Tensor;

use self::chunked::delta_chunks;
use self::in_proj::{InProj, Projected};
use super::linear::Linear;
use super::norm::RmsNorm;
use super::{Loader, ModelConfig, Step, WeightsError, each_sequence, join};
use crate::engine::cache::{DeltaState, Draft};
use crate::engine::kernels::delta::delta_steps;
use crate::engine::kernels::delta::inputs::{InputWeights, rule_input};
use crate::msg::MAX_DRAFTS;

/// Up to this many tokens go one after the other: a token and the longest draft behind it, which must give the
/// same numbers as the same tokens one at a time.
pub const MAX_STEPS: usize = MAX_DRAFTS + 1;

pub struct DeltaNet {
    in_proj: InProj,
    input: InputWeights,
    norm: RmsNorm,
    out_proj: Linear,
    dims: Dims,
    /// How often queries and keys are repeated as a whole, so that each value head stands beside its own: value head
    /// `h` of a file with tiled heads reads key head `h mod key_heads`.
    tiles: usize,
    is_gpu: bool,
}

#[derive(Clone, Copy)]
struct Dims {
    key_heads: usize,
    value_heads: usize,
    d_k: usize,
    d_v: usize,
}

impl DeltaNet {
    pub fn load(config: &ModelConfig, loader: &Loader) -> Result<Self, WeightsError> {
        let hidden = config.hidden_size;
        let (conv_dim, value_dim) = (config.conv_dim(), config.linear_value_dim());
        let heads = config.linear_num_value_heads;
        let dims = Dims {
            key_heads: config.linear_num_key_heads,
            value_heads: heads,
            d_k: config.linear_key_head_dim,
            d_v: config.linear_value_head_dim,
        };
        let taps = config.linear_conv_kernel_dim;
        let conv = loader.values("conv1d.weight", &[conv_dim, 1, taps])?;
        let conv = (0..taps).flat_map(|j| conv.iter().skip(j).step_by(taps).copied()).collect::<Vec<f32>>();
        let a_log = loader.values("A_log", &[heads])?;
        let decay_rate: Vec<f32> = a_log.iter().map(|a| -a.exp()).collect();
        let dt_bias = loader.values("dt_bias", &[heads])?;
        let tiles = match loader.has_tiled_value_heads() {
            true => dims.value_heads / dims.key_heads,
            false => 1,
        };
        Ok(Self {
            tiles,
            is_gpu: loader.device.is_gpu,
            in_proj: InProj::load(hidden, dims, loader)?,
            input: InputWeights {
                conv1d: loader.vector(&conv).reshape([taps, conv_dim]),
                decay_rate: loader.vector(&decay_rate).unsqueeze(),
                dt_bias: loader.vector(&dt_bias).unsqueeze(),
                key_heads: dims.key_heads,
                d_k: dims.d_k,
                d_v: dims.d_v,
            },
            norm: RmsNorm::plain(loader, "norm.weight", config.linear_value_head_dim, config.rms_norm_eps)?,
            out_proj: loader.linear("out_proj.weight", hidden, value_dim)?,
            dims,
        })
    }

    /// `x [t, hidden_size]`, already normed; the state of each sequence in `step` goes on by its tokens.
    pub fn forward<'a>(
        &self,
        x: Tensor<2>,
        states: impl Iterator<Item = &'a mut DeltaState>,
        step: &Step,
    ) -> Tensor<2> {
        let [t, _] = x.dims();
        let Projected { qkv, z, b, a } = self.in_proj.forward(x);
        let mixed = each_sequence(states.zip(&step.shares), step, |(state, share)| {
            self.mix(share.of(&qkv), share.of(&b), share.of(&a), state, share.is_draft)
        });
        let o = join(mixed, 0);
        let Dims { value_heads, d_v, .. } = self.dims;
        let gated = self.norm.forward_gated(o, z.reshape([t, value_heads, d_v]));
        self.out_proj.forward(gated.reshape([t, value_heads * d_v]))
    }

    /// The tokens of one sequence, from their projections to `[t, value_heads, d_v]`. Of a draft, `state` keeps what
    /// it takes to go back to any of its tokens.
    fn mix(
        &self,
        qkv: Tensor<2>,
        b: Tensor<2>,
        a: Tensor<2>,
        state: &mut DeltaState,
        is_draft: bool,
    ) -> Tensor<3> {
        let [t, _] = qkv.dims();
        let before = state.conv.dims()[0];
        let window = Tensor::cat(vec![state.conv.clone(), qkv], 0);
        // A view would keep the whole window alive between the calls.
        state.conv = window.clone().narrow(0, t, before).mul_scalar(1.0);
        let mut input = rule_input(&window, b, a, &self.input);
        if self.tiles > 1 {
            input.q = Tensor::cat(vec![input.q; self.tiles], 1);
            input.k = Tensor::cat(vec![input.k; self.tiles], 1);
        }
        let recurrent = state.take_recurrent();
        if is_draft {
            state.draft = Some(Draft { before: recurrent.clone(), window, input: input.clone() });
        }
        let (o, recurrent) = match t <= MAX_STEPS || !self.is_gpu {
            true => delta_steps(input, recurrent),
            false => delta_chunks(input, recurrent),
        };
        state.put_recurrent(recurrent);
        o
    }
}
