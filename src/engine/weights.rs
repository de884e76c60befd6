//! Safetensors by memory map: names, shapes and bytes of a checkpoint, without a copy of it in memory.
//!
//! `open` maps every shard and checks every header; nothing is read from the data part until a tensor is
//! used. On the CPU a weight stays where it is in the map; for a GPU it is uploaded from there.
//! Knows nothing of the model: which names must exist, and in which shapes, is said by the caller.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::built_in;
use super::config::{ConfigError, read_json};

/// Largest safetensors header; the largest known (64,196 tensors) has about 8 MiB.
const HEADER_LIMIT_BYTES: usize = 16 << 20;
/// The largest known repository has 64,196 tensors; a crafted header with many empty ones costs memory.
const MAX_TENSORS: usize = 200_000;
const INDEX_LIMIT_BYTES: u64 = 64 << 20;

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
    Index(#[from] ConfigError),
    #[error("weight {name} is missing from {dir}; the download may be incomplete")]
    Missing { name: String, dir: PathBuf },
    #[error("weight {name} has shape {got:?}, the config says {expected:?}")]
    Shape { name: String, expected: Vec<usize>, got: Vec<usize> },
    #[error("weight {name} is stored as {dtype}, which is not supported yet (expected BF16, F16 or F32)")]
    Dtype { name: String, dtype: String },
    #[error("weight {name} holds values that are not numbers (NaN or infinity); the file is damaged")]
    NotFinite { name: String },
}

/// How the numbers of a weight are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    Bf16,
    F16,
    F32,
}

impl WeightFormat {
    pub fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// Widens stored numbers; `bytes` holds `out.len()` of them, little endian, at any alignment.
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
    pub fn to_f32(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.shape.iter().product()];
        self.format.widen(&self.data, &mut values);
        values
    }

    /// The same numbers as a matrix whose rows have the length of the last axis.
    pub fn into_matrix(self) -> Self {
        let columns = *self.shape.last().expect("a weight has at least one axis");
        let rows = self.shape.iter().rev().skip(1).product();
        Self { shape: vec![rows, columns], ..self }
    }

    /// Some rows of a matrix `[rows, columns]`, still in their place.
    pub fn rows(&self, range: std::ops::Range<usize>) -> Self {
        let columns = self.shape[1];
        let row_bytes = columns * self.format.bytes();
        let data = self.data.slice(range.start * row_bytes..range.end * row_bytes);
        Self { format: self.format, shape: vec![range.len(), columns], data }
    }

    /// Rows `ids` of a matrix `[rows, columns]`, one after the other.
    pub fn gather_rows(&self, ids: &[u32]) -> Vec<f32> {
        let columns = self.shape[1];
        let row_bytes = columns * self.format.bytes();
        let mut rows = vec![0.0; ids.len() * columns];
        for (id, row) in ids.iter().zip(rows.chunks_exact_mut(columns)) {
            let start = *id as usize * row_bytes;
            self.format.widen(&self.data[start..start + row_bytes], row);
        }
        rows
    }
}

struct Entry {
    shard: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    /// Where in the shard's map the numbers are.
    start: usize,
    end: usize,
}

/// All tensors of a model folder.
pub struct Checkpoint {
    dir: PathBuf,
    shards: Vec<bytes::Bytes>,
    entries: HashMap<String, Entry>,
}

impl Checkpoint {
    /// Maps the folder's shards: those that `model.safetensors.index.json` names, else
    /// `model.safetensors`, else the only `.safetensors` file there.
    ///
    /// # Errors
    /// [`WeightsError`] names the file and what is wrong with it.
    pub fn open(dir: &Path) -> Result<Self, WeightsError> {
        let mut checkpoint = Self { dir: dir.to_owned(), shards: Vec::new(), entries: HashMap::new() };
        for path in shard_paths(dir)? {
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
        let header_bytes = match map.get(..8) {
            None => return Err(damaged(format!("it has only {} bytes", map.len()))),
            Some(length) => u64::from_le_bytes(length.try_into().expect("the slice has 8 bytes")),
        };
        let header_end = usize::try_from(header_bytes).ok().and_then(|n| n.checked_add(8));
        let header_end = header_end
            .filter(|end| *end <= HEADER_LIMIT_BYTES && *end <= map.len())
            .ok_or_else(|| damaged(format!("its header claims {header_bytes} bytes of {}", map.len())))?;
        check_header(&map[8..header_end]).map_err(damaged)?;
        let (_, metadata) = SafeTensors::read_metadata(&map).map_err(|e| damaged(e.to_string()))?;

        let shard = self.shards.len();
        let data_len = map.len() - header_end;
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            if end > data_len {
                return Err(damaged(format!("the data of {name} lies outside the file")));
            }
            let entry = Entry {
                shard,
                dtype: info.dtype,
                shape: info.shape.clone(),
                start: header_end + start,
                end: header_end + end,
            };
            if self.entries.insert(name.clone(), entry).is_some() {
                return Err(damaged(format!("it repeats the tensor {name} of another file")));
            }
        }
        self.shards.push(map);
        Ok(())
    }

    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Tells checkpoints apart: by names, types and shapes of all tensors and some numbers of most of them. Two
    /// models of one shape differ in nearly all of their numbers, so it isn't necessary to read them all.
    pub fn fingerprint(&self) -> [u8; 32] {
        const SAMPLES: usize = 4096;
        const SAMPLE_BYTES: usize = 64;
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(name, _)| *name);
        let mut hash = Sha256::new();
        let every = entries.len().div_ceil(SAMPLES).max(1);
        for (i, (name, entry)) in entries.into_iter().enumerate() {
            hash.update(format!("{name} {:?} {:?}\n", entry.dtype, entry.shape));
            if i % every == 0 {
                let data = &self.shards[entry.shard][entry.start..entry.end];
                let middle = data.len() / 2;
                hash.update(&data[middle..data.len().min(middle + SAMPLE_BYTES)]);
            }
        }
        hash.finalize().into()
    }

    /// Bytes of all tensors together.
    pub fn total_bytes(&self) -> u64 {
        self.entries.values().map(|e| (e.end - e.start) as u64).sum()
    }

    /// The tensor `name`, which must have the shape `expected`.
    ///
    /// # Errors
    /// `Missing`, `Shape` or `Dtype`.
    pub fn weight(&self, name: &str, expected: &[usize]) -> Result<Weight, WeightsError> {
        let Some(entry) = self.entries.get(name) else {
            return Err(WeightsError::Missing { name: name.to_owned(), dir: self.dir.clone() });
        };
        if entry.shape != expected {
            return Err(WeightsError::Shape {
                name: name.to_owned(),
                expected: expected.to_vec(),
                got: entry.shape.clone(),
            });
        }
        let format = match entry.dtype {
            Dtype::BF16 => WeightFormat::Bf16,
            Dtype::F16 => WeightFormat::F16,
            Dtype::F32 => WeightFormat::F32,
            other => return Err(WeightsError::Dtype { name: name.to_owned(), dtype: format!("{other:?}") }),
        };
        let data = self.shards[entry.shard].slice(entry.start..entry.end);
        Ok(Weight { format, shape: entry.shape.clone(), data })
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

fn map_file(path: &Path) -> Result<Mmap, WeightsError> {
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

/// Refuses what the safetensors parser lets pass: a tensor named twice, and very many tensors.
fn check_header(header: &[u8]) -> Result<(), String> {
    struct Names(usize);
    impl<'de> serde::de::Visitor<'de> for Names {
        type Value = ();
        fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
            f.write_str("an object of tensors")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            let mut seen = std::collections::HashSet::new();
            while let Some(name) = map.next_key::<String>()? {
                map.next_value::<serde::de::IgnoredAny>()?;
                if seen.len() >= self.0 {
                    return Err(serde::de::Error::custom(format!("more than {} tensors", self.0)));
                }
                if let Some(twice) = seen.replace(name) {
                    return Err(serde::de::Error::custom(format!("the tensor {twice} appears twice")));
                }
            }
            Ok(())
        }
    }
    let mut json = serde_json::Deserializer::from_slice(header);
    serde::Deserializer::deserialize_map(&mut json, Names(MAX_TENSORS)).map_err(|e| e.to_string())
}

fn shard_paths(dir: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let index = dir.join("model.safetensors.index.json");
    if let Some(json) = read_json(&index, INDEX_LIMIT_BYTES)? {
        return indexed_shards(dir, &index, &json);
    }
    let single = dir.join("model.safetensors");
    if single.exists() || built_in::is_built_in(&single) {
        return Ok(vec![single]);
    }
    // Released repositories with one shard name it model.safetensors-00001-of-00001.safetensors.
    let entries = dir.read_dir().map_err(|source| WeightsError::Map { path: dir.to_owned(), source })?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    match found.len() {
        1 => Ok(vec![found.remove(0)]),
        _ => Err(WeightsError::NoWeights(dir.to_owned())),
    }
}

/// The distinct files of an index. Their names come from outside: only plain names in the same folder count.
fn indexed_shards(dir: &Path, index: &Path, json: &Value) -> Result<Vec<PathBuf>, WeightsError> {
    let damaged = |why: String| WeightsError::Damaged { path: index.to_owned(), why };
    let map = json
        .get("weight_map")
        .and_then(Value::as_object)
        .ok_or_else(|| damaged("it has no weight_map".into()))?;
    let mut names: Vec<&str> = Vec::new();
    for shard in map.values() {
        let name = shard.as_str().ok_or_else(|| damaged(format!("{shard} is not a file name")))?;
        if name.contains(['/', '\\', '\0']) || name.starts_with('.') || !name.ends_with(".safetensors") {
            return Err(damaged(format!("{name:?} is not the name of a safetensors file in this folder")));
        }
        names.push(name);
    }
    names.sort_unstable();
    names.dedup();
    let missing = names.iter().find(|name| !dir.join(name).exists());
    match missing {
        Some(name) => Err(WeightsError::MissingShard { shard: (*name).to_owned(), index: index.to_owned() }),
        None => Ok(names.into_iter().map(|name| dir.join(name)).collect()),
    }
}

#[cfg(test)]
mod tests;
