//! Steps of the gated delta rule, token by token, for decode and for the few tokens of a draft.
//!
//! Per value head, with the state S `[d_k, d_v]`:
//!     S <- exp(g) S;  d = beta (v - S^T k);  S <- S + k d^T;  o = S^T q
//! `g` is one number, or one per row of S (per key channel), as in Kimi's delta attention.
//! The state is walked twice a token: once to read what it predicts, once to correct it and read the answer.
//! A token's numbers don't depend on how many others are in the call, nor on the instruction set.

#[cfg(test)]
pub mod definition;
pub mod gpu;
pub mod inputs;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use burn_flex::FlexTensor;
use rayon::prelude::*;

use super::Kernels;
use super::cpu::{MIN_PARALLEL, best_of_three, heads_to_tokens};
use super::linear::float_tensor;

/// What the rule reads of `t` tokens: `q`, `k` `[t, key_heads, d_k]` (normalised, `q` scaled), `v`
/// `[t, value_heads, d_v]`, `g [t, value_heads, 1]` or `[t, value_heads, d_k]`, `beta [t, value_heads]`. Value head h
/// reads key head h / r.
#[derive(Clone)]
pub struct RuleInput {
    pub q: Tensor<3>,
    pub k: Tensor<3>,
    pub v: Tensor<3>,
    pub g: Tensor<3>,
    pub beta: Tensor<2>,
}

impl RuleInput {
    pub fn n_tokens(&self) -> usize {
        self.q.dims()[0]
    }

    /// The first `t` tokens.
    pub fn first(&self, t: usize) -> Self {
        Self {
            q: self.q.clone().narrow(0, 0, t),
            k: self.k.clone().narrow(0, 0, t),
            v: self.v.clone().narrow(0, 0, t),
            g: self.g.clone().narrow(0, 0, t),
            beta: self.beta.clone().narrow(0, 0, t),
        }
    }
}

/// Outputs `[t, value_heads, d_v]` and the state `[value_heads, d_k, d_v]` after the last token. A state that
/// nobody else holds is changed in place.
pub fn delta_steps(input: RuleInput, state: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
    let RuleInput { q, k, v, g, beta } = input;
    let (o, state) = Dispatch::delta_steps(
        state.into_dispatch(),
        q.into_dispatch(),
        k.into_dispatch(),
        v.into_dispatch(),
        g.into_dispatch(),
        beta.into_dispatch(),
    );
    (Tensor::from_dispatch(o), Tensor::from_dispatch(state))
}

/// One token and head as plain slices.
struct Step<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// `exp(g)`: one number, or one per key channel.
    decay: &'a [f32],
    beta: f32,
}

#[inline(always)]
fn step_body(state: &mut [f32], step: &Step, error: &mut [f32], o: &mut [f32]) {
    let d_v = step.v.len();
    let one_decay = step.decay.len() == 1;
    let decay_of = |i: usize| step.decay[if one_decay { 0 } else { i }];
    error.fill(0.0);
    for (i, (row, k)) in state.chunks_exact(d_v).zip(step.k).enumerate() {
        let k = k * decay_of(i);
        for (sum, s) in error.iter_mut().zip(row) {
            *sum += k * s;
        }
    }
    for (e, v) in error.iter_mut().zip(step.v) {
        *e = step.beta * (v - *e);
    }
    o.fill(0.0);
    for (i, ((row, k), q)) in state.chunks_exact_mut(d_v).zip(step.k).zip(step.q).enumerate() {
        let decay = decay_of(i);
        for ((s, e), sum) in row.iter_mut().zip(&*error).zip(&mut *o) {
            *s = decay * *s + k * e;
            *sum += q * *s;
        }
    }
}

best_of_three! {
    /// One token of one head: the state changes, `o [d_v]` is written, `error [d_v]` is scratch.
    fn step = step_body(state: &mut [f32], step: &Step, error: &mut [f32], o: &mut [f32])
}

pub(super) fn flex(mut state: FlexTensor, [q, k, v, g, beta]: [FlexTensor; 5]) -> (FlexTensor, FlexTensor) {
    let [value_heads, d_k, d_v] = [0, 1, 2].map(|i| state.layout().shape()[i]);
    let [t, key_heads] = [0, 1].map(|i| q.layout().shape()[i]);
    let n_decays = g.layout().shape()[2];
    let inputs = [q, k, v, g, beta].map(|x| x.to_contiguous());
    let [q, k, v, g, beta] =
        inputs.each_ref().map(|x| x.as_slice::<f32>().expect("the inputs are f32 and contiguous here"));
    let decays: Vec<f32> = g.iter().map(|g| g.exp()).collect();
    // Head by head, so that each task writes one piece; turned to tokens at the end.
    let mut by_head = vec![0.0; value_heads * t * d_v];
    if !state.is_contiguous() {
        state = state.to_contiguous();
    }
    let states = &mut state.storage_mut::<f32>()[..value_heads * d_k * d_v];
    let work = |(head, (state, o)): (usize, (&mut [f32], &mut [f32]))| {
        let mut error = vec![0.0; d_v];
        let key_head = head / (value_heads / key_heads);
        for (token, o) in o.chunks_exact_mut(d_v).enumerate() {
            let key = (token * key_heads + key_head) * d_k;
            let value = token * value_heads + head;
            let now = Step {
                q: &q[key..key + d_k],
                k: &k[key..key + d_k],
                v: &v[value * d_v..(value + 1) * d_v],
                decay: &decays[value * n_decays..(value + 1) * n_decays],
                beta: beta[value],
            };
            step(state, &now, &mut error, o);
        }
    };
    if t * value_heads * d_k * d_v < MIN_PARALLEL {
        let heads = states.chunks_exact_mut(d_k * d_v).zip(by_head.chunks_exact_mut(t * d_v));
        heads.enumerate().for_each(work);
    } else {
        let heads = states.par_chunks_exact_mut(d_k * d_v).zip(by_head.par_chunks_exact_mut(t * d_v));
        heads.enumerate().for_each(work);
    }
    let o = heads_to_tokens(&by_head, value_heads, t, d_v);
    (float_tensor(o, [t, value_heads, d_v]), state)
}
