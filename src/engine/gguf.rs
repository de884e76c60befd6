//! GGUF: a whole model in one file. Its header, checked, and where in the file each tensor is.
//!
//! Keys and tensors are looked up in the memory map; only names are copied, so a file with a long list costs no
//! more than one with a short one. Knows nothing of what keys and tensors mean: `gguf/folder.rs` and
//! `gguf/names.rs` do.
//! Source: the GGUF specification of the ggml project, versions 2 and 3.

pub mod folder;
pub mod names;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::weights::{WeightFormat, map_file};

/// Ten times what the largest known files have.
const MAX_KEYS: u64 = 4_096;
const MAX_TENSORS: u64 = 200_000;
/// Of a key or a tensor. The format allows 64 KiB for keys and 64 bytes for tensors.
const MAX_NAME_BYTES: u64 = 1_024;
/// Texts of all lists together, and their bytes: a tokenizer has half a million of some bytes each.
const MAX_TEXTS: u64 = 1 << 20;
const MAX_TEXT_BYTES: usize = 64 << 20;
const MAX_AXES: u32 = 4;
/// Where tensors begin, unless the file says otherwise.
const DEFAULT_ALIGNMENT: u64 = 32;

#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    #[error("cannot open {path}: {reason}")]
    Open { path: PathBuf, reason: String },
    #[error("{path} is not a GGUF file that can be used: {why}; download it again")]
    Damaged { path: PathBuf, why: String },
    #[error("{path}: {what} is not supported; Loquat runs GGUF files of the Qwen3.5 family")]
    NotSupported { path: PathBuf, what: String },
    #[error("{dir} holds several models ({}); name one of them with --model", .names.join(", "))]
    Several { dir: PathBuf, names: Vec<String> },
}

/// One file.
pub struct Gguf {
    pub path: PathBuf,
    pub map: bytes::Bytes,
    keys: HashMap<String, Value>,
    pub tensors: Vec<TensorInfo>,
}

#[derive(Debug, Clone)]
pub struct TensorInfo {
    pub name: String,
    pub kind: Kind,
    /// The slowest axis first, as everywhere but in this format.
    pub shape: Vec<usize>,
    /// Where in the file the numbers are.
    pub data: Range<usize>,
}

/// A tensor's type: its name, and how we read it, if we do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    pub format: Option<WeightFormat>,
}

/// A key's value; texts and lists stay in the file.
#[derive(Debug, Clone)]
enum Value {
    Whole(i128),
    Float(f64),
    Bool(bool),
    Text(Range<usize>),
    /// A list of values of one type; the range begins at the first of them.
    List {
        kind: u32,
        count: u64,
        range: Range<usize>,
    },
}

const TEXT: u32 = 8;
const LIST: u32 = 9;

impl Gguf {
    /// Maps a file and checks its header.
    ///
    /// # Errors
    /// `Open`, or `Damaged` with what is wrong.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let map = map_file(path)
            .map_err(|error| GgufError::Open { path: path.to_owned(), reason: error.to_string() })?;
        Self::parse(path, bytes::Bytes::from_owner(map))
            .map_err(|why| GgufError::Damaged { path: path.to_owned(), why })
    }

    fn parse(path: &Path, map: bytes::Bytes) -> Result<Self, String> {
        let mut reader = Reader { bytes: &map, at: 0, texts: MAX_TEXTS };
        if reader.take(4)? != b"GGUF" {
            return Err("it doesn't begin with GGUF".into());
        }
        match reader.u32()? {
            2 | 3 => {}
            version if (2..=3).contains(&version.swap_bytes()) => {
                return Err("it is written for big-endian machines".into());
            }
            version => return Err(format!("it has version {version}, expected 2 or 3")),
        }
        let n_tensors = reader.count("tensors", MAX_TENSORS)?;
        let n_keys = reader.count("keys", MAX_KEYS)?;

        let mut keys = HashMap::new();
        for _ in 0..n_keys {
            let key = reader.name()?;
            let kind = reader.u32()?;
            let value = reader.value(kind)?;
            if keys.insert(key.clone(), value).is_some() {
                return Err(format!("the key {key} appears twice"));
            }
        }
        let alignment = match keys.get("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(Value::Whole(n @ 1..=65_536)) if (*n as u64).is_power_of_two() => *n as u64,
            Some(_) => return Err("general.alignment is not a power of two up to 65536".into()),
        };

        let mut tensors = Vec::new();
        let mut names = HashSet::new();
        for _ in 0..n_tensors {
            let name = reader.name()?;
            if !names.insert(name.clone()) {
                return Err(format!("the tensor {name} appears twice"));
            }
            tensors.push((name, reader.shape()?, reader.u32()?, reader.u64()?));
        }
        let data_start = (reader.at as u64).next_multiple_of(alignment);
        let tensors = tensors
            .into_iter()
            .map(|(name, shape, kind, offset)| {
                let data = data_range(&shape, kind, offset, alignment, data_start, map.len())
                    .map_err(|why| format!("the tensor {name} {why}"))?;
                Ok(TensorInfo { name, kind: Kind::of(kind), shape, data })
            })
            .collect::<Result<Vec<_>, String>>()?;
        refuse_overlap(&tensors)?;
        Ok(Self { path: path.to_owned(), keys, tensors, map })
    }

    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match self.keys.get(key)? {
            Value::Text(range) => std::str::from_utf8(&self.map[range.clone()]).ok(),
            _ => None,
        }
    }

    /// A whole number that is not negative.
    pub fn whole(&self, key: &str) -> Option<u64> {
        match self.keys.get(key)? {
            Value::Whole(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    pub fn float(&self, key: &str) -> Option<f64> {
        match self.keys.get(key)? {
            Value::Float(x) => Some(*x),
            Value::Whole(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// A list of numbers; a single number is a list of one.
    pub fn numbers(&self, key: &str) -> Option<Vec<f64>> {
        let number = |value: &Value| match value {
            Value::Whole(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            Value::Bool(b) => Some(f64::from(u8::from(*b))),
            _ => None,
        };
        match self.keys.get(key)? {
            Value::List { kind, count, range } if *kind != TEXT && *count <= MAX_TEXTS => {
                let mut reader = Reader { bytes: &self.map, at: range.start, texts: 0 };
                (0..*count).map(|_| number(&reader.value(*kind).ok()?)).collect()
            }
            one => number(one).map(|one| vec![one]),
        }
    }

    /// A list of texts.
    pub fn texts(&self, key: &str) -> Option<Vec<&str>> {
        let Value::List { kind: TEXT, count, range } = self.keys.get(key)? else { return None };
        let mut reader = Reader { bytes: &self.map, at: range.start, texts: MAX_TEXTS };
        (0..*count).map(|_| std::str::from_utf8(&self.map[reader.text().ok()?]).ok()).collect()
    }
}

impl Kind {
    fn of(id: u32) -> Self {
        use WeightFormat::*;
        let known = |name, format| Self { name, format: Some(format) };
        match id {
            0 => known("F32", F32),
            1 => known("F16", F16),
            2 => known("Q4_0", Q4_0),
            3 => known("Q4_1", Q4_1),
            6 => known("Q5_0", Q5_0),
            7 => known("Q5_1", Q5_1),
            8 => known("Q8_0", Q8_0),
            12 => known("Q4_K", Q4K),
            13 => known("Q5_K", Q5K),
            14 => known("Q6_K", Q6K),
            30 => known("BF16", Bf16),
            _ => Self { name: unread_name(id), format: None },
        }
    }
}

/// Names of the types that we don't read, so that an error can say which it is.
fn unread_name(id: u32) -> &'static str {
    match id {
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24..=27 => "integers",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        40 => "NVFP4",
        _ => "an unknown type",
    }
}

/// Where a tensor's numbers are; of a type we don't read, only that they begin inside the file.
fn data_range(
    shape: &[usize],
    kind: u32,
    offset: u64,
    alignment: u64,
    data_start: u64,
    file_len: usize,
) -> Result<Range<usize>, String> {
    if !offset.is_multiple_of(alignment) {
        return Err(format!("begins at {offset}, which is not a multiple of {alignment}"));
    }
    let columns = *shape.last().expect("a shape has at least one axis");
    let rows = shape[..shape.len() - 1].iter().try_fold(1usize, |rows, n| rows.checked_mul(*n));
    let bytes = match Kind::of(kind).format {
        None => Some(0),
        Some(format) => {
            if !columns.is_multiple_of(format.block()) {
                return Err(format!("has rows of {columns} numbers, not whole blocks of {}", format.block()));
            }
            rows.and_then(|rows| rows.checked_mul(format.checked_row_bytes(columns)?))
        }
    };
    let range = || {
        let start = usize::try_from(data_start.checked_add(offset)?).ok()?;
        let end = start.checked_add(bytes?)?;
        (end <= file_len).then_some(start..end)
    };
    range().ok_or_else(|| "lies outside the file".into())
}

fn refuse_overlap(tensors: &[TensorInfo]) -> Result<(), String> {
    let mut sorted: Vec<&TensorInfo> = tensors.iter().filter(|tensor| !tensor.data.is_empty()).collect();
    sorted.sort_unstable_by_key(|tensor| tensor.data.start);
    match sorted.windows(2).find(|pair| pair[1].data.start < pair[0].data.end) {
        Some(pair) => Err(format!("the tensors {} and {} overlap", pair[0].name, pair[1].name)),
        None => Ok(()),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many more texts lists may have.
    texts: u64,
}

impl<'a> Reader<'a> {
    fn range(&mut self, n: u64) -> Result<Range<usize>, String> {
        let end = usize::try_from(n).ok().and_then(|n| self.at.checked_add(n));
        let end = end
            .filter(|end| *end <= self.bytes.len())
            .ok_or_else(|| format!("it ends inside its header, after {} bytes", self.bytes.len()))?;
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8], String> {
        self.range(n).map(|range| &self.bytes[range])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N as u64)?.try_into().expect("that many bytes were taken"))
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn count(&mut self, what: &str, most: u64) -> Result<u64, String> {
        match self.u64()? {
            n if n <= most => Ok(n),
            n => Err(format!("it claims {n} {what}, more than {most}")),
        }
    }

    fn text(&mut self) -> Result<Range<usize>, String> {
        match self.u64()? {
            n if n <= MAX_TEXT_BYTES as u64 => self.range(n),
            n => Err(format!("it claims a text of {n} bytes, more than {MAX_TEXT_BYTES}")),
        }
    }

    fn name(&mut self) -> Result<String, String> {
        let n = self.count("bytes of a name", MAX_NAME_BYTES)?;
        let name = std::str::from_utf8(self.take(n)?).map_err(|_| "a name is not UTF-8 text")?;
        Ok(name.to_owned())
    }

    /// Axes, the slowest first.
    fn shape(&mut self) -> Result<Vec<usize>, String> {
        let n_axes = self.u32()?;
        if !(1..=MAX_AXES).contains(&n_axes) {
            return Err(format!("a tensor has {n_axes} axes"));
        }
        let axes = (0..n_axes).map(|_| {
            let n = self.u64()?;
            usize::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| format!("a tensor has an axis of {n}"))
        });
        let mut shape = axes.collect::<Result<Vec<_>, String>>()?;
        shape.reverse();
        Ok(shape)
    }

    fn value(&mut self, kind: u32) -> Result<Value, String> {
        Ok(match kind {
            0 => Value::Whole(self.array().map(u8::from_le_bytes)?.into()),
            1 => Value::Whole(self.array().map(i8::from_le_bytes)?.into()),
            2 => Value::Whole(self.array().map(u16::from_le_bytes)?.into()),
            3 => Value::Whole(self.array().map(i16::from_le_bytes)?.into()),
            4 => Value::Whole(self.u32()?.into()),
            5 => Value::Whole(self.array().map(i32::from_le_bytes)?.into()),
            6 => Value::Float(decimal(self.array().map(f32::from_le_bytes)?)),
            7 => Value::Bool(self.array::<1>()? != [0]),
            TEXT => Value::Text(self.text()?),
            LIST => self.list()?,
            10 => Value::Whole(self.u64()?.into()),
            11 => Value::Whole(self.array().map(i64::from_le_bytes)?.into()),
            12 => Value::Float(self.array().map(f64::from_le_bytes)?),
            _ => return Err(format!("a key has a value of the unknown type {kind}")),
        })
    }

    fn list(&mut self) -> Result<Value, String> {
        let kind = self.u32()?;
        let count = self.u64()?;
        let start = self.at;
        let size = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            TEXT => {
                let left = self.texts.checked_sub(count);
                self.texts = left.ok_or_else(|| format!("a list claims {count} texts"))?;
                for _ in 0..count {
                    self.text()?;
                    if self.at - start > MAX_TEXT_BYTES {
                        return Err(format!("a list of texts has more than {MAX_TEXT_BYTES} bytes"));
                    }
                }
                return Ok(Value::List { kind, count, range: start..self.at });
            }
            LIST => return Err("a key has a list of lists, which no model of this family needs".into()),
            _ => return Err(format!("a key has a list of the unknown type {kind}")),
        };
        let bytes = count.checked_mul(size).ok_or_else(|| format!("a list claims {count} numbers"))?;
        Ok(Value::List { kind, count, range: self.range(bytes)? })
    }
}

/// The shortest decimal of an f32, which is the number that was written into the model's config: 0.000001 and not
/// 0.00000099999999748.
fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or_else(|_| x.into())
}

#[cfg(test)]
mod tests;
