//! Plain weights to our own quantised form, with as little error as its scales allow.
//!
//! Eight bits: the scale that the largest number of a row's block asks for. Four bits: scale and minimum are searched.
//! From several ranges, each a bit narrower than that of the numbers, rounding and the best scale and minimum for what
//! was rounded (a line through 64 points by least squares) take turns; the least squared error wins. Plain rounding is
//! the first of these tries, so the result is never worse.

use half::f16;
use rayon::prelude::*;

use super::panels::{self, BLOCK, ROWS};
use super::{Weight, WeightFormat};
use crate::engine::kernels::cpu::best_of_three;

/// Ranges that are tried, as parts of the whole one.
const RANGES: [f32; 7] = [1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7];
/// How often rounding and fitting take turns.
const TURNS: usize = 3;
/// The largest number of four bits.
const MOST: f32 = 15.0;

/// A matrix in panels, and what that cost.
pub struct Quantised {
    pub weight: Weight,
    pub error: Loss,
}

/// Squares of what was lost, and of what there was.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Loss {
    lost: f64,
    whole: f64,
}

impl Loss {
    /// The error's part of the numbers, by root mean squares.
    pub fn relative(self) -> f64 {
        if self.whole > 0.0 { (self.lost / self.whole).sqrt() } else { 0.0 }
    }

    pub fn and(self, other: Self) -> Self {
        Self { lost: self.lost + other.lost, whole: self.whole + other.whole }
    }
}

/// Quantises a matrix `[rows, columns]` of plain numbers; `None` if some of them are not finite.
pub fn quantise(weight: &Weight, format: WeightFormat) -> Option<Quantised> {
    let [rows, columns] = [weight.shape[0], weight.shape[1]];
    let panel_bytes = panels::panel_bytes(format, columns);
    let mut data = vec![0; panels::bytes(format, rows, columns)];
    let losses = data.par_chunks_exact_mut(panel_bytes).enumerate().map(|(panel, out)| {
        let first = panel * ROWS;
        let values = weight.rows(first..rows.min(first + ROWS)).to_f32();
        let mut loss = Loss::default();
        for (row, values) in values.chunks_exact(columns).enumerate() {
            let blocks = out.chunks_exact_mut(panels::block_bytes(format));
            for (block, values) in blocks.zip(values.chunks(BLOCK)) {
                loss = loss.and(quantise_block(format, values, row, block));
            }
        }
        loss
    });
    let error = losses.reduce(Loss::default, Loss::and);
    error.whole.is_finite().then(|| Quantised {
        weight: Weight { format, shape: weight.shape.clone(), data: data.into() },
        error,
    })
}

/// Quantises some of a row's numbers, at most a block, into their place.
fn quantise_block(format: WeightFormat, values: &[f32], row: usize, block: &mut [u8]) -> Loss {
    // Numbers that are missing to a whole block are like the last one: they ask for nothing that others don't.
    let mut x = [*values.last().expect("a block has numbers"); BLOCK];
    x[..values.len()].copy_from_slice(values);
    let mut fit = Fit::default();
    match format {
        WeightFormat::Q8Panels => fit_eight_bits(&x, &mut fit),
        _ => fit_four_bits(&x, &mut fit),
    }
    let offset = if format == WeightFormat::Q8Panels { panels::Q8_OFFSET as f32 } else { 0.0 };
    let mut loss = Loss::default();
    for (x, u) in values.iter().zip(&fit.numbers) {
        let error = f64::from(x - (fit.scale * (u - offset) + fit.min));
        loss.lost += error * error;
        loss.whole += f64::from(*x) * f64::from(*x);
    }
    let numbers: [u8; BLOCK] = std::array::from_fn(|i| fit.numbers[i] as u8);
    panels::put(format, block, row, fit.scale, f16::from_f32(fit.min), &numbers[..values.len()]);
    loss
}

/// A block in few bits: `x = scale * u + min`, scale and minimum as they are stored.
#[derive(Debug, Clone, Copy)]
struct Fit {
    scale: f32,
    min: f32,
    numbers: [f32; BLOCK],
}

impl Default for Fit {
    fn default() -> Self {
        Self { scale: 0.0, min: 0.0, numbers: [0.0; BLOCK] }
    }
}

best_of_three! {
    fn fit_eight_bits = eight_bits(x: &[f32; BLOCK], best: &mut Fit)
}

#[inline(always)]
fn eight_bits(x: &[f32; BLOCK], best: &mut Fit) {
    let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    best.scale = most / 127.0;
    let inverse = if best.scale > 0.0 { best.scale.recip() } else { 0.0 };
    for (x, u) in x.iter().zip(&mut best.numbers) {
        *u = (x * inverse).round_ties_even().clamp(-127.0, 127.0) + panels::Q8_OFFSET as f32;
    }
}

best_of_three! {
    fn fit_four_bits = four_bits(x: &[f32; BLOCK], best: &mut Fit)
}

#[inline(always)]
fn four_bits(x: &[f32; BLOCK], best: &mut Fit) {
    let (low, high) = x.iter().fold((x[0], x[0]), |(low, high), x| (low.min(*x), high.max(*x)));
    let mut least = f32::INFINITY;
    for range in RANGES {
        let cut = (high - low) * (1.0 - range) / 2.0;
        let mut line = ((high - low) * range / MOST, low + cut);
        for _ in 0..TURNS {
            let (scale, min) = stored(line);
            let (numbers, error) = round(x, scale, min);
            if error < least {
                least = error;
                *best = Fit { scale, min, numbers };
            }
            line = fitted(x, &numbers, (scale, min));
        }
    }
}

/// Scale and minimum as f16 keeps them.
#[inline(always)]
fn stored((scale, min): (f32, f32)) -> (f32, f32) {
    (f16::from_f32(scale).to_f32(), f16::from_f32(min).to_f32())
}

/// The nearest numbers on a line, and their squared error.
#[inline(always)]
fn round(x: &[f32; BLOCK], scale: f32, min: f32) -> ([f32; BLOCK], f32) {
    let inverse = if scale > 0.0 { scale.recip() } else { 0.0 };
    let mut numbers = [0.0; BLOCK];
    let mut errors = [0.0; ROWS];
    for i in 0..BLOCK {
        numbers[i] = ((x[i] - min) * inverse).round_ties_even().clamp(0.0, MOST);
        let error = x[i] - (scale * numbers[i] + min);
        errors[i % ROWS] += error * error;
    }
    (numbers, errors.iter().sum())
}

/// The line through `(numbers, x)` with the least squared error; `line` if all numbers are the same.
#[inline(always)]
fn fitted(x: &[f32; BLOCK], numbers: &[f32; BLOCK], line: (f32, f32)) -> (f32, f32) {
    const N: f32 = BLOCK as f32;
    let [mut u, mut uu, mut xs, mut ux] = [[0.0f32; ROWS]; 4];
    for i in 0..BLOCK {
        let lane = i % ROWS;
        u[lane] += numbers[i];
        uu[lane] += numbers[i] * numbers[i];
        xs[lane] += x[i];
        ux[lane] += numbers[i] * x[i];
    }
    let [u, uu, xs, ux] = [u, uu, xs, ux].map(|lanes| lanes.iter().sum::<f32>());
    // Sums of small whole numbers are exact, so this is 0 only if all of them are the same.
    let spread = N * uu - u * u;
    if spread <= 0.0 {
        return line;
    }
    let scale = (N * ux - u * xs) / spread;
    if scale > 0.0 { (scale, (xs - scale * u) / N) } else { line }
}

#[cfg(test)]
mod tests;
