//! Quantised checkpoints in Hub layout, whose numbers and scales are in tensors apart: official FP8, GPTQ and AWQ.
//!
//! Each matrix is put together once, when it is loaded, into rows of blocks that have their scales in front
//! ([`WeightFormat::Fp8`], [`WeightFormat::Int4`]), because a product reads rows: GPTQ and AWQ store columns, and FP8
//! has its scales elsewhere. That is a copy in memory of about the size on disk. Which matrices are packed is told by
//! the tensors that are there; the lists of exceptions in config.json are not needed.
//! Sources: the model cards' configs, and the reference implementations in transformers, AutoGPTQ and AutoAWQ.

use std::ops::Range;
use std::path::Path;

use half::f16;
use rayon::prelude::*;
use serde_json::Value;

use super::super::config::{CONFIG_LIMIT_BYTES, ConfigError, read_json};
use super::blocks::{FP8_BLOCK, INT4_BLOCK};
use super::{Checkpoint, Place, Weight, WeightFormat, WeightsError, check_shape};

/// Numbers of four bits in a stored word.
const NIBBLES: usize = 8;
/// Which of eight neighbouring outputs each nibble of an AWQ word is, the lowest first.
const AWQ_ORDER: [usize; NIBBLES] = [0, 2, 4, 6, 1, 3, 5, 7];
/// Output rows that are put together at a time: their words of one input lie side by side.
const ROWS: usize = 64;

/// How a checkpoint's matrices are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// E4M3 with a scale for each square of 128 by 128.
    Fp8,
    /// Words of eight inputs; scale and zero point for each output of a group of inputs. `zero_offset` is what zero
    /// points were made smaller by before they were stored.
    Gptq { zero_offset: i8 },
    /// Words of eight outputs, in an order of their own.
    Awq,
}

/// What the parts of a packed matrix are called.
pub struct Parts {
    pub qweight: String,
    qzeros: String,
    scales: String,
    g_idx: String,
    scale_inv: String,
}

/// The parts of a matrix by its name as one tensor.
pub fn parts(name: &str) -> Option<Parts> {
    let base = name.strip_suffix(".weight")?;
    Some(Parts {
        qweight: format!("{base}.qweight"),
        qzeros: format!("{base}.qzeros"),
        scales: format!("{base}.scales"),
        g_idx: format!("{base}.g_idx"),
        scale_inv: format!("{base}.weight_scale_inv"),
    })
}

impl Packing {
    /// What `quantization_config` of a folder's config.json says, if it has one.
    ///
    /// # Errors
    /// `NotYet` for methods that are not read.
    pub fn open(dir: &Path) -> Result<Option<Self>, ConfigError> {
        let path = dir.join("config.json");
        let Some(json) = read_json(&path, CONFIG_LIMIT_BYTES)? else { return Ok(None) };
        let inside = |json: &Value| json.get("quantization_config").filter(|q| !q.is_null()).cloned();
        let Some(config) = inside(&json).or_else(|| json.get("text_config").and_then(inside)) else {
            return Ok(None);
        };
        Self::from_json(&config).map(Some).map_err(|what| ConfigError::NotYet { what })
    }

    fn from_json(config: &Value) -> Result<Self, String> {
        let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
        let method = text("quant_method");
        let four_bits = || match config.get("bits").and_then(Value::as_u64) {
            Some(4) => Ok(()),
            bits => Err(format!("{method} with {} bits", bits.map_or("unknown".into(), |n| n.to_string()))),
        };
        match method {
            "fp8" => {
                let block = config.get("weight_block_size");
                let squares = [FP8_BLOCK as u64; 2];
                let size: Option<Vec<u64>> =
                    block.and_then(Value::as_array).map(|b| b.iter().filter_map(Value::as_u64).collect());
                match size {
                    Some(size) if size == squares => Ok(Self::Fp8),
                    _ => Err("FP8 with other blocks than 128 x 128".into()),
                }
            }
            "gptq" => {
                four_bits()?;
                Ok(Self::Gptq { zero_offset: if text("checkpoint_format") == "gptq_v2" { 0 } else { 1 } })
            }
            "awq" => {
                four_bits()?;
                match config.get("version").and_then(Value::as_str).unwrap_or("gemm").to_lowercase().as_str()
                {
                    "gemm" => Ok(Self::Awq),
                    version => Err(format!("AWQ in the version {version:?}")),
                }
            }
            other => Err(format!(
                "a checkpoint quantised by {:?}",
                if other.is_empty() { "unknown" } else { other }
            )),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Fp8 => "FP8",
            Self::Gptq { .. } => "GPTQ",
            Self::Awq => "AWQ",
        }
    }

    /// How a tensor's numbers are held once its matrix is put together, and how many of them each of its elements
    /// stands for: none, if they are scales of another tensor's numbers.
    pub fn held_as(self, name: &str, place: &Place) -> (Option<WeightFormat>, u64) {
        let is_part = |parts: &[&str]| parts.iter().any(|part| name.ends_with(part));
        match self {
            Self::Fp8 if place.type_name == "F8_E4M3" => (Some(WeightFormat::Fp8), 1),
            Self::Fp8 if is_part(&[".weight_scale_inv"]) => (None, 0),
            Self::Gptq { .. } | Self::Awq if is_part(&[".qweight"]) => {
                (Some(WeightFormat::Int4), NIBBLES as u64)
            }
            Self::Gptq { .. } | Self::Awq if is_part(&[".qzeros", ".scales", ".g_idx"]) => (None, 0),
            _ => (place.format, 1),
        }
    }

    /// The matrix `name [rows, columns]`, or `None` if the checkpoint doesn't have it in parts.
    ///
    /// # Errors
    /// Those of the parts.
    pub fn unpack(
        self,
        checkpoint: &Checkpoint,
        name: &str,
        expected: &[usize],
    ) -> Result<Option<Weight>, WeightsError> {
        let (Some(parts), [rows, columns]) = (parts(name), expected) else { return Ok(None) };
        let present = match self {
            Self::Fp8 => &parts.scale_inv,
            Self::Gptq { .. } | Self::Awq => &parts.qweight,
        };
        if !checkpoint.entries.contains_key(present) {
            return Ok(None);
        }
        let (format, data) = match self {
            Self::Fp8 => (WeightFormat::Fp8, fp8(checkpoint, name, &parts, *rows, *columns)?),
            Self::Gptq { .. } | Self::Awq => {
                (WeightFormat::Int4, Grouped::open(self, checkpoint, &parts, *rows, *columns)?.repack())
            }
        };
        Ok(Some(Weight { format, shape: expected.to_vec(), data: data.into() }))
    }
}

fn not_finite(name: &str) -> WeightsError {
    WeightsError::NotFinite { name: name.to_owned() }
}

/// The bytes of a tensor of this type and shape.
fn raw(
    checkpoint: &Checkpoint,
    name: &str,
    type_name: &str,
    shape: &[usize],
) -> Result<bytes::Bytes, WeightsError> {
    let (place, data) = checkpoint.bytes(name)?;
    if place.type_name != type_name {
        let why = format!("its type is {}, expected {type_name}", place.type_name);
        return Err(WeightsError::Packed { name: name.to_owned(), why });
    }
    check_shape(name, shape, &place.shape)?;
    Ok(data)
}

/// `w = q * scale_inv`, despite the name of the scales.
fn fp8(
    checkpoint: &Checkpoint,
    name: &str,
    parts: &Parts,
    rows: usize,
    columns: usize,
) -> Result<Vec<u8>, WeightsError> {
    let numbers = raw(checkpoint, name, "F8_E4M3", &[rows, columns])?;
    let across = columns.div_ceil(FP8_BLOCK);
    let scales = checkpoint.values(&parts.scale_inv, &[rows.div_ceil(FP8_BLOCK), across])?;
    if numbers.par_chunks(1 << 16).any(|part| part.iter().any(|q| q & 0x7f == 0x7f)) {
        return Err(not_finite(name));
    }
    let row_bytes = WeightFormat::Fp8.row_bytes(columns);
    let mut data = vec![0; rows * row_bytes];
    data.par_chunks_exact_mut(row_bytes).enumerate().for_each(|(row, out)| {
        let numbers = numbers[row * columns..(row + 1) * columns].chunks(FP8_BLOCK);
        let scales = &scales[row / FP8_BLOCK * across..];
        for ((out, numbers), scale) in out.chunks_exact_mut(4 + FP8_BLOCK).zip(numbers).zip(scales) {
            out[..4].copy_from_slice(&scale.to_le_bytes());
            out[4..4 + numbers.len()].copy_from_slice(numbers);
        }
    });
    Ok(data)
}

/// A matrix of four-bit numbers whose scales and zero points belong to groups of inputs.
struct Grouped {
    packing: Packing,
    qweight: bytes::Bytes,
    qzeros: bytes::Bytes,
    /// `[groups, rows]`.
    scales: Vec<f32>,
    group: usize,
    rows: usize,
    columns: usize,
}

impl Grouped {
    fn open(
        packing: Packing,
        checkpoint: &Checkpoint,
        parts: &Parts,
        rows: usize,
        columns: usize,
    ) -> Result<Self, WeightsError> {
        let unsupported = |why: String| WeightsError::Packed { name: parts.qweight.clone(), why };
        if !rows.is_multiple_of(NIBBLES) || !columns.is_multiple_of(NIBBLES) {
            return Err(unsupported(format!("{rows} x {columns} are not whole words of eight numbers")));
        }
        let (place, _) = checkpoint.bytes(&parts.scales)?;
        let n_groups = place.shape.first().copied().unwrap_or_default();
        let group = columns.checked_div(n_groups).unwrap_or_default();
        if group * n_groups != columns || !group.is_multiple_of(INT4_BLOCK) {
            let why = format!(
                "{columns} numbers in {n_groups} groups, expected groups of a multiple of {INT4_BLOCK}"
            );
            return Err(unsupported(why));
        }
        let words = match packing {
            Packing::Awq => [columns, rows / NIBBLES],
            _ => [columns / NIBBLES, rows],
        };
        let g_idx = &parts.g_idx;
        if checkpoint.contains(g_idx) {
            let order = raw(checkpoint, g_idx, "I32", &[columns])?;
            let in_order = order
                .chunks_exact(4)
                .enumerate()
                .all(|(i, b)| i32::from_le_bytes(b.try_into().expect("four bytes")) == (i / group) as i32);
            if !in_order {
                let why = "its inputs are not in the order of their groups (desc_act)".into();
                return Err(WeightsError::Packed { name: g_idx.clone(), why });
            }
        }
        let scales = checkpoint.values(&parts.scales, &[n_groups, rows])?;
        // A block keeps its scale as f16.
        if scales.iter().any(|s| !f16::from_f32(*s).is_finite()) {
            return Err(not_finite(&parts.scales));
        }
        Ok(Self {
            packing,
            qweight: raw(checkpoint, &parts.qweight, "I32", &words)?,
            qzeros: raw(checkpoint, &parts.qzeros, "I32", &[n_groups, rows / NIBBLES])?,
            scales,
            group,
            rows,
            columns,
        })
    }

    fn repack(&self) -> Vec<u8> {
        let row_bytes = WeightFormat::Int4.row_bytes(self.columns);
        let mut data = vec![0; self.rows * row_bytes];
        data.par_chunks_mut(ROWS * row_bytes).enumerate().for_each(|(i, out)| {
            let first = i * ROWS;
            let rows = first..first + out.len() / row_bytes;
            for block in 0..self.columns / INT4_BLOCK {
                self.repack_block(block, rows.clone(), out, row_bytes);
            }
        });
        data
    }

    /// Block `block` of the output rows `rows`, of which `out` is made.
    fn repack_block(&self, block: usize, rows: Range<usize>, out: &mut [u8], row_bytes: usize) {
        let block_bytes = row_bytes / (self.columns / INT4_BLOCK);
        let first = block * INT4_BLOCK;
        let group = first / self.group;
        for row in rows.clone() {
            let header = &mut out[(row - rows.start) * row_bytes + block * block_bytes..][..4];
            header[..2].copy_from_slice(&f16::from_f32(self.scales[group * self.rows + row]).to_le_bytes());
            header[2] = self.zero(group, row) as u8;
        }
        for i in 0..INT4_BLOCK {
            for row in rows.clone() {
                let byte = (row - rows.start) * row_bytes + block * block_bytes + 4 + i % 16;
                out[byte] |= self.number(row, first + i) << (i / 16 * 4);
            }
        }
    }

    fn number(&self, row: usize, column: usize) -> u8 {
        match self.packing {
            Packing::Awq => {
                nibble(&self.qweight, column * self.rows / NIBBLES + row / NIBBLES, awq_place(row))
            }
            _ => nibble(&self.qweight, column / NIBBLES * self.rows + row, column % NIBBLES),
        }
    }

    fn zero(&self, group: usize, row: usize) -> i8 {
        let word = group * self.rows / NIBBLES + row / NIBBLES;
        match self.packing {
            Packing::Awq => nibble(&self.qzeros, word, awq_place(row)) as i8,
            Packing::Gptq { zero_offset } => nibble(&self.qzeros, word, row % NIBBLES) as i8 + zero_offset,
            Packing::Fp8 => unreachable!("FP8 has no zero points"),
        }
    }
}

/// Which nibble of its word an output is.
fn awq_place(row: usize) -> usize {
    AWQ_ORDER.iter().position(|output| *output == row % NIBBLES).expect("the order names all eight")
}

/// Nibble `place` of a little-endian word, the lowest being the first.
fn nibble(words: &[u8], word: usize, place: usize) -> u8 {
    words[4 * word + place / 2] >> (place % 2 * 4) & 15
}

#[cfg(test)]
mod tests;
