//! `y = x W^T` with W in its storage format: `x [t, columns]` f32, `W [rows, columns]` in numbers or blocks.
//!
//! Every row of the result is a dot product accumulated in f32. Few tokens (decode) read each weight once
//! and are bound by memory; rows in blocks are widened first, once for all of them. Many (prefill) widen a tile
//! of W that stays in the cache and multiply by it. Our own quantised forms are multiplied in integers (`panels.rs`).

pub mod dots;
pub mod gpu;
pub mod panels;
#[cfg(test)]
mod scalar;
mod widen;

use std::ops::Range;

use burn::tensor::{DType, Int, Shape, Tensor};
use burn_flex::{FlexTensor, Layout};
use gemm::Parallelism;

#[cfg(test)]
pub use scalar::linear as linear_scalar;
#[cfg(test)]
pub use widen::widen;

use self::dots::{Dots, MAX_TOKENS};
use self::panels::{Products, Rounded};
use super::super::weights::WeightFormat;
use super::cpu;
use super::pool::{self, Start};
use super::profile;

/// Up to this many tokens, dot products of whole rows beat widening a tile for a blocked multiplication.
const MAX_DOT_TOKENS: usize = 32;
/// Output rows per task of a product with few tokens: at 1024 columns of bf16 this is 128 KiB of weights.
const TASK_ROWS: usize = 64;
/// Weights of fewer bytes aren't worth another thread's attention: one reads them in microseconds.
const MIN_PARALLEL_BYTES: usize = 1 << 17;
/// Rows that all tokens are multiplied with before the next: their weights stay in the first-level cache.
const ROWS: usize = 16;
/// Bytes of a widened tile: half of a 1 MiB second-level cache, so that the tokens fit beside it.
const TILE_BYTES: usize = 512 << 10;

/// `rows * columns` numbers in `format`, row after row or in panels.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub bytes: &'a [u8],
    pub format: WeightFormat,
    pub rows: usize,
}

/// `x W^T` on the CPU for each of several matrices, as one job for all threads.
///
/// # Panics
/// If the lengths disagree: shapes are checked when a model is loaded.
pub fn linear_all(x: &[f32], columns: usize, matrices: &[Matrix]) -> Vec<Vec<f32>> {
    let t = x.len() / columns;
    assert_eq!(x.len(), t * columns, "x is [t, columns]");
    let mut outputs: Vec<Vec<f32>> = matrices.iter().map(|m| Vec::with_capacity(t * m.rows)).collect();
    let rounded = matrices.iter().any(|m| m.format.is_panels()).then(|| Rounded::new(x, columns));
    let parts: Vec<Part> = matrices
        .iter()
        .zip(&mut outputs)
        .map(|(matrix, y)| {
            let Matrix { bytes, format, rows } = *matrix;
            assert!(
                bytes.len() >= rows * format.row_bytes(columns),
                "the weight holds rows * columns numbers"
            );
            let y = Start(y.as_mut_ptr());
            match &rounded {
                Some(x) if format.is_panels() => Products::new(format).part(x, bytes, rows, y),
                _ if t <= MAX_DOT_TOKENS => dot_products(x, *matrix, columns, y),
                _ => tiles(x, *matrix, columns, y),
            }
        })
        .collect();
    let stored = |m: &Matrix| match m.format.is_panels() {
        true => super::super::weights::panels::bytes(m.format, m.rows, columns),
        false => m.rows * m.format.row_bytes(columns),
    };
    let n_bytes: usize = matrices.iter().map(stored).sum();
    let task = |i: usize| {
        let mut i = i;
        for part in &parts {
            match i < part.n_tasks {
                true => return (part.task)(i),
                false => i -= part.n_tasks,
            }
        }
    };
    let n_tasks = parts.iter().map(|part| part.n_tasks).sum();
    profile::noted("products", n_bytes, || match n_bytes * t < MIN_PARALLEL_BYTES {
        true => (0..n_tasks).for_each(task),
        false => pool::for_each(n_tasks, task),
    });
    drop(parts);
    for (y, matrix) in outputs.iter_mut().zip(matrices) {
        // SAFETY: all tasks of a part together write all of its output, for which there is room.
        unsafe { y.set_len(t * matrix.rows) };
    }
    outputs
}

/// One matrix.
pub fn linear(x: &[f32], weight: &[u8], format: WeightFormat, rows: usize, columns: usize) -> Vec<f32> {
    linear_all(x, columns, &[Matrix { bytes: weight, format, rows }]).remove(0)
}

/// The product with one matrix, in tasks that together write `[t, rows]`.
pub struct Part<'a> {
    n_tasks: usize,
    task: Box<dyn Fn(usize) + Sync + 'a>,
}

fn dot_products<'a>(x: &'a [f32], matrix: Matrix<'a>, columns: usize, out: Start<f32>) -> Part<'a> {
    let Matrix { bytes: weight, format, rows } = matrix;
    let row_bytes = format.row_bytes(columns);
    let groups = groups(x.len() / columns, MAX_TOKENS);
    let dots = Dots::new(if format.is_plain() { format } else { WeightFormat::F32 });
    let x = dots.arrange(x, columns);
    let task = move |task: usize| {
        let end = rows.min((task + 1) * TASK_ROWS);
        let mut wide = vec![0.0; if format.is_plain() { 0 } else { ROWS * columns }];
        for start in (task * TASK_ROWS..end).step_by(ROWS) {
            let n_rows = ROWS.min(end - start);
            let mut w = &weight[start * row_bytes..(start + n_rows) * row_bytes];
            if !format.is_plain() {
                widen_rows(w, format, columns, &mut wide);
                w = widen::bytes(&wide);
            }
            for (first, n) in groups.iter().copied() {
                let mut sums = [0.0; ROWS * MAX_TOKENS];
                let sums = &mut sums[..n_rows * n];
                dots.products(w, &x[first * columns..(first + n) * columns], columns, sums);
                for (row, sums) in (start..).zip(sums.chunks_exact(n)) {
                    for (token, sum) in (first..).zip(sums) {
                        // SAFETY: the token is below `t` and `row < rows`, so there is room for the number; each
                        // (token, row) is written by one task only.
                        unsafe { out.at(token * rows + row).write(*sum) };
                    }
                }
            }
        }
    };
    Part { n_tasks: rows.div_ceil(TASK_ROWS), task: Box::new(task) }
}

/// First token and size of groups of at most `most`, as even as they can be: every group reads the weights anew, so
/// seven tokens are better four and three than six and one.
fn groups(t: usize, most: usize) -> Vec<(usize, usize)> {
    let n = t.div_ceil(most);
    let start = |i: usize| i * t / n;
    (0..n).map(|i| (start(i), start(i + 1) - start(i))).collect()
}

fn tiles<'a>(x: &'a [f32], matrix: Matrix<'a>, columns: usize, out: Start<f32>) -> Part<'a> {
    let Matrix { bytes: weight, format, rows } = matrix;
    let t = x.len() / columns;
    let row_bytes = format.row_bytes(columns);
    let tile_rows = (TILE_BYTES / (columns * size_of::<f32>())).next_multiple_of(16).min(rows);
    let task = move |index: usize| {
        let start = index * tile_rows;
        let n = tile_rows.min(rows - start);
        let mut tile = vec![0.0; n * columns];
        widen_rows(&weight[start * row_bytes..(start + n) * row_bytes], format, columns, &mut tile);
        // SAFETY: the product writes `[t, n]` at column `start` of the `[t, rows]` output with row stride
        // `rows`; tiles are disjoint in columns. Both inputs have the lengths their strides say.
        unsafe {
            gemm::gemm(
                t,
                n,
                columns,
                out.at(start),
                1,
                rows as isize,
                false,
                x.as_ptr(),
                1,
                columns as isize,
                tile.as_ptr(),
                columns as isize,
                1,
                0.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    };
    Part { n_tasks: rows.div_ceil(tile_rows), task: Box::new(task) }
}

/// Row by row, because a row's last block may not be full.
fn widen_rows(bytes: &[u8], format: WeightFormat, columns: usize, out: &mut [f32]) {
    let rows = bytes.chunks_exact(format.row_bytes(columns));
    for (row, out) in rows.zip(out.chunks_exact_mut(columns)) {
        widen::widen(format, row, out);
    }
}

/// Some rows of a stored weight; in panels they begin at a whole one.
#[derive(Clone)]
pub struct Stored<'a> {
    pub words: &'a Tensor<1, Int>,
    pub format: WeightFormat,
    pub rows: Range<usize>,
}

/// `x [t, columns]` with several weights, if they live on the CPU.
pub fn on_the_cpu<const N: usize>(x: &Tensor<2>, weights: [Stored; N]) -> Option<[Tensor<2>; N]> {
    let [t, columns] = x.dims();
    let x = cpu::on_cpu(x)?;
    let words = weights.each_ref().map(|weight| cpu::words_on_cpu(weight.words));
    let mut matrices = Vec::with_capacity(N);
    for (words, Stored { format, rows, .. }) in words.iter().zip(&weights) {
        let start = match format.is_panels() {
            true => super::super::weights::panels::bytes(*format, rows.start, columns),
            false => rows.start * format.row_bytes(columns),
        };
        matrices.push(Matrix { bytes: &words.as_ref()?.bytes()[start..], format: *format, rows: rows.len() });
    }
    let mut outputs = linear_all(cpu::slice(&x), columns, &matrices).into_iter();
    Some(weights.map(|Stored { rows, .. }| {
        cpu::tensor(outputs.next().expect("there is an output for each weight"), [t, rows.len()])
    }))
}

pub(super) fn flex(x: FlexTensor, weight: &FlexTensor, format: WeightFormat, rows: usize) -> FlexTensor {
    let x = x.to_contiguous();
    let [t, columns] = [x.layout().shape()[0], x.layout().shape()[1]];
    let values = x.as_slice::<f32>().expect("activations are f32 and contiguous here");
    let y = linear(values, weight.bytes(), format, rows, columns);
    debug_assert_eq!(y.len(), t * rows);
    float_tensor(y, [t, rows])
}

pub(super) fn flex_widen_rows(
    weight: &FlexTensor,
    format: WeightFormat,
    start: usize,
    rows: usize,
    columns: usize,
) -> FlexTensor {
    let row_bytes = format.row_bytes(columns);
    let mut values = vec![0.0; rows * columns];
    widen_rows(&weight.bytes()[start * row_bytes..(start + rows) * row_bytes], format, columns, &mut values);
    float_tensor(values, [rows, columns])
}

pub(super) fn float_tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> FlexTensor {
    let layout = Layout::contiguous(Shape::new(shape));
    FlexTensor::new(burn::tensor::Bytes::from_elems(values), layout, DType::F32)
}
