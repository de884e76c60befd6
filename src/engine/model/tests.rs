//! The model against the reference implementation's own numbers, on the CPU and on a GPU.
//!
//! Tolerances are those of each case's `meta.json`: ten times what f32 summation order alone moved the
//! reference. The GPU runs the same f32 arithmetic in another order (sums in trees, fused multiply-adds
//! where its compiler likes), which is what those factors are for: it is held to the same tolerances.

use serde_json::Value;

use super::*;
use crate::engine::cache::{DeltaState, Kv, LayerState};
use crate::engine::generate::read;
use crate::engine::golden::{self, Tensors, argmax, cpu, gpu};

struct Case {
    name: &'static str,
    model: Model,
    tolerance: Value,
    meta: Value,
}

impl Case {
    fn open(name: &'static str, device: OpenDevice) -> Self {
        let dir = golden::path(name, "model");
        let config = ModelConfig::open(&dir).unwrap();
        let checkpoint = Checkpoint::open(&dir).unwrap();
        let model = Model::load(config, &checkpoint, &dir, device).unwrap();
        let meta = golden::json(name, "golden/meta.json");
        Self { name, model, tolerance: meta["tolerance"].clone(), meta }
    }

    fn tolerance(&self, what: &str) -> f32 {
        self.tolerance[what].as_f64().unwrap() as f32
    }

    fn tensors(&self, file: &str) -> Tensors {
        Tensors::open(self.name, &format!("golden/{file}"))
    }

    fn tensor<const D: usize>(&self, (shape, values): &(Vec<usize>, Vec<f64>)) -> Tensor<D> {
        let shape: [usize; D] = shape.clone().try_into().unwrap();
        let values: Vec<f32> = values.iter().map(|v| *v as f32).collect();
        Tensor::from_data(TensorData::new(values, shape), &self.model.device.tensors)
    }

    fn assert_close(&self, got: Vec<f32>, expected: &[f64], tolerance: f32, what: &str) {
        golden::assert_close(&got, expected, tolerance.into(), &format!("{}: {what}", self.name));
    }
}

/// Rows `rows` of a flat matrix with `width` columns.
fn rows_of(values: &[f32], rows: &[f64], width: usize) -> Vec<f32> {
    rows.iter().flat_map(|row| values[*row as usize * width..(*row as usize + 1) * width].to_vec()).collect()
}

const CASES: [&str; 4] = ["dense-a", "dense-b", "moe", "next"];
/// Those with an MTP head.
const DRAFTING_CASES: [&str; 2] = ["dense-a", "moe"];

/// The numbers that are the keys of an object.
fn lengths(json: &Value) -> Vec<usize> {
    json.as_object().unwrap().keys().filter_map(|key| key.parse().ok()).collect()
}

impl Case {
    fn longest_prompt(&self) -> usize {
        lengths(&self.meta["prompts"]).into_iter().max().unwrap()
    }

    fn longest_ids(&self) -> Vec<u32> {
        self.tensors(&format!("prompt_{}.safetensors", self.longest_prompt())).ids("input_ids")
    }
}

fn keys(ids: &[u32]) -> Vec<TokenKey> {
    ids.iter().copied().map(TokenKey::from).collect()
}

fn check_prompts(case: &Case) {
    let (width, vocab) = (case.model.config.hidden_size, case.model.config.vocab_size);
    for length in lengths(&case.meta["prompts"]) {
        let file = case.tensors(&format!("prompt_{length}.safetensors"));
        let rows = file.values("positions");
        let ids = file.ids("input_ids");
        let mut cache = case.model.new_cache();
        let mut taps = Vec::new();
        let hidden = case.model.forward(&ids, &mut cache, Some(&mut taps));
        assert_eq!(cache.tokens(), keys(&ids));
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
    let length = case.longest_prompt();
    let file = case.tensors(&format!("prompt_{length}.safetensors"));
    let ids = file.ids("input_ids");
    let vocab = case.model.config.vocab_size;
    let expected = file.values("logits");
    let last = &expected[expected.len() - vocab..];
    let given = case.meta["prompts"][length.to_string()]["split_prefill"].as_array();
    let given = given.map(|split| split.iter().map(|n| n.as_u64().unwrap() as usize).collect());
    let pieces = [vec![1, 2, 3, length - 13, 7], vec![length - 1, 1]];
    for pieces in given.into_iter().chain(pieces) {
        assert_eq!(pieces.iter().sum::<usize>(), length);
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
                    let step = case.model.step(start, &Positions::text(start as i64, *n));
                    let x = x.clone().narrow(0, start, *n);
                    let y = net.forward(x, std::iter::once(&mut state), &step);
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
    // Qwen3-Next sees no pictures.
    for kind in ["text", "mrope"].into_iter().filter(|kind| file.0.contains_key(&format!("{kind}.x"))) {
        let get = |name: &str| file.get(&format!("{kind}.{name}"));
        let x: Tensor<2> = case.tensor(get("x"));
        let t = x.dims()[0];
        let axis = |i: usize| get("position_ids").1[i * t..(i + 1) * t].iter().map(|p| *p as i64).collect();
        let positions = Positions([axis(0), axis(1), axis(2)]);
        let step = case.model.step(0, &positions);
        let mut kv = Kv::new(&case.model.config, &case.model.device);
        let y = read(attention.forward(x, std::iter::once(&mut kv), &step)).unwrap();
        case.assert_close(y, &get("y").1, case.tolerance("attention_output"), &format!("attention {kind}"));
        let (keys, _) = kv.first(t);
        let keys = read(keys.swap_dims(0, 1)).unwrap();
        case.assert_close(keys, &get("k").1, case.tolerance("attention_output"), &format!("keys {kind}"));
    }
}

/// The cases that have layers apart, and which layers: a linear and a full one.
const LAYERS: [(&str, usize, usize); 3] = [("dense-a", 0, 3), ("dense-b", 1, 0), ("next", 0, 3)];

fn check_moe_layer(case: &Case) {
    let FeedForward::Sparse(moe) = &case.model.layers[0].mlp else { panic!("a layer with experts") };
    let file = case.tensors("moe_layer0.safetensors");
    let x: Tensor<2> = case.tensor(file.get("x"));
    let logits = read(moe.router_logits(x.clone())).unwrap();
    case.assert_close(
        logits.clone(),
        file.values("router_logits"),
        case.tolerance("hidden"),
        "router logits",
    );
    let config = case.model.config.moe.as_ref().unwrap();
    let k = config.num_experts_per_tok;
    let expected: Vec<(Vec<u32>, &[f64])> = file
        .ids("topk_index")
        .chunks_exact(k)
        .map(<[u32]>::to_vec)
        .zip(file.values("topk_weight").chunks_exact(k))
        .collect();
    for (logits, (experts, weights)) in logits.chunks_exact(config.num_experts).zip(expected) {
        for route in moe::choose(logits, k, config.norm_topk_prob) {
            let rank = experts.iter().position(|expert| *expert as usize == route.expert);
            let weight = weights[rank.expect("the reference chose the same experts")];
            case.assert_close(vec![route.weight], &[weight], case.tolerance("hidden"), "a route's weight");
        }
    }
    let y = read(moe.forward(x)).unwrap();
    case.assert_close(y, file.values("y"), case.tolerance("hidden"), "experts");
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
    for (name, linear, _) in LAYERS {
        check_delta_net_layer(&Case::open(name, cpu()), linear);
    }
}

#[test]
fn a_delta_net_layer_agrees_chunked_and_step_by_step_on_a_gpu() {
    for (name, linear, _) in LAYERS {
        check_delta_net_layer(&Case::open(name, gpu()), linear);
    }
}

#[test]
fn an_attention_layer_agrees_for_text_and_three_axes_on_the_cpu() {
    for (name, _, full) in LAYERS {
        check_attention_layer(&Case::open(name, cpu()), full);
    }
}

#[test]
fn an_attention_layer_agrees_for_text_and_three_axes_on_a_gpu() {
    for (name, _, full) in LAYERS {
        check_attention_layer(&Case::open(name, gpu()), full);
    }
}

#[test]
fn experts_are_those_of_the_reference_on_the_cpu() {
    for name in ["moe", "next"] {
        check_moe_layer(&Case::open(name, cpu()));
    }
}

#[test]
fn experts_are_those_of_the_reference_on_a_gpu() {
    for name in ["moe", "next"] {
        check_moe_layer(&Case::open(name, gpu()));
    }
}

#[test]
fn rewinding_is_the_same_as_never_having_gone_on() {
    for case in CASES.map(|name| Case::open(name, cpu())) {
        let ids = case.longest_ids();
        let model = &case.model;
        for cut in [1, 64, ids.len() - 70, ids.len() - 1] {
            let mut cache = model.new_cache();
            model.forward(&ids[..cut], &mut cache, None);
            let checkpoint = cache.checkpoint();
            let expected = read(model.forward(&ids[cut..], &mut cache, None)).unwrap();

            model.forward(&ids[..60], &mut cache, None);
            cache.rewind(&checkpoint).unwrap();
            assert_eq!(cache.tokens(), keys(&ids[..cut]));
            let again = read(model.forward(&ids[cut..], &mut cache, None)).unwrap();
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

/// What the golden traces say of one round.
struct Round {
    draft: Vec<u32>,
    verified: Vec<u32>,
    emitted: Vec<u32>,
}

fn rounds(trace: &Value) -> Vec<Round> {
    let ids =
        |value: &Value| value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    let rounds = trace["iterations"].as_array().unwrap().iter();
    rounds
        .map(|round| Round {
            draft: ids(&round["draft"]),
            verified: ids(&round["verified"]),
            emitted: ids(&round["emitted"]),
        })
        .collect()
}

fn best(guess: Guess) -> Result<Option<u32>, crate::engine::generate::EngineError> {
    Ok(Some(argmax(&read(guess.logits)?)))
}

/// Reads a prompt, in pieces, with the MTP head behind it.
fn drafting_cache(case: &Case, ids: &[u32], piece: usize) -> Cache {
    let mut cache = case.model.new_drafting_cache();
    for piece in ids.chunks(piece) {
        case.model.forward(piece, &mut cache, None);
        case.model.catch_up(&mut cache);
    }
    cache
}

fn check_mtp(case: &Case) {
    let model = &case.model;
    let head = model.mtp.as_ref().unwrap();
    let file = case.tensors("mtp.safetensors");
    let vocab = model.config.vocab_size;
    for length in lengths(&golden::json(case.name, "golden/mtp.json")) {
        let get = |name: &str| file.get(&format!("L{length}.{name}"));
        let (ids, next) =
            (file.ids(&format!("L{length}.input_ids")), file.ids(&format!("L{length}.next_ids")));
        let mut cache = model.new_cache();
        let hidden = model.forward(&ids, &mut cache, None);
        let what = |part: &str| format!("mtp {length} {part}");
        // The final norm divides by the size of the residual stream, which here is near one or larger.
        let tolerance = 2.0 * case.tolerance("hidden");
        case.assert_close(
            read(hidden.clone()).unwrap(),
            &get("trunk_final_norm").1,
            tolerance,
            &what("trunk"),
        );

        let mut kv = LayerState::Kv(Kv::new(&model.config, &model.device));
        let step = model.step(0, &Positions::text(0, length));
        let states = head.forward(hidden, model.embed(&next), &mut kv, &step);
        case.assert_close(read(states.clone()).unwrap(), &get("mtp_hidden").1, tolerance, &what("states"));
        let logits = read(model.logits(states)).unwrap();
        case.assert_close(logits, &get("mtp_logits").1, case.tolerance("mtp_logits"), &what("logits"));

        for piece in [length, 7] {
            let mut cache = drafting_cache(case, &ids, piece);
            let mut rows = Vec::new();
            let drafts = model.draft(*next.last().unwrap(), 3, &mut cache, None, |guess| {
                rows.extend(read(guess.logits.clone())?);
                best(guess)
            });
            assert_eq!(drafts.unwrap().len(), 3);
            assert_eq!(rows.len(), 3 * vocab);
            case.assert_close(rows, &get("draft3_logits").1, case.tolerance("mtp_logits"), &what("chain"));
        }
    }
}

/// Draft and verify as the traces have it: same drafts, same verdicts, and the greedy text.
fn check_mtp_traces(case: &Case) {
    let model = &case.model;
    let vocab = model.config.vocab_size;
    let traces = golden::json(case.name, "golden/mtp.json");
    for length in lengths(&traces) {
        let ids = case.tensors("mtp.safetensors").ids(&format!("L{length}.input_ids"));
        let golden = &traces[length.to_string()];
        for k in [1, 3] {
            let trace = &golden["traces"][format!("k{k}")];
            let mut cache = drafting_cache(case, &ids, 256);
            let mut next = golden["greedy"][0].as_u64().unwrap() as u32;
            for (i, round) in rounds(trace).into_iter().enumerate() {
                let drafts = model.draft(next, k, &mut cache, None, best).unwrap();
                assert_eq!(drafts, round.draft, "{length} k{k} round {i}");
                let tokens = [vec![next], drafts.clone()].concat();
                let tokens = Tokens { is_draft: true, ..Tokens::text(&tokens, cache.next_position()) };
                let logits = read(model.logits(model.forward_tokens(tokens, &mut cache, None))).unwrap();
                let verified: Vec<u32> = logits.chunks_exact(vocab).map(argmax).collect();
                assert_eq!(verified, round.verified, "{length} k{k} round {i}");
                let accepted = drafts.iter().zip(&verified).take_while(|(draft, id)| draft == id).count();
                assert!(round.emitted.len() <= accepted + 1);
                assert_eq!(round.emitted, verified[..round.emitted.len()], "{length} k{k} round {i}");
                cache.keep(1 + accepted, 1 + k);
                next = verified[accepted];
            }
        }
    }
}

#[test]
fn drafts_are_those_of_the_reference_on_the_cpu() {
    for case in DRAFTING_CASES.map(|name| Case::open(name, cpu())) {
        check_mtp(&case);
        check_mtp_traces(&case);
    }
}

#[test]
fn drafts_are_those_of_the_reference_on_a_gpu() {
    for case in DRAFTING_CASES.map(|name| Case::open(name, gpu())) {
        check_mtp(&case);
        check_mtp_traces(&case);
    }
}

/// Everything that a cache holds, on the host.
fn contents(cache: &mut Cache, len: usize) -> Vec<f32> {
    let mut values = Vec::new();
    for layer in cache.layers_mut() {
        match layer {
            LayerState::Kv(kv) => {
                let (keys, kept) = kv.first(len);
                values.extend(read(keys).unwrap());
                values.extend(read(kept).unwrap());
            }
            LayerState::Delta(state) => {
                let recurrent = state.take_recurrent();
                values.extend(read(recurrent.clone()).unwrap());
                state.put_recurrent(recurrent);
                values.extend(read(state.conv.clone()).unwrap());
            }
        }
    }
    values
}

#[test]
fn a_draft_leaves_what_single_tokens_would_have_left_to_the_last_bit() {
    for case in CASES.map(|name| Case::open(name, cpu())) {
        let model = &case.model;
        let ids = case.longest_ids();
        for (start, t) in [(1, 2), (5, 3), (63, 4), (64, 5), (90, 9)] {
            for keep in 1..=t {
                let mut alone = model.new_cache();
                model.forward(&ids[..start], &mut alone, None);
                let mut drafted = model.new_cache();
                model.forward(&ids[..start], &mut drafted, None);

                let rows: Vec<Tensor<2>> =
                    ids[start..start + t].iter().map(|id| model.forward(&[*id], &mut alone, None)).collect();
                let tokens = &ids[start..start + t];
                let tokens = Tokens { is_draft: true, ..Tokens::text(tokens, drafted.next_position()) };
                let together = model.forward_tokens(tokens, &mut drafted, None);
                let what = format!("{} {keep} of {t} behind {start}", case.name);
                assert_eq!(read(together).unwrap(), read(Tensor::cat(rows, 0)).unwrap(), "{what}");

                drafted.keep(keep, t);
                let mut short = model.new_cache();
                model.forward(&ids[..start], &mut short, None);
                for id in &ids[start..start + keep] {
                    model.forward(&[*id], &mut short, None);
                }
                assert_eq!(drafted.tokens(), short.tokens());
                assert_eq!(drafted.next_position(), short.next_position());
                let len = start + keep;
                assert!(
                    contents(&mut drafted, len) == contents(&mut short, len),
                    "{what}: the caches differ"
                );
            }
        }
    }
}

/// Sequences that have read as many tokens as `pasts` says.
fn caches(model: &Model, ids: &[u32], pasts: &[usize]) -> Vec<Cache> {
    let read_some = |past: &usize| {
        let mut cache = model.new_drafting_cache();
        if *past > 0 {
            model.forward(&ids[ids.len() - past..], &mut cache, None);
        }
        cache
    };
    pasts.iter().map(read_some).collect()
}

/// One pass over what each sequence reads next, and the caches afterwards.
fn together(model: &Model, next: &[(&[u32], bool)], caches: &mut [Cache]) -> Vec<f32> {
    let sequences = next.iter().zip(caches).map(|((ids, is_draft), cache)| {
        (Tokens { is_draft: *is_draft, ..Tokens::text(ids, cache.next_position()) }, cache)
    });
    let sequences = sequences.collect();
    read(model.logits(model.forward_together(sequences, None))).unwrap()
}

#[test]
fn a_sequence_gets_the_same_numbers_alone_and_in_a_small_company_to_the_last_bit() {
    for case in CASES.map(|name| Case::open(name, cpu())) {
        let model = &case.model;
        let ids = case.longest_ids();
        // Decoding; among drafts; beside prompts that have just begun and ones in the middle.
        let companies: [&[(usize, usize, bool)]; 5] = [
            &[(7, 1, false)],
            &[(7, 1, false), (64, 1, false), (1, 1, false)],
            &[(3, 1, false), (90, 1, false), (65, 1, false), (63, 1, false), (3, 1, false), (2, 1, false)],
            &[(20, 4, true), (5, 1, false), (33, 9, true), (64, 2, true)],
            &[(0, 12, false), (12, 1, false), (31, 9, false), (8, 3, true), (0, 1, false)],
        ];
        for company in companies {
            let what = format!("{} {company:?}", case.name);
            let pasts: Vec<usize> = company.iter().map(|(past, ..)| *past).collect();
            let next: Vec<(&[u32], bool)> =
                company.iter().map(|(past, t, is_draft)| (&ids[past / 2..past / 2 + t], *is_draft)).collect();
            let mut joined = caches(model, &ids, &pasts);
            let mut alone = caches(model, &ids, &pasts);
            // Twice: the second pass reads what the first has left.
            for _ in 0..2 {
                let each = next.iter().zip(&mut alone);
                let expected: Vec<f32> = each
                    .flat_map(|(next, cache)| {
                        together(model, std::slice::from_ref(next), std::slice::from_mut(cache))
                    })
                    .collect();
                assert!(together(model, &next, &mut joined) == expected, "{what}: the logits differ");
                for (i, (joined, alone)) in joined.iter_mut().zip(&mut alone).enumerate() {
                    if next[i].1 {
                        joined.keep(1, next[i].0.len());
                        alone.keep(1, next[i].0.len());
                    }
                    assert_eq!(joined.tokens(), alone.tokens(), "{what}");
                    assert_eq!(joined.next_position(), alone.next_position(), "{what}");
                    let len = alone.len();
                    assert!(contents(joined, len) == contents(alone, len), "{what}: cache {i} differs");
                }
            }
            // What waits for the MTP head came along.
            for (joined, alone) in joined.iter_mut().zip(&mut alone) {
                let drafts = |cache: &mut Cache| model.draft(ids[0], 3, cache, None, best).unwrap();
                assert_eq!(drafts(joined), drafts(alone), "{what}: the drafts differ");
            }
        }
    }
}
