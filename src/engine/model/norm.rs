//! RMS norms, in f32: `x * rsqrt(mean(x^2) + eps)`, times a weight.

use burn::tensor::Tensor;

use super::Loader;
use super::WeightsError;
use crate::engine::kernels::norm::{gated_rms_norm, rms_norm};

pub struct RmsNorm {
    /// Already with the one added where the checkpoint stores `weight - 1`.
    weight: Tensor<1>,
    eps: f64,
}

impl RmsNorm {
    /// The family's ordinary norm, stored around zero: it multiplies by `1 + weight`.
    pub fn zero_centred(loader: &Loader, name: &str, width: usize, eps: f64) -> Result<Self, WeightsError> {
        let weight: Vec<f32> = loader.values(name, &[width])?.iter().map(|w| 1.0 + w).collect();
        Ok(Self { weight: loader.vector(&weight), eps })
    }

    /// The norm of the delta net's output, which multiplies by `weight` as it is stored.
    pub fn plain(loader: &Loader, name: &str, width: usize, eps: f64) -> Result<Self, WeightsError> {
        let weight = loader.values(name, &[width])?;
        Ok(Self { weight: loader.vector(&weight), eps })
    }

    /// Normalises the last axis.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        rms_norm(x, &self.weight, self.eps)
    }

    /// Normalises the last axis, and multiplies by `silu(gate)`.
    pub fn forward_gated(&self, x: Tensor<3>, gate: Tensor<3>) -> Tensor<3> {
        gated_rms_norm(x, gate, &self.weight, self.eps)
    }
}
