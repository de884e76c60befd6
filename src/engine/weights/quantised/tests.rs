use super::*;
use crate::engine::config::ModelConfig;
use crate::engine::device::OpenDevice;
use crate::engine::generate::read;
use crate::engine::golden;
use crate::engine::model::Model;
use crate::engine::noise::noise;
use crate::engine::weights::Checkpoint;

const NAME: &str = "model.layers.0.mlp.up_proj.weight";
const SHAPE: [usize; 2] = [48, 128];

fn plain() -> Result<Weight, WeightsError> {
    Ok(Weight::from_f32(noise(3, 48 * 128), SHAPE.to_vec()))
}

/// Two tensors, asked for as a model does.
fn load(folder: Option<&Path>, model: &str, bits: Bits) -> (Vec<Weight>, Option<String>) {
    let copies = Copies::open(folder, model, bits, 2);
    let get = |name: &str, format| copies.get(name, &SHAPE, format, plain).unwrap();
    let weights = vec![get(NAME, WeightFormat::Q4Panels), get("lm_head.weight", WeightFormat::Q8Panels)];
    (weights, copies.finish())
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        folder.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_next_start_maps_what_the_first_one_made() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("weights");
    let (made, note) = load(Some(&folder), "model", Bits::Four);
    assert_eq!((files(&folder), note), (vec!["model-q4-2.safetensors".into()], None));

    let copies = Copies::open(Some(&folder), "model", Bits::Four, 2);
    for (name, made) in [NAME, "lm_head.weight"].into_iter().zip(&made) {
        let mapped = copies.get(name, &SHAPE, made.format, || panic!("it is there")).unwrap();
        assert_eq!((&mapped.data, &mapped.shape), (&made.data, &made.shape));
        assert_eq!(mapped.data.as_ptr().align_offset(panels::LINE), 0, "loads are aligned");
    }
    let errors = errors(&folder, "model", Bits::Four).unwrap();
    assert!((0.03..0.12).contains(&errors[NAME]), "{errors:?}");
    assert!((0.001..0.01).contains(&errors["lm_head.weight"]), "{errors:?}");
    // One that was given another model's name isn't used.
    fs::copy(folder.join("model-q4-2.safetensors"), folder.join("renamed-q4-2.safetensors")).unwrap();
    let renamed = Copies::open(Some(&folder), "renamed", Bits::Four, 2);
    let made_anew = std::cell::Cell::new(false);
    let plain_again = || {
        made_anew.set(true);
        plain()
    };
    renamed.get(NAME, &SHAPE, WeightFormat::Q4Panels, plain_again).unwrap();
    assert!(made_anew.get());
    drop(renamed);
    fs::remove_file(folder.join("renamed-q4-2.safetensors")).unwrap();
    // Another checkpoint, and other bits, have files of their own.
    load(Some(&folder), "other", Bits::Four);
    load(Some(&folder), "model", Bits::Eight);
    assert_eq!(files(&folder).len(), 3);
}

#[test]
fn a_file_that_is_damaged_or_not_finished_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (made, _) = load(Some(dir.path()), "model", Bits::Four);
    let path = dir.path().join("model-q4-2.safetensors");
    let whole = fs::read(&path).unwrap();
    for n in [0, 7, 100, whole.len() - 1] {
        fs::write(&path, &whole[..n]).unwrap();
        let (again, note) = load(Some(dir.path()), "model", Bits::Four);
        assert!(again.iter().zip(&made).all(|(a, b)| a.data == b.data) && note.is_none());
        assert_eq!(fs::read(&path).unwrap(), whole, "cut at {n}");
    }
    // A single bit of a weight.
    let mut flipped = whole.clone();
    flipped[whole.len() - 1000] ^= 4;
    fs::write(&path, flipped).unwrap();
    let (again, _) = load(Some(dir.path()), "model", Bits::Four);
    assert!(again.iter().zip(&made).all(|(a, b)| a.data == b.data));
    assert_eq!(fs::read(&path).unwrap(), whole, "a flipped bit");
    // A copy of an earlier version is of no use to anybody; one of another model is none of our business.
    fs::remove_file(&path).unwrap();
    let others = [
        "model-q4-1.safetensors",
        "mode-q4-1.safetensors",
        "model-q8-1.safetensors",
        "model-q4-9.safetensors",
    ];
    others.iter().for_each(|name| fs::write(dir.path().join(name), "x").unwrap());
    load(Some(dir.path()), "model", Bits::Four);
    assert!(!dir.path().join(others[0]).exists());
    for other in &others[1..] {
        assert!(dir.path().join(other).exists(), "{other}");
        fs::remove_file(dir.path().join(other)).unwrap();
    }
    // A program that stopped in the middle: nothing has the name of a finished file.
    fs::remove_file(&path).unwrap();
    let copies = Copies::open(Some(dir.path()), "model", Bits::Four, 2);
    copies.get(NAME, &SHAPE, WeightFormat::Q4Panels, plain).unwrap();
    assert!(!path.exists());
    drop(copies);
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn an_edited_checkpoint_has_copies_of_its_own() {
    let dir = golden::copy_of_model("dense-a");
    let fingerprint = || Checkpoint::open(dir.path()).unwrap().fingerprint();
    let before = fingerprint();
    assert_eq!(fingerprint(), before);
    // The same bytes but for the time: whether they were changed can't be told without reading all of them.
    let file = File::options().write(true).open(dir.path().join("model.safetensors")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000)).unwrap();
    assert_ne!(fingerprint(), before);
}

#[test]
fn numbers_too_large_for_a_scale_are_kept() {
    let huge = || Ok(Weight::from_f32(noise(3, 48 * 128).into_iter().map(|x| x * 3e38), SHAPE.to_vec()));
    let copies = Copies::open(None, "model", Bits::Four, 1);
    assert_eq!(copies.get(NAME, &SHAPE, WeightFormat::Q4Panels, huge).unwrap().format, WeightFormat::F32);
    let eight = copies.get(NAME, &SHAPE, WeightFormat::Q8Panels, huge).unwrap();
    assert_eq!(eight.format, WeightFormat::Q8Panels);
}

#[test]
fn without_a_place_for_the_file_the_weights_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let not_a_folder = dir.path().join("file");
    fs::write(&not_a_folder, "").unwrap();
    let (made, note) = load(Some(&not_a_folder), "model", Bits::Four);
    assert!(note.unwrap().contains("could not be saved ("));
    let (in_memory, note) = load(None, "model", Bits::Four);
    assert!(note.is_none() && in_memory.iter().zip(&made).all(|(a, b)| a.data == b.data));
}

#[test]
fn what_must_not_be_squeezed_is_not() {
    let four = |name: &str, shape: &[usize]| format_of(name, Group::of_hub(name), shape, Bits::Four);
    let layer = |module: &str| format!("model.language_model.layers.3.{module}.weight");
    for module in ["mlp.up_proj", "self_attn.q_proj", "self_attn.o_proj", "linear_attn.in_proj_qkv"] {
        assert_eq!(four(&layer(module), &[64, 64]), Some(WeightFormat::Q4Panels), "{module}");
    }
    for module in ["self_attn.v_proj", "linear_attn.out_proj", "mlp.shared_expert.up_proj"] {
        assert_eq!(four(&layer(module), &[64, 64]), Some(WeightFormat::Q8Panels), "{module}");
    }
    for module in ["linear_attn.in_proj_a", "linear_attn.in_proj_ba", "mlp.gate", "mlp.shared_expert_gate"] {
        assert_eq!(four(&layer(module), &[64, 64]), None, "{module}");
    }
    assert_eq!(four("model.visual.blocks.0.mlp.up_proj.weight", &[64, 64]), None);
    assert_eq!(four("mtp.fc.weight", &[64, 128]), Some(WeightFormat::Q8Panels));
    let experts = "model.language_model.layers.3.mlp.experts.gate_up_proj";
    assert_eq!(four(experts, &[4, 32, 64]), Some(WeightFormat::Q4Panels));
    assert_eq!(four(experts, &[4, 24, 64]), None, "experts that don't begin with a panel");
    assert_eq!(four(&layer("self_attn.q_norm"), &[64]), None);
    // The same parts by their names in GGUF.
    let gguf = |name: &str| format_of(name, Group::of_gguf(name, 4), &[64, 64], Bits::Four);
    assert_eq!(gguf("blk.0.ffn_up.weight"), Some(WeightFormat::Q4Panels));
    assert_eq!(gguf("blk.0.ffn_up_shexp.weight"), Some(WeightFormat::Q8Panels));
    assert_eq!((gguf("blk.0.ssm_alpha.weight"), gguf("blk.0.ffn_gate_inp.weight")), (None, None));
}

/// Logits of a few tokens, with the case's weights as they are or quantised.
fn logits(case: &str, bits: Option<Bits>, device: OpenDevice) -> Vec<f32> {
    let dir = golden::path(case, "model");
    let mut checkpoint = Checkpoint::open(&dir).unwrap();
    if let Some(bits) = bits {
        checkpoint.quantise(bits, None);
    }
    let model = Model::load(ModelConfig::open(&dir).unwrap(), &checkpoint, &dir, device).unwrap();
    let ids: Vec<u32> = (0..40).map(|i| i * 37 % 256).collect();
    read(model.logits(model.forward(&ids, &mut model.new_cache(), None))).unwrap()
}

#[test]
fn quantised_models_compute_nearly_the_same() {
    let error = |got: &[f32], right: &[f32]| {
        let sum = |of: &dyn Fn(usize) -> f32| (0..right.len()).map(|i| f64::from(of(i)).powi(2)).sum::<f64>();
        (sum(&|i| got[i] - right[i]) / sum(&|i| right[i])).sqrt()
    };
    // Random weights are as hard as it gets: they have nothing in common that rounding could keep. The gates of the
    // second pair are so large that they pass on a little noise as much more.
    for (cases, limits) in [(["dense-a", "moe"], [0.06, 0.2]), (["dense-b", "next"], [0.3, 0.8])] {
        for case in cases {
            let right = logits(case, None, golden::cpu());
            for (bits, most) in [Bits::Eight, Bits::Four].into_iter().zip(limits) {
                let got = error(&logits(case, Some(bits), golden::cpu()), &right);
                assert!(got > 0.0 && got < most, "{case} {bits:?}: {got}");
            }
        }
    }
    let [cpu, gpu] = [golden::cpu(), golden::gpu()].map(|d| logits("dense-a", Some(Bits::Four), d));
    // The CPU rounds tokens as well.
    assert!(error(&gpu, &cpu) < 0.06, "{}", error(&gpu, &cpu));
}
