//! The model against the reference implementation's own numbers, on the CPU and on a GPU.
//!
//! Tolerances are those of each case's `meta.json`: ten times what f32 summation order alone moved the
//! reference. The GPU runs the same f32 arithmetic in another order (sums in trees, fused multiply-adds
//! where its compiler likes), which is what those factors are for: it is held to the same tolerances.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use safetensors::SafeTensors;
use serde_json::Value;

use super::*;
use crate::engine::cache::{DeltaState, Kv, LayerState};
use crate::engine::device::{DeviceChoice, open_device};
use crate::engine::generate::read;

struct Case {
    name: &'static str,
    model: Model,
    tolerance: Value,
    meta: Value,
}

fn golden(case: &str, file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case).join(file)
}

fn gpu() -> OpenDevice {
    open_device(DeviceChoice::Gpu(None)).expect("a Vulkan driver; .ci/run installs a software one")
}

fn cpu() -> OpenDevice {
    open_device(DeviceChoice::Cpu).unwrap()
}

impl Case {
    fn open(name: &'static str, device: OpenDevice) -> Self {
        let dir = golden(name, "model");
        let config = ModelConfig::open(&dir).unwrap();
        let checkpoint = Checkpoint::open(&dir).unwrap();
        let model = Model::load(config, &checkpoint, &dir, device).unwrap();
        let meta: Value =
            serde_json::from_slice(&fs::read(golden(name, "golden/meta.json")).unwrap()).unwrap();
        Self { name, model, tolerance: meta["tolerance"].clone(), meta }
    }

    fn tolerance(&self, what: &str) -> f32 {
        self.tolerance[what].as_f64().unwrap() as f32
    }

    fn tensors(&self, file: &str) -> Tensors {
        let bytes = fs::read(golden(self.name, "golden").join(file)).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.iter().map(|(name, view)| {
            let values: Vec<f64> = match view.dtype() {
                safetensors::Dtype::F32 => {
                    let chunks = view.data().chunks_exact(4);
                    chunks.map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
                }
                _ => {
                    let chunks = view.data().chunks_exact(8);
                    chunks.map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect()
                }
            };
            (name.to_owned(), (view.shape().to_vec(), values))
        });
        Tensors(tensors.collect())
    }

    fn tensor<const D: usize>(&self, (shape, values): &(Vec<usize>, Vec<f64>)) -> Tensor<D> {
        let shape: [usize; D] = shape.clone().try_into().unwrap();
        let values: Vec<f32> = values.iter().map(|v| *v as f32).collect();
        Tensor::from_data(TensorData::new(values, shape), &self.model.device.tensors)
    }

    fn assert_close(&self, got: Vec<f32>, expected: &[f64], tolerance: f32, what: &str) {
        assert_eq!(got.len(), expected.len(), "{}: {what}", self.name);
        let worst = got.iter().zip(expected).map(|(g, e)| (f64::from(*g) - e).abs()).fold(0.0, f64::max);
        assert!(
            worst <= f64::from(tolerance),
            "{}: {what} is off by {worst}, allowed {tolerance}",
            self.name
        );
    }
}

struct Tensors(HashMap<String, (Vec<usize>, Vec<f64>)>);

impl Tensors {
    fn get(&self, name: &str) -> &(Vec<usize>, Vec<f64>) {
        self.0.get(name).unwrap_or_else(|| panic!("the golden file has {name}"))
    }

    fn values(&self, name: &str) -> &[f64] {
        &self.get(name).1
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        self.values(name).iter().map(|id| *id as u32).collect()
    }
}

/// Rows `rows` of a flat matrix with `width` columns.
fn rows_of(values: &[f32], rows: &[f64], width: usize) -> Vec<f32> {
    rows.iter().flat_map(|row| values[*row as usize * width..(*row as usize + 1) * width].to_vec()).collect()
}

const CASES: [&str; 2] = ["dense-a", "dense-b"];
const LENGTHS: [usize; 6] = [1, 5, 63, 64, 65, 200];

fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.unwrap().0 as u32
}

fn check_prompts(case: &Case) {
    let (width, vocab) = (case.model.config.hidden_size, case.model.config.vocab_size);
    for length in LENGTHS {
        let file = case.tensors(&format!("prompt_{length}.safetensors"));
        let rows = file.values("positions");
        let ids = file.ids("input_ids");
        let mut cache = case.model.new_cache();
        let mut taps = Vec::new();
        let hidden = case.model.forward(&ids, &mut cache, Some(&mut taps));
        assert_eq!(cache.tokens(), ids);
        for (i, tap) in taps.into_iter().enumerate() {
            let what = format!("hidden.{i} of {length}");
            let got = rows_of(&read(tap).unwrap(), rows, width);
            case.assert_close(got, file.values(&format!("hidden.{i}")), case.tolerance("hidden"), &what);
        }
        let logits = read(case.model.logits(hidden.clone())).unwrap();
        let normed = rows_of(&read(hidden).unwrap(), rows, width);
        // The final norm divides by the size of the residual stream, which here is near one or larger.
        case.assert_close(normed, file.values("final_norm"), 2.0 * case.tolerance("hidden"), "final_norm");
        let got = rows_of(&logits, rows, vocab);
        case.assert_close(got, file.values("logits"), case.tolerance("logits"), &format!("logits {length}"));

        if file.0.contains_key("greedy.ids") {
            let last = &logits[(ids.len() - 1) * vocab..];
            check_greedy(case, &file, &mut cache, last.to_vec());
        }
    }
}

fn check_greedy(case: &Case, file: &Tensors, cache: &mut Cache, mut logits: Vec<f32>) {
    let vocab = case.model.config.vocab_size;
    let expected = file.values("greedy.logits");
    let mut ids = Vec::new();
    for step in 0..24 {
        let row = &expected[step * vocab..(step + 1) * vocab];
        case.assert_close(logits.clone(), row, case.tolerance("logits"), &format!("greedy logits {step}"));
        let id = argmax(&logits);
        ids.push(id);
        logits = read(case.model.logits(case.model.forward(&[id], cache, None))).unwrap();
    }
    assert_eq!(ids, file.ids("greedy.ids"), "{}", case.name);
}

fn check_split_prefill(case: &Case) {
    let split = case.meta["prompts"]["200"]["split_prefill"].as_array().unwrap();
    let file = case.tensors("prompt_200.safetensors");
    let ids = file.ids("input_ids");
    let vocab = case.model.config.vocab_size;
    let expected = file.values("logits");
    let last = &expected[expected.len() - vocab..];
    let given: Vec<usize> = split.iter().map(|n| n.as_u64().unwrap() as usize).collect();
    for pieces in [given, vec![1, 2, 3, 58, 64, 65, 7], vec![199, 1]] {
        assert_eq!(pieces.iter().sum::<usize>(), 200);
        let mut cache = case.model.new_cache();
        let mut hidden = None;
        let mut start = 0;
        for piece in &pieces {
            hidden = Some(case.model.forward(&ids[start..start + piece], &mut cache, None));
            start += piece;
        }
        let hidden = hidden.unwrap();
        let n = hidden.dims()[0];
        let logits = read(case.model.logits(hidden.narrow(0, n - 1, 1))).unwrap();
        case.assert_close(logits, last, case.tolerance("logits"), &format!("logits of {pieces:?}"));
    }
}

fn check_delta_net_layer(case: &Case, layer: usize) {
    let Mixer::Delta(net) = &case.model.layers[layer].mixer else { panic!("a linear layer") };
    let file = case.tensors(&format!("gdn_layer{layer}.safetensors"));
    let config = &case.model.config;
    for length in [1, 5, 64, 65, 130] {
        let get = |name: &str| file.get(&format!("L{length}.{name}"));
        let x: Tensor<2> = case.tensor(get("x"));
        // In one piece, which is chunked when there is more than one token; then token by token.
        for pieces in [vec![length], vec![1; length]] {
            let mut state = DeltaState::zero(config, &case.model.device);
            let mut start = 0;
            let outputs: Vec<Tensor<2>> = pieces
                .iter()
                .map(|n| {
                    let y = net.forward(x.clone().narrow(0, start, *n), &mut state);
                    start += n;
                    y
                })
                .collect();
            let y = read(Tensor::cat(outputs, 0)).unwrap();
            let what = format!("gdn L{length} in {} pieces", pieces.len());
            case.assert_close(y, &get("y").1, case.tolerance("gdn_output"), &what);
            let recurrent = read(state.take_recurrent()).unwrap();
            case.assert_close(recurrent, &get("recurrent_state").1, case.tolerance("gdn_state"), &what);
            check_conv_state(case, read(state.conv).unwrap(), get("conv_state"), &what);
        }
    }
}

/// The reference keeps one column more than is needed, and the other axis first.
fn check_conv_state(case: &Case, got: Vec<f32>, (shape, values): &(Vec<usize>, Vec<f64>), what: &str) {
    let (channels, taps) = (shape[0], shape[1]);
    let column = |tap: usize| (0..channels).map(move |channel| values[channel * taps + tap]);
    let expected: Vec<f64> = (1..taps).flat_map(column).collect();
    case.assert_close(got, &expected, case.tolerance("gdn_state"), &format!("conv state, {what}"));
}

fn check_attention_layer(case: &Case, layer: usize) {
    let Mixer::Attention(attention) = &case.model.layers[layer].mixer else { panic!("a full layer") };
    let file = case.tensors(&format!("attention_layer{layer}.safetensors"));
    for kind in ["text", "mrope"] {
        let get = |name: &str| file.get(&format!("{kind}.{name}"));
        let x: Tensor<2> = case.tensor(get("x"));
        let t = x.dims()[0];
        let axis = |i: usize| get("position_ids").1[i * t..(i + 1) * t].iter().map(|p| *p as i64).collect();
        let positions = Positions([axis(0), axis(1), axis(2)]);
        let step = Step {
            rotation: case.model.rope.rotation(&positions, &case.model.device.tensors),
            mask: attention::causal_mask(0, t, &case.model.device),
        };
        let mut kv = Kv::new(&case.model.config, &case.model.device);
        let y = read(attention.forward(x, &mut kv, &step)).unwrap();
        case.assert_close(y, &get("y").1, case.tolerance("attention_output"), &format!("attention {kind}"));
        let (keys, _) = kv.first(t);
        let keys = read(keys.swap_dims(0, 1)).unwrap();
        case.assert_close(keys, &get("k").1, case.tolerance("attention_output"), &format!("keys {kind}"));
    }
}

fn linear_layer(case: &str) -> usize {
    if case == "dense-a" { 0 } else { 1 }
}

fn full_layer(case: &str) -> usize {
    if case == "dense-a" { 3 } else { 0 }
}

#[test]
fn prompts_give_the_reference_hidden_states_logits_and_greedy_ids_on_the_cpu() {
    for name in CASES {
        check_prompts(&Case::open(name, cpu()));
    }
}

#[test]
fn prompts_give_the_reference_hidden_states_logits_and_greedy_ids_on_a_gpu() {
    for name in CASES {
        check_prompts(&Case::open(name, gpu()));
    }
}

#[test]
fn a_prompt_read_in_pieces_gives_the_same_logits_on_the_cpu() {
    for name in CASES {
        check_split_prefill(&Case::open(name, cpu()));
    }
}

#[test]
fn a_prompt_read_in_pieces_gives_the_same_logits_on_a_gpu() {
    for name in CASES {
        check_split_prefill(&Case::open(name, gpu()));
    }
}

#[test]
fn a_delta_net_layer_agrees_chunked_and_step_by_step_on_the_cpu() {
    for name in CASES {
        check_delta_net_layer(&Case::open(name, cpu()), linear_layer(name));
    }
}

#[test]
fn a_delta_net_layer_agrees_chunked_and_step_by_step_on_a_gpu() {
    for name in CASES {
        check_delta_net_layer(&Case::open(name, gpu()), linear_layer(name));
    }
}

#[test]
fn an_attention_layer_agrees_for_text_and_three_axes_on_the_cpu() {
    for name in CASES {
        check_attention_layer(&Case::open(name, cpu()), full_layer(name));
    }
}

#[test]
fn an_attention_layer_agrees_for_text_and_three_axes_on_a_gpu() {
    for name in CASES {
        check_attention_layer(&Case::open(name, gpu()), full_layer(name));
    }
}

#[test]
fn rewinding_is_the_same_as_never_having_gone_on() {
    for case in CASES.map(|name| Case::open(name, cpu())) {
        let ids = case.tensors("prompt_200.safetensors").ids("input_ids");
        let model = &case.model;
        for cut in [1, 64, 100, 130] {
            let mut cache = model.new_cache();
            model.forward(&ids[..cut], &mut cache, None);
            let checkpoint = cache.checkpoint();
            let expected = read(model.forward(&ids[cut..140], &mut cache, None)).unwrap();

            model.forward(&ids[..60], &mut cache, None);
            cache.rewind(&checkpoint).unwrap();
            assert_eq!(cache.tokens(), &ids[..cut]);
            let again = read(model.forward(&ids[cut..140], &mut cache, None)).unwrap();
            assert_eq!(expected, again, "{} cut at {cut}", case.name);
        }
    }
}

#[test]
fn a_checkpoint_of_another_past_is_refused_and_changes_nothing() {
    let case = Case::open("dense-a", cpu());
    let ids = case.tensors("prompt_65.safetensors").ids("input_ids");
    let mut cache = case.model.new_cache();
    case.model.forward(&ids[..10], &mut cache, None);
    let early = cache.checkpoint();
    case.model.forward(&ids[10..20], &mut cache, None);
    let late = cache.checkpoint();
    cache.rewind(&early).unwrap();
    case.model.forward(&ids[30..50], &mut cache, None);
    assert!(cache.rewind(&late).is_err());
    assert_eq!(cache.len(), 30);
    cache.rewind(&early).unwrap();
    cache.reset();
    assert!(cache.rewind(&early).is_err());
    assert!(cache.is_empty());
}

#[test]
fn a_reset_cache_is_as_good_as_a_new_one() {
    let case = Case::open("dense-b", cpu());
    let ids = case.tensors("prompt_65.safetensors").ids("input_ids");
    let mut cache = case.model.new_cache();
    let first = read(case.model.forward(&ids, &mut cache, None)).unwrap();
    cache.reset();
    assert_eq!(first, read(case.model.forward(&ids, &mut cache, None)).unwrap());
}

#[test]
fn keys_and_values_grow_without_being_lost() {
    let case = Case::open("dense-a", cpu());
    let ids: Vec<u32> = (0..700).map(|i| i * 7 % 479).collect();
    let mut whole = case.model.new_cache();
    case.model.forward(&ids, &mut whole, None);
    let mut pieces = case.model.new_cache();
    for piece in ids.chunks(37) {
        case.model.forward(piece, &mut pieces, None);
    }
    for (a, b) in whole.layers_mut().iter().zip(pieces.layers_mut().iter()) {
        if let (LayerState::Kv(a), LayerState::Kv(b)) = (a, b) {
            let (a, b) = (read(a.first(700).0).unwrap(), read(b.first(700).0).unwrap());
            let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < case.tolerance("hidden"), "keys differ by {worst}");
        }
    }
}
