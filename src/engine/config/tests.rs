use super::*;
use serde_json::json;

fn parse(json: Value) -> Result<ModelConfig, String> {
    ModelConfig::from_json(&json).map_err(|error| match error {
        ParseError::Invalid(why) => why,
        ParseError::Config(error) => error.to_string(),
    })
}

/// The text part of the released 0.8B config.
fn small() -> Value {
    json!({
        "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 1024, "intermediate_size": 3584,
        "num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "linear_num_key_heads": 16, "linear_num_value_heads": 16, "full_attention_interval": 4,
    })
}

fn with(key: &str, value: Value) -> Value {
    let mut config = small();
    config[key] = value;
    config
}

#[test]
fn the_interval_puts_full_attention_on_every_fourth_layer() {
    let config = parse(small()).unwrap();
    let full: Vec<usize> = (0..24).filter(|i| config.layer_types[*i] == LayerType::FullAttention).collect();
    assert_eq!(full, [3, 7, 11, 15, 19, 23]);
    assert_eq!((config.conv_dim(), config.rope.rotary_dim), (6144, 64));
    assert_eq!(config.rope.mrope_section, [11, 11, 10]);
}

#[test]
fn a_nested_config_reads_like_the_flat_one() {
    let mut text = small();
    text["model_type"] = json!("qwen3_5_text");
    let nested = json!({
        "model_type": "qwen3_5", "text_config": text, "tie_word_embeddings": true, "vision_config": {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4},
    });
    let config = parse(nested).unwrap();
    assert_eq!(config.tie_word_embeddings, Some(true));
    assert!(config.vision.is_some());
    assert_eq!(config.model_type, "qwen3_5");
    let flat = ModelConfig { model_type: "qwen3_5_text", tie_word_embeddings: None, vision: None, ..config };
    assert_eq!(flat, parse(small()).unwrap());
}

#[test]
fn old_rope_keys_are_understood() {
    let mut config = small();
    config["rope_theta"] = json!(10000.0);
    config["partial_rotary_factor"] = json!(0.5);
    config["rope_scaling"] = json!({"type": "default", "mrope_section": [24, 20, 20]});
    let rope = parse(config).unwrap().rope;
    assert_eq!(rope, RopeConfig { theta: 10000.0, rotary_dim: 128, mrope_section: [24, 20, 20] });
}

#[test]
fn values_that_would_break_the_model_are_refused_by_name() {
    for (key, value, says) in [
        ("num_hidden_layers", json!(0), "num_hidden_layers is 0"),
        ("num_hidden_layers", json!(1_000_000_000), "num_hidden_layers is 1000000000"),
        ("hidden_size", json!(-3), "hidden_size is -3"),
        ("hidden_size", json!("big"), "hidden_size is \"big\""),
        ("num_key_value_heads", json!(3), "not a multiple of num_key_value_heads"),
        ("linear_num_value_heads", json!(17), "not a multiple of linear_num_key_heads"),
        ("layer_types", json!(["full_attention"]), "1 entries for 24 layers"),
        ("layer_types", json!(vec!["sliding"; 24]), "unknown entry"),
        ("rms_norm_eps", json!(0.0), "rms_norm_eps is 0"),
        ("partial_rotary_factor", json!(3.0), "partial_rotary_factor"),
        ("rope_parameters", json!({"rope_type": "yarn"}), "rope type \"yarn\""),
        ("rope_parameters", json!([]), "rope_parameters is []"),
        ("rope_parameters", json!({"mrope_interleaved": false}), "mrope_interleaved other than true"),
        ("hidden_act", json!("gelu"), "hidden_act \"gelu\""),
        ("attention_bias", json!(true), "attention_bias other than false"),
        ("attn_output_gate", json!(false), "attn_output_gate other than true"),
        ("model_type", json!("llama"), "not supported"),
        ("model_type", json!("qwen4_exp"), "not supported"),
        ("model_type", json!(7), "not supported"),
        ("text_config", json!({"model_type": "qwen3_5_moe_text"}), "a text_config of \"qwen3_5_moe_text\""),
    ] {
        let error = parse(with(key, value)).unwrap_err();
        assert!(error.contains(says), "{key}: {error}");
    }
}

/// The config of the released Qwen3-Next, and the text part of the 35B-A3B's.
fn sparse(model_type: &str) -> Value {
    let mut config = with("model_type", json!(model_type));
    config.as_object_mut().unwrap().remove("intermediate_size");
    for (key, value) in [
        ("num_experts", 256),
        ("num_experts_per_tok", 8),
        ("moe_intermediate_size", 384),
        ("hidden_size", 2048),
    ] {
        config[key] = json!(value);
    }
    config["shared_expert_intermediate_size"] = json!(640);
    config
}

#[test]
fn every_layer_of_a_moe_model_has_experts_and_its_weights_are_normalised() {
    let mut config = sparse("qwen3_5_moe_text");
    // The reference doesn't know these keys for this model type.
    config["norm_topk_prob"] = json!(false);
    config["mlp_only_layers"] = json!([0]);
    let config = parse(config).unwrap();
    let expected = MoeConfig {
        num_experts: 256,
        num_experts_per_tok: 8,
        moe_intermediate_size: 384,
        shared_expert_intermediate_size: Some(640),
        norm_topk_prob: true,
        sparse_layers: vec![true; 24],
    };
    assert_eq!(config.moe, Some(expected));
    assert!(config.moe_of_layer(0).is_some());
    assert_eq!(parse(small()).unwrap().moe, None);
}

#[test]
fn qwen3_next_says_which_layers_are_dense() {
    let mut config = sparse("qwen3_next");
    config["decoder_sparse_step"] = json!(2);
    config["mlp_only_layers"] = json!([3, 4, 99]);
    config["norm_topk_prob"] = json!(false);
    config["shared_expert_intermediate_size"] = json!(0);
    let config = parse(config).unwrap();
    let sparse: Vec<usize> = (0..8).filter(|i| config.moe_of_layer(*i).is_some()).collect();
    assert_eq!(sparse, [1, 5, 7]);
    let moe = config.moe.unwrap();
    assert!(!moe.norm_topk_prob);
    assert_eq!(moe.shared_expert_intermediate_size, None);
}

#[test]
fn what_experts_cannot_be_is_refused_by_name() {
    for (key, value, says) in [
        ("num_experts", json!(0), "num_experts is 0"),
        ("num_experts", json!(7), "num_experts_per_tok (8) is more than num_experts (7)"),
        ("num_experts_per_tok", json!(0), "num_experts_per_tok is 0"),
        ("moe_intermediate_size", json!("wide"), "moe_intermediate_size is \"wide\""),
        ("shared_expert_intermediate_size", json!(-1), "shared_expert_intermediate_size is -1"),
        ("decoder_sparse_step", json!(0), "decoder_sparse_step is 0"),
        ("mlp_only_layers", json!(3), "mlp_only_layers is 3"),
        ("mlp_only_layers", json!([-1]), "mlp_only_layers is [-1]"),
        ("norm_topk_prob", json!("yes"), "norm_topk_prob is \"yes\""),
    ] {
        let mut config = sparse("qwen3_next");
        config[key] = value;
        let error = parse(config).unwrap_err();
        assert!(error.contains(says), "{key}: {error}");
    }
}
