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
    assert_eq!(ModelConfig { tie_word_embeddings: None, vision: None, ..config }, parse(small()).unwrap());
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
        ("model_type", json!("qwen3_5_moe"), "not supported yet"),
    ] {
        let error = parse(with(key, value)).unwrap_err();
        assert!(error.contains(says), "{key}: {error}");
    }
}
