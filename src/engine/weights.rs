//! Weights by memory map: names, shapes and bytes of a checkpoint, without a copy of it in memory.
//!
//! `open` maps every file and checks every header; nothing is read from the data part until a tensor is
//! used. On the CPU a weight stays where it is in the map; for a GPU it is uploaded from there. Only numbers whose
//! scales are in other tensors (`packed.rs`) are put together in memory.
//! Whatever the files are, tensors have the names, shapes and values of the original checkpoint in Hub layout.
//! Knows nothing of the model: which names must exist, and in which shapes, is said by the caller.

pub mod blocks;
pub mod groups;
mod packed;
pub mod panels;
pub mod quantise;
pub mod quantised;
mod safetensors;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use half::{bf16, f16};
use memmap2::Mmap;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use self::groups::Group;
use self::packed::Packing;
use self::quantised::{Bits, Copies};
use super::built_in;
use super::config::ConfigError;
use super::gguf::GgufError;
use super::gguf::folder;
use super::gguf::names::{Change, Names, Source};
use crate::units::hex;

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error(
        "{0} holds no model.safetensors (or model.safetensors.index.json); the download may be incomplete"
    )]
    NoWeights(PathBuf),
    #[error("{shard} is named by {index} but missing; the download may be incomplete")]
    MissingShard { shard: String, index: PathBuf },
    #[error("cannot map {path}: {source}")]
    Map { path: PathBuf, source: io::Error },
    #[error("{path} is damaged: {why}; download it again")]
    Damaged { path: PathBuf, why: String },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("weight {name} is missing from {dir}; the download may be incomplete")]
    Missing { name: String, dir: PathBuf },
    #[error("weight {name} has shape {got:?}, the config says {expected:?}")]
    Shape { name: String, expected: Vec<usize>, got: Vec<usize> },
    #[error(
        "weight {name} is stored as {dtype}, which is not supported; take a file with other types, such as BF16, Q8_0 or Q4_K"
    )]
    Dtype { name: String, dtype: String },
    #[error("weight {name} is packed in a way that is not supported: {why}")]
    Packed { name: String, why: String },
    #[error("weight {name} holds values that are not numbers (NaN or infinity); the file is damaged")]
    NotFinite { name: String },
}

/// How the numbers of a weight are stored: one by one, or in blocks that share scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    Bf16,
    F16,
    F32,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
    /// Blocks of our own: an f32 scale and 128 numbers of eight bits.
    Fp8,
    /// Blocks of our own: a scale, a zero point and 32 numbers of four bits.
    Int4,
    /// Our own quantised form in eight bits, sixteen rows side by side, see [`panels`].
    Q8Panels,
    /// The same in four bits.
    Q4Panels,
}

impl WeightFormat {
    /// Whether each number stands for itself. Such formats are all that a GPU gets.
    pub fn is_plain(self) -> bool {
        self.block() == 1
    }

    /// Whether rows stand side by side, so that none of them is a piece of memory.
    pub fn is_panels(self) -> bool {
        matches!(self, Self::Q8Panels | Self::Q4Panels)
    }

    /// Numbers of a block.
    pub const fn block(self) -> usize {
        blocks::layout(self).0
    }

    /// Bytes of a row. Every row begins with a new block. Of panels, which are whole, it is a row's share.
    pub fn row_bytes(self, columns: usize) -> usize {
        let (block, bytes) = blocks::layout(self);
        columns.div_ceil(block) * bytes
    }

    /// The same for a row whose length comes from a file.
    pub fn checked_row_bytes(self, columns: usize) -> Option<usize> {
        let (block, bytes) = blocks::layout(self);
        columns.div_ceil(block).checked_mul(bytes)
    }

    /// Widens stored numbers of one row, or of several whose blocks are full; little endian, at any alignment.
    pub fn widen(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::Bf16 => {
                for (value, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *value = bf16::from_le_bytes([b[0], b[1]]).to_f32();
                }
            }
            Self::F16 => {
                for (value, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *value = f16::from_le_bytes([b[0], b[1]]).to_f32();
                }
            }
            Self::F32 => {
                for (value, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                    *value = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
            }
            _ => blocks::widen(self, bytes, out),
        }
    }
}

/// One tensor of a checkpoint, still in its file.
#[derive(Debug, Clone)]
pub struct Weight {
    pub format: WeightFormat,
    pub shape: Vec<usize>,
    /// The numbers, little endian. A slice of the memory map, which it keeps alive.
    pub data: bytes::Bytes,
}

impl Weight {
    pub fn from_f32(values: impl IntoIterator<Item = f32>, shape: Vec<usize>) -> Self {
        let data: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
        Self { format: WeightFormat::F32, shape, data: data.into() }
    }

    pub fn to_f32(&self) -> Vec<f32> {
        let columns = *self.shape.last().expect("a weight has at least one axis");
        let mut values = vec![0.0; self.shape.iter().product()];
        if self.format.is_panels() {
            panels::widen_rows(self.format, &self.data, 0..values.len() / columns, columns, &mut values);
            return values;
        }
        let rows = self.data.chunks_exact(self.format.row_bytes(columns));
        for (row, values) in rows.zip(values.chunks_exact_mut(columns)) {
            self.format.widen(row, values);
        }
        values
    }

    /// The same numbers as a matrix whose rows have the length of the last axis.
    pub fn into_matrix(self) -> Self {
        let columns = *self.shape.last().expect("a weight has at least one axis");
        let rows = self.shape.iter().rev().skip(1).product();
        Self { shape: vec![rows, columns], ..self }
    }

    /// Some rows of a matrix `[rows, columns]`, still in their place: whole panels, if it has them.
    pub fn rows(&self, range: Range<usize>) -> Self {
        let columns = self.shape[1];
        let row_bytes = self.format.row_bytes(columns);
        let end = if self.format.is_panels() { range.end.next_multiple_of(panels::ROWS) } else { range.end };
        let data = self.data.slice(range.start * row_bytes..end * row_bytes);
        Self { format: self.format, shape: vec![range.len(), columns], data }
    }

    /// Rows `ids` of a matrix `[rows, columns]`, one after the other.
    pub fn gather_rows(&self, ids: &[u32]) -> Vec<f32> {
        let columns = self.shape[1];
        let row_bytes = self.format.row_bytes(columns);
        let mut rows = vec![0.0; ids.len() * columns];
        for (id, row) in ids.iter().zip(rows.chunks_exact_mut(columns)) {
            if self.format.is_panels() {
                panels::widen_row(self.format, &self.data, *id as usize, columns, row);
                continue;
            }
            let start = *id as usize * row_bytes;
            self.format.widen(&self.data[start..start + row_bytes], row);
        }
        rows
    }
}

/// Where the numbers of a tensor are, and how they are stored.
struct Place {
    /// As the file calls the type.
    type_name: String,
    /// `None` for types that are not read by themselves.
    format: Option<WeightFormat>,
    shape: Vec<usize>,
    /// In the map of its shard.
    range: Range<usize>,
}

impl Place {
    fn plain_format(&self, name: &str) -> Result<WeightFormat, WeightsError> {
        self.format
            .ok_or_else(|| WeightsError::Dtype { name: name.to_owned(), dtype: self.type_name.clone() })
    }
}

struct Entry {
    shard: usize,
    place: Place,
}

/// What there is to say about a stored tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorFacts<'a> {
    pub name: &'a str,
    pub group: Group,
    pub type_name: &'a str,
    pub shape: &'a [usize],
    /// In the file.
    pub bytes: u64,
    /// How its numbers are held once they are loaded; `None` of types that aren't read.
    pub format: Option<WeightFormat>,
    /// Numbers of the model that it holds: of a packed matrix more than `shape` says, of its scales none.
    pub parameters: u64,
}

impl TensorFacts<'_> {
    /// What it takes in memory: on the CPU its pages of the file, or what is put together from it; on a GPU, which
    /// gets plain numbers only, f32 for each number in a block. Plain matrices are quantised to `bits`, if given.
    pub fn loaded_bytes(&self, is_gpu: bool, bits: Option<Bits>) -> u64 {
        let plain = self.format.filter(|format| format.is_plain());
        if let Some(format) =
            plain.and(bits).and_then(|bits| quantised::format_of(self.name, self.group, self.shape, bits))
            && let Some((columns, rows)) = self.shape.split_last()
        {
            return panels::bytes(format, rows.iter().product(), *columns) as u64;
        }
        match self.format {
            None => 0,
            Some(format) if format.is_plain() => self.bytes,
            Some(_) if is_gpu => self.parameters.saturating_mul(size_of::<f32>() as u64),
            Some(format @ (WeightFormat::Fp8 | WeightFormat::Int4)) => {
                let (block, bytes) = blocks::layout(format);
                self.parameters.div_ceil(block as u64).saturating_mul(bytes as u64)
            }
            Some(_) => self.bytes,
        }
    }
}

/// Converters drop axes of length one, and put them back elsewhere.
fn check_shape(name: &str, expected: &[usize], got: &[usize]) -> Result<(), WeightsError> {
    let wide = |shape: &[usize]| shape.iter().copied().filter(|n| *n != 1).collect::<Vec<_>>();
    match wide(expected) == wide(got) {
        true => Ok(()),
        false => {
            Err(WeightsError::Shape { name: name.to_owned(), expected: expected.to_vec(), got: got.to_vec() })
        }
    }
}

/// All tensors of a model.
pub struct Checkpoint {
    dir: PathBuf,
    shards: Vec<bytes::Bytes>,
    /// When each file was last written to.
    modified: Vec<Option<SystemTime>>,
    /// By the names in the files.
    entries: HashMap<String, Entry>,
    /// Of a GGUF file: what its tensors are called in the original.
    names: Option<Names>,
    /// Of GGUF files: what they are, for people.
    pub description: Option<String>,
    /// Of a quantised checkpoint in Hub layout: how its numbers are packed.
    packing: Option<Packing>,
    /// Our own quantised form of its plain matrices, if that is wanted.
    copies: Option<Copies>,
}

impl Checkpoint {
    /// Maps the files of a model and checks their headers.
    ///
    /// # Errors
    /// [`WeightsError`] names the file and what is wrong with it.
    pub fn open(dir: &Path) -> Result<Self, WeightsError> {
        let mut checkpoint = Self {
            dir: dir.to_owned(),
            shards: Vec::new(),
            modified: Vec::new(),
            entries: HashMap::new(),
            names: None,
            description: None,
            packing: None,
            copies: None,
        };
        if let Some(files) = folder::find(dir)? {
            checkpoint.add_gguf(&files)?;
            return Ok(checkpoint);
        }
        checkpoint.packing = Packing::open(dir)?;
        for path in safetensors::shard_paths(dir)? {
            checkpoint.add_shard(&path)?;
        }
        Ok(checkpoint)
    }

    fn add_shard(&mut self, path: &Path) -> Result<(), WeightsError> {
        let map = match built_in::file(path) {
            Some(bytes) => bytes::Bytes::from_static(bytes),
            None => bytes::Bytes::from_owner(map_file(path)?),
        };
        let damaged = |why: String| WeightsError::Damaged { path: path.to_owned(), why };
        for (name, place) in safetensors::read_header(&map).map_err(damaged)? {
            self.add(name, place).map_err(damaged)?;
        }
        self.shards.push(map);
        self.modified.push(modified(path));
        Ok(())
    }

    fn add_gguf(&mut self, files: &folder::Files) -> Result<(), WeightsError> {
        let shards = files.open()?;
        self.names = Some(Names::new(&shards[0]));
        self.description = Some(folder::describe(&shards));
        for shard in shards {
            let damaged = |why: String| WeightsError::Damaged { path: shard.path.clone(), why };
            for tensor in shard.tensors {
                let place = Place {
                    type_name: tensor.kind.name.into(),
                    format: tensor.kind.format,
                    shape: tensor.shape,
                    range: tensor.data,
                };
                self.add(tensor.name, place).map_err(damaged)?;
            }
            self.shards.push(shard.map);
            self.modified.push(modified(&shard.path));
        }
        Ok(())
    }

    /// Adds a tensor of the shard that is added next.
    fn add(&mut self, name: String, place: Place) -> Result<(), String> {
        let repeated = format!("it repeats the tensor {name} of another file");
        match self.entries.insert(name, Entry { shard: self.shards.len(), place }) {
            Some(_) => Err(repeated),
            None => Ok(()),
        }
    }

    /// Whether there is a tensor of this name, which is that of the original checkpoint in every format.
    pub fn contains(&self, name: &str) -> bool {
        match &self.names {
            Some(names) => names.source(name).is_some_and(|source| self.entries.contains_key(&source.tensor)),
            None => {
                self.entries.contains_key(name)
                    || packed::parts(name).is_some_and(|parts| self.entries.contains_key(&parts.qweight))
            }
        }
    }

    /// Tells checkpoints apart: by names, types and shapes of all tensors, some numbers of most of them, and when the
    /// files were last written to. Two models of one shape differ in nearly all of their numbers, and an edit of few
    /// changes the time, so it isn't necessary to read them all.
    pub fn fingerprint(&self) -> [u8; 32] {
        const SAMPLES: usize = 4096;
        const SAMPLE_BYTES: usize = 64;
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(name, _)| *name);
        let mut hash = Sha256::new();
        hash.update(format!("{:?}\n", self.modified));
        let every = entries.len().div_ceil(SAMPLES).max(1);
        for (i, (name, entry)) in entries.into_iter().enumerate() {
            let Entry { shard, place } = entry;
            hash.update(format!("{name} {} {:?}\n", place.type_name, place.shape));
            if i % every == 0 {
                let data = &self.shards[*shard][place.range.clone()];
                let middle = data.len() / 2;
                hash.update(&data[middle..data.len().min(middle + SAMPLE_BYTES)]);
            }
        }
        hash.finalize().into()
    }

    /// The first tensor, by name, that has a value which is not a number.
    pub fn first_not_finite(&self) -> Option<String> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(name, _)| *name);
        let is_bad = |entry: &Entry| {
            let columns = entry.place.shape.last().filter(|columns| **columns > 0);
            let (Some(format), Some(columns)) = (entry.place.format, columns) else { return false };
            let data = &self.shards[entry.shard][entry.place.range.clone()];
            data.par_chunks_exact(format.row_bytes(*columns)).any(|row| {
                let mut values = vec![0.0; *columns];
                format.widen(row, &mut values);
                values.iter().any(|value| !value.is_finite())
            })
        };
        entries.into_iter().find(|(_, entry)| is_bad(entry)).map(|(name, _)| name.clone())
    }

    /// Files that the tensors are in.
    pub fn n_files(&self) -> usize {
        self.shards.len()
    }

    /// What kind of files they are.
    pub fn container(&self) -> &'static str {
        match self.names {
            Some(_) => "GGUF",
            None => "safetensors",
        }
    }

    /// How a quantised checkpoint in Hub layout is packed.
    pub fn packing(&self) -> Option<&'static str> {
        self.packing.map(Packing::name)
    }

    /// Bytes of all tensors together.
    pub fn total_bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.place.range.len() as u64).sum()
    }

    /// All tensors as they are in the files, by name.
    pub fn tensors(&self) -> Vec<TensorFacts<'_>> {
        let entries = self.entries.iter();
        let mut tensors: Vec<TensorFacts> = entries
            .map(|(name, Entry { place, .. })| {
                let (format, per_element) = match &self.packing {
                    Some(packing) => packing.held_as(name, place),
                    None => (place.format, 1),
                };
                let elements = place.shape.iter().fold(1u64, |product, n| product.saturating_mul(*n as u64));
                TensorFacts {
                    name,
                    group: match &self.names {
                        Some(names) => Group::of_gguf(name, names.trunk_layers()),
                        None => Group::of_hub(name),
                    },
                    type_name: &place.type_name,
                    shape: &place.shape,
                    bytes: place.range.len() as u64,
                    format,
                    parameters: elements.saturating_mul(per_element),
                }
            })
            .collect();
        tensors.sort_unstable_by_key(|tensor| tensor.name);
        tensors
    }

    /// Whether value head `h` belongs to key head `h mod n` of `n`, and not to `h / r` of groups of `r` as in the
    /// original: GGUF files have them in that order.
    pub fn has_tiled_value_heads(&self) -> bool {
        self.names.as_ref().is_some_and(Names::has_tiled_value_heads)
    }

    /// Has plain matrices quantised from now on. `folder` keeps them for the next time.
    pub fn quantise(&mut self, bits: Bits, folder: Option<&Path>) {
        self.copies = Some(Copies::open(folder, &self.short_name(), bits, self.entries.len()));
    }

    /// What quantising cost each tensor, if that is known from an earlier time.
    pub fn quantisation_errors(&self, bits: Bits, folder: &Path) -> Option<BTreeMap<String, f64>> {
        quantised::errors(folder, &self.short_name(), bits)
    }

    fn short_name(&self) -> String {
        hex(&self.fingerprint()[..8])
    }

    pub fn copies(&self) -> Option<&Copies> {
        self.copies.as_ref()
    }

    /// The tensor `name`, which must have the shape `expected`.
    ///
    /// # Errors
    /// `Missing`, `Shape`, `Dtype` or, of numbers whose scales are in other tensors, what is wrong with those.
    pub fn weight(&self, name: &str, expected: &[usize]) -> Result<Weight, WeightsError> {
        let plain = || self.unchanged(name, expected);
        let quantised = self.copies.as_ref().and_then(|copies| {
            let format = quantised::format_of(name, Group::of_hub(name), expected, copies.bits)?;
            Some(copies.get(name, expected, format, plain))
        });
        quantised.unwrap_or_else(plain)
    }

    fn unchanged(&self, name: &str, expected: &[usize]) -> Result<Weight, WeightsError> {
        match (&self.names, &self.packing) {
            (Some(names), _) => self.gguf_weight(names, name, expected),
            (None, Some(packing)) => match packing.unpack(self, name, expected)? {
                Some(weight) => Ok(weight),
                None => self.stored(name, expected),
            },
            (None, None) => self.stored(name, expected),
        }
    }

    /// A tensor as it is stored.
    fn stored(&self, name: &str, expected: &[usize]) -> Result<Weight, WeightsError> {
        let (place, data) = self.bytes(name)?;
        check_shape(name, expected, &place.shape)?;
        Ok(Weight { format: place.plain_format(name)?, shape: expected.to_vec(), data })
    }

    /// Where a tensor is, and its bytes, by its name in the file.
    fn bytes(&self, name: &str) -> Result<(&Place, bytes::Bytes), WeightsError> {
        let Some(Entry { shard, place }) = self.entries.get(name) else {
            return Err(WeightsError::Missing { name: name.to_owned(), dir: self.dir.clone() });
        };
        Ok((place, self.shards[*shard].slice(place.range.clone())))
    }

    /// A tensor of a GGUF file, with what its converter did to it undone.
    fn gguf_weight(&self, names: &Names, name: &str, expected: &[usize]) -> Result<Weight, WeightsError> {
        let Some(Source { tensor, expert, change }) = names.source(name) else {
            return Err(WeightsError::Missing { name: name.to_owned(), dir: self.dir.clone() });
        };
        if change == Change::SplitFrames {
            return self.joined_frames(&tensor, expected);
        }
        let (place, mut data) = self.bytes(&tensor)?;
        let mut shape = place.shape.as_slice();
        if let Some(expert) = expert {
            let (n, rest) = (shape[0], &shape[1..]);
            if rest.is_empty() || expert >= n {
                return Err(WeightsError::Missing {
                    name: format!("{tensor}[{expert}]"),
                    dir: self.dir.clone(),
                });
            }
            let bytes = data.len() / n;
            data = data.slice(expert * bytes..(expert + 1) * bytes);
            shape = rest;
        }
        check_shape(&tensor, expected, shape)?;
        let weight = Weight { format: place.plain_format(&tensor)?, shape: expected.to_vec(), data };
        let undo: fn(f32) -> f32 = match change {
            Change::None | Change::SplitFrames => return Ok(weight),
            Change::PlusOne => |w| w - 1.0,
            Change::MinusExp => |a| f64::from(-a).ln() as f32,
        };
        Ok(Weight::from_f32(weight.to_f32().into_iter().map(undo), weight.shape))
    }

    /// The kernel of the patches `[out, colours, frames, rows, columns]`, which GGUF has in a tensor per frame.
    fn joined_frames(&self, tensor: &str, expected: &[usize]) -> Result<Weight, WeightsError> {
        let [out, colours, frames, rows, columns] = expected else {
            return Err(WeightsError::Missing { name: tensor.to_owned(), dir: self.dir.clone() });
        };
        let plane = rows * columns;
        let mut values = vec![0.0; expected.iter().product()];
        for frame in 0..*frames {
            let name = if frame == 0 { tensor.to_owned() } else { format!("{tensor}.{frame}") };
            let part = self.stored(&name, &[*out, *colours, *rows, *columns])?.to_f32();
            for (i, plane_values) in part.chunks_exact(plane).enumerate() {
                values[(i * frames + frame) * plane..][..plane].copy_from_slice(plane_values);
            }
        }
        Ok(Weight::from_f32(values, expected.to_vec()))
    }

    /// A small tensor as f32 values, each of which must be a finite number.
    ///
    /// # Errors
    /// Those of [`Self::weight`], or `NotFinite`.
    pub fn values(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, WeightsError> {
        let values = self.weight(name, expected)?.to_f32();
        match values.iter().all(|v| v.is_finite()) {
            true => Ok(values),
            false => Err(WeightsError::NotFinite { name: name.to_owned() }),
        }
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

pub(super) fn map_file(path: &Path) -> Result<Mmap, WeightsError> {
    let map_error = |source| WeightsError::Map { path: path.to_owned(), source };
    // Before it is opened: opening a pipe would wait for somebody to write into it.
    if !path.metadata().map_err(map_error)?.is_file() {
        let why = "it is not a regular file".into();
        return Err(WeightsError::Damaged { path: path.to_owned(), why });
    }
    let file = File::open(path).map_err(map_error)?;
    // SAFETY: the map is read-only. Another process that truncates the file while it is mapped would stop this
    // one; every engine that maps weights accepts that, since the alternative is a copy.
    unsafe { Mmap::map(&file) }.map_err(map_error)
}

#[cfg(test)]
mod tests;
