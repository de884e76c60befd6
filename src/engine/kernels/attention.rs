//! Attention of a few tokens to many cached keys, as in decode, and what stands before it: norm and rotation.

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::cpu::{self, best_of_three, dot, exp, on_cpu, sigmoid};

/// Queries `q [t, heads, d]`, normed, rotated and scaled, of the last `t` of `n_keys` tokens, against `keys` and
/// `values` `[kv_heads, capacity, d]`; each sees the tokens up to its own. Query head h reads key head
/// `h / (heads / kv_heads)`. The result `[t, heads * d]` is multiplied by `sigmoid(gate)`, of the same shape.
///
/// Only on the CPU, where a token then gets the same numbers alone and in company.
///
/// # Panics
/// If a tensor lives elsewhere.
pub fn attend_steps(
    q: &Tensor<3>,
    keys: &Tensor<3>,
    values: &Tensor<3>,
    n_keys: usize,
    gate: &Tensor<2>,
) -> Tensor<2> {
    let [t, heads, d] = q.dims();
    let [kv_heads, capacity, _] = keys.dims();
    let [q, keys, values] = [q, keys, values].map(|x| on_cpu(x).expect("attention in steps is for the CPU"));
    let gate = on_cpu(gate).expect("what is gated lives where the gate does");
    let [q, keys, values, gate] = [&q, &keys, &values, &gate].map(cpu::slice);
    let group = heads / kv_heads;
    // Head by head, so that each task writes one piece; turned to tokens at the end.
    let mut by_head = vec![0.0; kv_heads * t * group * d];
    let work = |(head, o): (usize, &mut [f32])| {
        let (keys, values) =
            (&keys[head * capacity * d..][..n_keys * d], &values[head * capacity * d..][..n_keys * d]);
        let mut scores = vec![0.0; n_keys];
        for (i, o) in o.chunks_exact_mut(d).enumerate() {
            let (token, query) = (i / group, i % group);
            let q = &q[(token * heads + head * group + query) * d..][..d];
            let visible = n_keys - t + token + 1;
            attend(q, &keys[..visible * d], &values[..visible * d], &mut scores[..visible], o);
        }
    };
    match t * n_keys * heads * d < MIN_PARALLEL {
        true => by_head.chunks_exact_mut(t * group * d).enumerate().for_each(work),
        false => by_head.par_chunks_exact_mut(t * group * d).enumerate().for_each(work),
    }
    let mut y = cpu::heads_to_tokens(&by_head, kv_heads, t, group * d);
    gate_all(&mut y, gate);
    cpu::tensor(y, [t, heads * d])
}

/// Fewer products than this aren't worth waking other threads.
const MIN_PARALLEL: usize = 1 << 17;

#[inline(always)]
fn attend_body(q: &[f32], keys: &[f32], values: &[f32], scores: &mut [f32], o: &mut [f32]) {
    let d = q.len();
    let mut largest = f32::NEG_INFINITY;
    for (score, key) in scores.iter_mut().zip(keys.chunks_exact(d)) {
        *score = dot(q, key);
        largest = largest.max(*score);
    }
    let mut total = 0.0;
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
        total += *score;
    }
    o.fill(0.0);
    for (weight, value) in scores.iter().zip(values.chunks_exact(d)) {
        for (o, value) in o.iter_mut().zip(value) {
            *o += weight * value;
        }
    }
    for o in o.iter_mut() {
        *o /= total;
    }
}

best_of_three! { fn attend = attend_body(q: &[f32], keys: &[f32], values: &[f32], scores: &mut [f32], o: &mut [f32]) }

#[inline(always)]
fn gate_body(y: &mut [f32], gate: &[f32]) {
    for (y, gate) in y.iter_mut().zip(gate) {
        *y *= sigmoid(*gate);
    }
}

best_of_three! { fn gate_all = gate_body(y: &mut [f32], gate: &[f32]) }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::noise::{assert_near, tensor, values};

    /// In f64, one query and head after the other.
    fn definition(q: &[f32], keys: &[f32], values: &[f32], gate: &[f32], sizes: [usize; 6]) -> Vec<f32> {
        let [t, heads, kv_heads, capacity, n_keys, d] = sizes;
        let mut y = Vec::new();
        for (token, head) in (0..t * heads).map(|i| (i / heads, i % heads)) {
            let place = |key: usize| ((head / (heads / kv_heads)) * capacity + key) * d;
            let q = &q[(token * heads + head) * d..][..d];
            let score =
                |key| -> f64 { (0..d).map(|i| f64::from(q[i]) * f64::from(keys[place(key) + i])).sum() };
            let weights: Vec<f64> = (0..n_keys - t + token + 1).map(|key| score(key).exp()).collect();
            let total: f64 = weights.iter().sum();
            for i in 0..d {
                let mean: f64 =
                    weights.iter().enumerate().map(|(key, w)| w * f64::from(values[place(key) + i])).sum();
                let gate = f64::from(gate[(token * heads + head) * d + i]);
                y.push((mean / total / (1.0 + (-gate).exp())) as f32);
            }
        }
        y
    }

    #[test]
    fn few_tokens_attend_to_what_they_may_see() {
        for sizes in [
            [1, 1, 1, 1, 1, 1],
            [1, 2, 1, 8, 5, 3],
            [3, 4, 2, 16, 9, 8],
            [9, 8, 2, 700, 600, 64],
            [2, 6, 6, 40, 40, 17],
        ] {
            let [t, heads, kv_heads, capacity, n_keys, d] = sizes;
            let (q, gate) = (tensor(1, [t, heads, d]), tensor(2, [t, heads * d]).mul_scalar(4.0));
            let (keys, cached) = (tensor(3, [kv_heads, capacity, d]), tensor(4, [kv_heads, capacity, d]));
            let inputs = [&q, &keys, &cached].map(|x| values(x.clone()));
            let expected = definition(&inputs[0], &inputs[1], &inputs[2], &values(gate.clone()), sizes);
            let got = attend_steps(&q, &keys, &cached, n_keys, &gate);
            assert_near(got.clone(), &expected, 1e-5, &format!("{sizes:?}"));
            // The last token alone: the same bits.
            let (q, gate) = (q.narrow(0, t - 1, 1), gate.narrow(0, t - 1, 1));
            let alone = attend_steps(&q, &keys, &cached, n_keys, &gate);
            assert_eq!(values(alone), values(got.narrow(0, t - 1, 1)), "{sizes:?}");
        }
    }
}
