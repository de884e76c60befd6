use std::fs;

use super::*;
use crate::chat::{Detail, Picture, Role};

const QWEN35: &str = include_str!("../../../tests/golden/text/templates/qwen3.5.jinja");
const QWEN35_SMALL: &str = include_str!("../../../tests/golden/text/templates/qwen3.5-small.jinja");
const QWEN36: &str = include_str!("../../../tests/golden/text/templates/qwen3.6.jinja");

/// A model folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::open(folder(&[("chat_template.jinja", source)]).path()).unwrap()
}

/// Renders a template text in this process.
fn jinja(source: &str, context: Value) -> String {
    jinja::render(source, &context).unwrap()
}

#[test]
fn the_official_templates_are_known() {
    assert!([QWEN35, QWEN35_SMALL, QWEN36].iter().all(|source| template(source).is_official));
    assert!(!template(&QWEN35.replace("Tools", "tools")).is_official);
}

#[test]
fn a_template_is_looked_for_in_three_files() {
    let in_json = json!({"chat_template": "from json"}).to_string();
    let in_config = json!({"chat_template": "from config", "eos_token": "x"}).to_string();
    let named =
        json!({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})
            .to_string();
    let none = json!({"eos_token": "x"}).to_string();
    let source =
        |files: &[(&str, &str)]| ChatTemplate::open(folder(files).path()).map(|template| template.source);

    let all = [
        ("chat_template.jinja", "from jinja"),
        ("chat_template.json", in_json.as_str()),
        ("tokenizer_config.json", in_config.as_str()),
    ];
    assert_eq!(source(&all).unwrap(), "from jinja");
    assert_eq!(source(&all[1..]).unwrap(), "from json");
    assert_eq!(source(&all[2..]).unwrap(), "from config");
    assert_eq!(source(&[("tokenizer_config.json", &named)]).unwrap(), "d");
    let error = source(&[("tokenizer_config.json", &none)]).unwrap_err().to_string();
    assert!(error.contains("has no chat template"), "{error}");
    assert!(matches!(source(&[("chat_template.json", "{")]), Err(PromptError::Invalid { .. })));
    assert!(matches!(source(&[("chat_template.jinja", &" ".repeat(2 << 20))]), Err(PromptError::File(_))));
}

#[test]
fn thinking_by_default_is_read_off_the_template() {
    assert!(thinks_by_default(&template(QWEN35)).unwrap());
    assert!(!thinks_by_default(&template(QWEN35_SMALL)).unwrap());
    assert!(thinks_by_default(&template(QWEN36)).unwrap());
}

#[test]
fn a_prompt_tells_whether_the_model_starts_in_a_thought() {
    assert!(starts_in_thought("<|im_start|>assistant\n<think>\n"));
    assert!(!starts_in_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    assert!(!starts_in_thought("<|im_start|>assistant\n"));
    assert!(!starts_in_thought(""));
}

#[test]
fn a_conversation_becomes_messages_in_the_templates_shape() {
    let picture = |name: &str| Part::Image(Picture::file(name.into(), Detail::Auto));
    let text = |text: &str| Part::Text(text.to_owned());
    let messages = [
        Message::text(Role::System, "s"),
        Message {
            role: Role::User,
            parts: vec![text("a"), text("b"), picture("x.png"), text("c")],
            reasoning: None,
        },
        Message { role: Role::Assistant, parts: vec![text("d")], reasoning: Some("r".to_owned()) },
        Message { role: Role::User, parts: vec![], reasoning: None },
    ];
    let input = chat_input(&messages, Some(false), |text| format!("[{text}]"));
    assert_eq!(
        input.messages,
        json!([
            {"role": "system", "content": "[s]"},
            {"role": "user", "content": [{"type": "text", "text": "[ab]"}, {"type": "image"}, {"type": "text", "text": "[c]"}]},
            {"role": "assistant", "content": "[d]", "reasoning_content": "[r]"},
            {"role": "user", "content": "[]"},
        ])
    );
    assert_eq!(input.extra, json!({"enable_thinking": false}).as_object().unwrap().clone());
    assert!(input.add_generation_prompt);
    assert!(chat_input(&[], None, str::to_owned).extra.is_empty());
}

#[test]
fn a_switch_cannot_replace_the_messages() {
    let mut input = chat_input(&[Message::text(Role::User, "hi")], None, str::to_owned);
    input.extra.insert("messages".to_owned(), json!([]));
    assert!(template(QWEN35).render(&input).unwrap().contains("hi"));
}

#[test]
fn values_print_as_python_prints_them() {
    let context = json!({
        "a": true, "b": null, "c": 1.0, "d": 1e22, "e": 0.00001, "f": 12, "g": ["x", "it's", "\n", 1.5, false, null],
        "h": {"k": "v", "n": {}}, "i": 1e15, "j": -2.5e-7, "l": 123456789012345680.0
    });
    assert_eq!(
        jinja(
            "{{a}} {{b}} {{c}} {{d}} {{e}} {{f}} {{g}} {{h}} {{i}} {{j}} {{l}} {{missing}}|{{ c|string }}",
            context
        ),
        r#"True None 1.0 1e+22 1e-05 12 ['x', "it's", '\n', 1.5, False, None] {'k': 'v', 'n': {}} 1000000000000000.0 -2.5e-07 1.2345678901234568e+17 |1.0"#
    );
}

#[test]
fn json_is_that_of_python() {
    let context = json!({"v": {"b": [1, 2.0, null, true], "a": "<&'\"é\u{1}\u{7f}😀", "e": [], "f": {}}});
    assert_eq!(
        jinja("{{ v|tojson }}", context.clone()),
        "{\"b\": [1, 2.0, null, true], \"a\": \"<&'\\\"é\\u0001\u{7f}😀\", \"e\": [], \"f\": {}}"
    );
    assert_eq!(
        jinja("{{ v|tojson(indent=2, sort_keys=true, ensure_ascii=true) }}", context),
        "{\n  \"a\": \"<&'\\\"\\u00e9\\u0001\\u007f\\ud83d\\ude00\",\n  \"b\": [\n    1,\n    2.0,\n    null,\n    true\n  ],\n  \"e\": [],\n  \"f\": {}\n}"
    );
}

#[test]
fn stripping_follows_python() {
    let context = json!({"v": "\u{1c}\u{3000} x\u{1f}\n"});
    assert_eq!(
        jinja("[{{ v|trim }}][{{ v.strip() }}][{{ 'xxaxx'.lstrip('x') }}][{{ 'axx'.rstrip('x') }}]", context),
        "[x][x][axx][a]"
    );
}

#[test]
fn blocks_take_their_line_with_them() {
    assert_eq!(jinja("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", json!({})), "a\n  b\nc");
}

#[test]
fn an_objection_keeps_the_templates_words_even_from_inside_a_macro() {
    let source = "{% macro m() %}{{ raise_exception('No way: \"x\".') }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}";
    let error = jinja::render(source, &json!({})).unwrap_err();
    assert_eq!(error, jinja::RenderError::Raised("No way: \"x\".".to_owned()));
}

#[test]
fn a_begun_answer_stands_behind_the_prompt_as_the_model_wrote_it() {
    let begun = |prompt: &str, thought: Option<&str>, answer: &str| {
        let message =
            Message { reasoning: thought.map(str::to_owned), ..Message::text(Role::Assistant, answer) };
        let mut text = prompt.to_owned();
        let in_thought = push_begun(&mut text, &message, |text| text.replace("<think>", "(think)"));
        (text, in_thought)
    };
    assert_eq!(begun("A\n<think>\n", Some("so"), ""), ("A\n<think>\nso".into(), true));
    assert_eq!(
        begun("A\n<think>\n", Some("so\n"), "It is"),
        ("A\n<think>\nso\n</think>\n\nIt is".into(), false)
    );
    let closed = "A\n<think>\n\n</think>\n\n";
    assert_eq!(
        begun(closed, None, "It <think>"),
        (format!("{closed}It (think)"), false),
        "it can't forge a tag"
    );
}

#[test]
fn a_broken_template_is_an_error_with_a_way_out() {
    let error = PromptError::from(jinja::render("{% if %}", &json!({})).unwrap_err()).to_string();
    assert!(error.starts_with("the model's chat template failed: syntax error"), "{error}");
    assert!(error.ends_with("official repository"), "{error}");
}

#[test]
fn a_template_without_end_runs_out_of_fuel() {
    let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    let error = jinja::render(loops, &json!({})).unwrap_err();
    assert_eq!(error, jinja::RenderError::Failed("it did not come to an end".to_owned()));
}
