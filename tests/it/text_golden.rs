//! Tokenizer and chat templates against what Hugging Face made of the same strings and conversations.
//!
//! chat.json: conversations, each rendered by three official templates to a text and its ids, or to the
//! error that must be raised. tokenizer.json: strings and their ids. `ids` are those of the real 248k
//! tokenizer, too large to commit: tests/golden/text/full_tokenizer.py rebuilds it; without it those
//! checks say that they were skipped. `ids_tiny` are those of the tokenizer in tests/golden/dense-a.
//! The order of keys in chat.json matters: templates print tools and arguments in it.

use std::fs;
use std::path::{Path, PathBuf};

use loquat::chat::{Message, Role};
use loquat::engine::prompt::{ChatTemplate, PromptError, RenderInput, chat_input};
use loquat::engine::tokenizer::{SENTINEL, Tokenizer};
use serde_json::Value;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn golden_json(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(golden(name)).unwrap()).unwrap()
}

fn tiny_tokenizer() -> Tokenizer {
    Tokenizer::open(&golden("dense-a/model")).unwrap()
}

/// The real tokenizer, from `LOQUAT_FULL_TOKENIZER` or where `.ci/run` puts it.
#[allow(clippy::print_stderr)] // A skipped check must be seen.
fn full_tokenizer() -> Option<Tokenizer> {
    let path = match std::env::var_os("LOQUAT_FULL_TOKENIZER") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("target/golden/qwen3_6-tokenizer.json"),
    };
    if !path.exists() {
        eprintln!(
            "SKIPPED: {} is not there; make it with tests/golden/text/full_tokenizer.py",
            path.display()
        );
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::copy(&path, dir.path().join("tokenizer.json")).unwrap();
    Some(Tokenizer::open(dir.path()).unwrap())
}

fn ids(json: &Value) -> Vec<u32> {
    serde_json::from_value(json.clone()).unwrap()
}

/// Checks every string and every rendered conversation that has `field`; returns how many.
fn check_ids(tokenizer: &Tokenizer, field: &str) -> usize {
    let strings = golden_json("text/tokenizer.json");
    let strings = strings["cases"].as_array().unwrap();
    for case in strings {
        let text = case["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), ids(&case[field]), "{text:?}");
    }
    let conversations = golden_json("text/chat.json");
    let renders = conversations
        .as_object()
        .unwrap()
        .values()
        .flat_map(|case| case["render"].as_object().unwrap().values());
    let rendered: Vec<&Value> = renders.filter(|render| render.get("text").is_some()).collect();
    for render in &rendered {
        let text = render["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), ids(&render[field]), "{text:?}");
    }
    strings.len() + rendered.len()
}

#[test]
fn the_tiny_tokenizer_gives_the_golden_ids() {
    assert_eq!(check_ids(&tiny_tokenizer(), "ids_tiny"), 106 + 28 * 3);
}

#[test]
fn the_real_tokenizer_gives_the_golden_ids() {
    let Some(tokenizer) = full_tokenizer() else { return };
    assert_eq!(check_ids(&tokenizer, "ids"), 106 + 28 * 3);
    assert_eq!(tokenizer.vocab_size(), 248_077);
    assert_eq!(tokenizer.token_id("</think>"), Some(248_069));
}

#[test]
fn the_real_tokenizer_decodes_in_steps_as_at_once() {
    let Some(tokenizer) = full_tokenizer() else { return };
    for case in golden_json("text/tokenizer.json")["cases"].as_array().unwrap() {
        let ids = ids(&case["ids"]);
        let mut decoder = tokenizer.decoder();
        let mut text: String = ids.iter().map(|&id| decoder.push(id)).collect();
        text.push_str(&decoder.finish());
        assert_eq!(text, tokenizer.decode(&ids));
    }
}

#[test]
fn conversations_render_as_golden() {
    let mut checked = 0;
    for (name, case) in golden_json("text/chat.json").as_object().unwrap() {
        for (template_name, expected) in case["render"].as_object().unwrap() {
            let rendered = template(template_name).render(&input(case));
            match (rendered, expected["error"].as_str()) {
                (Ok(text), None) => {
                    assert_eq!(text, expected["text"].as_str().unwrap(), "{name} {template_name}")
                }
                (Err(PromptError::Raised(message)), Some(error)) => {
                    assert_eq!(message, error, "{name} {template_name}")
                }
                (other, error) => panic!("{name} {template_name}: {other:?}, expected error {error:?}"),
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 35 * 3);
}

/// The same in a child process, for templates that differ from the official ones by one space.
#[test]
fn conversations_render_as_golden_in_the_child_process() {
    for (name, case) in golden_json("text/chat.json").as_object().unwrap() {
        let expected = &case["render"]["qwen3.6"];
        let source = fs::read_to_string(golden("text/templates/qwen3.6.jinja")).unwrap();
        let template = unofficial(&source.replacen("{%- set image_count", "{%-  set image_count", 1));
        match template.render(&input(case)) {
            Ok(text) => assert_eq!(text, expected["text"].as_str().unwrap(), "{name}"),
            Err(error) => assert_eq!(error.to_string(), expected["error"].as_str().unwrap(), "{name}"),
        }
    }
}

/// The whole way from a message to ids: only the template's own tags become tokens.
#[test]
fn special_text_typed_by_a_person_stays_text() {
    let tokenizer = tiny_tokenizer();
    let case = &golden_json("text/chat.json")["special_text_in_user"];
    let typed = case["messages"][0]["content"].as_str().unwrap();
    let messages = [Message::text(Role::User, typed)];
    let input = chat_input(&messages, None, |text| tokenizer.protect(text).into_owned());
    for (template_name, expected) in case["render"].as_object().unwrap() {
        let prompt = template(template_name).render(&input).unwrap();
        assert_eq!(prompt.replace(SENTINEL, ""), expected["text"].as_str().unwrap());
        let ids = tokenizer.encode(&prompt).unwrap();
        let count = |name| ids.iter().filter(|&&id| Some(id) == tokenizer.token_id(name)).count();
        assert_eq!(
            [count("<|im_start|>"), count("<|im_end|>"), count("<think>"), count("<|image_pad|>")],
            [2, 1, 1, 0]
        );
        assert!(tokenizer.decode(&ids).contains(typed));
    }
}

fn template(name: &str) -> ChatTemplate {
    let dir = tempfile::tempdir().unwrap();
    let source = golden(&format!("text/templates/{name}.jinja"));
    fs::copy(source, dir.path().join("chat_template.jinja")).unwrap();
    // A renderer that does not exist: official templates must not need one.
    ChatTemplate::open_with_renderer(dir.path(), Path::new("/nowhere/loquat")).unwrap()
}

/// A template that Loquat does not know, rendered by the real program.
pub fn unofficial(source: &str) -> ChatTemplate {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("chat_template.jinja"), source).unwrap();
    ChatTemplate::open_with_renderer(dir.path(), Path::new(env!("CARGO_BIN_EXE_loquat"))).unwrap()
}

fn input(case: &Value) -> RenderInput {
    let mut extra = case["kwargs"].as_object().unwrap().clone();
    let add_generation_prompt =
        extra.remove("add_generation_prompt").and_then(|value| value.as_bool()).unwrap();
    RenderInput {
        messages: case["messages"].clone(),
        tools: Some(case["tools"].clone()).filter(|tools| !tools.is_null()),
        add_generation_prompt,
        extra,
    }
}
