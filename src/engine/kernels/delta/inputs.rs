//! From the projections of a linear layer to what the delta rule reads: causal depthwise convolution with SiLU, l2
//! norms of queries and keys, decay and beta.

use burn::tensor::Tensor;
use burn::tensor::activation::{sigmoid, silu};

use super::super::cpu::{self, best_of_three, dot, on_cpu};
use super::super::profile;
use super::RuleInput;

/// Inside the sum of squares of the l2 norm, as in the reference; not a clamp.
const L2_EPS: f64 = 1e-6;

/// What does not change from token to token.
pub struct InputWeights {
    /// `[taps, conv_dim]`; the last row multiplies the current token.
    pub conv1d: Tensor<2>,
    /// `-exp(A_log)` `[1, value_heads]`.
    pub decay_rate: Tensor<2>,
    pub dt_bias: Tensor<2>,
    pub key_heads: usize,
    pub d_k: usize,
    pub d_v: usize,
}

impl InputWeights {
    fn value_heads(&self) -> usize {
        self.dt_bias.dims()[1]
    }
}

/// `window [taps - 1 + t, conv_dim]` are the rows before the `t` tokens and theirs, queries first, then keys and
/// values; `b` and `a` `[t, value_heads]`.
pub fn rule_input(window: &Tensor<2>, b: Tensor<2>, a: Tensor<2>, weights: &InputWeights) -> RuleInput {
    let on_cpu = || on_the_cpu(window, &b, &a, weights);
    profile::noted("convolution", 0, on_cpu).unwrap_or_else(|| rule_input_defined(window, b, a, weights))
}

pub(in super::super) fn rule_input_defined(
    window: &Tensor<2>,
    b: Tensor<2>,
    a: Tensor<2>,
    weights: &InputWeights,
) -> RuleInput {
    let (t, taps) = (b.dims()[0], weights.conv1d.dims()[0]);
    let shifted = (0..taps).map(|j| window.clone().narrow(0, j, t) * weights.conv1d.clone().narrow(0, j, 1));
    let mixed = silu(shifted.reduce(|sum, term| sum + term).expect("the kernel has at least two taps"));
    let InputWeights { key_heads, d_k, d_v, .. } = *weights;
    let key_dim = key_heads * d_k;
    let heads = |start: usize, n: usize, d: usize| mixed.clone().narrow(1, start, n * d).reshape([t, n, d]);
    let g = softplus(a + weights.dt_bias.clone()) * weights.decay_rate.clone();
    RuleInput {
        q: l2_norm(heads(0, key_heads, d_k)) * (d_k as f64).powf(-0.5),
        k: l2_norm(heads(key_dim, key_heads, d_k)),
        v: heads(2 * key_dim, weights.value_heads(), d_v),
        g: g.unsqueeze_dim(2),
        beta: sigmoid(b),
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

fn on_the_cpu(window: &Tensor<2>, b: &Tensor<2>, a: &Tensor<2>, weights: &InputWeights) -> Option<RuleInput> {
    let [t, heads] = b.dims();
    let [taps, conv_dim] = weights.conv1d.dims();
    let InputWeights { key_heads, d_k, d_v, .. } = *weights;
    let [window, b, a] = [on_cpu(window)?, on_cpu(b)?, on_cpu(a)?];
    let [conv1d, rate, bias] =
        [on_cpu(&weights.conv1d)?, on_cpu(&weights.decay_rate)?, on_cpu(&weights.dt_bias)?];
    let [window, b, a, conv1d, rate, bias] = [&window, &b, &a, &conv1d, &rate, &bias].map(cpu::slice);

    let mut mixed = vec![0.0; t * conv_dim];
    cpu::by_rows(&mut mixed, conv_dim, |first, y| {
        convolve(&window[first * conv_dim..], conv1d, taps, y, conv_dim)
    });
    let key_dim = key_heads * d_k;
    let part = |start: usize, width: usize| -> Vec<f32> {
        mixed.chunks_exact(conv_dim).flat_map(|row| &row[start..start + width]).copied().collect()
    };
    let (mut q, mut k) = (part(0, key_dim), part(key_dim, key_dim));
    cpu::by_rows(&mut q, d_k, |_, q| normalise(q, d_k, (d_k as f32).sqrt().recip()));
    cpu::by_rows(&mut k, d_k, |_, k| normalise(k, d_k, 1.0));
    // As exact as they can be: a decay is multiplied with itself for as many tokens as it is remembered.
    let softplus = |x: f32| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let per_head = rate.iter().zip(bias).cycle();
    let g: Vec<f32> = a.iter().zip(per_head).map(|(a, (rate, bias))| softplus(a + bias) * rate).collect();
    let beta: Vec<f32> = b.iter().map(|b| 1.0 / (1.0 + (-b).exp())).collect();
    Some(RuleInput {
        q: cpu::tensor(q, [t, key_heads, d_k]),
        k: cpu::tensor(k, [t, key_heads, d_k]),
        v: cpu::tensor(part(2 * key_dim, heads * d_v), [t, heads, d_v]),
        g: cpu::tensor(g, [t, heads, 1]),
        beta: cpu::tensor(beta, [t, heads]),
    })
}

#[inline(always)]
fn convolve_body(window: &[f32], conv1d: &[f32], taps: usize, y: &mut [f32], width: usize) {
    for (i, y) in y.chunks_exact_mut(width).enumerate() {
        for j in 0..taps {
            let (row, tap) = (&window[(i + j) * width..][..width], &conv1d[j * width..][..width]);
            for ((y, x), tap) in y.iter_mut().zip(row).zip(tap) {
                *y += x * tap;
            }
        }
        for y in y.iter_mut() {
            *y = cpu::silu(*y);
        }
    }
}

best_of_three! {
    fn convolve = convolve_body(window: &[f32], conv1d: &[f32], taps: usize, y: &mut [f32], width: usize)
}

#[inline(always)]
fn normalise_body(x: &mut [f32], width: usize, scale: f32) {
    for x in x.chunks_exact_mut(width) {
        let scale = (dot(x, x) + L2_EPS as f32).sqrt().recip() * scale;
        for x in x.iter_mut() {
            *x *= scale;
        }
    }
}

best_of_three! { fn normalise = normalise_body(x: &mut [f32], width: usize, scale: f32) }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::noise::{assert_near, tensor, values};

    #[test]
    fn one_pass_gives_what_the_definition_says() {
        for (t, taps, key_heads, value_heads, d_k, d_v) in
            [(1, 2, 1, 1, 1, 1), (1, 4, 2, 4, 8, 6), (3, 4, 1, 3, 17, 5), (300, 4, 4, 4, 32, 64)]
        {
            let conv_dim = 2 * key_heads * d_k + value_heads * d_v;
            let weights = InputWeights {
                conv1d: tensor(1, [taps, conv_dim]),
                decay_rate: tensor(2, [1, value_heads]) - 1.0,
                dt_bias: tensor(3, [1, value_heads]),
                key_heads,
                d_k,
                d_v,
            };
            let window = tensor(4, [taps - 1 + t, conv_dim]).mul_scalar(4.0);
            let (b, a) =
                (tensor(5, [t, value_heads]).mul_scalar(9.0), tensor(6, [t, value_heads]).mul_scalar(30.0));
            let got = rule_input(&window, b.clone(), a.clone(), &weights);
            let expected = rule_input_defined(&window, b, a, &weights);
            let what = format!("{t} {taps} {key_heads} {value_heads} {d_k} {d_v}");
            for (got, expected) in
                [(got.q, expected.q), (got.k, expected.k), (got.v, expected.v), (got.g, expected.g)]
            {
                assert_near(got, &values(expected), 2e-6, &what);
            }
            assert_near(got.beta, &values(expected.beta), 1e-6, &what);
        }
    }
}
