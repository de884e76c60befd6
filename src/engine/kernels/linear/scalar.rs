//! The definition: plain loops, accumulated in f64.

use super::super::super::weights::WeightFormat;

/// `x W^T` for `x [t, columns]` and `weight [rows, columns]`.
pub fn linear(x: &[f32], weight: &[u8], format: WeightFormat, rows: usize, columns: usize) -> Vec<f32> {
    let mut wide = vec![0.0; rows * columns];
    let stored = weight.chunks_exact(format.row_bytes(columns));
    stored.zip(wide.chunks_exact_mut(columns)).for_each(|(row, wide)| format.widen(row, wide));
    let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    x.chunks_exact(columns)
        .flat_map(|token| wide.chunks_exact(columns).map(move |row| dot(token, row) as f32))
        .collect()
}
