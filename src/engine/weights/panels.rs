//! Our own quantised form: how a matrix is laid out in 8 or 4 bits, and how it is read. This is the definition; the
//! kernels in `kernels/linear/panels.rs` read the same bytes with wider instructions.
//!
//! Sixteen rows stand side by side in a panel, so that one number of a token meets sixteen weights at once and no sum
//! ever has to be taken across a vector. A panel is a sequence of blocks of 64 columns; each block is
//!
//! | bytes | [`WeightFormat::Q8Panels`] | [`WeightFormat::Q4Panels`] |
//! |---|---|---|
//! | 64, the header | 16 scales in f32, one for each row | 16 scales and 16 minima in f16 |
//! | the numbers | 16 groups of 4 columns, 64 bytes each | 8 groups of 8 columns, 64 bytes each |
//! | of a group | byte `4 r + j` is column `j` of row `r` | the same, column `j` in its low and `4 + j` in its high half |
//! | a number `u` is | `scale * (u - 128)` | `scale * u + minimum` |
//! | bits per weight | 8.5 | 4.5 |
//!
//! A number of eight bits is never 0, which leaves its signed form the same range on both sides. Rows and columns that are missing to whole panels and blocks are zeros. Everything is a multiple of 64 bytes: in a
//! file whose data begins at such a multiple, every load of a vector is aligned.

use std::ops::Range;

use half::f16;

use super::WeightFormat;

/// Rows of a panel.
pub const ROWS: usize = 16;
/// Columns of a block.
pub const BLOCK: usize = 64;
/// Bytes of a block's header, and of a group of numbers.
pub const LINE: usize = 64;
/// What makes a number of eight bits unsigned.
pub const Q8_OFFSET: i32 = 128;

/// Bytes of a block.
pub const fn block_bytes(format: WeightFormat) -> usize {
    match format {
        WeightFormat::Q8Panels => LINE + ROWS * BLOCK,
        _ => LINE + ROWS * BLOCK / 2,
    }
}

/// Bytes of a panel.
pub fn panel_bytes(format: WeightFormat, columns: usize) -> usize {
    columns.div_ceil(BLOCK) * block_bytes(format)
}

/// Bytes of a matrix.
pub fn bytes(format: WeightFormat, rows: usize, columns: usize) -> usize {
    rows.div_ceil(ROWS) * panel_bytes(format, columns)
}

/// Widens row `row` of a matrix.
pub fn widen_row(format: WeightFormat, matrix: &[u8], row: usize, columns: usize, out: &mut [f32]) {
    let panel = panel_bytes(format, columns);
    let panel = &matrix[row / ROWS * panel..][..panel];
    let blocks = panel.chunks_exact(block_bytes(format)).zip(out[..columns].chunks_mut(BLOCK));
    for (block, out) in blocks {
        let (scale, min) = header(format, block, row % ROWS);
        for (column, out) in out.iter_mut().enumerate() {
            *out = scale * number(format, block, row % ROWS, column) + min;
        }
    }
}

/// Widens rows of a matrix, one after the other.
pub fn widen_rows(format: WeightFormat, matrix: &[u8], rows: Range<usize>, columns: usize, out: &mut [f32]) {
    for (row, out) in rows.zip(out.chunks_exact_mut(columns)) {
        widen_row(format, matrix, row, columns, out);
    }
}

/// Scale and minimum of a row in a block.
pub fn header(format: WeightFormat, block: &[u8], row: usize) -> (f32, f32) {
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    match format {
        WeightFormat::Q8Panels => {
            let scale = block[4 * row..][..4].try_into().expect("four bytes");
            (f32::from_le_bytes(scale), 0.0)
        }
        _ => (half(2 * row), half(2 * ROWS + 2 * row)),
    }
}

fn number(format: WeightFormat, block: &[u8], row: usize, column: usize) -> f32 {
    let numbers = &block[LINE..];
    match format {
        WeightFormat::Q8Panels => {
            let u = numbers[column / 4 * LINE + 4 * row + column % 4];
            (i32::from(u) - Q8_OFFSET) as f32
        }
        _ => {
            let both = numbers[column / 8 * LINE + 4 * row + column % 4];
            (both >> (column / 4 % 2 * 4) & 15).into()
        }
    }
}

/// Puts a row's scale, minimum and numbers `u` into a block, whose numbers were zero bits before.
pub fn put(format: WeightFormat, block: &mut [u8], row: usize, scale: f32, min: f16, numbers: &[u8]) {
    match format {
        WeightFormat::Q8Panels => {
            block[4 * row..][..4].copy_from_slice(&scale.to_le_bytes());
            for (column, u) in numbers.iter().enumerate() {
                block[LINE + column / 4 * LINE + 4 * row + column % 4] = *u;
            }
        }
        _ => {
            block[2 * row..][..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
            block[2 * ROWS + 2 * row..][..2].copy_from_slice(&min.to_le_bytes());
            for (column, u) in numbers.iter().enumerate() {
                block[LINE + column / 8 * LINE + 4 * row + column % 4] |= u << (column / 4 % 2 * 4);
            }
        }
    }
}

#[cfg(test)]
mod tests;
