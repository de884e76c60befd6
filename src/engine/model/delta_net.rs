//! Gated delta net: the linear-attention layers.
//!
//! A few tokens go through the delta rule one after the other (`kernels::delta` states it); a prompt runs the
//! same rule in chunks, where the steps of a chunk become one triangular system.
//! Source: `torch_recurrent_gated_delta_rule` and `torch_chunk_gated_delta_rule` of the reference.
//! Knows nothing of padding: the caller passes only real tokens.

mod chunked;
mod in_proj;

use burn::tensor::Tensor;
use burn::tensor::activation::{sigmoid, silu};

use self::chunked::delta_chunks;
use self::in_proj::{InProj, Projected};
use super::linear::Linear;
use super::norm::RmsNorm;
use super::{Loader, ModelConfig, WeightsError};
use crate::engine::cache::{DeltaState, Draft};
use crate::engine::kernels::delta::{RuleInput, delta_steps};
use crate::msg::MAX_DRAFTS;

/// Up to this many tokens go one after the other: a token and the longest draft behind it, which must give the
/// same numbers as the same tokens one at a time.
pub const MAX_STEPS: usize = MAX_DRAFTS + 1;
/// Inside the sum of squares of the l2 norm, as in the reference; not a clamp.
const L2_EPS: f64 = 1e-6;

pub struct DeltaNet {
    in_proj: InProj,
    /// One `[1, conv_dim]` weight per tap; the last one multiplies the current token.
    conv1d: Vec<Tensor<2>>,
    /// `-exp(A_log)` `[1, num_value_heads]`.
    decay_rate: Tensor<2>,
    dt_bias: Tensor<2>,
    norm: RmsNorm,
    out_proj: Linear,
    dims: Dims,
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
        let tap = |j: usize| -> Vec<f32> { conv.iter().skip(j).step_by(taps).copied().collect() };
        let a_log = loader.values("A_log", &[heads])?;
        let decay_rate: Vec<f32> = a_log.iter().map(|a| -a.exp()).collect();
        let dt_bias = loader.values("dt_bias", &[heads])?;
        Ok(Self {
            in_proj: InProj::load(hidden, dims, loader)?,
            conv1d: (0..taps).map(|j| loader.vector(&tap(j)).unsqueeze()).collect(),
            decay_rate: loader.vector(&decay_rate).unsqueeze(),
            dt_bias: loader.vector(&dt_bias).unsqueeze(),
            norm: RmsNorm::plain(loader, "norm.weight", config.linear_value_head_dim, config.rms_norm_eps)?,
            out_proj: loader.linear("out_proj.weight", hidden, value_dim)?,
            dims,
        })
    }

    /// `x [t, hidden_size]`, already normed; `state` goes on by `t` tokens. Of a draft, it keeps what it takes to
    /// go back to any of its tokens.
    pub fn forward(&self, x: Tensor<2>, state: &mut DeltaState, is_draft: bool) -> Tensor<2> {
        let [t, _] = x.dims();
        let Projected { qkv, z, b, a } = self.in_proj.forward(x);
        let (mixed, window) = self.convolve(qkv, state);
        let input = self.rule_input(mixed, b, a);
        let recurrent = state.take_recurrent();
        if is_draft {
            state.draft = Some(Draft { before: recurrent.clone(), window, input: input.clone() });
        }
        let (o, recurrent) = match t <= MAX_STEPS {
            true => delta_steps(input, recurrent),
            false => delta_chunks(input, recurrent),
        };
        state.put_recurrent(recurrent);

        let Dims { value_heads, d_v, .. } = self.dims;
        let gated = self.norm.forward(o) * silu(z.reshape([t, value_heads, d_v]));
        self.out_proj.forward(gated.reshape([t, value_heads * d_v]))
    }

    /// What the rule reads: of `mixed [t, conv_dim]`, which left the convolution, and of `b`, `a`
    /// `[t, value_heads]`.
    fn rule_input(&self, mixed: Tensor<2>, b: Tensor<2>, a: Tensor<2>) -> RuleInput {
        let [t, _] = mixed.dims();
        let Dims { key_heads, value_heads, d_k, d_v } = self.dims;
        let key_dim = key_heads * d_k;
        let heads =
            |start: usize, n: usize, d: usize| mixed.clone().narrow(1, start, n * d).reshape([t, n, d]);
        let g = softplus(a + self.dt_bias.clone()) * self.decay_rate.clone();
        RuleInput {
            q: l2_norm(heads(0, key_heads, d_k)) * (d_k as f64).powf(-0.5),
            k: l2_norm(heads(key_dim, key_heads, d_k)),
            v: heads(2 * key_dim, value_heads, d_v),
            g: g.unsqueeze_dim(2),
            beta: sigmoid(b),
        }
    }

    /// Causal depthwise convolution and SiLU over `mixed [t, conv_dim]`. The state holds the rows before it:
    /// one fewer than there are taps, because the current row supplies the last tap.
    /// Gives the result `[t, conv_dim]`, and the state's rows with those of `mixed`.
    fn convolve(&self, mixed: Tensor<2>, state: &mut DeltaState) -> (Tensor<2>, Tensor<2>) {
        let [t, _] = mixed.dims();
        let before = self.conv1d.len() - 1;
        let window = Tensor::cat(vec![state.conv.clone(), mixed], 0);
        // A view would keep the whole window alive between the calls.
        state.conv = window.clone().narrow(0, t, before).mul_scalar(1.0);
        let shifted =
            self.conv1d.iter().enumerate().map(|(j, tap)| window.clone().narrow(0, j, t) * tap.clone());
        let sum = shifted.reduce(|sum, term| sum + term).expect("the kernel has at least two taps");
        (silu(sum), window)
    }
}

/// `x * rsqrt(sum(x^2) + eps)` over the last axis.
fn l2_norm(x: Tensor<3>) -> Tensor<3> {
    let sum = x.clone().square().sum_dim(2);
    x * (sum + L2_EPS).sqrt().recip()
}

/// `ln(1 + e^x)`, written so that neither a large nor a very negative `x` loses it.
fn softplus(x: Tensor<2>) -> Tensor<2> {
    x.clone().clamp_min(0.0) + x.abs().neg().exp().log1p()
}
