use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::engine::golden;

const MIB: u64 = 1 << 20;

/// The released 0.8B model, with its tower.
fn small() -> ModelConfig {
    let config = json!({
        "model_type": "qwen3_5",
        "vision_config": {"depth": 12, "hidden_size": 768, "intermediate_size": 3072, "num_heads": 12},
        "text_config": {
            "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 1024, "intermediate_size": 3584,
            "num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
            "linear_num_key_heads": 16, "linear_num_value_heads": 16, "full_attention_interval": 4,
        },
    });
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    ModelConfig::open(dir.path()).unwrap()
}

fn plan(config: &ModelConfig) -> Plan<'_> {
    let weights = Weights { text: 1436 * MIB, vision: Some(192 * MIB) };
    Plan { config, weights, has_mtp: true, picture_pixels: 1 << 24, is_gpu: false, bits: None, parallel: 1 }
}

#[test]
fn the_terms_are_those_of_the_specification() {
    let config = small();
    let needs = plan(&config).needs(32_768);
    // 12,288 bytes a token in bf16 and 2,048 for the head; f32 here, and the keys of one layer a second time.
    assert_eq!(needs.kv_cache, 32_768 * (2 * (12_288 + 2_048) + 2 * 1_024));
    // 18 MiB of recurrent states and 1.27 MiB of the convolution, once to go on and once to go back to.
    assert_eq!(needs.states, 2 * (18 * MIB + 18 * 3 * 6_144 * 4));
    assert!((230 * MIB..=256 * MIB).contains(&needs.checkpoints), "{needs:?}");
    assert_eq!((needs.weights, needs.vision), (1436 * MIB, 192 * MIB));
    assert_eq!(needs.total(), needs.terms().iter().map(|(_, bytes)| bytes).sum::<u64>());

    let without_head = Plan { has_mtp: false, ..plan(&config) }.needs(32_768);
    assert!(without_head.kv_cache < needs.kv_cache && without_head.states == needs.states / 2);
    let gpu = Plan { is_gpu: true, ..plan(&config) }.needs(32_768);
    assert!(gpu.kv_cache > needs.kv_cache, "room for half as many tokens again is taken at once");
}

#[test]
fn short_contexts_need_what_a_picture_does() {
    let config = small();
    let seeing = plan(&config);
    let weights = Weights { vision: None, ..seeing.weights };
    let blind = Plan { weights, ..plan(&config) };
    let (seen, read) = (seeing.needs(256).workspace, blind.needs(256).workspace);
    assert!(seen > 4 * read, "{seen} {read}");
    assert_eq!(blind.needs(256).vision, 0);
    assert!(blind.needs(262_144).workspace > read);
    let nearsighted = Plan { picture_pixels: 65_536, ..plan(&config) };
    assert!(nearsighted.needs(256).workspace < seen / 4);
}

#[test]
fn weights_are_counted_as_they_are_loaded() {
    let bytes = |case: &str, file: &str, is_gpu| {
        let path = golden::path(case, file);
        let config = ModelConfig::open(&path).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        (Plan::new(&path, &config, &checkpoint, is_gpu, None).unwrap().weights, checkpoint.total_bytes())
    };
    let (dense, file) = bytes("dense-a", "model", false);
    assert_eq!(dense, Weights { text: file, vision: None });
    let (seeing, file) = bytes("vision", "model", false);
    assert_eq!(seeing.text + seeing.vision.unwrap(), file);
    // Blocks of 34 bytes become 32 numbers of four.
    let (mapped, _) = bytes("gguf", "dense-a-q8_0.gguf", false);
    let (uploaded, _) = bytes("gguf", "dense-a-q8_0.gguf", true);
    let ratio = uploaded.text as f64 / mapped.text as f64;
    assert!((2.0..=128.0 / 34.0).contains(&ratio), "{ratio}");
}

#[test]
fn a_refusal_has_the_numbers_and_a_way_out() {
    let config = small();
    let plan = plan(&config);
    let all = plan.needs(32_768).total();
    assert_eq!(plan.check(32_768, all), Ok(()));
    let said = plan.check(32_768, all - 1).unwrap_err().to_string();
    assert!(said.starts_with("with a context of 32768 tokens the model needs "), "{said}");
    assert!(
        said.contains("weights 1.40 GiB, vision tower 192 MiB, KV cache 960 MiB, linear states 38.5 MiB")
    );
    assert!(said.ends_with("; --context 32512 fits, and --force loads it as it is"), "{said}");
    let hopeless = plan.check(32_768, 1436 * MIB).unwrap_err();
    assert_eq!(hopeless.fitting_context, None);
    assert!(hopeless.to_string().contains("no context would fit"), "{hopeless}");
}

proptest! {
    #[test]
    fn the_suggested_context_fits_and_one_step_more_does_not(
        wanted in 16usize..300_000,
        available in 0u64..12_000 * MIB,
        has_mtp: bool,
        is_gpu: bool,
    ) {
        let config = small();
        let plan = Plan { has_mtp, is_gpu, ..plan(&config) };
        let fits = |tokens| plan.needs(tokens).total() <= available;
        match plan.check(wanted, available) {
            Ok(()) => prop_assert!(fits(wanted)),
            Err(TooBig { fitting_context: None, .. }) => {
                prop_assert!(!fits(wanted) && (wanted < CONTEXT_STEP || !fits(CONTEXT_STEP)));
            }
            Err(TooBig { fitting_context: Some(tokens), .. }) => {
                prop_assert!(!fits(wanted) && tokens < wanted && tokens % CONTEXT_STEP == 0);
                prop_assert!(fits(tokens) && !fits(tokens + CONTEXT_STEP));
            }
        }
    }
}

#[test]
fn sizes_have_three_digits() {
    let written = |bytes| ByteSize(bytes).to_string();
    assert_eq!(written(0), "0 B");
    assert_eq!(written(1023), "1023 B");
    assert_eq!(written(1024), "1.00 KiB");
    assert_eq!(written(10_240 * MIB - 1), "10.0 GiB");
    assert_eq!(written(1023 * MIB + 1023 * 1024), "1.00 GiB");
    assert_eq!(written(u64::MAX), "16.0 EiB");
}
