//! Weights in panels on a GPU: a product for few tokens, where sixteen neighbouring units read the lines of a panel's
//! sixteen rows, and plain widening for many. Tokens stay in f32 here.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::super::super::weights::WeightFormat;
use super::super::super::super::weights::panels::{BLOCK, ROWS, block_bytes};
use super::super::gpu::{UNITS, cubes, empty, widen_f16};

pub fn matvec(x: CubeTensor, weight: CubeTensor, format: WeightFormat, rows: usize) -> CubeTensor {
    let x = into_contiguous(x);
    let [t, columns] = [x.meta.shape()[0], x.meta.shape()[1]];
    let y = empty(&x, [t, rows]);
    // SAFETY: the buffers have the lengths that the shapes say, and the kernel checks its row and its columns.
    unsafe {
        products::launch_unchecked(
            &x.client.clone(),
            cubes(rows.div_ceil(ROWS), t),
            CubeDim::new_1d(UNITS),
            x.into_buffer_arg(),
            weight.into_buffer_arg(),
            y.clone().into_buffer_arg(),
            rows as u32,
            columns as u32,
            format == WeightFormat::Q4Panels,
            UNITS as usize,
        );
    }
    y
}

/// Rows from `start` on, which begins a panel.
pub fn widen_rows(
    weight: CubeTensor,
    format: WeightFormat,
    start: usize,
    rows: usize,
    columns: usize,
) -> CubeTensor {
    let out = empty(&weight, [rows, columns]);
    let n = (rows * columns) as u32;
    // SAFETY: the kernel checks its position against `n`, and the weight holds all rows.
    unsafe {
        widen::launch_unchecked(
            &weight.client.clone(),
            cubes(n.div_ceil(UNITS) as usize, 1),
            CubeDim::new_1d(UNITS),
            weight.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            start as u32,
            columns as u32,
            n,
            format == WeightFormat::Q4Panels,
        );
    }
    out
}

/// Words of a block.
const fn block_words(is_four: bool) -> usize {
    let format = if is_four { WeightFormat::Q4Panels } else { WeightFormat::Q8Panels };
    block_bytes(format) / 4
}

/// Columns of a group.
const fn group_columns(is_four: bool) -> usize {
    if is_four { 8 } else { 4 }
}

/// Scale of a row in the block that begins at `block`, in words.
#[cube]
fn scale(weight: &[u32], block: usize, row: usize, #[comptime] is_four: bool) -> f32 {
    if comptime!(is_four) { half(weight, block, row) } else { f32::reinterpret(weight[block + row]) }
}

/// Minimum of a row in that block; numbers of eight bits have none.
#[cube]
fn min_of(weight: &[u32], block: usize, row: usize, #[comptime] is_four: bool) -> f32 {
    if comptime!(is_four) { half(weight, block + comptime!(ROWS / 2), row) } else { 0.0f32.runtime() }
}

/// The f16 `index` places behind the beginning of the word `start`.
#[cube]
fn half(weight: &[u32], start: usize, index: usize) -> f32 {
    widen_f16((weight[start + index / 2] >> (index as u32 % 2u32 * 16u32)) & 0xffffu32)
}

/// The number at column `j` of a group's four or eight, from the row's word.
#[cube]
fn number(word: u32, j: u32, scale: f32, min: f32, #[comptime] is_four: bool) -> f32 {
    let byte = word >> (j % 4u32 * 8u32);
    if comptime!(is_four) {
        scale * f32::cast_from((byte >> (j / 4u32 * 4u32)) & 15u32) + min
    } else {
        scale * (f32::cast_from(byte & 255u32) - 128.0f32)
    }
}

#[cube(launch_unchecked)]
fn products(
    x: &[f32],
    weight: &[u32],
    y: &mut [f32],
    rows: u32,
    columns: u32,
    #[comptime] is_four: bool,
    #[comptime] units: usize,
) {
    let panel = CUBE_POS_X + CUBE_POS_Y * CUBE_COUNT_X;
    let unit = UNIT_POS_X as usize;
    let row = unit % comptime!(ROWS);
    let token = CUBE_POS_Z as usize;
    let columns = columns as usize;
    let rows = rows as usize;
    let panel = panel as usize;
    if panel * comptime!(ROWS) >= rows {
        terminate!();
    }
    let blocks = columns.div_ceil(comptime!(BLOCK));
    let first = panel * blocks * comptime!(block_words(is_four));
    let groups = comptime!(BLOCK / group_columns(is_four));

    let mut sum = 0.0f32;
    let mut group = unit / comptime!(ROWS);
    while group < blocks * groups {
        let block = first + group / groups * comptime!(block_words(is_four));
        let word = weight[block + comptime!(ROWS) + group % groups * comptime!(ROWS) + row];
        let scale = scale(weight, block, row, is_four);
        let min = min_of(weight, block, row, is_four);
        for j in 0..comptime!(group_columns(is_four)) {
            let column = group * comptime!(group_columns(is_four)) + j;
            if column < columns {
                sum += number(word, j as u32, scale, min, is_four) * x[token * columns + column];
            }
        }
        group += comptime!(units / ROWS);
    }

    let mut sums = Shared::<[f32]>::new_slice(units);
    sums[unit] = sum;
    sync_cube();
    if unit < comptime!(ROWS) {
        let mut all = 0.0f32;
        for part in 0..comptime!(units / ROWS) {
            all += sums[part * comptime!(ROWS) + unit];
        }
        let row = panel * comptime!(ROWS) + unit;
        if row < rows {
            y[token * rows + row] = all;
        }
    }
}

#[cube(launch_unchecked)]
fn widen(weight: &[u32], out: &mut [f32], start: u32, columns: u32, n: u32, #[comptime] is_four: bool) {
    let position = (CUBE_POS_X + CUBE_POS_Y * CUBE_COUNT_X) * CUBE_DIM_X + UNIT_POS_X;
    if position < n {
        let columns = columns as usize;
        let row = start as usize + position as usize / columns;
        let column = position as usize % columns;
        let blocks = columns.div_ceil(comptime!(BLOCK));
        let block =
            (row / comptime!(ROWS) * blocks + column / comptime!(BLOCK)) * comptime!(block_words(is_four));
        let row = row % comptime!(ROWS);
        let group = column % comptime!(BLOCK) / comptime!(group_columns(is_four));
        let word = weight[block + comptime!(ROWS) + group * comptime!(ROWS) + row];
        let j = column % comptime!(group_columns(is_four));
        let scale = scale(weight, block, row, is_four);
        let min = min_of(weight, block, row, is_four);
        out[position as usize] = number(word, j as u32, scale, min, is_four);
    }
}
