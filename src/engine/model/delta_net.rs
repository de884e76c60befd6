//! Gated delta net: the linear-attention layers.
//!
//! A few tokens go through the delta rule one after the other (`kernels::delta` states it); a prompt runs the
//! same rule in chunks, where the steps of a chunk become one triangular system.
//! Source: `torch_recurrent_gated_delta_rule` and `torch_chunk_gated_delta_rule` of the reference.
//! Knows nothing of padding: the caller passes only real tokens.

use burn::tensor::activation::{sigmoid, silu};
use burn::tensor::{Tensor, TensorData};

use super::linear::Linear;
use super::norm::RmsNorm;
use super::{Loader, ModelConfig, WeightsError};
use crate::engine::cache::{DeltaState, Draft};
use crate::engine::kernels::delta::{RuleInput, delta_steps};
use crate::engine::kernels::solve::solve_unit_lower;
use crate::msg::MAX_DRAFTS;

/// Tokens per chunk, as in the reference. The triangular work grows with it, the serial steps shrink.
const CHUNK: usize = 64;
/// Up to this many tokens go one after the other: a token and the longest draft behind it, which must give the
/// same numbers as the same tokens one at a time.
pub const MAX_STEPS: usize = MAX_DRAFTS + 1;
/// Inside the sum of squares of the l2 norm, as in the reference; not a clamp.
const L2_EPS: f64 = 1e-6;

pub struct DeltaNet {
    in_proj_qkv: Linear,
    in_proj_z: Linear,
    in_proj_b: Linear,
    in_proj_a: Linear,
    /// One `[1, conv_dim]` weight per tap; the last one multiplies the current token.
    conv1d: Vec<Tensor<2>>,
    /// `-exp(A_log)` `[1, num_value_heads]`.
    decay_rate: Tensor<2>,
    dt_bias: Tensor<2>,
    norm: RmsNorm,
    out_proj: Linear,
    dims: Dims,
    /// How often queries and keys are repeated as a whole, so that each value head stands beside its own: value head
    /// `h` of a file with tiled heads reads key head `h mod key_heads`.
    tiles: usize,
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
        let taps = config.linear_conv_kernel_dim;
        let conv = loader.values("conv1d.weight", &[conv_dim, 1, taps])?;
        let tap = |j: usize| -> Vec<f32> { conv.iter().skip(j).step_by(taps).copied().collect() };
        let a_log = loader.values("A_log", &[heads])?;
        let decay_rate: Vec<f32> = a_log.iter().map(|a| -a.exp()).collect();
        let dt_bias = loader.values("dt_bias", &[heads])?;
        let tiles = match loader.has_tiled_value_heads() {
            true => heads / config.linear_num_key_heads,
            false => 1,
        };
        Ok(Self {
            tiles,
            in_proj_qkv: loader.linear("in_proj_qkv.weight", conv_dim, hidden)?,
            in_proj_z: loader.linear("in_proj_z.weight", value_dim, hidden)?,
            in_proj_b: loader.linear("in_proj_b.weight", heads, hidden)?,
            in_proj_a: loader.linear("in_proj_a.weight", heads, hidden)?,
            conv1d: (0..taps).map(|j| loader.vector(&tap(j)).unsqueeze()).collect(),
            decay_rate: loader.vector(&decay_rate).unsqueeze(),
            dt_bias: loader.vector(&dt_bias).unsqueeze(),
            norm: RmsNorm::plain(loader, "norm.weight", config.linear_value_head_dim, config.rms_norm_eps)?,
            out_proj: loader.linear("out_proj.weight", hidden, value_dim)?,
            dims: Dims {
                key_heads: config.linear_num_key_heads,
                value_heads: heads,
                d_k: config.linear_key_head_dim,
                d_v: config.linear_value_head_dim,
            },
        })
    }

    /// `x [t, hidden_size]`, already normed; `state` goes on by `t` tokens. Of a draft, it keeps what it takes to
    /// go back to any of its tokens.
    pub fn forward(&self, x: Tensor<2>, state: &mut DeltaState, is_draft: bool) -> Tensor<2> {
        let [t, _] = x.dims();
        let (input, window) = self.rule_input(x.clone(), state);
        let recurrent = state.take_recurrent();
        if is_draft {
            state.draft = Some(Draft { before: recurrent.clone(), window, input: input.clone() });
        }
        let (o, recurrent) = match t <= MAX_STEPS {
            true => delta_steps(input, recurrent),
            false => chunked(input, recurrent),
        };
        state.put_recurrent(recurrent);

        let Dims { value_heads, d_v, .. } = self.dims;
        let z = self.in_proj_z.forward(x).reshape([t, value_heads, d_v]);
        let gated = self.norm.forward(o) * silu(z);
        self.out_proj.forward(gated.reshape([t, value_heads * d_v]))
    }

    /// What the rule reads, and the rows that the convolution went over.
    fn rule_input(&self, x: Tensor<2>, state: &mut DeltaState) -> (RuleInput, Tensor<2>) {
        let [t, _] = x.dims();
        let Dims { key_heads, value_heads, d_k, d_v } = self.dims;
        let (mixed, window) = self.convolve(self.in_proj_qkv.forward(x.clone()), state);
        let key_dim = key_heads * d_k;
        let heads =
            |start: usize, n: usize, d: usize| mixed.clone().narrow(1, start, n * d).reshape([t, n, d]);
        let dt = self.in_proj_a.forward(x.clone()) + self.dt_bias.clone();
        let input = RuleInput {
            q: self.tiled(l2_norm(heads(0, key_heads, d_k)) * (d_k as f64).powf(-0.5)),
            k: self.tiled(l2_norm(heads(key_dim, key_heads, d_k))),
            v: heads(2 * key_dim, value_heads, d_v),
            g: softplus(dt) * self.decay_rate.clone(),
            beta: sigmoid(self.in_proj_b.forward(x)),
        };
        (input, window)
    }

    fn tiled(&self, x: Tensor<3>) -> Tensor<3> {
        match self.tiles {
            1 => x,
            n => Tensor::cat(vec![x; n], 1),
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

/// Any number of tokens: `o [t, value_heads, d_v]` and the new state `[value_heads, d_k, d_v]`. Equal to single
/// steps in real arithmetic.
fn chunked(input: RuleInput, mut state: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
    let [t, heads, d_v] = input.v.dims();
    let [_, key_heads, d_k] = input.k.dims();
    let device = input.k.device();
    let chunk = CHUNK.min(t);
    let n_chunks = t.div_ceil(chunk);

    // Value head h reads key head h / r: each key head is repeated r times in a row.
    let repeated = |x: Tensor<3>| match heads / key_heads {
        1 => x.swap_dims(0, 1),
        r => {
            let x = x.swap_dims(0, 1).reshape([key_heads, 1, t, d_k]);
            x.expand([key_heads, r, t, d_k]).reshape([heads, t, d_k])
        }
    };
    let per_head = |x: Tensor<2>| x.transpose().reshape([heads, t, 1]);
    // Padding steps have k = v = q = beta = g = 0, which leaves the state as it is.
    let in_chunks = |x: Tensor<3>| {
        let width = x.dims()[2];
        let padding = n_chunks * chunk - t;
        let padded = match padding {
            0 => x,
            _ => Tensor::cat(vec![x, Tensor::zeros([heads, padding, width], &device)], 1),
        };
        padded.reshape([heads, n_chunks, chunk, width])
    };
    let [q, k, v, g, beta] = [
        repeated(input.q),
        repeated(input.k),
        input.v.swap_dims(0, 1),
        per_head(input.g),
        per_head(input.beta),
    ]
    .map(in_chunks);

    // Row i, column j: the decay from step j to step i, for i >= j. The mask comes before the exponential,
    // which would overflow above the diagonal.
    let lower = lower_triangle(chunk, &device);
    let g = g.cumsum(2);
    let decay = ((g.clone() - g.clone().swap_dims(2, 3)) * lower.clone()).exp() * lower.clone();
    let strictly_lower = lower - Tensor::eye(chunk, &device).unsqueeze();

    let k_beta = k.clone() * beta.clone();
    let a = k_beta.clone().matmul(k.clone().swap_dims(2, 3)) * decay.clone() * strictly_lower;
    let rhs = Tensor::cat(vec![v * beta, k_beta * g.clone().exp()], 3);
    let solved = solve_unit_lower(
        a.reshape([heads * n_chunks, chunk, chunk]),
        rhs.reshape([heads * n_chunks, chunk, d_v + d_k]),
    )
    .reshape([heads, n_chunks, chunk, d_v + d_k]);
    let u = solved.clone().narrow(3, 0, d_v);
    let w = solved.narrow(3, d_v, d_k);

    let scores = q.clone().matmul(k.clone().swap_dims(2, 3)) * decay;
    let q_decayed = q * g.clone().exp();
    let g_last = g.clone().narrow(2, chunk - 1, 1);
    let k_decayed = (k * (g_last.clone() - g).exp()).swap_dims(2, 3);
    let state_decay = g_last.exp();

    // What is left depends on the state and runs chunk after chunk.
    let mut outputs = Vec::with_capacity(n_chunks);
    for i in 0..n_chunks {
        let at = |x: &Tensor<4>| -> Tensor<3> { x.clone().narrow(1, i, 1).squeeze_dim(1) };
        let corrected = at(&u) - at(&w).matmul(state.clone());
        outputs.push(at(&q_decayed).matmul(state.clone()) + at(&scores).matmul(corrected.clone()));
        state = state * at(&state_decay) + at(&k_decayed).matmul(corrected);
    }
    (Tensor::cat(outputs, 1).narrow(1, 0, t).swap_dims(0, 1), state)
}

/// Ones on and below the diagonal: `[1, 1, n, n]`.
fn lower_triangle(n: usize, device: &burn::tensor::Device) -> Tensor<4> {
    let ones: Vec<f32> = (0..n).flat_map(|i| (0..n).map(move |j| f32::from(u8::from(j <= i)))).collect();
    Tensor::from_data(TensorData::new(ones, [1, 1, n, n]), device)
}
