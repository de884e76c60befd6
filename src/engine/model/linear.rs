//! A linear layer without bias, its weight in the checkpoint's own format.

use std::ops::Range;

use burn::backend::Dispatch;
use burn::tensor::{AllocationProperty, Bytes, DType, Int, Tensor, TensorData};

use super::super::device::OpenDevice;
use super::super::kernels::Kernels;
use super::super::kernels::linear::{Stored, on_the_cpu};
use super::super::weights::{Weight, WeightFormat, panels};
use super::join;

/// Up to this many tokens the GPU multiplies and widens in one kernel; beyond it, widened tiles and a
/// blocked multiplication read each weight fewer times.
const MAX_GPU_MATVEC_TOKENS: usize = 4;
/// Numbers of a widened tile on the GPU: 64 MiB of f32.
const GPU_TILE: usize = 16 << 20;

/// `y = x W^T`, `W [rows, columns]`.
pub struct Linear {
    /// Consecutive rows as U32 words: one block, or more where a GPU limits the size of a buffer.
    blocks: Vec<Block>,
    columns: usize,
    format: WeightFormat,
    is_gpu: bool,
}

struct Block {
    words: Tensor<1, Int>,
    rows: usize,
}

impl Linear {
    /// On the CPU the words are the file's own pages; for a GPU they are uploaded. Its kernels read plain numbers and
    /// panels: of a format in blocks it gets f32, the only plain one that holds every value exactly.
    pub fn new(weight: Weight, device: &OpenDevice) -> Self {
        let [rows, columns] = [weight.shape[0], weight.shape[1]];
        let format = match device.is_gpu && !weight.format.is_plain() && !weight.format.is_panels() {
            true => WeightFormat::F32,
            false => weight.format,
        };
        let row_bytes = format.row_bytes(columns);
        let step = row_step(format);
        let block_rows = (device.max_buffer_bytes / row_bytes / step * step).clamp(step, rows.max(step));
        let blocks = (0..rows)
            .step_by(block_rows)
            .map(|start| {
                let end = rows.min(start + block_rows);
                let mut part = weight.rows(start..end);
                if format != part.format {
                    part = Weight::from_f32(part.to_f32(), part.shape);
                }
                let data = part.data;
                Block { words: words(data, device), rows: end - start }
            })
            .collect();
        Self { blocks, columns, format, is_gpu: device.is_gpu }
    }

    /// `x [t, columns]` to `[t, rows]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let mut parts: Vec<Tensor<2>> = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            if self.is_gpu && x.dims()[0] > MAX_GPU_MATVEC_TOKENS {
                self.multiply_tiles(&x, block, &mut parts);
            } else {
                parts.push(Tensor::from_dispatch(Dispatch::packed_linear(
                    x.clone().into_dispatch(),
                    block.words.clone().into_dispatch(),
                    self.format,
                    block.rows,
                )));
            }
        }
        join(parts, 1)
    }

    /// Several layers with the same input: on the CPU as one job, for which the input is made ready once.
    pub fn forward_all<const N: usize>(layers: [&Self; N], x: Tensor<2>) -> [Tensor<2>; N] {
        let stored = layers.map(|layer| layer.stored(0..layer.blocks.iter().map(|block| block.rows).sum()));
        if stored.iter().all(Option::is_some)
            && let Some(outputs) = on_the_cpu(&x, stored.map(|stored| stored.expect("just seen")))
        {
            return outputs;
        }
        layers.map(|layer| layer.forward(x.clone()))
    }

    /// `x [t, columns]` with some rows only, side by side; a GPU multiplies all. `ranges` begin at multiples of 16.
    pub fn forward_rows<const N: usize>(
        &self,
        x: &Tensor<2>,
        ranges: [Range<usize>; N],
    ) -> Option<Tensor<2>> {
        let stored = ranges.map(|rows| self.stored(rows));
        if stored.iter().any(Option::is_none) {
            return None;
        }
        let outputs = on_the_cpu(x, stored.map(|stored| stored.expect("just seen")))?;
        Some(Tensor::cat(outputs.into(), 1))
    }

    /// Some rows of a weight in one block.
    fn stored(&self, rows: Range<usize>) -> Option<Stored<'_>> {
        match self.blocks.as_slice() {
            [block] => Some(Stored { words: &block.words, format: self.format, rows }),
            _ => None,
        }
    }

    fn multiply_tiles(&self, x: &Tensor<2>, block: &Block, parts: &mut Vec<Tensor<2>>) {
        let step = row_step(self.format);
        let tile_rows = (GPU_TILE / self.columns / step * step).max(step);
        for start in (0..block.rows).step_by(tile_rows) {
            let tile: Tensor<2> = Tensor::from_dispatch(Dispatch::widen_rows(
                block.words.clone().into_dispatch(),
                self.format,
                start,
                tile_rows.min(block.rows - start),
                self.columns,
            ));
            parts.push(x.clone().matmul(tile.transpose()));
        }
    }
}

/// Rows that can't be parted: a panel; otherwise two, so that they fill whole words whatever their length.
fn row_step(format: WeightFormat) -> usize {
    if format.is_panels() { panels::ROWS } else { 2 }
}

/// The bytes of a weight as U32 words, without a copy where they fill whole words.
fn words(data: bytes::Bytes, device: &OpenDevice) -> Tensor<1, Int> {
    let data = match data.len() % 4 {
        0 => data,
        _ => {
            let mut padded = data.to_vec();
            padded.resize(data.len().next_multiple_of(4), 0);
            padded.into()
        }
    };
    let n_words = data.len() / 4;
    let bytes = Bytes::from_shared(data, AllocationProperty::File);
    // Naming the dtype keeps it: without it the words would be converted to the default integer type.
    Tensor::from_data(TensorData::from_bytes(bytes, [n_words], DType::U32), (&device.tensors, DType::U32))
}
