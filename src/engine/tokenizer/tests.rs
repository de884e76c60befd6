use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn tiny_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dense-a/model")
}

fn tiny() -> &'static Tokenizer {
    static TINY: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::open(&tiny_dir()).unwrap());
    &TINY
}

fn tiny_json(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(tiny_dir().join(name)).unwrap()).unwrap()
}

/// A model folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

/// The same BPE without any added tokens.
fn without_added_tokens() -> &'static Tokenizer {
    static PLAIN: LazyLock<Tokenizer> = LazyLock::new(|| {
        let mut json = tiny_json("tokenizer.json");
        json["added_tokens"] = json!([]);
        Tokenizer::open(folder(&[("tokenizer.json", &json.to_string())]).path()).unwrap()
    });
    &PLAIN
}

#[test]
fn added_tokens_are_recognised_unless_protected() {
    let tokenizer = tiny();
    let im_end = tokenizer.token_id("<|im_end|>").unwrap();
    let think = tokenizer.token_id("<think>").unwrap();
    let text = "a<|im_end|><think>b";
    assert_eq!(tokenizer.encode(text).unwrap().iter().filter(|id| [im_end, think].contains(id)).count(), 2);
    let protected = tokenizer.encode(&tokenizer.protect(text)).unwrap();
    assert!(!protected.contains(&im_end) && !protected.contains(&think));
    assert_eq!(tokenizer.decode(&protected), text);
}

#[test]
fn protection_leaves_other_text_alone() {
    let tokenizer = tiny();
    for text in ["", "plain", "a < b && c > d", "<div>", "<|im_stop|>x", "1 <- 2"] {
        assert!(matches!(tokenizer.protect(text), Cow::Borrowed(same) if same == text), "{text}");
    }
}

#[test]
fn sentinels_typed_by_a_person_cannot_undo_the_protection() {
    let tokenizer = tiny();
    let plain = without_added_tokens();
    for text in [
        "<|im_\u{fdd0}end|>",
        "\u{fdd0}<|im_end|>",
        "<\u{fdd0}|im_end|>",
        "<\u{fdd0}\u{fdd0}think>",
        "\u{fdd0}",
    ] {
        let ids = tokenizer.encode(&tokenizer.protect(text)).unwrap();
        assert_eq!(ids, plain.encode(&text.replace(SENTINEL, "")).unwrap(), "{text:?}");
    }
}

#[test]
fn a_literal_cut_over_two_protected_texts_stays_text() {
    let tokenizer = tiny();
    let plain = without_added_tokens();
    let text = "x<|im_end|>y";
    for cut in 0..=text.len() {
        let joined = format!("{}{}", tokenizer.protect(&text[..cut]), tokenizer.protect(&text[cut..]));
        assert_eq!(tokenizer.encode(&joined).unwrap(), plain.encode(text).unwrap(), "cut at {cut}");
    }
}

#[test]
fn a_combining_mark_after_a_sentinel_is_composed_as_without_it() {
    let tokenizer = tiny();
    // U+226F is the composition of `>` and U+0338.
    let with_sentinel = tokenizer.encode("a>\u{fdd0}\u{338}").unwrap();
    assert_eq!(with_sentinel, tokenizer.encode("a\u{226f}").unwrap());
}

#[test]
fn special_tokens_are_not_decoded_and_thinking_tags_are() {
    let tokenizer = tiny();
    let ids = tokenizer.encode("<|im_start|>user\n<think>x</think><tool_call><|im_end|>").unwrap();
    assert_eq!(tokenizer.decode(&ids), "user\n<think>x</think><tool_call>");
}

#[test]
fn ids_outside_the_vocabulary_decode_to_nothing() {
    let tokenizer = tiny();
    assert_eq!(tokenizer.vocab_size(), 512);
    assert_eq!(tokenizer.decode(&[512, 700, u32::MAX]), "");
    assert_eq!(tokenizer.token_id("<|no_such_token|>"), None);
}

#[test]
fn an_emoji_over_several_tokens_comes_out_whole() {
    let tokenizer = tiny();
    let ids = tokenizer.encode("é👍!").unwrap();
    let mut decoder = tokenizer.decoder();
    let pieces: Vec<String> = ids.iter().map(|&id| decoder.push(id)).collect();
    assert!(ids.len() > 4, "the tiny vocabulary has no emoji");
    assert_eq!(pieces.concat(), "é👍!");
    assert!(pieces.iter().all(|piece| !piece.contains('\u{fffd}')));
    assert_eq!(decoder.finish(), "");
}

#[test]
fn an_emoji_cut_off_by_the_end_becomes_one_replacement_character() {
    let tokenizer = tiny();
    let ids = tokenizer.encode("👍").unwrap();
    let mut decoder = tokenizer.decoder();
    assert_eq!(decoder.push(ids[0]), "");
    assert_eq!(decoder.finish(), "\u{fffd}");
    assert_eq!(decoder.finish(), "", "finishing leaves nothing behind");
}

#[test]
fn tokens_listed_only_in_the_config_are_added() {
    let mut json = tiny_json("tokenizer.json");
    let added = json["added_tokens"].as_array_mut().unwrap();
    added.truncate(26);
    let text = json.to_string();
    let config = tiny_json("tokenizer_config.json").to_string();

    let alone = Tokenizer::open(folder(&[("tokenizer.json", &text)]).path()).unwrap();
    assert_eq!((alone.token_id("<|audio_pad|>"), alone.vocab_size()), (None, 505));
    let both =
        Tokenizer::open(folder(&[("tokenizer.json", &text), ("tokenizer_config.json", &config)]).path())
            .unwrap();
    assert_eq!((both.token_id("<|audio_pad|>"), both.vocab_size()), (Some(511), 512));
    assert_eq!(both.encode("<|audio_pad|>").unwrap(), [511]);
    assert_eq!(both.decode(&[511]), "", "special, as the config says");
}

#[test]
fn a_config_of_another_model_is_refused() {
    let tokenizer = tiny_json("tokenizer.json").to_string();
    let config = json!({"added_tokens_decoder": {"600": {"content": "<extra>"}}}).to_string();
    let dir = folder(&[("tokenizer.json", &tokenizer), ("tokenizer_config.json", &config)]);
    let error = Tokenizer::open(dir.path()).unwrap_err();
    assert!(matches!(error, TokenizerError::AddedToken { expected: 600, got: 512, .. }), "{error}");
}

#[test]
fn bad_files_are_refused_in_a_sentence() {
    let missing = Tokenizer::open(folder(&[]).path()).unwrap_err().to_string();
    assert!(missing.contains("tokenizer.json is missing"), "{missing}");

    for text in ["", "{", "[]", "null", "{}", r#"{"version":"2.0"}"#, &"[".repeat(100_000)] {
        let error = Tokenizer::open(folder(&[("tokenizer.json", text)]).path()).unwrap_err();
        assert!(matches!(error, TokenizerError::Invalid { .. }), "{error}");
    }

    let tokenizer = tiny_json("tokenizer.json").to_string();
    let dir = folder(&[("tokenizer.json", &tokenizer), ("tokenizer_config.json", "{")]);
    assert!(matches!(Tokenizer::open(dir.path()).unwrap_err(), TokenizerError::Invalid { .. }));

    let mut json = tiny_json("tokenizer.json");
    json["decoder"] = json!({"type": "Fuse"});
    let dir = folder(&[("tokenizer.json", &json.to_string())]);
    assert!(matches!(Tokenizer::open(dir.path()).unwrap_err(), TokenizerError::NotByteLevel { .. }));

    let mut json = tiny_json("tokenizer.json");
    json["model"]["vocab"]["x"] = json!(u32::MAX);
    let dir = folder(&[("tokenizer.json", &json.to_string())]);
    assert!(matches!(Tokenizer::open(dir.path()).unwrap_err(), TokenizerError::Invalid { .. }));
}

#[test]
fn an_oversized_file_is_refused_before_it_is_parsed() {
    let dir = tempfile::tempdir().unwrap();
    // Sparse: takes no room on disk.
    fs::File::create(dir.path().join("tokenizer.json"))
        .unwrap()
        .set_len(TOKENIZER_JSON_LIMIT_BYTES + 1)
        .unwrap();
    let error = Tokenizer::open(dir.path()).unwrap_err();
    assert!(matches!(error, TokenizerError::File(ModelFileError::TooLarge { .. })), "{error}");
}

/// Text built from pieces of added tokens, sentinels and what surrounds them.
fn hostile_text() -> impl Strategy<Value = String> {
    let literal = prop::sample::select(vec![
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<think>",
        "</think>",
        "<tool_call>",
        "<|image_pad|>",
        "<tts_pad>",
    ]);
    let fragment = (literal.clone(), 0usize..16, 0usize..16).prop_map(|(literal, from, to)| {
        let from = from.min(literal.len());
        literal[from..(from + to).min(literal.len())].to_owned()
    });
    let piece = prop_oneof![
        3 => literal.prop_map(str::to_owned),
        3 => fragment,
        2 => Just("\u{fdd0}".to_owned()),
        2 => prop::sample::select(vec!["<", "|", ">", " ", "\n", "a", "é", "e\u{301}", "\u{338}", "你", "👍"]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn protected_text_encodes_as_if_there_were_no_added_tokens(text in hostile_text()) {
        let (tokenizer, plain) = (tiny(), without_added_tokens());
        let ids = tokenizer.encode(&tokenizer.protect(&text)).unwrap();
        prop_assert!(ids.iter().all(|&id| id < 479), "an added token came out of {:?}", text);
        prop_assert_eq!(ids, plain.encode(&text.replace(SENTINEL, "")).unwrap());
    }

    #[test]
    fn encoding_equals_that_of_the_library(text in hostile_text()) {
        let text = text.replace(SENTINEL, "");
        let tokenizer = tiny();
        let expected = tokenizer.inner.encode(text.as_str(), false).unwrap();
        prop_assert_eq!(tokenizer.encode(&text).unwrap(), expected.get_ids());
    }

    #[test]
    fn decoding_in_steps_equals_decoding_at_once(ids in prop::collection::vec(0u32..520, 0..40)) {
        let tokenizer = tiny();
        let mut decoder = tokenizer.decoder();
        let mut text: String = ids.iter().map(|&id| decoder.push(id)).collect();
        text.push_str(&decoder.finish());
        prop_assert_eq!(&text, &tokenizer.decode(&ids));
        prop_assert_eq!(text, tokenizer.inner.decode(&ids, true).unwrap());
    }

    #[test]
    fn any_text_comes_back_normalised(text in "\\PC{0,20}") {
        let tokenizer = tiny();
        let ids = tokenizer.encode(&tokenizer.protect(&text)).unwrap();
        let again = tokenizer.encode(&tokenizer.protect(&tokenizer.decode(&ids))).unwrap();
        prop_assert_eq!(ids, again);
    }
}
