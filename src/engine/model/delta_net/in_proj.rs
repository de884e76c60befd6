//! What a delta net takes from its input: queries, keys and values for the convolution, the output gate `z`, and what
//! writing strength (`b`) and decay (`a`) are made from.
//!
//! Qwen3.5 keeps a matrix for each. Qwen3-Next keeps two in which the rows are grouped by key head; its results are
//! put in the order of the others, so that its weights can stay as they are in the file.

use burn::tensor::Tensor;

use super::super::linear::Linear;
use super::super::{Loader, WeightsError};
use super::Dims;

pub struct InProj {
    qkvz: Qkvz,
    ba: Ba,
    dims: Dims,
}

enum Qkvz {
    Apart {
        qkv: Linear,
        z: Linear,
    },
    /// Per key head: its query, its key, the values of its value heads, their gates.
    Grouped(Linear),
}

enum Ba {
    Apart {
        b: Linear,
        a: Linear,
    },
    /// Per key head: `b` of its value heads, then `a`.
    Grouped(Linear),
}

/// Of `t` tokens: `qkv [t, conv_dim]`, `z [t, value_heads * d_v]`, `b` and `a` `[t, value_heads]`.
pub struct Projected {
    pub qkv: Tensor<2>,
    pub z: Tensor<2>,
    pub b: Tensor<2>,
    pub a: Tensor<2>,
}

impl InProj {
    pub fn load(hidden: usize, dims: Dims, loader: &Loader) -> Result<Self, WeightsError> {
        let Dims { key_heads, value_heads, d_k, d_v } = dims;
        let (qk, v) = (2 * key_heads * d_k, value_heads * d_v);
        let qkvz = match loader.contains("in_proj_qkvz.weight") {
            true => Qkvz::Grouped(loader.linear("in_proj_qkvz.weight", qk + 2 * v, hidden)?),
            false => Qkvz::Apart {
                qkv: loader.linear("in_proj_qkv.weight", qk + v, hidden)?,
                z: loader.linear("in_proj_z.weight", v, hidden)?,
            },
        };
        let ba = match loader.contains("in_proj_ba.weight") {
            true => Ba::Grouped(loader.linear("in_proj_ba.weight", 2 * value_heads, hidden)?),
            false => Ba::Apart {
                b: loader.linear("in_proj_b.weight", value_heads, hidden)?,
                a: loader.linear("in_proj_a.weight", value_heads, hidden)?,
            },
        };
        Ok(Self { qkvz, ba, dims })
    }

    /// `x [t, hidden_size]`.
    pub fn forward(&self, x: Tensor<2>) -> Projected {
        let Dims { key_heads, value_heads, d_k, d_v } = self.dims;
        let per_key_head = value_heads / key_heads;
        let v_width = per_key_head * d_v;
        if let (Qkvz::Apart { qkv, z }, Ba::Apart { b, a }) = (&self.qkvz, &self.ba) {
            let [qkv, z, b, a] = Linear::forward_all([qkv, z, b, a], x);
            return Projected { qkv, z, b, a };
        }
        let (qkv, z) = match &self.qkvz {
            Qkvz::Apart { qkv, z } => (qkv.forward(x.clone()), z.forward(x.clone())),
            Qkvz::Grouped(qkvz) => {
                let [q, k, v, z] = self.regroup(qkvz.forward(x.clone()), [d_k, d_k, v_width, v_width]);
                (Tensor::cat(vec![q, k, v], 1), z)
            }
        };
        let (b, a) = match &self.ba {
            Ba::Apart { b, a } => (b.forward(x.clone()), a.forward(x)),
            Ba::Grouped(ba) => self.regroup(ba.forward(x), [per_key_head; 2]).into(),
        };
        Projected { qkv, z, b, a }
    }

    /// From parts of these widths side by side within each key head to each part with all its heads.
    fn regroup<const N: usize>(&self, grouped: Tensor<2>, widths: [usize; N]) -> [Tensor<2>; N] {
        let [t, _] = grouped.dims();
        let heads = self.dims.key_heads;
        let grouped: Tensor<3> = grouped.reshape([t, heads, widths.iter().sum()]);
        let mut start = 0;
        widths.map(|width| {
            let part = grouped.clone().narrow(2, start, width);
            start += width;
            part.reshape([t, heads * width])
        })
    }
}
