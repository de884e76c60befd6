//! A budget of thinking, with a model of random weights, which thinks for ever if it is let.

use std::path::PathBuf;
use std::sync::Arc;

use loquat::chat::{Channel, Message, Role};
use loquat::engine::device::DeviceChoice;
use loquat::engine::generate::{Engine, LoadOptions, Progress};
use loquat::msg::{Form, Mtp, SamplingOptions, Think, TurnOptions, TurnStats};

fn engine() -> Engine {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dense-a/model");
    Engine::load(&LoadOptions { dir, device: DeviceChoice::Cpu, ..LoadOptions::default() }).unwrap()
}

fn options(think: Think, mtp: Mtp, temperature: f32) -> TurnOptions {
    let sampling =
        SamplingOptions { temperature: Some(temperature), seed: Some(3), ..SamplingOptions::default() };
    let mut options =
        TurnOptions { sampling, max_tokens: Some(60), mtp: Some(mtp), ..TurnOptions::default() };
    think.apply(&mut options);
    options
}

/// What was thought, what was said, and the figures.
fn ask(engine: &mut Engine, options: &TurnOptions) -> (String, String, TurnStats) {
    let (mut thought, mut said) = (String::new(), String::new());
    let messages = [Message::text(Role::User, "Why is the sky blue?")];
    let (_, stats) = engine
        .answer(&messages, options, &Arc::default(), &mut |progress| {
            if let Progress::Delta { channel, text, .. } = progress {
                if channel == Channel::Thinking { &mut thought } else { &mut said }.push_str(&text);
            }
        })
        .unwrap();
    (thought, said, stats)
}

#[test]
fn a_spent_budget_ends_the_thinking_and_the_model_answers() {
    let mut engine = engine();
    let (_, said, stats) = ask(&mut engine, &options(Think::On, Mtp::Off, 0.0));
    assert_eq!((said.as_str(), stats.thinking_tokens), ("", 60), "it would think for ever");
    assert!(!stats.thinking_was_cut);

    let (long, ..) = ask(&mut engine, &options(Think::On, Mtp::Off, 0.0));
    for most in [1, 2, 3, 20] {
        let (thought, said, stats) = ask(&mut engine, &options(Think::Tokens(most), Mtp::Off, 0.0));
        assert!(stats.thinking_was_cut && stats.completion_tokens == 60, "{most}: {stats:?}");
        // A budget of one has room for the closing tag, and not for the line break before it.
        assert_eq!(stats.thinking_tokens, most.max(2));
        assert!(!said.trim().is_empty() && !said.contains("think>"), "{most}: {said:?}");
        assert!(long.starts_with(thought.trim_end_matches('\n')), "{most}: {thought:?}");
    }
}

#[test]
fn drafts_change_nothing_of_it() {
    let mut engine = engine();
    for temperature in [0.0, 1.0] {
        let plain = ask(&mut engine, &options(Think::Tokens(12), Mtp::Off, temperature));
        for depth in [1, 3, 8] {
            let (thought, said, stats) =
                ask(&mut engine, &options(Think::Tokens(12), Mtp::Depth(depth), temperature));
            assert_eq!((&plain.0, &plain.1), (&thought, &said), "depth {depth} at {temperature}");
            assert!(stats.thinking_was_cut && stats.drafts.n_drafted() > 0);
        }
    }
}

#[test]
fn an_answer_with_a_form_comes_behind_the_thought_that_was_closed() {
    let mut engine = engine();
    let form = Some(Form::Regex("(yes|no)".into()));
    let with = TurnOptions { form, ..options(Think::Tokens(9), Mtp::Depth(3), 1.0) };
    let (_, said, stats) = ask(&mut engine, &with);
    assert!(matches!(said.trim(), "yes" | "no"), "{said:?}");
    assert_eq!(stats.thinking_tokens, 9);
}
