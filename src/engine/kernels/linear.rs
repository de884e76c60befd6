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

use burn::tensor::{DType, Shape};
use burn_flex::{FlexTensor, Layout};
use gemm::Parallelism;
use rayon::prelude::*;

#[cfg(test)]
pub use scalar::linear as linear_scalar;
#[cfg(test)]
pub use widen::widen;

use self::dots::{Dots, MAX_TOKENS};
use self::panels::{Products, Rounded};
use super::super::weights::WeightFormat;

/// Up to this many tokens, dot products of whole rows beat widening a tile for a blocked multiplication.
const MAX_DOT_TOKENS: usize = 32;
/// Output rows per task of a product with few tokens: at 1024 columns of bf16 this is 128 KiB of weights.
const TASK_ROWS: usize = 64;
/// A product with fewer bytes of weights isn't worth waking other threads: one reads them in tens of microseconds.
const MIN_PARALLEL_BYTES: usize = 1 << 20;
/// Rows that all tokens are multiplied with before the next: their weights stay in the first-level cache.
const ROWS: usize = 16;
/// Bytes of a widened tile: half of a 1 MiB second-level cache, so that the tokens fit beside it.
const TILE_BYTES: usize = 512 << 10;

/// `x W^T` on the CPU. `weight` holds `rows * columns` numbers in `format`, row after row.
///
/// # Panics
/// If the lengths disagree: shapes are checked when a model is loaded.
pub fn linear(x: &[f32], weight: &[u8], format: WeightFormat, rows: usize, columns: usize) -> Vec<f32> {
    let t = x.len() / columns;
    assert_eq!(x.len(), t * columns, "x is [t, columns]");
    assert!(weight.len() >= rows * format.row_bytes(columns), "the weight holds rows * columns numbers");
    let mut y = vec![0.0; t * rows];
    if format.is_panels() {
        Products::new(format).linear(&Rounded::new(x, columns), weight, rows, &mut y);
    } else if t <= MAX_DOT_TOKENS {
        dot_products(x, weight, format, rows, columns, &mut y);
    } else {
        tiles(x, weight, format, rows, columns, &mut y);
    }
    y
}

fn dot_products(x: &[f32], weight: &[u8], format: WeightFormat, rows: usize, columns: usize, y: &mut [f32]) {
    let row_bytes = format.row_bytes(columns);
    let groups = groups(x.len() / columns);
    let dots = Dots::new(if format.is_plain() { format } else { WeightFormat::F32 });
    let x = dots.arrange(x, columns);
    let out = Scattered(y.as_mut_ptr());
    let task = |task: usize| {
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
                        // SAFETY: the token is below `t` and `row < rows`, so the index is below `t * rows`, the
                        // length of `y`; each (token, row) is written by one task only.
                        unsafe { *out.at(token * rows + row) = *sum };
                    }
                }
            }
        }
    };
    let n_tasks = rows.div_ceil(TASK_ROWS);
    if rows * row_bytes < MIN_PARALLEL_BYTES {
        (0..n_tasks).for_each(task);
    } else {
        (0..n_tasks).into_par_iter().for_each(task);
    }
}

/// First token and size of groups of at most [`MAX_TOKENS`], as even as they can be: every group widens the weights
/// anew, so five tokens are better three and two than four and one.
fn groups(t: usize) -> Vec<(usize, usize)> {
    let n = t.div_ceil(MAX_TOKENS);
    let start = |i: usize| i * t / n;
    (0..n).map(|i| (start(i), start(i + 1) - start(i))).collect()
}

fn tiles(x: &[f32], weight: &[u8], format: WeightFormat, rows: usize, columns: usize, y: &mut [f32]) {
    let t = x.len() / columns;
    let row_bytes = format.row_bytes(columns);
    let tile_rows = (TILE_BYTES / (columns * size_of::<f32>())).next_multiple_of(16).min(rows);
    let out = Scattered(y.as_mut_ptr());
    (0..rows.div_ceil(tile_rows)).into_par_iter().for_each_init(Vec::new, |tile: &mut Vec<f32>, index| {
        let start = index * tile_rows;
        let n = tile_rows.min(rows - start);
        tile.resize(n * columns, 0.0);
        widen_rows(&weight[start * row_bytes..(start + n) * row_bytes], format, columns, tile);
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
    });
}

/// Row by row, because a row's last block may not be full.
fn widen_rows(bytes: &[u8], format: WeightFormat, columns: usize, out: &mut [f32]) {
    let rows = bytes.chunks_exact(format.row_bytes(columns));
    for (row, out) in rows.zip(out.chunks_exact_mut(columns)) {
        widen::widen(format, row, out);
    }
}

/// The output, written by several threads at disjoint places.
#[derive(Clone, Copy)]
struct Scattered(*mut f32);

// SAFETY: each task writes elements that no other task touches; see the uses.
unsafe impl Send for Scattered {}
// SAFETY: as above.
unsafe impl Sync for Scattered {}

impl Scattered {
    /// # Safety
    /// `index` lies inside the output.
    unsafe fn at(self, index: usize) -> *mut f32 {
        // SAFETY: the caller keeps `index` inside the allocation.
        unsafe { self.0.add(index) }
    }
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
