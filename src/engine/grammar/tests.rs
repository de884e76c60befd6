//! What a guide allows, with the vocabulary of the built-in model.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::engine::built_in;

fn tokenizer() -> Tokenizer {
    Tokenizer::open(Path::new(built_in::DIR)).unwrap()
}

fn grammars(tokenizer: &Tokenizer) -> Grammars {
    Grammars::new(tokenizer, &[tokenizer.token_id("<|im_end|>").unwrap()]).unwrap()
}

fn regex(text: &str) -> Form {
    Form::Regex(text.into())
}

/// The texts of the tokens that may come, special ones by name.
fn allowed(guide: &mut Guide, tokenizer: &Tokenizer) -> Vec<String> {
    let mask = guide.allowed().unwrap().expect("the guide holds");
    let ids = (0..tokenizer.vocab_size() as u32).filter(|id| mask.is_allowed(*id));
    ids.map(|id| match tokenizer.is_added(id) {
        true => format!("#{id}"),
        false => String::from_utf8_lossy(tokenizer.bytes_of(id)).into_owned(),
    })
    .collect()
}

fn accept(guide: &mut Guide, tokenizer: &Tokenizer, text: &str) {
    for id in tokenizer.encode(text).unwrap() {
        guide.accept(id).unwrap();
    }
}

#[test]
fn only_what_can_still_match_may_come_and_the_end_only_at_the_end() {
    let tokenizer = tokenizer();
    let grammars = grammars(&tokenizer);
    let end = format!("#{}", tokenizer.token_id("<|im_end|>").unwrap());
    let mut guide = grammars.guide(&regex("(yes|no)!?"), false).unwrap();
    let first = allowed(&mut guide, &tokenizer);
    assert!(
        first.iter().all(|text| "yes!".starts_with(text.as_str()) || "no!".starts_with(text.as_str())),
        "{first:?}"
    );
    assert!(first.contains(&"y".to_owned()) && first.contains(&"n".to_owned()));
    accept(&mut guide, &tokenizer, "no");
    assert_eq!(allowed(&mut guide, &tokenizer), ["!".to_owned(), end]);
    assert!(!guide.is_complete());
    accept(&mut guide, &tokenizer, "!");
    assert!(guide.is_complete());
}

#[test]
fn tags_are_never_text_of_an_answer() {
    let tokenizer = tokenizer();
    let mut guide = grammars(&tokenizer).guide(&regex("(?s).*"), false).unwrap();
    let mask = guide.allowed().unwrap().unwrap();
    for name in ["<think>", "</think>", "<|im_start|>"] {
        assert!(!mask.is_allowed(tokenizer.token_id(name).unwrap()), "{name}");
    }
    assert!(mask.num_set() > tokenizer.vocab_size() / 2);
}

#[test]
fn thoughts_are_free_and_the_form_begins_behind_them() {
    let tokenizer = tokenizer();
    let close = tokenizer.token_id("</think>").unwrap();
    for line_breaks in ["", "\n", "\n\n"] {
        let mut guide = grammars(&tokenizer).guide(&regex("[0-9]+"), true).unwrap();
        assert!(guide.allowed().unwrap().is_none());
        accept(&mut guide, &tokenizer, "anything {\n");
        guide.accept(close).unwrap();
        assert!(allowed(&mut guide, &tokenizer).contains(&"\n".to_owned()));
        if !line_breaks.is_empty() {
            let ids = tokenizer.encode(line_breaks).unwrap();
            assert_eq!(ids.len(), 1, "one token");
            guide.accept(ids[0]).unwrap();
        }
        accept(&mut guide, &tokenizer, "7");
        let next = allowed(&mut guide, &tokenizer);
        assert!(!next.contains(&"\n".to_owned()) && next.contains(&"0".to_owned()), "{next:?}");
    }
}

#[test]
fn guesses_move_nothing() {
    let tokenizer = tokenizer();
    let mut guide = grammars(&tokenizer).guide(&regex("abc"), false).unwrap();
    let ids = |text: &str| -> Vec<u32> {
        text.chars().map(|c| tokenizer.encode(&c.to_string()).unwrap()[0]).collect()
    };
    assert!(guide.could_take(&ids("abc")));
    assert!(!guide.could_take(&ids("abd")));
    guide.accept(ids("a")[0]).unwrap();
    assert!(guide.could_take(&ids("bc")) && !guide.could_take(&ids("a")));
}

#[test]
fn what_cannot_be_used_and_what_cannot_be_satisfied_are_told_apart() {
    let tokenizer = tokenizer();
    let grammars = grammars(&tokenizer);
    for form in
        [regex("("), Form::Schema(json!({"type": "nonsense"})), Form::Schema(json!({"$ref": "#/nowhere"}))]
    {
        let error = grammars.guide(&form, false).map(drop).unwrap_err();
        assert!(matches!(error, GrammarError::Unusable { .. }), "{form:?}: {error}");
    }
    for schema in [json!(false), json!({"type": "integer", "minimum": 3, "maximum": 2})] {
        let error = grammars.guide(&Form::Schema(schema.clone()), false).map(drop).unwrap_err();
        assert!(matches!(error, GrammarError::Unsatisfiable { .. }), "{schema}: {error}");
    }
}
