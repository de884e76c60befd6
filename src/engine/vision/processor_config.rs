//! `preprocessor_config.json` and `video_preprocessor_config.json`: sizes and scaling of pictures and clips.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::config::vision::{CHANNELS, VisionConfig};
use super::super::config::{ConfigError, read_json};
use super::preprocess::PatchLayout;
use crate::msg::{ClipLimits, PictureLimits};

const LIMIT_BYTES: u64 = 1 << 20;
/// Areas in pixels, of released models; for clips over all frames together.
const IMAGE_PIXELS: [u64; 2] = [65_536, 16_777_216];
const CLIP_PIXELS: [u64; 2] = [4_096, 25_165_824];

#[derive(Debug, Clone, PartialEq)]
pub struct ProcessorConfig {
    pub image: PictureLimits,
    pub clip: ClipLimits,
    pub layout: PatchLayout,
}

impl ProcessorConfig {
    /// Reads the two files of a model folder. A file that is not there means the values of released models.
    ///
    /// # Errors
    /// If a file is not JSON, or says something that contradicts the model's config.
    pub fn open(dir: &Path, vision: &VisionConfig) -> Result<Self, ConfigError> {
        let factor = vision.factor() as u32;
        let read = |name: &str, default: [u64; 2]| {
            let path = dir.join(name);
            let json = read_json(&path, LIMIT_BYTES)?.unwrap_or_default();
            let empty = Map::new();
            let object = json.as_object().unwrap_or(&empty);
            let invalid = |why: String| ConfigError::Invalid { path: path.clone(), why };
            check_sizes(object, vision).map_err(invalid)?;
            let [min_pixels, max_pixels] = pixel_limits(object, default).map_err(invalid)?;
            let scaling = scaling(object).map_err(invalid)?;
            Ok::<_, ConfigError>((PictureLimits { factor, min_pixels, max_pixels }, scaling))
        };
        let (image, [mean, std]) = read("preprocessor_config.json", IMAGE_PIXELS)?;
        let (clip, _) = read("video_preprocessor_config.json", CLIP_PIXELS)?;
        let layout = PatchLayout {
            patch_size: vision.patch_size,
            temporal_patch_size: vision.temporal_patch_size,
            spatial_merge_size: vision.spatial_merge_size,
            mean,
            std,
        };
        let clip = ClipLimits { pixels: clip, frames_per_slot: vision.temporal_patch_size, time_tokens: 0 };
        Ok(Self { image, clip, layout })
    }
}

fn check_sizes(json: &Map<String, Value>, vision: &VisionConfig) -> Result<(), String> {
    let sizes = [
        ("patch_size", vision.patch_size),
        ("temporal_patch_size", vision.temporal_patch_size),
        ("merge_size", vision.spatial_merge_size),
    ];
    match sizes.iter().find(|(key, size)| json.get(*key).is_some_and(|n| n.as_u64() != Some(*size as u64))) {
        Some((key, size)) => Err(format!("{key} is {}, config.json says {size}", json[*key])),
        None => Ok(()),
    }
}

/// The limits are called edges in newer files, but they are areas.
fn pixel_limits(json: &Map<String, Value>, default: [u64; 2]) -> Result<[u64; 2], String> {
    let size = json.get("size").and_then(Value::as_object);
    let find = |new: &str, old: &str, default: u64| {
        let value = size.and_then(|size| size.get(new).or_else(|| size.get(old))).or_else(|| json.get(old));
        value.filter(|value| !value.is_null()).map_or(Ok(default), |value| {
            value
                .as_u64()
                .filter(|n| *n > 0)
                .ok_or_else(|| format!("{new} is {value}, expected a number of pixels"))
        })
    };
    let limits =
        [find("shortest_edge", "min_pixels", default[0])?, find("longest_edge", "max_pixels", default[1])?];
    match limits[0] > limits[1] {
        true => Err(format!("the least number of pixels ({}) exceeds the most ({})", limits[0], limits[1])),
        false => Ok(limits),
    }
}

/// Mean and standard deviation per colour.
fn scaling(json: &Map<String, Value>) -> Result<[[f32; CHANNELS]; 2], String> {
    let find = |key: &str| match json.get(key).filter(|value| !value.is_null()) {
        None => Ok([0.5; CHANNELS]),
        Some(value) => {
            let numbers: Vec<f32> = value
                .as_array()
                .map(|list| list.iter().filter_map(Value::as_f64).map(|n| n as f32).collect())
                .unwrap_or_default();
            <[f32; CHANNELS]>::try_from(numbers).map_err(|_| format!("{key} is {value}, expected 3 numbers"))
        }
    };
    let (mean, std) = (find("image_mean")?, find("image_std")?);
    match std.iter().all(|s| *s > 0.0) {
        true => Ok([mean, std]),
        false => Err("image_std has a number that is not positive".into()),
    }
}
