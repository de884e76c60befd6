//! Safetensors: where each tensor of a file is, and which files a folder has.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::super::built_in;
use super::super::config::read_json;
use super::{Place, WeightFormat, WeightsError};

/// Largest safetensors header; the largest known (64,196 tensors) has about 8 MiB.
const HEADER_LIMIT_BYTES: usize = 16 << 20;
/// The largest known repository has 64,196 tensors; a crafted header with many empty ones costs memory.
const MAX_TENSORS: usize = 200_000;
const INDEX_LIMIT_BYTES: u64 = 64 << 20;

/// The tensors of a file, or what is wrong with it.
pub fn read_header(map: &[u8]) -> Result<Vec<(String, Place)>, String> {
    let header_bytes = match map.get(..8) {
        None => return Err(format!("it has only {} bytes", map.len())),
        Some(length) => u64::from_le_bytes(length.try_into().expect("the slice has 8 bytes")),
    };
    let header_end = usize::try_from(header_bytes).ok().and_then(|n| n.checked_add(8));
    let header_end = header_end
        .filter(|end| *end <= HEADER_LIMIT_BYTES && *end <= map.len())
        .ok_or_else(|| format!("its header claims {header_bytes} bytes of {}", map.len()))?;
    check_header(&map[8..header_end])?;
    let (_, metadata) = SafeTensors::read_metadata(map).map_err(|e| e.to_string())?;

    let data_len = map.len() - header_end;
    let place = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
        let (start, end) = info.data_offsets;
        if end > data_len {
            return Err(format!("the data of {name} lies outside the file"));
        }
        let format = match info.dtype {
            Dtype::BF16 => Some(WeightFormat::Bf16),
            Dtype::F16 => Some(WeightFormat::F16),
            Dtype::F32 => Some(WeightFormat::F32),
            _ => None,
        };
        let place = Place {
            type_name: format!("{:?}", info.dtype),
            format,
            shape: info.shape.clone(),
            range: header_end + start..header_end + end,
        };
        Ok((name, place))
    };
    metadata.tensors().into_iter().map(place).collect()
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
            let mut seen = HashSet::new();
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

/// Those that `model.safetensors.index.json` names, else `model.safetensors`, else the only `.safetensors` file.
pub fn shard_paths(dir: &Path) -> Result<Vec<PathBuf>, WeightsError> {
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
