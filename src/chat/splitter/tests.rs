use proptest::prelude::*;

use super::*;
use crate::chat::Channel::{Answer, Thinking};

/// A token as the splitter sees it.
#[derive(Debug, Clone)]
enum Token {
    Text(String),
    Open,
    Close,
}

use Token::{Close, Open};

fn text(text: &str) -> Token {
    Token::Text(text.to_owned())
}

/// What comes out, neighbours of one channel joined.
fn split(in_thought: bool, tokens: &[Token]) -> Vec<(Channel, String)> {
    let mut splitter = Splitter::new(in_thought);
    let mut out: Vec<(Channel, String)> = Vec::new();
    for token in tokens {
        let deltas = match token {
            Token::Text(text) => splitter.push_text(text),
            Open => splitter.push_think_open(),
            Close => splitter.push_think_close(),
        };
        for (channel, text) in deltas {
            assert!(!text.is_empty(), "an empty delta says nothing");
            match out.last_mut() {
                Some((last, joined)) if *last == channel => joined.push_str(&text),
                _ => out.push((channel, text)),
            }
        }
    }
    out
}

fn said(parts: &[(Channel, &str)]) -> Vec<(Channel, String)> {
    parts.iter().map(|(channel, text)| (*channel, (*text).to_owned())).collect()
}

#[test]
fn a_thought_ends_at_the_closing_token_and_its_blank_line_is_dropped() {
    let tokens = [text("Hm, "), text("2+2.\n"), Close, text("\n\n"), text("Four.")];
    assert_eq!(split(true, &tokens), said(&[(Thinking, "Hm, 2+2.\n"), (Answer, "Four.")]));
}

#[test]
fn only_one_blank_line_is_dropped_after_a_thought() {
    let tokens = [text("x"), Close, text("\n\n\n  indented")];
    assert_eq!(split(true, &tokens), said(&[(Thinking, "x"), (Answer, "\n  indented")]));
}

#[test]
fn a_stream_that_never_closes_its_thought_has_no_answer() {
    assert_eq!(split(true, &[text("still "), text("thinking")]), said(&[(Thinking, "still thinking")]));
}

#[test]
fn without_a_thought_everything_is_the_answer_as_it_is() {
    assert_eq!(split(false, &[text("\n\nHello")]), said(&[(Answer, "\n\nHello")]));
}

#[test]
fn an_answer_may_begin_with_a_thought_of_its_own() {
    let tokens = [Open, text("\nhm\n"), Close, text("\n\nyes")];
    assert_eq!(split(false, &tokens), said(&[(Thinking, "hm\n"), (Answer, "yes")]));
}

#[test]
fn a_stray_closing_tag_at_the_start_is_dropped_with_its_blank_line() {
    assert_eq!(split(false, &[Close, text("\n\nHello")]), said(&[(Answer, "Hello")]));
}

#[test]
fn tags_in_the_middle_of_an_answer_are_text() {
    let tokens = [text("Write `"), Open, text("` and `"), Close, text("`.\n\n")];
    assert_eq!(split(false, &tokens), said(&[(Answer, "Write `<think>` and `</think>`.\n\n")]));
}

#[test]
fn a_tag_spelled_in_letters_is_text() {
    let tokens = [text("```\n</think>\n```"), Close, text("\n\ndone")];
    assert_eq!(split(true, &tokens), said(&[(Thinking, "```\n</think>\n```"), (Answer, "done")]));
}

#[test]
fn a_repeated_opening_tag_is_dropped() {
    assert_eq!(split(true, &[Open, text("\nhm")]), said(&[(Thinking, "hm")]));
}

fn token() -> impl Strategy<Value = Token> {
    prop_oneof![
        4 => "[ab é\n]{0,4}".prop_map(Token::Text),
        1 => Just(Open),
        1 => Just(Close),
    ]
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_the_cuts(
        in_thought: bool,
        tokens in prop::collection::vec(token(), 0..12),
    ) {
        let mut single_chars = Vec::new();
        let mut joined: Vec<Token> = Vec::new();
        for token in &tokens {
            match (token, joined.last_mut()) {
                (Token::Text(more), Some(Token::Text(text))) => text.push_str(more),
                _ => joined.push(token.clone()),
            }
            match token {
                Token::Text(text) => single_chars.extend(text.chars().map(|c| Token::Text(c.to_string()))),
                tag => single_chars.push(tag.clone()),
            }
        }
        let expected = split(in_thought, &tokens);
        prop_assert_eq!(split(in_thought, &single_chars), expected.clone());
        prop_assert_eq!(split(in_thought, &joined), expected);
    }

    #[test]
    fn nothing_but_line_breaks_and_tags_is_lost(in_thought: bool, tokens in prop::collection::vec(token(), 0..12)) {
        let letters = |text: &str| text.replace(['\n'], "").replace("<think>", "").replace("</think>", "");
        let pushed: String = tokens.iter().filter_map(|token| match token {
            Token::Text(text) => Some(text.as_str()),
            _ => None,
        }).collect();
        let out: String = split(in_thought, &tokens).into_iter().map(|(_, text)| text).collect();
        prop_assert_eq!(letters(&out), letters(&pushed));
    }
}
