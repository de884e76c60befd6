//! Attention of tokens to cached keys on the CPU: never all scores at once, and each key and value read once for all
//! the query heads that share it.
//!
//! A few tokens, as in decode, are attended key by key, in pieces of the past that all cores share; a token gets the
//! same numbers alone and in company. Many, as in a prompt, are attended in blocks, as products of small matrices.
//! Source of the method: flash attention (Dao et al. 2022), whose running maximum and sum join the pieces.

use burn::tensor::Tensor;
use gemm::Parallelism;

use super::cpu::{self, LANES, add_up, best_of_three, exp, multiply_add, on_cpu, sigmoid};
use super::pool::{self, Start};
use super::profile;

/// Up to this many rows (tokens times the query heads of a key head) are attended key by key.
const MAX_STEP_ROWS: usize = 64;
/// Keys that a task walks over in steps. Not to depend on the number of tokens: sums would be rounded otherwise.
const STEP_KEYS: usize = 256;
/// Query rows and keys of a block.
const BLOCK_ROWS: usize = 128;
const BLOCK_KEYS: usize = 256;
/// Fewer products than this aren't worth another thread's attention.
const MIN_PARALLEL: usize = 1 << 15;

/// Which keys a token sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    /// Those up to its own: the tokens are the last of the keys.
    Past,
    All,
}

/// Queries `q [t, heads, d]`, scaled, against the first `n_keys` of `keys` and `values` `[kv_heads, capacity, d]`:
/// `[t, heads * d]`. Query head h reads key head `h / (heads / kv_heads)`.
///
/// # Panics
/// If a tensor lives elsewhere than on the CPU.
pub fn attend(q: &Tensor<3>, keys: &Tensor<3>, values: &Tensor<3>, n_keys: usize, sees: Sees) -> Tensor<2> {
    let [t, heads, d] = q.dims();
    let [kv_heads, capacity, _] = keys.dims();
    let [q, keys, values] = [q, keys, values].map(|x| on_cpu(x).expect("this attention is for the CPU"));
    let [q, keys, values] = [&q, &keys, &values].map(cpu::slice);
    let group = heads / kv_heads;
    let problem = Problem { q, keys, values, t, kv_heads, group, capacity, n_keys, d, sees };
    let mut y = vec![0.0; t * heads * d];
    profile::noted("attention", 0, || match t * group <= MAX_STEP_ROWS {
        true => problem.in_steps(&mut y),
        false => problem.in_blocks(&mut y),
    });
    cpu::tensor(y, [t, heads * d])
}

/// `x * sigmoid(gate)`, of the same shape.
pub fn gate(x: Tensor<2>, gate: Tensor<2>) -> Tensor<2> {
    match (on_cpu(&x), on_cpu(&gate)) {
        (Some(values), Some(gates)) => {
            let mut y = cpu::slice(&values).to_vec();
            let gates = cpu::slice(&gates);
            cpu::by_rows(&mut y, 1, |first, y| gate_all(y, &gates[first..]));
            cpu::tensor(y, x.dims())
        }
        _ => x * burn::tensor::activation::sigmoid(gate),
    }
}

struct Problem<'a> {
    q: &'a [f32],
    keys: &'a [f32],
    values: &'a [f32],
    t: usize,
    kv_heads: usize,
    /// Query heads of a key head.
    group: usize,
    capacity: usize,
    n_keys: usize,
    d: usize,
    sees: Sees,
}

/// What a row has seen of a piece of the past.
#[derive(Clone, Copy)]
struct Seen {
    largest: f32,
    /// Of the exponentials, relative to the largest.
    total: f32,
}

const NOTHING: Seen = Seen { largest: f32::NEG_INFINITY, total: 0.0 };

impl Problem<'_> {
    fn visible(&self, token: usize) -> usize {
        match self.sees {
            Sees::Past => self.n_keys - self.t + token + 1,
            Sees::All => self.n_keys,
        }
    }

    /// Where the query of a row of a key head begins, and its output.
    fn place(&self, head: usize, row: usize) -> usize {
        let (token, query) = (row / self.group, row % self.group);
        ((token * self.kv_heads + head) * self.group + query) * self.d
    }

    fn in_steps(&self, y: &mut [f32]) {
        let (rows, d) = (self.t * self.group, self.d);
        let pieces = self.n_keys.div_ceil(STEP_KEYS);
        let mut sums = vec![0.0; self.kv_heads * pieces * rows * d];
        let mut seen = vec![NOTHING; self.kv_heads * pieces * rows];
        let (sums_start, seen_start) = (Start(sums.as_mut_ptr()), Start(seen.as_mut_ptr()));
        let task = |task: usize| {
            // SAFETY: the rows of this head and piece, which no other task touches.
            let (sums, seen) = unsafe {
                (
                    std::slice::from_raw_parts_mut(sums_start.at(task * rows * d), rows * d),
                    std::slice::from_raw_parts_mut(seen_start.at(task * rows), rows),
                )
            };
            steps(self, task / pieces, task % pieces * STEP_KEYS, sums, seen);
        };
        match rows * self.kv_heads * self.n_keys * d < MIN_PARALLEL {
            true => (0..self.kv_heads * pieces).for_each(task),
            false => pool::for_each(self.kv_heads * pieces, task),
        }
        for head in 0..self.kv_heads {
            let at = |piece: usize, row: usize| (head * pieces + piece) * rows + row;
            for row in 0..rows {
                let largest =
                    (0..pieces).map(|piece| seen[at(piece, row)].largest).fold(f32::NEG_INFINITY, f32::max);
                let factor = |piece: usize| exp(seen[at(piece, row)].largest - largest);
                let total: f32 = (0..pieces).map(|piece| factor(piece) * seen[at(piece, row)].total).sum();
                let o = &mut y[self.place(head, row)..][..d];
                for piece in 0..pieces {
                    let factor = factor(piece) / total;
                    for (o, sum) in o.iter_mut().zip(&sums[at(piece, row) * d..][..d]) {
                        *o += factor * sum;
                    }
                }
            }
        }
    }

    fn in_blocks(&self, y: &mut [f32]) {
        let tokens = (BLOCK_ROWS / self.group).max(1);
        let blocks = self.t.div_ceil(tokens);
        let out = Start(y.as_mut_ptr());
        pool::for_each(self.kv_heads * blocks, |task| {
            // The last blocks first: they have most to see, and short tasks at the end leave no core waiting.
            let (head, first) = (task % self.kv_heads, (blocks - 1 - task / self.kv_heads) * tokens);
            let rows = first * self.group..self.t.min(first + tokens) * self.group;
            let o = self.block(head, rows.clone());
            for (row, o) in rows.zip(o.chunks_exact(self.d)) {
                // SAFETY: the output of this row, which no other task writes.
                unsafe { out.at(self.place(head, row)).copy_from_nonoverlapping(o.as_ptr(), self.d) };
            }
        });
    }

    /// The outputs of some rows of a head.
    fn block(&self, head: usize, rows: std::ops::Range<usize>) -> Vec<f32> {
        let (n, d) = (rows.len(), self.d);
        let q: Vec<f32> =
            rows.clone().flat_map(|row| &self.q[self.place(head, row)..][..d]).copied().collect();
        let past = head * self.capacity * d;
        let (keys, values) = (&self.keys[past..][..self.n_keys * d], &self.values[past..][..self.n_keys * d]);
        let mut o = vec![0.0; n * d];
        let mut seen = vec![NOTHING; n];
        let mut scores = vec![0.0; n * BLOCK_KEYS];
        let end = self.visible((rows.end - 1) / self.group);
        for first in (0..end).step_by(BLOCK_KEYS) {
            let n_keys = BLOCK_KEYS.min(end - first);
            let (keys, values) = (&keys[first * d..][..n_keys * d], &values[first * d..][..n_keys * d]);
            product([n, n_keys, d], &q, (keys, [1, d]), &mut scores, false);
            for (i, row) in rows.clone().enumerate() {
                let visible = self.visible(row / self.group).saturating_sub(first).min(n_keys);
                let scores = &mut scores[i * n_keys..(i + 1) * n_keys];
                weigh(&mut scores[..visible], &mut seen[i], &mut o[i * d..(i + 1) * d]);
                scores[visible..].fill(0.0);
            }
            product([n, d, n_keys], &scores, (values, [d, 1]), &mut o, true);
        }
        for (o, seen) in o.chunks_exact_mut(d).zip(&seen) {
            o.iter_mut().for_each(|o| *o /= seen.total);
        }
        o
    }
}

/// `y [m, n] = a [m, k] b [k, n]`, or that added to it; `b` has these strides.
fn product(
    [m, n, k]: [usize; 3],
    a: &[f32],
    (b, [b_row, b_column]): (&[f32], [usize; 2]),
    y: &mut [f32],
    adds: bool,
) {
    assert!(a.len() >= m * k && b.len() == k * n && y.len() >= m * n);
    // SAFETY: the lengths were just checked, and the strides are those of whole matrices.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            y.as_mut_ptr(),
            1,
            n as isize,
            adds,
            a.as_ptr(),
            1,
            k as isize,
            b.as_ptr(),
            b_column as isize,
            b_row as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Turns scores of further keys into weights, relative to the largest so far, which may be a new one: then what was
/// summed up to `o` counts less.
#[inline(always)]
fn weigh_body(scores: &mut [f32], seen: &mut Seen, o: &mut [f32]) {
    let (chunks, rest) = scores.as_chunks::<LANES>();
    let mut most = [seen.largest; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            most[lane] = most[lane].max(chunk[lane]);
        }
    }
    let largest = most.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, f32::max);
    if largest > seen.largest {
        let factor = exp(seen.largest - largest);
        seen.largest = largest;
        seen.total *= factor;
        o.iter_mut().for_each(|o| *o *= factor);
    }
    let mut totals = [0.0; LANES];
    let (chunks, rest) = scores.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = exp(chunk[lane] - largest);
            totals[lane] += chunk[lane];
        }
    }
    for score in rest.iter_mut() {
        *score = exp(*score - largest);
        seen.total += *score;
    }
    seen.total += totals.iter().sum::<f32>();
}

best_of_three! { fn weigh = weigh_body(scores: &mut [f32], seen: &mut Seen, o: &mut [f32]) }

/// All rows of a head with a piece of the past: its keys from `first` on.
#[inline(always)]
fn steps_body<const FUSED: bool>(
    problem: &Problem,
    head: usize,
    first: usize,
    sums: &mut [f32],
    seen: &mut [Seen],
) {
    let (d, rows) = (problem.d, seen.len());
    let end = problem.n_keys.min(first + STEP_KEYS);
    let past = |x: &'_ [f32]| -> *const f32 { x[(head * problem.capacity + first) * d..].as_ptr() };
    let n = end - first;
    // SAFETY: keys and values `first..end` of this head.
    let (keys, values) = unsafe {
        (
            std::slice::from_raw_parts(past(problem.keys), n * d),
            std::slice::from_raw_parts(past(problem.values), n * d),
        )
    };
    let mut q = Vec::with_capacity(rows * d);
    for row in 0..rows {
        q.extend_from_slice(&problem.q[problem.place(head, row)..][..d]);
    }
    let mut scores = vec![0.0; rows * STEP_KEYS];
    for i in (0..n).step_by(FOUR) {
        let keys = four(keys, d, i);
        for (row, q) in q.chunks_exact(d).enumerate() {
            scores[row * STEP_KEYS + i..][..FOUR].copy_from_slice(&dots::<FUSED>(q, keys));
        }
    }
    for (row, ((scores, seen), sum)) in
        scores.chunks_exact_mut(STEP_KEYS).zip(seen).zip(sums.chunks_exact_mut(d)).enumerate()
    {
        let visible = problem.visible(row / problem.group).saturating_sub(first).min(n);
        if visible == 0 {
            continue;
        }
        weigh_body(&mut scores[..visible], seen, sum);
        scores[visible..].fill(0.0);
        for i in (0..visible).step_by(FOUR) {
            let weights = scores[i..][..FOUR].try_into().expect("four scores");
            add_weighted::<FUSED>(sum, weights, four(values, d, i));
        }
    }
}

/// Keys or values that are loaded together.
const FOUR: usize = 4;

/// Rows `i..i + 4` of `rows [n, d]`; behind the last, the last again.
#[inline(always)]
fn four(rows: &[f32], d: usize, i: usize) -> [&[f32]; FOUR] {
    let last = rows.len() / d - 1;
    std::array::from_fn(|j| &rows[(i + j).min(last) * d..][..d])
}

best_of_three! {
    fn steps = fused steps_body(
        problem: &Problem, head: usize, first: usize, sums: &mut [f32], seen: &mut [Seen],
    )
}

/// Adds four values, by their weights. Simple enough to become vectors.
#[inline(always)]
fn add_weighted<const FUSED: bool>(sum: &mut [f32], weights: [f32; FOUR], values: [&[f32]; FOUR]) {
    let [a, b, c, d] = values.map(|value| &value[..sum.len()]);
    for i in 0..sum.len() {
        let x = multiply_add::<FUSED>(weights[0], a[i], sum[i]);
        let x = multiply_add::<FUSED>(weights[1], b[i], x);
        let x = multiply_add::<FUSED>(weights[2], c[i], x);
        sum[i] = multiply_add::<FUSED>(weights[3], d[i], x);
    }
}

/// A query's products with four keys, each in sixteen running sums.
#[inline(always)]
// Plain loops over registers: unlike iterators they are unrolled.
#[allow(clippy::needless_range_loop)]
fn dots<const FUSED: bool>(q: &[f32], keys: [&[f32]; FOUR]) -> [f32; FOUR] {
    let (q_blocks, q_rest) = q.as_chunks::<LANES>();
    let mut sums = [[0.0; LANES]; FOUR];
    for (i, q) in q_blocks.iter().enumerate() {
        for j in 0..FOUR {
            let key = keys[j][i * LANES..][..LANES].try_into().expect("a key is as long as a query");
            add_products::<FUSED>(&mut sums[j], q, key);
        }
    }
    let done = q.len() - q_rest.len();
    let mut products = [0.0; FOUR];
    for j in 0..FOUR {
        let rest: f32 = q_rest.iter().zip(&keys[j][done..]).map(|(q, key)| q * key).sum();
        products[j] = add_up(sums[j]) + rest;
    }
    products
}

#[inline(always)]
fn add_products<const FUSED: bool>(sums: &mut [f32; LANES], a: &[f32; LANES], b: &[f32; LANES]) {
    for lane in 0..LANES {
        sums[lane] = multiply_add::<FUSED>(a[lane], b[lane], sums[lane]);
    }
}

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
    fn definition(q: &[f32], keys: &[f32], values: &[f32], sizes: [usize; 6], sees: Sees) -> Vec<f32> {
        let [t, heads, kv_heads, capacity, n_keys, d] = sizes;
        let mut y = Vec::new();
        for (token, head) in (0..t * heads).map(|i| (i / heads, i % heads)) {
            let place = |key: usize| ((head / (heads / kv_heads)) * capacity + key) * d;
            let q = &q[(token * heads + head) * d..][..d];
            let score =
                |key| -> f64 { (0..d).map(|i| f64::from(q[i]) * f64::from(keys[place(key) + i])).sum() };
            let visible = if sees == Sees::All { n_keys } else { n_keys - t + token + 1 };
            let weights: Vec<f64> = (0..visible).map(|key| score(key).exp()).collect();
            let total: f64 = weights.iter().sum();
            for i in 0..d {
                let mean: f64 =
                    weights.iter().enumerate().map(|(key, w)| w * f64::from(values[place(key) + i])).sum();
                y.push((mean / total) as f32);
            }
        }
        y
    }

    #[test]
    fn tokens_attend_to_what_they_may_see() {
        for sizes in [
            [1, 1, 1, 1, 1, 1],
            [1, 2, 1, 8, 5, 3],
            [3, 4, 2, 16, 9, 8],
            [9, 8, 2, 700, 600, 64],
            [2, 6, 6, 40, 40, 17],
            [5, 4, 1, 1100, 1025, 160],
            [65, 1, 1, 70, 66, 7],
            [150, 8, 2, 600, 530, 32],
            [300, 3, 3, 300, 300, 20],
        ] {
            let [t, heads, kv_heads, capacity, n_keys, d] = sizes;
            let q = tensor(1, [t, heads, d]);
            let (keys, cached) = (tensor(3, [kv_heads, capacity, d]), tensor(4, [kv_heads, capacity, d]));
            let inputs = [&q, &keys, &cached].map(|x| values(x.clone()));
            for sees in [Sees::Past, Sees::All] {
                let expected = definition(&inputs[0], &inputs[1], &inputs[2], sizes, sees);
                let got = attend(&q, &keys, &cached, n_keys, sees);
                assert_near(got.clone(), &expected, 1e-5, &format!("{sizes:?} {sees:?}"));
                if t * heads / kv_heads <= MAX_STEP_ROWS {
                    // The last token alone: the same bits.
                    let alone = attend(&q.clone().narrow(0, t - 1, 1), &keys, &cached, n_keys, sees);
                    assert_eq!(values(alone), values(got.narrow(0, t - 1, 1)), "{sizes:?}");
                }
            }
        }
    }

    #[test]
    fn a_gate_opens_as_its_sigmoid_says() {
        let (x, gates) = (tensor(1, [3, 50]), tensor(2, [3, 50]).mul_scalar(9.0));
        let expected: Vec<f32> = values(x.clone())
            .iter()
            .zip(values(gates.clone()))
            .map(|(x, gate)| (f64::from(*x) / (1.0 + f64::from(-gate).exp())) as f32)
            .collect();
        assert_near(gate(x, gates), &expected, 1e-6, "gate");
    }
}
