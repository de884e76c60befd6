//! SwiGLU: `down(silu(gate(x)) * up(x))`.

use burn::tensor::Tensor;
use burn::tensor::activation::silu;

use super::linear::Linear;
use super::{Loader, ModelConfig, WeightsError};

pub struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Mlp {
    pub fn load(config: &ModelConfig, loader: &Loader) -> Result<Self, WeightsError> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        Ok(Self {
            gate_proj: loader.linear("gate_proj.weight", inner, hidden)?,
            up_proj: loader.linear("up_proj.weight", inner, hidden)?,
            down_proj: loader.linear("down_proj.weight", hidden, inner)?,
        })
    }

    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.down_proj.forward(silu(self.gate_proj.forward(x.clone())) * self.up_proj.forward(x))
    }
}
