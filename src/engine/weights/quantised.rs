//! Which weights are quantised on load, and the copy of them on disk that the next start maps.
//!
//! The copy is a safetensors file, named after the checkpoint that it was made from, the bits and the version of the
//! layout. Its tensors are bytes in panels (`panels.rs`); the metadata says of each its format, its shape, the error
//! that was measured when it was made, and a checksum, which is compared at each start: a weight that has changed on
//! disk would make wrong answers and nobody would see it. Data begins at a multiple of 64 bytes, behind a header whose room was
//! reserved before the names were known. A file that isn't finished has another name and is never read.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

use rayon::prelude::*;
use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::super::unfinished;
use super::groups::Group;
use super::panels;
use super::quantise::{Quantised, quantise};
use super::{Weight, WeightFormat, WeightsError, map_file};

/// To be changed with the layout of panels, the rules below or the search for scales.
const VERSION: u32 = 2;
const EXTENSION: &str = "safetensors";
/// Room in the header for each tensor: its name twice, and what is said of it.
const HEADER_BYTES_PER_TENSOR: usize = 512;
/// A tensor that would lose more stays as it is: its numbers are too large for scales in f16.
const MOST_ERROR: f64 = 0.5;
/// Name under which the metadata says what the file is.
const ABOUT: &str = "loquat";

/// How many bits a weight has after loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quant {
    /// Whatever fits: as stored, else eight bits, else four.
    #[default]
    Auto,
    /// As in the files.
    None,
    To(Bits),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bits {
    Eight,
    /// With eight for what suffers most.
    Four,
}

impl Bits {
    pub fn name(self) -> &'static str {
        match self {
            Self::Eight => "q8",
            Self::Four => "q4",
        }
    }
}

impl FromStr for Quant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            "q8" => Ok(Self::To(Bits::Eight)),
            "q4" => Ok(Self::To(Bits::Four)),
            _ => Err("expected auto, none, q8 or q4".into()),
        }
    }
}

/// What becomes of a tensor of a checkpoint in Hub layout or of a GGUF file; `None` if it stays as it is.
///
/// Gates of the recurrence and routers stay: their errors add up over thousands of tokens, or send tokens elsewhere.
/// Embedding and head, experts for every token, and what writes into the residual stream or the KV cache get eight
/// bits at least. The vision tower stays: it is small, and reading small print suffers first.
pub fn format_of(name: &str, group: Group, shape: &[usize], bits: Bits) -> Option<WeightFormat> {
    let rows = shape.iter().rev().skip(1);
    // Experts in one tensor are parts of a matrix: each has to begin with a panel.
    let is_matrix = match shape {
        [_, _] => true,
        [_, rows, _] => rows.is_multiple_of(panels::ROWS),
        _ => false,
    };
    if !is_matrix || rows.product::<usize>() < panels::ROWS || matches!(group, Group::Vision | Group::Other) {
        return None;
    }
    let module = name.strip_suffix(".weight").unwrap_or(name);
    let is_shared = module.contains("shared_expert.") || module.ends_with("_shexp");
    let bits = match module.rsplit('.').next().unwrap_or_default() {
        _ if is_shared => Bits::Eight,
        "embed_tokens" | "lm_head" | "fc" | "out_proj" | "k_proj" | "v_proj" => Bits::Eight,
        "token_embd" | "output" | "eh_proj" | "ssm_out" | "attn_k" | "attn_v" => Bits::Eight,
        "q_proj" | "o_proj" | "in_proj_qkv" | "in_proj_z" | "in_proj_qkvz" => bits,
        "gate_proj" | "up_proj" | "down_proj" | "gate_up_proj" => bits,
        "attn_q" | "attn_output" | "attn_qkv" | "attn_gate" | "ssm_in" => bits,
        "ffn_gate" | "ffn_up" | "ffn_down" | "ffn_gate_exps" | "ffn_up_exps" | "ffn_down_exps" => bits,
        _ => return None,
    };
    Some(match bits {
        Bits::Eight => WeightFormat::Q8Panels,
        Bits::Four => WeightFormat::Q4Panels,
    })
}

/// The quantised tensors of a checkpoint: those of a file, or those that are made as they are asked for.
pub struct Copies {
    pub bits: Bits,
    state: Mutex<State>,
}

struct State {
    done: HashMap<String, (Weight, f64)>,
    /// Where new ones are written to; `None` if all are there, or if nothing can be written.
    writer: Option<Writer>,
    note: Option<String>,
}

impl Copies {
    /// `folder` has the file, or gets it; without one the tensors are only in memory. `model` tells checkpoints apart,
    /// and `n_tensors` is how many this one has at most.
    pub fn open(folder: Option<&Path>, model: &str, bits: Bits, n_tensors: usize) -> Self {
        let path = folder.map(|folder| path_in(folder, model, bits));
        let found = path.as_deref().and_then(|path| read(path, model));
        let mut note = None;
        let writer = match (&found, path) {
            (None, Some(path)) => {
                Writer::new(path, model, n_tensors).map_err(|e| note = Some(not_saved(&e))).ok()
            }
            _ => None,
        };
        let done = found.unwrap_or_default();
        Self { bits, state: Mutex::new(State { done, writer, note }) }
    }

    /// The quantised form of `name`, made of `plain` if there is none yet.
    ///
    /// # Errors
    /// Those of `plain`, or `NotFinite`.
    pub fn get(
        &self,
        name: &str,
        shape: &[usize],
        format: WeightFormat,
        plain: impl FnOnce() -> Result<Weight, WeightsError>,
    ) -> Result<Weight, WeightsError> {
        let mut state = self.state.lock().expect("nothing here panics");
        if let Some((weight, _)) = state.done.get(name)
            && weight.shape == shape
            && weight.format == format
        {
            return Ok(weight.clone());
        }
        let plain = plain()?;
        if !plain.format.is_plain() {
            return Ok(plain);
        }
        let not_finite = || WeightsError::NotFinite { name: name.to_owned() };
        let Quantised { mut weight, error } =
            quantise(&plain.clone().into_matrix(), format).ok_or_else(not_finite)?;
        if error.relative() > MOST_ERROR {
            return Ok(plain);
        }
        weight.shape = shape.to_vec();
        if let Some(writer) = &mut state.writer
            && let Err(e) = writer.add(name, &weight, error.relative())
        {
            state.writer = None;
            state.note = Some(not_saved(&e));
        }
        state.done.insert(name.to_owned(), (weight.clone(), error.relative()));
        Ok(weight)
    }

    /// Whether nothing was plain.
    pub fn is_empty(&self) -> bool {
        self.state.lock().expect("nothing here panics").done.is_empty()
    }

    /// Ends the file, if one is being written; says what there is to say. Nothing makes no file.
    pub fn finish(&self) -> Option<String> {
        let mut state = self.state.lock().expect("nothing here panics");
        let writer = state.writer.take().filter(|_| !state.done.is_empty());
        if let Some(writer) = writer
            && let Err(e) = writer.finish()
        {
            state.note = Some(not_saved(&e));
        }
        state.note.clone()
    }
}

fn path_in(folder: &Path, model: &str, bits: Bits) -> PathBuf {
    folder.join(format!("{model}-{}-{VERSION}.{EXTENSION}", bits.name()))
}

/// What each tensor lost, as it was measured when the file in `folder` was made: the error's part of its numbers, by
/// root mean squares. `None` if there is no such file.
pub fn errors(folder: &Path, model: &str, bits: Bits) -> Option<BTreeMap<String, f64>> {
    let tensors = read(&path_in(folder, model, bits), model)?;
    Some(tensors.into_iter().map(|(name, (_, error))| (name, error)).collect())
}

fn not_saved(error: &io::Error) -> String {
    format!("They could not be saved ({error}), so they are made anew at each start.")
}

/// A file in the making.
struct Writer {
    file: File,
    unfinished: PathBuf,
    path: PathBuf,
    header_bytes: usize,
    /// Of the data so far.
    len: usize,
    tensors: serde_json::Map<String, Value>,
    metadata: serde_json::Map<String, Value>,
    is_finished: bool,
}

impl Writer {
    fn new(path: PathBuf, model: &str, n_tensors: usize) -> io::Result<Self> {
        let folder = path.parent().expect("the path has a folder");
        fs::create_dir_all(folder)?;
        let unfinished = path.with_extension(format!("{}.{}", std::process::id(), unfinished::EXTENSION));
        unfinished::remove_old(folder);
        let mut file = File::create(&unfinished)?;
        // With the length before it, the header ends where data may begin.
        let header_bytes = (HEADER_BYTES_PER_TENSOR * (n_tensors + 2)).next_multiple_of(panels::LINE);
        file.seek(SeekFrom::Start(header_bytes as u64))?;
        Ok(Self {
            file,
            unfinished,
            path,
            header_bytes,
            len: 0,
            tensors: serde_json::Map::new(),
            metadata: [(ABOUT.into(), about(model).into())].into_iter().collect(),
            is_finished: false,
        })
    }

    fn add(&mut self, name: &str, weight: &Weight, error: f64) -> io::Result<()> {
        self.file.write_all(&weight.data)?;
        let end = self.len + weight.data.len();
        let info = json!({"dtype": "U8", "shape": [weight.data.len()], "data_offsets": [self.len, end]});
        self.tensors.insert(name.to_owned(), info);
        self.metadata.insert(name.to_owned(), Value::String(describe(weight, error)));
        self.len = end;
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        let mut header = serde_json::Map::new();
        header.insert("__metadata__".into(), Value::Object(std::mem::take(&mut self.metadata)));
        header.append(&mut self.tensors);
        let mut header = serde_json::to_vec(&header)?;
        let room = self.header_bytes - size_of::<u64>();
        if header.len() > room {
            return Err(io::Error::other("the header outgrew its room"));
        }
        header.resize(room, b' ');
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&(room as u64).to_le_bytes())?;
        self.file.write_all(&header)?;
        self.file.sync_all()?;
        fs::rename(&self.unfinished, &self.path)?;
        self.is_finished = true;
        remove_outdated(&self.path);
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

/// `Q4Panels 1024x3584 0.0712 1f2e3d4c`
fn describe(weight: &Weight, error: f64) -> String {
    let shape: Vec<String> = weight.shape.iter().map(usize::to_string).collect();
    format!("{:?} {} {error:.6} {:08x}", weight.format, shape.join("x"), crc32fast::hash(&weight.data))
}

/// What [`describe`] has said: format, shape, error and checksum.
fn understand(text: &str) -> Option<(WeightFormat, Vec<usize>, f64, u32)> {
    let mut words = text.split(' ');
    let format = [WeightFormat::Q8Panels, WeightFormat::Q4Panels];
    let name = words.next()?;
    let format = format.into_iter().find(|format| format!("{format:?}") == name)?;
    let shape = words.next()?.split('x').map(|n| n.parse().ok()).collect::<Option<Vec<usize>>>()?;
    let error = words.next()?.parse().ok()?;
    Some((format, shape, error, u32::from_str_radix(words.next()?, 16).ok()?))
}

/// What the metadata of a file says, so that a renamed one is never taken for another model's.
fn about(model: &str) -> String {
    format!("quantised weights of {model}, layout {VERSION}")
}

/// The tensors of a finished file; `None` if there is none that can be used.
fn read(path: &Path, model: &str) -> Option<HashMap<String, (Weight, f64)>> {
    let map = bytes::Bytes::from_owner(map_file(path).ok()?);
    let places = super::safetensors::read_header(&map).ok()?;
    let (_, metadata) = SafeTensors::read_metadata(&map).ok()?;
    let said = metadata.metadata().as_ref()?;
    (*said.get(ABOUT)? == about(model)).then_some(())?;
    let weight = |(name, place): (String, super::Place)| {
        let (format, shape, error, checksum) = understand(said.get(&name)?)?;
        let columns = *shape.last()?;
        let rows = shape.iter().rev().skip(1).try_fold(1usize, |product, n| product.checked_mul(*n))?;
        let bytes =
            format.checked_row_bytes(columns)?.checked_mul(rows.checked_next_multiple_of(panels::ROWS)?)?;
        (bytes == place.range.len()).then_some(())?;
        let data = map.slice(place.range);
        (crc32fast::hash(&data) == checksum).then_some(())?;
        Some((name, (Weight { format, shape, data }, error)))
    };
    places.into_iter().collect::<Vec<_>>().into_par_iter().map(weight).collect()
}

/// Removes copies of the same weights that an earlier version made and nobody reads any more.
fn remove_outdated(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return;
    };
    let same = name.trim_end_matches(&format!("{VERSION}.{EXTENSION}"));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let other = entry.file_name();
        let version = other.to_str().and_then(|other| other.strip_prefix(same)?.strip_suffix(EXTENSION));
        let version = version.and_then(|rest| rest.strip_suffix('.')?.parse::<u32>().ok());
        if version.is_some_and(|version| version < VERSION) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
