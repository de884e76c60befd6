//! The reference implementation's numbers, for tests.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::device::{DeviceChoice, OpenDevice, open_device};

pub fn path(case: &str, file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case).join(file)
}

pub fn json(case: &str, file: &str) -> Value {
    serde_json::from_slice(&fs::read(path(case, file)).unwrap()).unwrap()
}

/// A copy of a case's model, to be changed.
pub fn copy_of_model(case: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in path(case, "model").read_dir().unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    dir
}

pub fn gpu() -> OpenDevice {
    open_device(DeviceChoice::Gpu(None)).expect("a Vulkan driver; .ci/run installs a software one")
}

pub fn cpu() -> OpenDevice {
    open_device(DeviceChoice::Cpu).unwrap()
}

/// The tensors of a golden file: shapes and values by name.
pub struct Tensors(pub HashMap<String, (Vec<usize>, Vec<f64>)>);

impl Tensors {
    pub fn open(case: &str, file: &str) -> Self {
        let bytes = fs::read(path(case, file)).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.iter().map(|(name, view)| {
            let data = view.data();
            let values: Vec<f64> = match view.dtype() {
                Dtype::F32 => data
                    .chunks_exact(4)
                    .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
                    .collect(),
                Dtype::U8 => data.iter().copied().map(f64::from).collect(),
                Dtype::I64 => {
                    data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect()
                }
                other => panic!("{name} is {other:?}"),
            };
            (name.to_owned(), (view.shape().to_vec(), values))
        });
        Self(tensors.collect())
    }

    pub fn get(&self, name: &str) -> &(Vec<usize>, Vec<f64>) {
        self.0.get(name).unwrap_or_else(|| panic!("the golden file has {name}"))
    }

    pub fn values(&self, name: &str) -> &[f64] {
        &self.get(name).1
    }

    pub fn ids(&self, name: &str) -> Vec<u32> {
        self.values(name).iter().map(|id| *id as u32).collect()
    }
}

pub fn assert_close(got: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let worst = got.iter().zip(expected).map(|(g, e)| (f64::from(*g) - e).abs()).fold(0.0, f64::max);
    assert!(worst <= tolerance, "{what} is off by {worst}, allowed {tolerance}");
}

pub fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.unwrap().0 as u32
}
