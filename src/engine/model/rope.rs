//! Rotary positions: partial, half-split, with three interleaved axes (time, height, width).
//!
//! Frequency i turns with the height axis if `i % 3 == 1`, with the width axis if `i % 3 == 2`, each within
//! its share of `mrope_section`, and with time otherwise. Text has the same number on all axes, which makes
//! it the ordinary rotary embedding.

use burn::tensor::{Device, Tensor, TensorData};

use super::super::config::RopeConfig;
use super::super::kernels;

/// Time, height and width of each token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Positions(pub [Vec<i64>; 3]);

impl Positions {
    /// Text that starts at `start`: all axes count up together.
    pub fn text(start: i64, n_tokens: usize) -> Self {
        let axis: Vec<i64> = (start..).take(n_tokens).collect();
        Self([axis.clone(), axis.clone(), axis])
    }

    pub fn len(&self) -> usize {
        self.0[0].len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn extend(&mut self, more: &Self) {
        self.0.iter_mut().zip(&more.0).for_each(|(axis, more)| axis.extend(more));
    }

    /// Those of some of the tokens.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        Self(self.0.each_ref().map(|axis| axis[range.clone()].to_vec()))
    }
}

/// Cosines and sines of every token, each `[t, 1, half]`: channel i of a head turns against channel
/// i + half.
pub struct Rotation {
    pub cos: Tensor<3>,
    pub sin: Tensor<3>,
}

pub struct Rope {
    inv_freq: Vec<f32>,
    /// Which axis each frequency follows.
    axes: Vec<usize>,
}

impl Rope {
    pub fn new(config: &RopeConfig) -> Self {
        let half = config.rotary_dim / 2;
        let [_, height, width] = config.mrope_section;
        let axis = |i: usize| match i % 3 {
            1 if i < 3 * height => 1,
            2 if i < 3 * width => 2,
            _ => 0,
        };
        // f32 from here on, as in the reference: at large positions the rounding is part of the model.
        let frequency = |i: usize| (config.theta as f32).powf(-((2 * i) as f32) / config.rotary_dim as f32);
        Self { inv_freq: (0..half).map(frequency).collect(), axes: (0..half).map(axis).collect() }
    }

    pub fn rotation(&self, positions: &Positions, device: &Device) -> Rotation {
        let n_tokens = positions.0[0].len();
        let angles: Vec<f32> = (0..n_tokens)
            .flat_map(|token| {
                let angle =
                    move |(inv_freq, axis): (&f32, &usize)| positions.0[*axis][token] as f32 * inv_freq;
                self.inv_freq.iter().zip(&self.axes).map(angle)
            })
            .collect();
        Rotation::new(&angles, self.inv_freq.len(), device)
    }
}

impl Rotation {
    /// From angles `[t, half]`, flat.
    pub fn new(angles: &[f32], half: usize, device: &Device) -> Self {
        let tensor = |f: fn(f32) -> f32| {
            let values: Vec<f32> = angles.iter().map(|angle| f(*angle)).collect();
            Tensor::from_data(TensorData::new(values, [angles.len() / half, 1, half]), device)
        };
        Self { cos: tensor(f32::cos), sin: tensor(f32::sin) }
    }
}

/// Turns the first channels of each head of `x [t, heads, head_dim]`; the others pass.
pub fn rotate(x: Tensor<3>, rotation: &Rotation) -> Tensor<3> {
    kernels::rope::rotate(x, &rotation.cos, &rotation.sin)
}
