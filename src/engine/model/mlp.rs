//! SwiGLU: `down(silu(gate(x)) * up(x))`.

use burn::tensor::Tensor;

use super::linear::Linear;
use super::{Loader, WeightsError};
use crate::engine::kernels::norm::swiglu;

pub struct Mlp {
    pub gate_proj: Linear,
    pub up_proj: Linear,
    pub down_proj: Linear,
}

impl Mlp {
    /// From `hidden` channels through `inner` and back.
    pub fn load(hidden: usize, inner: usize, loader: &Loader) -> Result<Self, WeightsError> {
        Ok(Self {
            gate_proj: loader.linear("gate_proj.weight", inner, hidden)?,
            up_proj: loader.linear("up_proj.weight", inner, hidden)?,
            down_proj: loader.linear("down_proj.weight", hidden, inner)?,
        })
    }

    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let [gate, up] = Linear::forward_all([&self.gate_proj, &self.up_proj], x);
        self.down_proj.forward(swiglu(gate, up))
    }
}
