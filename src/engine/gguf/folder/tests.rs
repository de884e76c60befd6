use std::fs;

use super::*;
use crate::engine::config::ModelConfig;
use crate::engine::device::DeviceChoice;
use crate::engine::generate::{Engine, LoadOptions};
use crate::engine::golden;
use crate::engine::prompt::ChatTemplate;
use crate::engine::sampler::GenerationConfig;
use crate::engine::tokenizer::Tokenizer;
use crate::engine::vision::processor_config::ProcessorConfig;
use crate::engine::weights::Checkpoint;
use crate::engine::weights::quantised::{Bits, Quant};

fn fixture(name: &str) -> PathBuf {
    golden::path("gguf", &format!("{name}.gguf"))
}

/// A folder with copies of fixtures under other names.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (fixture_name, name) in files {
        fs::copy(fixture(fixture_name), dir.path().join(name)).unwrap();
    }
    dir
}

#[test]
fn the_keys_of_a_file_say_what_the_folder_said() {
    let cases =
        [("dense-a-bf16", "dense-a"), ("dense-b-f32", "dense-b"), ("moe-bf16", "moe"), ("next-bf16", "next")];
    for (file, case) in cases {
        let original = golden::path(case, "model");
        let expected = ModelConfig::open(&original).unwrap();
        let mut got = ModelConfig::open(&fixture(file)).unwrap();
        // The converter takes the end of an answer from the tokenizer and not from config.json.
        got.eos_token_ids.clone_from(&expected.eos_token_ids);
        // There is no tower beside this one.
        assert_eq!(got.vision, None);
        got.vision.clone_from(&expected.vision);
        // Nor does it say whether the config stood alone or beside that of a tower.
        assert_eq!(got.model_type, expected.model_type.trim_end_matches("_text"));
        got.model_type = expected.model_type;
        assert_eq!(got, expected, "{file}");

        let template = golden::path(case, "model/chat_template.jinja");
        let text = find(&fixture(file)).unwrap().unwrap().text("chat_template.jinja").unwrap();
        assert_eq!(text.unwrap(), fs::read_to_string(template).unwrap());
        assert!(ChatTemplate::open(&fixture(file)).is_ok());

        let got = GenerationConfig::open(&fixture(file)).unwrap();
        let expected = GenerationConfig::open(&original).unwrap();
        assert_eq!(
            (got.temperature, got.top_k, got.top_p),
            (expected.temperature, expected.top_k, expected.top_p)
        );
        assert!(got.top_k.is_some());
    }
}

#[test]
fn a_tokenizer_made_from_keys_is_the_original() {
    let original = Tokenizer::open(&golden::path("dense-a", "model")).unwrap();
    let got = Tokenizer::open(&fixture("dense-a-bf16")).unwrap();
    assert_eq!(got.vocab_size(), original.vocab_size());
    let texts = [
        "Hello, world!  12345 \n\n\t x",
        "<|im_start|>user\nWhat's <think>this</think>?<|im_end|>\n",
        "สวัสดี नमस्ते مَرْحَبًا 🦜 e\u{301}",
        "<tool_call>{\"a\": 1}</tool_call><|vision_start|><|image_pad|><|vision_end|>",
    ];
    for text in texts {
        let ids = original.encode(text).unwrap();
        assert_eq!(got.encode(text).unwrap(), ids, "{text}");
        assert_eq!(got.decode(&ids), original.decode(&ids), "{text}");
        let protected = original.protect(text).into_owned();
        assert_eq!(got.encode(&got.protect(text)).unwrap(), original.encode(&protected).unwrap(), "{text}");
    }
}

#[test]
fn a_model_is_found_with_its_vision_tower() {
    let original = golden::path("vision", "model");
    let dir = folder(&[
        ("vision/vision-bf16", "model-bf16.gguf"),
        ("vision/mmproj-vision-f16", "mmproj-model-f16.gguf"),
    ]);
    for path in [dir.path().to_owned(), dir.path().join("model-bf16.gguf")] {
        let config = ModelConfig::open(&path).unwrap();
        let expected = ModelConfig::open(&original).unwrap();
        assert_eq!(config.vision, expected.vision);
        let vision = config.vision.unwrap();
        let processor = ProcessorConfig::open(&path, &vision).unwrap();
        assert_eq!(processor.layout, ProcessorConfig::open(&original, &vision).unwrap().layout);
        assert!(Checkpoint::open(&path).unwrap().contains("model.visual.patch_embed.proj.weight"));
        let line = describe(&find(&path).unwrap().unwrap().open().unwrap());
        assert_eq!(
            line,
            "model-bf16.gguf: GGUF, weights in BF16, F16, F32; pictures by mmproj-model-f16.gguf"
        );
    }
    // The tower of a model with another width is not this one's.
    let mixed = folder(&[("dense-b-f32", "b.gguf"), ("vision/mmproj-vision-f16", "mmproj.gguf")]);
    assert_eq!(ModelConfig::open(&mixed.path().join("b.gguf")).unwrap().vision, None);
}

#[test]
fn it_is_clear_which_file_is_meant_or_the_choice_is_named() {
    let dir = folder(&[("dense-a-q8_0", "a.gguf"), ("dense-b-f32", "b.gguf")]);
    let error = ModelConfig::open(dir.path()).unwrap_err().to_string();
    assert!(
        error.ends_with("holds several models (a.gguf, b.gguf); name one of them with --model"),
        "{error}"
    );
    assert!(ModelConfig::open(&dir.path().join("b.gguf")).is_ok());

    let dir = folder(&[("vision/mmproj-vision-f16", "tower.gguf")]);
    let error = ModelConfig::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("a vision tower (mmproj) by itself"), "{error}");

    // A folder in Hub layout is read as such, whatever lies beside it.
    let dir = folder(&[("dense-b-f32", "b.gguf")]);
    fs::copy(golden::path("dense-a", "model/config.json"), dir.path().join("config.json")).unwrap();
    assert_eq!(find(dir.path()).unwrap(), None);

    fs::write(dir.path().join("not.gguf"), "text").unwrap();
    let error = ModelConfig::open(&dir.path().join("not.gguf")).unwrap_err().to_string();
    assert!(
        error.contains("not.gguf is not a GGUF file that can be used: it doesn't begin with GGUF"),
        "{error}"
    );
}

#[test]
fn shards_belong_together() {
    assert_eq!(shard_of("q-00001-of-00003.gguf"), Some(("q", 1, 3)));
    assert_eq!(shard_of("q-1-of-3.gguf"), None);
    assert_eq!(shard_of("q.gguf"), None);
    assert_eq!(shard_of("é"), None);
    let (one, two) = ("dense-b-f16-00001-of-00002", "dense-b-f16-00002-of-00002");
    let dir = folder(&[(one, "m-00001-of-00002.gguf"), (two, "m-00002-of-00002.gguf")]);
    let names = |path: &Path| -> Vec<String> {
        Checkpoint::open(path).unwrap().tensors().iter().map(|tensor| tensor.name.to_owned()).collect()
    };
    assert_eq!(names(dir.path()), names(&fixture("dense-b-f32")));

    let second = dir.path().join("m-00002-of-00002.gguf");
    let error = Checkpoint::open(&second).err().unwrap().to_string();
    assert!(error.contains("name the first one"), "{error}");
    fs::copy(dir.path().join("m-00001-of-00002.gguf"), &second).unwrap();
    let error = Checkpoint::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("it is not number 2 of its model's files"), "{error}");
    fs::remove_file(&second).unwrap();
    let error = Checkpoint::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("m-00002-of-00002.gguf"), "{error}");
}

#[test]
fn an_engine_says_what_it_found() {
    let load = |quant| {
        let (dir, device) = (fixture("dense-a-q8_0"), DeviceChoice::Cpu);
        Engine::load(&LoadOptions { dir, device, quant, ..LoadOptions::default() }).unwrap()
    };
    let engine = load(Quant::Auto);
    let found = "dense-a-q8_0.gguf: GGUF, weights in Q8_0, F32.";
    assert_eq!(engine.info().note.as_deref(), Some(found));
    assert!(engine.info().can_draft);
    let said = load(Quant::To(Bits::Four)).info().note.clone().unwrap();
    assert_eq!(said, format!("{found} Its weights are quantised already and stay as they are."));
}
