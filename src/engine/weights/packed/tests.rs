use std::collections::HashMap;
use std::fs;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::json;

use super::*;
use crate::engine::config::ModelConfig;
use crate::engine::golden::{self, Tensors, argmax, cpu};
use crate::engine::model::Model;

type TensorMap = HashMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

const METHODS: [&str; 3] = ["fp8", "gptq", "awq"];

fn quantization(method: &str) -> Value {
    match method {
        "fp8" => json!({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}),
        "gptq" => {
            json!({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true, "desc_act": false})
        }
        _ => {
            json!({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": true})
        }
    }
}

/// A model folder with these tensors and dense-a's config.
fn folder(method: Option<&str>, tensors: &TensorMap) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut config = golden::json("dense-a", "model/config.json");
    if let Some(method) = method {
        config["quantization_config"] = quantization(method);
    }
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    let file = safetensors::serialize(views, None).unwrap();
    fs::write(dir.path().join("model.safetensors"), file).unwrap();
    dir
}

fn tensors(case: &str, file: &str) -> TensorMap {
    let bytes = fs::read(golden::path(case, file)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let owned = |(name, view): (String, TensorView)| {
        (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    file.tensors().into_iter().map(owned).collect()
}

#[test]
fn packed_matrices_have_the_values_that_their_format_says() {
    for method in METHODS {
        let file = format!("packed_{method}.safetensors");
        let all = tensors("formats", &file);
        let dir = folder(Some(method), &all);
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let expected =
            all.iter().filter_map(|(name, (_, shape, _))| Some((name.strip_prefix("expected.")?, shape)));
        let mut n = 0;
        for (name, shape) in expected {
            assert!(checkpoint.contains(name), "{name}");
            let weight = checkpoint.weight(name, shape).unwrap();
            assert!(!weight.format.is_plain());
            let (_, _, expected) = &all[&format!("expected.{name}")];
            let (expected, []) = expected.as_chunks::<4>() else { panic!("whole numbers") };
            let expected: Vec<f32> = expected.iter().copied().map(f32::from_le_bytes).collect();
            assert_eq!(weight.to_f32(), expected, "{method} {name}");
            n += 1;
        }
        assert_eq!(n, 6);
    }
}

/// Greedy ids after a prompt of dense-a.
fn greedy(dir: &Path) -> Vec<u32> {
    let checkpoint = Checkpoint::open(dir).unwrap();
    let model = Model::load(ModelConfig::open(dir).unwrap(), &checkpoint, dir, cpu()).unwrap();
    let mut ids = Tensors::open("dense-a", "golden/prompt_65.safetensors").ids("input_ids");
    let mut cache = model.new_cache();
    (0..12)
        .map(|_| {
            let hidden = model.forward(&ids, &mut cache, None);
            let n = hidden.dims()[0];
            let logits: Vec<f32> = model.logits(hidden.narrow(0, n - 1, 1)).into_data().try_to_vec().unwrap();
            ids = vec![argmax(&logits)];
            ids[0]
        })
        .collect()
}

#[test]
fn a_model_with_packed_matrices_answers_like_one_with_their_values() {
    let mut answers = Vec::new();
    for method in METHODS {
        let all = tensors("formats", &format!("packed_{method}.safetensors"));
        let (mut packed, mut wide) = (tensors("dense-a", "model/model.safetensors"), HashMap::new());
        for name in all.keys().filter_map(|name| name.strip_prefix("expected.")) {
            packed.remove(name);
            wide.insert(name.to_owned(), all[&format!("expected.{name}")].clone());
        }
        for (name, tensor) in &packed {
            wide.insert(name.clone(), tensor.clone());
        }
        packed.extend(all.into_iter().filter(|(name, _)| !name.starts_with("expected.")));
        let (packed, wide) = (folder(Some(method), &packed), folder(None, &wide));
        answers.push(greedy(packed.path()));
        assert_eq!(answers.last(), Some(&greedy(wide.path())), "{method}");
    }
    assert_eq!(answers[0].len(), 12);
}

fn bytes_of<T, const N: usize>(values: &[T], bytes: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(bytes).collect()
}

#[test]
fn damaged_and_foreign_packings_are_refused_by_name() {
    let gptq = |change: &dyn Fn(&mut TensorMap)| {
        let words = |n: usize| vec![0; 4 * n];
        let mut all = HashMap::from([
            ("w.qweight".to_owned(), (Dtype::I32, vec![8, 8], words(64))),
            ("w.qzeros".to_owned(), (Dtype::I32, vec![2, 1], words(2))),
            ("w.scales".to_owned(), (Dtype::F32, vec![2, 8], bytes_of(&[1.0f32; 16], |x| x.to_le_bytes()))),
        ]);
        change(&mut all);
        let dir = folder(Some("gptq"), &all);
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        checkpoint.weight("w.weight", &[8, 64]).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(gptq(&|_| {}), Ok(()));
    let error = gptq(&|all| _ = all.remove("w.qzeros")).unwrap_err();
    assert!(error.contains("w.qzeros is missing"), "{error}");
    let error = gptq(&|all| all.get_mut("w.qweight").unwrap().1 = vec![4, 16]).unwrap_err();
    assert!(error.contains("w.qweight has shape [4, 16]"), "{error}");
    let error = gptq(&|all| all.get_mut("w.qweight").unwrap().0 = Dtype::F32).unwrap_err();
    assert!(error.contains("its type is F32, expected I32"), "{error}");
    let error = gptq(&|all| all.get_mut("w.scales").unwrap().2[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
    assert!(error.unwrap_err().contains("not numbers"));
    let error = gptq(&|all| all.get_mut("w.scales").unwrap().2[..4].copy_from_slice(&1e9f32.to_le_bytes()));
    assert!(error.unwrap_err().contains("not numbers"), "a scale that f16 doesn't hold");
    let error = gptq(&|all| {
        let scales = bytes_of(&[1.0f32; 24], |x| x.to_le_bytes());
        all.insert("w.scales".into(), (Dtype::F32, vec![3, 8], scales));
    });
    assert!(error.unwrap_err().contains("64 numbers in 3 groups"));
    let error = gptq(&|all| {
        let order: Vec<i32> = (0..64).rev().map(|i| i / 32).collect();
        all.insert("w.g_idx".into(), (Dtype::I32, vec![64], bytes_of(&order, |i| i.to_le_bytes())));
    });
    assert!(error.unwrap_err().contains("desc_act"));

    let fp8 = HashMap::from([
        ("w.weight".to_owned(), (Dtype::F8_E4M3, vec![2, 2], vec![0x38, 0x7f, 0, 0])),
        ("w.weight_scale_inv".to_owned(), (Dtype::F32, vec![1, 1], 1f32.to_le_bytes().to_vec())),
        ("v.weight".to_owned(), (Dtype::F8_E4M3, vec![2, 2], vec![0; 4])),
    ]);
    let dir = folder(Some("fp8"), &fp8);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert!(checkpoint.weight("w.weight", &[2, 2]).unwrap_err().to_string().contains("not numbers"));
    assert!(checkpoint.weight("v.weight", &[2, 2]).unwrap_err().to_string().contains("stored as F8_E4M3"));

    for (config, what) in [
        (json!({"quant_method": "compressed-tensors"}), "compressed-tensors"),
        (json!({"quant_method": "gptq", "bits": 8}), "gptq with 8 bits"),
        (json!({"quant_method": "fp8"}), "other blocks than 128 x 128"),
        (json!({"quant_method": "awq", "bits": 4, "version": "gemv"}), "gemv"),
        (json!({}), "unknown"),
    ] {
        assert!(Packing::from_json(&config).unwrap_err().contains(what), "{config}");
    }
}
