use std::fs;
use std::path::PathBuf;

use super::*;
use crate::engine::config::ModelConfig;
use crate::engine::device::OpenDevice;
use crate::engine::golden::{self, Tensors, argmax, cpu, gpu};
use crate::engine::model::Model;
use crate::engine::weights::{Checkpoint, Weight, WeightsError};

fn fixture(name: &str) -> PathBuf {
    golden::path("gguf", &format!("{name}.gguf"))
}

fn load(path: &Path, device: OpenDevice) -> Model {
    let config = ModelConfig::open(path).unwrap();
    Model::load(config, &Checkpoint::open(path).unwrap(), path, device).unwrap()
}

fn last_logits(model: &Model, ids: &[u32], cache: &mut crate::engine::cache::Cache) -> Vec<f32> {
    let hidden = model.forward(ids, cache, None);
    let n = hidden.dims()[0];
    model.logits(hidden.narrow(0, n - 1, 1)).into_data().try_to_vec().unwrap()
}

/// Greedy ids and the logits that chose them.
fn greedy(model: &Model, ids: &[u32], n: usize) -> (Vec<u32>, Vec<f32>) {
    let mut cache = model.new_cache();
    let (mut chosen, mut all) = (Vec::new(), Vec::new());
    let mut next = ids.to_vec();
    for _ in 0..n {
        let logits = last_logits(model, &next, &mut cache);
        next = vec![argmax(&logits)];
        chosen.push(next[0]);
        all.extend(logits);
    }
    (chosen, all)
}

#[test]
fn files_without_loss_answer_like_the_original() {
    for (file, case, device, lengths) in [
        ("dense-a-bf16", "dense-a", cpu(), &[1, 5, 65, 200][..]),
        ("dense-b-f32", "dense-b", cpu(), &[1, 5, 65, 200]),
        ("moe-bf16", "moe", cpu(), &[5, 65, 100]),
        ("next-bf16", "next", cpu(), &[5, 65, 130]),
        ("dense-a-bf16", "dense-a", gpu(), &[65]),
    ] {
        let model = load(&fixture(file), device);
        let tolerance = golden::json(case, "golden/meta.json")["tolerance"]["logits"].as_f64().unwrap();
        let mut compared = 0;
        for length in lengths {
            let golden = Tensors::open(case, &format!("golden/prompt_{length}.safetensors"));
            if golden.0.contains_key("greedy.ids") {
                let (ids, logits) = greedy(&model, &golden.ids("input_ids"), 24);
                assert_eq!(ids, golden.ids("greedy.ids"), "{file} after {length}");
                golden::assert_close(&logits, golden.values("greedy.logits"), tolerance, file);
                compared += 1;
            }
        }
        assert!(compared > 0, "{file}");
    }
}

#[test]
fn shards_in_half_precision_answer_like_the_original() {
    let model = load(&fixture("dense-b-f16-00001-of-00002"), cpu());
    let golden = Tensors::open("dense-b", "golden/prompt_65.safetensors");
    assert_eq!(greedy(&model, &golden.ids("input_ids"), 24).0, golden.ids("greedy.ids"));
}

#[test]
fn the_mtp_layer_of_a_file_guesses_like_the_original() {
    let original = load(&golden::path("dense-a", "model"), cpu());
    let model = load(&fixture("dense-a-bf16"), cpu());
    let ids = Tensors::open("dense-a", "golden/prompt_65.safetensors").ids("input_ids");
    let drafts = |model: &Model| {
        let mut cache = model.new_drafting_cache();
        let next = argmax(&last_logits(model, &ids, &mut cache));
        let choose = |guess: crate::engine::model::Guess| {
            Ok::<_, ()>(Some(argmax(&guess.logits.into_data().try_to_vec::<f32>().unwrap())))
        };
        model.draft(next, 4, &mut cache, None, choose).unwrap()
    };
    assert!(model.can_draft());
    assert_eq!(drafts(&model), drafts(&original));
    assert_eq!(drafts(&model).len(), 4);
}

/// The same file with every tensor in F32.
fn widened(path: &Path) -> Vec<u8> {
    let file = Gguf::open(path).unwrap();
    let mut reader = Reader { bytes: &file.map, at: 24, texts: MAX_TEXTS };
    for _ in 0..file.keys.len() {
        reader.name().unwrap();
        let kind = reader.u32().unwrap();
        reader.value(kind).unwrap();
    }
    let mut bytes = file.map[..reader.at].to_vec();
    let mut data: Vec<u8> = Vec::new();
    for tensor in &file.tensors {
        let weight = Weight {
            format: tensor.kind.format.unwrap(),
            shape: tensor.shape.clone(),
            data: file.map.slice(tensor.data.clone()),
        };
        push_tensor(&mut bytes, &tensor.name, &tensor.shape, 0, data.len() as u64);
        data.extend(weight.to_f32().into_iter().flat_map(f32::to_le_bytes));
        data.resize(data.len().next_multiple_of(32), 0);
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    [bytes, data].concat()
}

#[test]
fn a_quantised_file_answers_like_one_with_its_values() {
    let quantised = fixture("dense-a-q8_0");
    let dir = tempfile::tempdir().unwrap();
    let wide = dir.path().join("wide.gguf");
    fs::write(&wide, widened(&quantised)).unwrap();
    let checkpoint = Checkpoint::open(&quantised).unwrap();
    let types: HashSet<&str> = checkpoint.tensors().iter().map(|tensor| tensor.type_name).collect();
    assert!(types.contains("Q8_0"));
    let ids = Tensors::open("dense-a", "golden/prompt_65.safetensors").ids("input_ids");
    for device in [cpu(), gpu()] {
        let (got, logits) = greedy(&load(&quantised, device.clone()), &ids, 12);
        let (expected, expected_logits) = greedy(&load(&wide, device), &ids, 12);
        let expected_logits: Vec<f64> = expected_logits.into_iter().map(f64::from).collect();
        golden::assert_close(&logits, &expected_logits, 1e-4, "logits");
        assert_eq!(got, expected);
    }
}

#[test]
fn tensors_of_other_models_of_the_family_have_their_places() {
    let path = fixture("moe-bf16");
    let checkpoint = Checkpoint::open(&path).unwrap();
    // Each expert's matrices are a part of a tensor that holds all of them.
    let file = Gguf::open(&path).unwrap();
    let all = file.tensor("blk.2.ffn_up_exps.weight").unwrap();
    assert_eq!(all.shape, [8, 16, 64]);
    let expert = checkpoint.weight("model.layers.2.mlp.experts.3.up_proj.weight", &[16, 64]).unwrap();
    let bytes = all.data.len() / 8;
    assert_eq!(expert.data, file.map.slice(all.data.start + 3 * bytes..all.data.start + 4 * bytes));
    for (name, shape) in [
        ("model.layers.0.mlp.gate.weight", &[8, 64][..]),
        ("model.layers.0.mlp.shared_expert_gate.weight", &[1, 64]),
        ("model.layers.0.mlp.shared_expert.down_proj.weight", &[64, 40]),
        ("model.layers.3.mlp.experts.7.down_proj.weight", &[64, 16]),
        ("mtp.layers.0.mlp.experts.0.gate_proj.weight", &[16, 64]),
        ("mtp.layers.0.self_attn.q_norm.weight", &[32]),
        ("mtp.fc.weight", &[64, 128]),
    ] {
        assert!(checkpoint.contains(name), "{name}");
        assert_eq!(checkpoint.weight(name, shape).unwrap().shape, shape, "{name}");
    }
    assert!(!checkpoint.contains("model.layers.0.mlp.experts.gate_up_proj"));
    assert!(
        !checkpoint.contains("model.layers.4.input_layernorm.weight"),
        "the MTP layer isn't one of the model's"
    );
    let beyond = checkpoint.weight("model.layers.0.mlp.experts.8.up_proj.weight", &[16, 64]);
    assert!(matches!(beyond, Err(WeightsError::Missing { .. })));
    let huge = checkpoint.weight("model.layers.0.mlp.experts.18446744073709551616.up_proj.weight", &[16, 64]);
    assert!(matches!(huge, Err(WeightsError::Missing { .. })));
}

// Files made by hand, with mistakes.

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// `shape` with the slowest axis first.
fn push_tensor(bytes: &mut Vec<u8>, name: &str, shape: &[usize], kind: u32, offset: u64) {
    push_text(bytes, name);
    bytes.extend((shape.len() as u32).to_le_bytes());
    shape.iter().rev().for_each(|n| bytes.extend((*n as u64).to_le_bytes()));
    bytes.extend(kind.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
}

fn header(n_tensors: u64, n_keys: u64) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(n_tensors.to_le_bytes());
    bytes.extend(n_keys.to_le_bytes());
    bytes
}

/// A file with one key, whose value is written as it is given.
fn with_key(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = header(0, 1);
    push_text(&mut bytes, key);
    bytes.extend(kind.to_le_bytes());
    bytes.extend(value);
    bytes
}

/// A file with these tensors (name, shape, type, offset) and so many bytes of data.
fn with_tensors(tensors: &[(&str, &[usize], u32, u64)], data_len: usize) -> Vec<u8> {
    let mut bytes = header(tensors.len() as u64, 0);
    for (name, shape, kind, offset) in tensors {
        push_tensor(&mut bytes, name, shape, *kind, *offset);
    }
    bytes.resize(bytes.len().next_multiple_of(32) + data_len, 0);
    bytes
}

fn parse(bytes: Vec<u8>) -> Result<Gguf, String> {
    Gguf::parse(Path::new("x.gguf"), bytes.into())
}

fn error(bytes: Vec<u8>) -> String {
    parse(bytes).err().expect("the file is refused")
}

#[test]
fn every_cut_of_a_file_is_refused() {
    let bytes = fs::read(fixture("dense-a-q8_0")).unwrap();
    let whole = parse(bytes.clone()).unwrap();
    let header_end = whole.tensors.iter().map(|tensor| tensor.data.start).min().unwrap();
    for end in (0..header_end).step_by(37).chain([bytes.len() - 1]) {
        assert!(parse(bytes[..end].to_vec()).is_err(), "cut at {end}");
    }
}

#[test]
fn a_header_with_wrong_bytes_never_ends_in_a_panic() {
    let bytes = fs::read(fixture("dense-a-q8_0")).unwrap();
    let header_end = parse(bytes.clone()).unwrap().tensors[0].data.start;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wrong.gguf");
    let (mut state, mut usable) = (1u32, 0);
    for _ in 0..200 {
        let mut wrong = bytes.clone();
        // Most of the header is text, where a byte does little: the beginning has the keys.
        for end in [2_000, header_end] {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            wrong[state as usize / 7 % end] = (state >> 24) as u8;
        }
        fs::write(&path, wrong).unwrap();
        if let (Ok(config), Ok(checkpoint)) = (ModelConfig::open(&path), Checkpoint::open(&path)) {
            usable += usize::from(Model::load(config, &checkpoint, &path, cpu()).is_ok());
        }
        _ = crate::engine::tokenizer::Tokenizer::open(&path);
    }
    assert!((1..200).contains(&usable), "{usable} of 200 could be loaded");
}

#[test]
fn headers_that_lie_are_refused() {
    assert!(error(b"GGML....".to_vec()).contains("doesn't begin with GGUF"));
    assert!(error(Vec::new()).contains("ends inside its header"));
    let version = |version: u32| [b"GGUF".as_slice(), &version.to_le_bytes(), &[0; 16]].concat();
    assert!(error(version(1)).contains("version 1"));
    assert!(error(version(3u32.swap_bytes())).contains("big-endian"));
    assert!(parse(version(2)).is_ok());

    assert!(error(header(u64::MAX, 0)).contains("tensors, more than"));
    assert!(error(header(0, u64::MAX)).contains("keys, more than"));
    assert!(error(header(1, 0)).contains("ends inside its header"));
    // A text that claims to be longer than the file, or longer than memory.
    assert!(error(with_key("k", TEXT, &u64::MAX.to_le_bytes())).contains("it claims a text of"));
    assert!(error(with_key("k", TEXT, &1000u64.to_le_bytes())).contains("ends inside"));
    let mut long_name = header(0, 1);
    long_name.extend((1u64 << 40).to_le_bytes());
    assert!(error(long_name).contains("bytes of a name"));

    let list = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    assert!(error(with_key("k", LIST, &list(TEXT, u64::MAX))).contains("a list claims"));
    assert!(error(with_key("k", LIST, &list(10, u64::MAX))).contains("a list claims"));
    assert!(error(with_key("k", LIST, &list(0, 1 << 40))).contains("ends inside"));
    assert!(error(with_key("k", LIST, &list(LIST, 1))).contains("list of lists"));
    assert!(error(with_key("k", LIST, &list(99, 1))).contains("unknown type 99"));
    assert!(error(with_key("k", 99, &[])).contains("unknown type 99"));
    assert!(error(with_key("general.alignment", 4, &3u32.to_le_bytes())).contains("power of two"));

    let mut twice = with_key("k", 7, &[1]);
    twice[16..24].copy_from_slice(&2u64.to_le_bytes());
    twice.extend(&twice.clone()[24..]);
    assert!(error(twice).contains("the key k appears twice"));
}

#[test]
fn tensors_that_lie_are_refused() {
    assert!(parse(with_tensors(&[("a", &[2, 4], 0, 0), ("b", &[4], 0, 32)], 48)).is_ok());
    assert!(error(with_tensors(&[("a", &[2, 4], 0, 0), ("b", &[4], 0, 32)], 47)).contains("b lies outside"));
    assert!(error(with_tensors(&[("a", &[2, 4], 0, 1 << 40)], 64)).contains("lies outside"));
    assert!(error(with_tensors(&[("a", &[2, 4], 0, u64::MAX - 31)], 64)).contains("lies outside"));
    assert!(error(with_tensors(&[("a", &[usize::MAX, usize::MAX], 0, 0)], 64)).contains("lies outside"));
    assert!(error(with_tensors(&[("a", &[4], 0, 8)], 64)).contains("not a multiple of 32"));
    assert!(error(with_tensors(&[("a", &[16], 0, 0), ("b", &[4], 0, 32)], 64)).contains("a and b overlap"));
    assert!(error(with_tensors(&[("a", &[4], 0, 0), ("a", &[4], 0, 32)], 64)).contains("appears twice"));
    assert!(error(with_tensors(&[("a", &[0], 0, 0)], 64)).contains("an axis of 0"));
    assert!(error(with_tensors(&[("a", &[], 0, 0)], 64)).contains("has 0 axes"));
    assert!(error(with_tensors(&[("a", &[1; 5], 0, 0)], 64)).contains("has 5 axes"));
    assert!(error(with_tensors(&[("a", &[2, 40], 2, 0)], 64)).contains("not whole blocks of 32"));
    // A type that isn't read is refused when it is needed, by its name.
    let file = parse(with_tensors(&[("a", &[2, 256], 23, 0)], 64)).unwrap();
    assert_eq!(file.tensors[0].kind, Kind { name: "IQ4_XS", format: None });
}

#[test]
fn scales_that_are_not_numbers_are_found_in_what_is_read_at_load() {
    let path = fixture("dense-a-q8_0");
    let mut bytes = fs::read(&path).unwrap();
    let norm = parse(bytes.clone()).unwrap().tensor("blk.1.attn_norm.weight").unwrap().data.start;
    bytes[norm..norm + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("damaged.gguf");
    fs::write(&damaged, bytes).unwrap();
    let config = ModelConfig::open(&damaged).unwrap();
    let error = Model::load(config, &Checkpoint::open(&damaged).unwrap(), &damaged, cpu()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "weight model.layers.1.input_layernorm.weight holds values that are not numbers (NaN or infinity); the file \
         is damaged"
    );
}
