//! The vision tower: patches of one frame -> blocks with full attention -> merged features, one per token.
//!
//! Every temporal slot is a frame of its own here: attention never crosses from one to another, and all else
//! works on single patches. A large picture is attended in tiles of queries, so that memory grows with its
//! patches and not with their square.
//! Source: `Qwen3_5VisionModel` of the reference implementation.

use std::ops::ControlFlow;

use burn::tensor::activation::{gelu, softmax};
use burn::tensor::{Tensor, TensorData};

use super::super::config::vision::{CHANNELS, VisionConfig};
use super::super::device::OpenDevice;
use super::super::kernels::affine;
use super::super::kernels::attention::{self, Sees};
use super::super::model::linear::Linear;
use super::super::model::rope::{Rotation, rotate};
use super::super::model::{Loader, WeightsError, join};
use super::preprocess::{PatchLayout, Pixels};

const LAYER_NORM_EPS: f64 = 1e-6;
const ROPE_THETA: f32 = 10_000.0;
/// Scores held at once: 64 MiB.
const MAX_SCORES: usize = 16 << 20;
/// Queries after which the CPU, which never holds all scores, reports its progress.
const CPU_TILE: usize = 1024;
/// Patches whose widest activations are held at once.
const TILE: usize = 4096;

/// Memory that [`Encoder::encode`] takes for a frame of so many patches, besides the weights.
pub fn workspace_bytes(config: &VisionConfig, patches: u64) -> u64 {
    let [width, inner, heads] =
        [config.hidden_size, config.intermediate_size, config.num_heads].map(|n| n as u64);
    let tile = patches.min(TILE as u64);
    let scores = (MAX_SCORES as u64).min(heads * patches * patches);
    // Queries, keys and values together and apart; scores, of which the softmax is taken in their place.
    let attention = patches * 6 * width + scores;
    // The inner activations and what GELU makes of them.
    let mlp = tile * 2 * inner;
    let stream = patches * 2 * width;
    (attention.max(mlp) + stream).saturating_mul(size_of::<f32>() as u64)
}

pub struct Encoder {
    patch_embed: Affine,
    /// The table of learned positions `[side * side, hidden_size]`, on the host.
    positions: Vec<f32>,
    blocks: Vec<Block>,
    merger_norm: LayerNorm,
    merger_fc1: Affine,
    merger_fc2: Affine,
    config: VisionConfig,
    pub layout: PatchLayout,
    device: OpenDevice,
}

struct Block {
    norm1: LayerNorm,
    qkv: Affine,
    proj: Affine,
    norm2: LayerNorm,
    fc1: Affine,
    fc2: Affine,
}

/// What [`Encoder::encode`] can show to a test on its way.
#[derive(Default)]
pub struct Taps {
    pub patch_embed: Option<Tensor<2>>,
    pub positions: Option<Tensor<2>>,
    pub blocks: Vec<Tensor<2>>,
}

impl Encoder {
    /// Takes the tower's weights; `loader` stands at its prefix.
    ///
    /// # Errors
    /// [`WeightsError`] names the tensor that is missing or has another shape than `config` says.
    pub fn load(
        config: &VisionConfig,
        layout: PatchLayout,
        loader: &Loader,
        device: &OpenDevice,
    ) -> Result<Self, WeightsError> {
        let (width, inner, merged) = (config.hidden_size, config.intermediate_size, config.merged_size());
        let blocks = (0..config.depth).map(|i| {
            let loader = loader.inside(&format!("blocks.{i}."));
            Ok(Block {
                norm1: LayerNorm::load(&loader, "norm1", width)?,
                qkv: Affine::load(&loader, "attn.qkv", &[3 * width, width])?,
                proj: Affine::load(&loader, "attn.proj", &[width, width])?,
                norm2: LayerNorm::load(&loader, "norm2", width)?,
                fc1: Affine::load(&loader, "mlp.linear_fc1", &[inner, width])?,
                fc2: Affine::load(&loader, "mlp.linear_fc2", &[width, inner])?,
            })
        });
        let side = config.patch_size;
        let kernel = [width, CHANNELS, config.temporal_patch_size, side, side];
        Ok(Self {
            // A convolution whose stride is its kernel is a product with the flattened patch.
            patch_embed: Affine::load(loader, "patch_embed.proj", &kernel)?,
            positions: loader
                .values("pos_embed.weight", &[config.position_side * config.position_side, width])?,
            blocks: blocks.collect::<Result<_, WeightsError>>()?,
            merger_norm: LayerNorm::load(loader, "merger.norm", width)?,
            merger_fc1: Affine::load(loader, "merger.linear_fc1", &[merged, merged])?,
            merger_fc2: Affine::load(loader, "merger.linear_fc2", &[config.out_hidden_size, merged])?,
            config: config.clone(),
            layout,
            device: device.clone(),
        })
    }

    /// How many steps [`Self::encode`] reports for temporal slots of so many patches.
    pub fn n_steps(&self, slots: usize, patches: usize) -> usize {
        slots * self.blocks.len() * patches.div_ceil(self.attention_tile(patches))
    }

    /// Features `[tokens, out_hidden_size]` of all temporal slots, one after the other. `step` is called after
    /// each part of the work and may stop it; then there is no result.
    pub fn encode(
        &self,
        pixels: &Pixels,
        step: &mut dyn FnMut() -> ControlFlow<()>,
        mut taps: Option<&mut Taps>,
    ) -> Option<Tensor<2>> {
        let [slots, rows, columns] = self.layout.grid(pixels);
        let positions = self.interpolated_positions(rows, columns);
        let rotation = self.rotation(rows, columns);
        let mut features = Vec::with_capacity(slots);
        for slot in 0..slots {
            let embedded = self.embed(pixels, slot, rows * columns);
            if let Some(taps) = taps.as_deref_mut().filter(|_| slot == 0) {
                taps.patch_embed = Some(embedded.clone());
                taps.positions = Some(positions.clone());
            }
            let mut x = embedded + positions.clone();
            for block in &self.blocks {
                x = self.attend(block, x, &rotation, step)?;
                x = in_tiles(x, |x| {
                    let inner = affine::gelu_tanh(block.fc1.forward(block.norm2.forward(x.clone())));
                    x + block.fc2.forward(inner)
                });
                if let Some(taps) = taps.as_deref_mut().filter(|_| slot == 0) {
                    taps.blocks.push(x.clone());
                }
            }
            features.push(self.merge(x));
        }
        Some(join(features, 0))
    }

    fn embed(&self, pixels: &Pixels, slot: usize, n: usize) -> Tensor<2> {
        let width = self.layout.patch_values();
        let parts = (0..n).step_by(TILE).map(|start| {
            let range = start..n.min(start + TILE);
            let data =
                TensorData::new(self.layout.patches(pixels, slot, range.clone()), [range.len(), width]);
            self.patch_embed.forward(Tensor::from_data(data, &self.device.tensors))
        });
        join(parts.collect(), 0)
    }

    /// `x + proj(attention(norm1(x)))` over all patches of a frame.
    fn attend(
        &self,
        block: &Block,
        x: Tensor<2>,
        rotation: &Rotation,
        step: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Option<Tensor<2>> {
        let [n, width] = x.dims();
        let (heads, d) = (self.config.num_heads, self.config.head_dim());
        let qkv = in_tiles(x.clone(), |x| block.qkv.forward(block.norm1.forward(x)));
        let head = |i: usize| qkv.clone().narrow(1, i * width, width).reshape([n, heads, d]);
        let q = rotate(head(0), rotation) * (d as f64).powf(-0.5);
        // Of views, the CPU would make a copy for each tile.
        let [k, v] = [rotate(head(1), rotation), head(2)].map(|x| x.swap_dims(0, 1).mul_scalar(1.0));
        drop(qkv);
        let attended = |start: usize, rows: usize| -> Tensor<2> {
            let q = q.clone().narrow(0, start, rows);
            if !self.device.is_gpu {
                return attention::attend(&q, &k, &v, n, Sees::All);
            }
            let weights = softmax(q.swap_dims(0, 1).matmul(k.clone().swap_dims(1, 2)), 2);
            weights.matmul(v.clone()).swap_dims(0, 1).reshape([rows, width])
        };
        let tile = self.attention_tile(n);
        let mut parts = Vec::with_capacity(n.div_ceil(tile));
        for start in (0..n).step_by(tile) {
            let rows = tile.min(n - start);
            parts.push(x.clone().narrow(0, start, rows) + block.proj.forward(attended(start, rows)));
            // The GPU's queue is drained here, so that progress is true and a stop takes effect. An error of
            // the device shows when the features are used.
            let _ = self.device.tensors.sync();
            if step().is_break() {
                return None;
            }
        }
        Some(join(parts, 0))
    }

    /// Queries whose scores against all `n` patches are held at once.
    fn attention_tile(&self, n: usize) -> usize {
        if !self.device.is_gpu {
            return n.min(CPU_TILE);
        }
        (MAX_SCORES / (self.config.num_heads * n)).clamp(1, n)
    }

    /// Joins the patches of each merge block, which are neighbours already, into one feature.
    fn merge(&self, x: Tensor<2>) -> Tensor<2> {
        let x = self.merger_norm.forward(x).reshape([-1, self.config.merged_size() as i32]);
        in_tiles(x, |x| self.merger_fc2.forward(gelu(self.merger_fc1.forward(x))))
    }

    /// Row and column of each patch of a frame, in the order of the patches.
    fn places(&self, rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..rows * columns).map(move |i| self.layout.place(i, columns))
    }

    /// The learned table stretched over the frame, corner to corner, bilinearly: `[patches, hidden_size]`.
    fn interpolated_positions(&self, rows: usize, columns: usize) -> Tensor<2> {
        let (side, width) = (self.config.position_side, self.config.hidden_size);
        let stretch = |i: usize, n: usize| {
            let at = match n {
                1 => 0.0,
                _ => i as f32 * ((side - 1) as f32 / (n - 1) as f32),
            };
            let low = (at as usize).min(side - 1);
            (low, (low + 1).min(side - 1), at - low as f32)
        };
        let mut values = Vec::with_capacity(rows * columns * width);
        for (row, column) in self.places(rows, columns) {
            let (top, bottom, down) = stretch(row, rows);
            let (left, right, across) = stretch(column, columns);
            let corner =
                |row: usize, column: usize| &self.positions[(row * side + column) * width..][..width];
            let corners =
                [corner(top, left), corner(top, right), corner(bottom, left), corner(bottom, right)];
            let weights =
                [(1.0 - down) * (1.0 - across), (1.0 - down) * across, down * (1.0 - across), down * across];
            values.extend((0..width).map(|i| {
                corners.iter().zip(weights).map(|(corner, weight)| corner[i] * weight).sum::<f32>()
            }));
        }
        Tensor::from_data(TensorData::new(values, [rows * columns, width]), &self.device.tensors)
    }

    /// A quarter of each head turns with the row and a quarter with the column, each against its partner half a
    /// head away.
    fn rotation(&self, rows: usize, columns: usize) -> Rotation {
        let quarter = self.config.head_dim() / 4;
        let frequency = |i: usize| ROPE_THETA.powf(-((2 * i) as f32) / (2 * quarter) as f32);
        let frequencies: Vec<f32> = (0..quarter).map(frequency).collect();
        let angles: Vec<f32> = self
            .places(rows, columns)
            .flat_map(|(row, column)| {
                [row, column].into_iter().flat_map(|at| frequencies.iter().map(move |f| at as f32 * f))
            })
            .collect();
        Rotation::new(&angles, 2 * quarter, &self.device.tensors)
    }
}

/// Applies `f` to at most [`TILE`] rows at a time.
fn in_tiles(x: Tensor<2>, f: impl Fn(Tensor<2>) -> Tensor<2>) -> Tensor<2> {
    let n = x.dims()[0];
    if n <= TILE {
        return f(x);
    }
    let tiles = (0..n).step_by(TILE).map(|start| f(x.clone().narrow(0, start, TILE.min(n - start))));
    join(tiles.collect(), 0)
}

/// `y = x W^T + b`.
struct Affine {
    linear: Linear,
    bias: Tensor<2>,
}

impl Affine {
    /// `shape` is that of the stored weight, of which all axes but the first are the input.
    fn load(loader: &Loader, name: &str, shape: &[usize]) -> Result<Self, WeightsError> {
        let bias = loader.values(&format!("{name}.bias"), &shape[..1])?;
        Ok(Self {
            linear: loader.flat_linear(&format!("{name}.weight"), shape)?,
            bias: loader.vector(&bias).unsqueeze(),
        })
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        affine::add_bias(self.linear.forward(x), &self.bias)
    }
}

/// The ordinary layer norm, over the last axis; see [`affine::layer_norm`].
struct LayerNorm {
    weight: Tensor<2>,
    bias: Tensor<2>,
}

impl LayerNorm {
    fn load(loader: &Loader, name: &str, width: usize) -> Result<Self, WeightsError> {
        let vector = |part: &str| {
            Ok::<_, WeightsError>(
                loader.vector(&loader.values(&format!("{name}.{part}"), &[width])?).unsqueeze(),
            )
        };
        Ok(Self { weight: vector("weight")?, bias: vector("bias")? })
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        affine::layer_norm(x, &self.weight, &self.bias, LAYER_NORM_EPS)
    }
}

#[cfg(test)]
mod tests;
