//! Steps of the gated delta rule, token by token, for decode and for the few tokens of a draft.
//!
//! Per value head, with the state S `[d_k, d_v]`:
//!     S <- exp(g) S;  d = beta (v - S^T k);  S <- S + k d^T;  o = S^T q
//! `g` is one number, or one per row of S (per key channel), as in Kimi's delta attention.
//! The state is walked twice a token: once to read what it predicts, once to correct it and read the answer. On the
//! CPU some columns of it, which don't depend on the others, are taken to a place where they fit the first-level cache,
//! and all tokens pass there: so even a long prompt is read faster in steps than in chunks (`model/delta_net`).
//! A token's numbers don't depend on how many others are in the call.

#[cfg(test)]
pub mod definition;
pub mod gpu;
pub mod inputs;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::Kernels;
use super::cpu::{LANES, Line, MIN_PARALLEL, best_of_three, multiply_add};
use super::linear::float_tensor;
use super::pool::{self, Start};
use super::profile;

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

/// Lines of columns that are taken together: at 128 rows they fill two thirds of a first-level cache.
const MAX_LINES: usize = 4;

/// What the rule reads, as plain slices.
struct Inputs<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// `exp(g)`.
    decays: &'a [f32],
    beta: &'a [f32],
    t: usize,
    key_heads: usize,
    value_heads: usize,
    d_k: usize,
    d_v: usize,
    n_decays: usize,
}

impl Inputs<'_> {
    fn key(&self, token: usize, head: usize) -> usize {
        (token * self.key_heads + head / (self.value_heads / self.key_heads)) * self.d_k
    }
}

/// All tokens with some columns, from `first` on, of one head's state: `columns` holds `N` lines of each row; `o` gets
/// the token and its lines.
#[inline(always)]
// Plain loops over registers: unlike iterators they are unrolled.
#[allow(clippy::needless_range_loop)]
fn steps<const FUSED: bool, const N: usize>(
    inputs: &Inputs,
    head: usize,
    first: usize,
    columns: &mut [[Line; N]],
    o: impl Fn(usize, &[Line; N]),
) {
    let n_columns = (inputs.d_v - first).min(N * LANES);
    for token in 0..inputs.t {
        let (key, value) = (inputs.key(token, head), token * inputs.value_heads + head);
        let (q, k) = (&inputs.q[key..][..inputs.d_k], &inputs.k[key..][..inputs.d_k]);
        let decays = &inputs.decays[value * inputs.n_decays..][..inputs.n_decays];
        let decay = |row: usize| decays[if inputs.n_decays == 1 { 0 } else { row }];
        let beta = inputs.beta[value];

        // Rows in turn to two sums, each of which has to wait for itself.
        let mut predicted = [[Line::ZERO; N]; 2];
        let (pairs, last) = columns.as_chunks::<2>();
        for (i, [a, b]) in pairs.iter().enumerate() {
            add::<FUSED, N>(k[2 * i] * decay(2 * i), a, &mut predicted[0]);
            add::<FUSED, N>(k[2 * i + 1] * decay(2 * i + 1), b, &mut predicted[1]);
        }
        if let [row] = last {
            add::<FUSED, N>(k[inputs.d_k - 1] * decay(inputs.d_k - 1), row, &mut predicted[0]);
        }
        let mut write = [Line::ZERO; N];
        copy_in(&inputs.v[value * inputs.d_v + first..][..n_columns], &mut write);
        for n in 0..N {
            for lane in 0..LANES {
                let error = write[n].0[lane] - (predicted[0][n].0[lane] + predicted[1][n].0[lane]);
                write[n].0[lane] = beta * error;
            }
        }
        let mut sums = [Line::ZERO; N];
        for (i, row) in columns.iter_mut().enumerate() {
            let (decay, k, q) = (decay(i), k[i], q[i]);
            for n in 0..N {
                for lane in 0..LANES {
                    let s = &mut row[n].0[lane];
                    *s = multiply_add::<FUSED>(k, write[n].0[lane], decay * *s);
                    sums[n].0[lane] = multiply_add::<FUSED>(q, *s, sums[n].0[lane]);
                }
            }
        }
        o(token, &sums);
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn add<const FUSED: bool, const N: usize>(k: f32, row: &[Line; N], sums: &mut [Line; N]) {
    for n in 0..N {
        for lane in 0..LANES {
            sums[n].0[lane] = multiply_add::<FUSED>(k, row[n].0[lane], sums[n].0[lane]);
        }
    }
}

#[inline(always)]
fn copy_in(from: &[f32], to: &mut [Line]) {
    let (whole, rest) = from.as_chunks::<LANES>();
    for (from, to) in whole.iter().zip(&mut *to) {
        to.0 = *from;
    }
    if !rest.is_empty() {
        to[whole.len()].0[..rest.len()].copy_from_slice(rest);
    }
}

#[inline(always)]
fn copy_out(from: &[Line], to: &mut [f32]) {
    let (whole, rest) = to.as_chunks_mut::<LANES>();
    for (from, to) in from.iter().zip(&mut *whole) {
        *to = from.0;
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&from[whole.len()].0[..rest.len()]);
    }
}

// SAFETY: see `columns`, which alone reads and writes there.
unsafe impl Sync for Places {}
// SAFETY: as above.
unsafe impl Send for Places {}

/// Where the columns of a head come from and go to, `[d_k, d_v]`, and the outputs of a token and head.
#[derive(Clone, Copy)]
struct Places {
    old: *const f32,
    new: *mut f32,
    o: Start<f32>,
}

/// Takes columns from the old state, has the tokens pass, and puts them into the new one.
///
/// # Safety
/// The places have the sizes that the inputs say, and nobody else writes these columns of them.
#[inline(always)]
unsafe fn columns<const FUSED: bool, const N: usize>(
    inputs: &Inputs,
    head: usize,
    first: usize,
    places: Places,
) {
    let n = (inputs.d_v - first).min(N * LANES);
    let at = |row: usize| (head * inputs.d_k + row) * inputs.d_v + first;
    let mut lines = vec![[Line::ZERO; N]; inputs.d_k];
    for (row, lines) in lines.iter_mut().enumerate() {
        // SAFETY: `n` columns of a row of this head.
        copy_in(unsafe { std::slice::from_raw_parts(places.old.add(at(row)), n) }, lines);
    }
    steps::<FUSED, N>(inputs, head, first, &mut lines, |token, sums| {
        let at = (token * inputs.value_heads + head) * inputs.d_v + first;
        // SAFETY: `n` outputs of this token and head.
        copy_out(sums, unsafe { std::slice::from_raw_parts_mut(places.o.at(at), n) });
    });
    for (row, lines) in lines.iter().enumerate() {
        // SAFETY: as above.
        copy_out(lines, unsafe { std::slice::from_raw_parts_mut(places.new.add(at(row)), n) });
    }
}

#[inline(always)]
fn task_body<const FUSED: bool>(inputs: &Inputs, task: usize, places: Places) {
    let slices = inputs.d_v.div_ceil(MAX_LINES * LANES);
    let (head, first) = (task / slices, task % slices * MAX_LINES * LANES);
    // SAFETY: `flex` made the places; the columns of a task are no other task's.
    unsafe {
        match (inputs.d_v - first).div_ceil(LANES) {
            1 => columns::<FUSED, 1>(inputs, head, first, places),
            2 => columns::<FUSED, 2>(inputs, head, first, places),
            _ => columns::<FUSED, MAX_LINES>(inputs, head, first, places),
        }
    }
}

best_of_three! { fn do_task = fused task_body(inputs: &Inputs, task: usize, places: Places) }

pub(super) fn flex(mut state: FlexTensor, inputs: [FlexTensor; 5]) -> (FlexTensor, FlexTensor) {
    if !state.is_contiguous() {
        state = state.to_contiguous();
    }
    let [q, k, v, g, beta] = inputs.each_ref().map(|x| x.to_contiguous());
    let [value_heads, d_k, d_v] = [0, 1, 2].map(|i| state.layout().shape()[i]);
    let [t, key_heads] = [0, 1].map(|i| q.layout().shape()[i]);
    let [q, k, v, g, beta] =
        [&q, &k, &v, &g, &beta].map(|x| x.as_slice::<f32>().expect("the inputs are f32 and contiguous here"));
    let decays: Vec<f32> = g.iter().map(|g| g.exp()).collect();
    let n_decays = g.len() / (t * value_heads);
    let inputs = Inputs { q, k, v, decays: &decays, beta, t, key_heads, value_heads, d_k, d_v, n_decays };

    let mut o: Vec<f32> = Vec::with_capacity(t * value_heads * d_v);
    let n_state = value_heads * d_k * d_v;
    // A state that somebody else still holds stays as it is: the new one goes elsewhere.
    let mut fresh = (!state.is_unique()).then(|| Vec::<f32>::with_capacity(n_state));
    let (old, new) = match &mut fresh {
        Some(fresh) => (state.storage::<f32>()[..n_state].as_ptr(), fresh.as_mut_ptr()),
        None => {
            let state = state.storage_mut::<f32>()[..n_state].as_mut_ptr();
            (state.cast_const(), state)
        }
    };
    let places = Places { old, new, o: Start(o.as_mut_ptr()) };
    let n_tasks = value_heads * d_v.div_ceil(MAX_LINES * LANES);
    let task = |task: usize| do_task(&inputs, task, places);
    profile::noted("delta rule", 0, || match t * n_state < MIN_PARALLEL {
        true => (0..n_tasks).for_each(task),
        false => pool::for_each(n_tasks, task),
    });
    // SAFETY: the tasks together wrote the columns of all heads, to the outputs and to the new state.
    unsafe { o.set_len(t * value_heads * d_v) };
    if let Some(mut fresh) = fresh {
        // SAFETY: as above.
        unsafe { fresh.set_len(n_state) };
        state = float_tensor(fresh, [value_heads, d_k, d_v]);
    }
    (float_tensor(o, [t, value_heads, d_v]), state)
}
