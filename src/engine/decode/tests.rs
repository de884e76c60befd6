//! Drafting changes how fast an answer comes and nothing of what it says: with the built-in model, whose drafts are
//! often right and often wrong.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::chat::{Channel, Message, Role};
use crate::engine::built_in;
use crate::engine::device::DeviceChoice;
use crate::engine::generate::{Ending, Engine, LoadOptions, Progress};
use crate::engine::golden;
use crate::msg::{Finish, Form, MAX_DRAFTS, Mtp, SamplingOptions, TurnOptions, TurnStats};

fn engine() -> Engine {
    let load = LoadOptions {
        dir: PathBuf::from(built_in::DIR),
        device: DeviceChoice::Cpu,
        ..LoadOptions::default()
    };
    Engine::load(&load).unwrap()
}

fn options(mtp: Mtp, temperature: f32, max_tokens: usize) -> TurnOptions {
    TurnOptions {
        sampling: SamplingOptions {
            temperature: Some(temperature),
            presence_penalty: Some(if temperature > 0.0 { 0.4 } else { 0.0 }),
            seed: Some(7),
            ..SamplingOptions::default()
        },
        max_tokens: Some(max_tokens),
        thinking: Some(false),
        mtp: Some(mtp),
        ..TurnOptions::default()
    }
}

/// Two hundred questions, some of which the model knows and some it doesn't.
fn questions() -> impl Iterator<Item = String> {
    let topics = [
        "attach a picture",
        "quit",
        "start a new chat",
        "use batch mode",
        "copy an answer",
        "see the keys",
        "download a model",
        "change the temperature",
        "stop an answer",
        "bake bread",
        "read a file",
        "undo",
        "search the history",
        "go to the moon",
        "set the seed",
        "scroll up",
        "count to ten",
        "write a line break",
        "resume a chat",
        "sing",
    ];
    let frames = [
        "How do I {}?",
        "how can i {}",
        "Tell me how to {}.",
        "What do I press to {}?",
        "{}?",
        "Please help me {}",
        "I want to {}",
        "Is there a way to {}?",
        "Wie kann ich {}?",
        "3 + 4 and then {}",
    ];
    topics.into_iter().flat_map(move |topic| frames.into_iter().map(move |frame| frame.replace("{}", topic)))
}

fn ask(engine: &mut Engine, messages: &[Message], options: &TurnOptions) -> (String, Ending, TurnStats) {
    let mut text = String::new();
    let never = Arc::default();
    let (ending, stats) = engine
        .answer(messages, options, &never, &mut |progress| {
            if let Progress::Delta { channel: Channel::Answer, text: more, .. } = progress {
                text.push_str(&more);
            }
        })
        .unwrap();
    (text, ending, stats)
}

/// The counts of drafts add up to the tokens that were written.
fn check_counts(stats: &TurnStats, ending: Ending) {
    let drafts = stats.drafts;
    let by_steps = (drafts.steps + drafts.n_accepted()) as usize;
    let after_first = stats.completion_tokens.saturating_sub(1);
    // The last step has no token of its own where its last sample was the end, or where a draft filled the answer.
    let cut = by_steps - after_first;
    assert!(cut <= 1, "{stats:?}");
    if cut == 1 {
        assert!(ending != Ending::Finished(Finish::Stop) || drafts.steps > 0);
    }
    for position in 0..MAX_DRAFTS {
        assert!(drafts.accepted[position] <= drafts.drafted[position]);
        assert!(position == 0 || drafts.accepted[position] <= drafts.accepted[position - 1]);
    }
}

#[test]
fn greedy_text_is_the_same_at_every_depth() {
    let mut engine = engine();
    let (mut n, mut accepted) = (0, 0);
    for (i, question) in questions().enumerate() {
        let messages = [Message::text(Role::User, &question)];
        let max_tokens = 4 + i % 29;
        let plain = ask(&mut engine, &messages, &options(Mtp::Off, 0.0, max_tokens));
        let depth = Mtp::Depth(1 + (i % MAX_DRAFTS) as u8);
        let drafted = ask(&mut engine, &messages, &options(depth, 0.0, max_tokens));
        assert_eq!((&plain.0, plain.1), (&drafted.0, drafted.1), "{question} at {depth:?}");
        assert_eq!(plain.2.completion_tokens, drafted.2.completion_tokens);
        assert_eq!(plain.2.drafts.n_drafted(), 0);
        check_counts(&plain.2, plain.1);
        check_counts(&drafted.2, drafted.1);
        n += 1;
        accepted += drafted.2.drafts.n_accepted();
    }
    assert_eq!(n, 200);
    assert!(accepted > 200, "only {accepted} drafts were right: that tests nothing");
}

#[test]
fn sampled_text_is_the_same_with_drafts_and_without() {
    // One random number per token, whoever guessed it: so the distribution is the model's own, seed for seed.
    let mut engine = engine();
    for (i, question) in questions().step_by(5).enumerate() {
        let messages = [Message::text(Role::User, &question)];
        let [plain, drafted, auto] =
            [Mtp::Off, Mtp::Depth(1 + (i % MAX_DRAFTS) as u8), Mtp::Auto].map(|mtp| {
                let (text, ending, _) = ask(&mut engine, &messages, &options(mtp, 0.9, 24));
                (text, ending)
            });
        assert_eq!(plain, drafted, "{question}");
        assert_eq!(plain, auto, "{question}");
    }
}

#[test]
fn an_answer_that_was_stopped_in_a_draft_leaves_nothing_wrong_behind() {
    let mut engine = engine();
    for (i, question) in questions().step_by(9).enumerate() {
        let first = Message::text(Role::User, &question);
        let mut said = String::new();
        let cancel = Arc::new(AtomicBool::new(false));
        let mut n_deltas = 0;
        let depth = Mtp::Depth(1 + (i % MAX_DRAFTS) as u8);
        let (ending, stats) = engine
            .answer(std::slice::from_ref(&first), &options(depth, 0.0, 40), &cancel, &mut |progress| {
                if let Progress::Delta { text, .. } = progress {
                    said.push_str(&text);
                    n_deltas += 1;
                    cancel.store(n_deltas > i % 7, Ordering::Relaxed);
                }
            })
            .unwrap();
        check_counts(&stats, ending);
        let talk =
            [first, Message::text(Role::Assistant, &said), Message::text(Role::User, "What is 2 + 2?")];
        let (after, _, stats) = ask(&mut engine, &talk, &options(depth, 0.0, 24));
        assert!(stats.cached_tokens > 0, "the first question is not read again");
        let (fresh, _, _) = ask(&mut self::engine(), &talk, &options(Mtp::Off, 0.0, 24));
        assert_eq!(after, fresh, "{question} stopped after {n_deltas}");
    }
}

#[test]
fn a_conversation_goes_on_from_any_earlier_turn_as_a_new_one_would() {
    let mut engine = engine();
    let options = options(Mtp::Depth(3), 0.0, 24);
    let mut talk: Vec<Message> = Vec::new();
    let mut questions = questions().step_by(13);
    for question in questions.by_ref().take(6) {
        talk.push(Message::text(Role::User, &question));
        let (text, _, _) = ask(&mut engine, &talk, &options);
        talk.push(Message::text(Role::Assistant, &text));
    }
    // Edited at some turn, then at an earlier one, then again later on.
    for (turns, question) in [4, 1, 3, 0, 5].into_iter().zip(questions) {
        let mut branch = talk[..2 * turns].to_vec();
        branch.push(Message::text(Role::User, &question));
        let (text, _, stats) = ask(&mut engine, &branch, &options);
        let (fresh, _, _) = ask(&mut self::engine(), &branch, &options);
        assert_eq!(text, fresh, "branch at turn {turns}");
        if turns == 4 {
            assert!(stats.cached_tokens > stats.prompt_tokens / 2, "{stats:?}");
        }
    }
}

#[test]
fn states_do_not_pile_up_while_nothing_is_drafted() {
    let mut engine = engine();
    let mut rambling = options(Mtp::Off, 9.0, 100);
    rambling.sampling.top_k = Some(0);
    let (_, _, stats) = ask(&mut engine, &[Message::text(Role::User, "hello")], &rambling);
    assert!(stats.completion_tokens > super::MAX_WAITING, "{stats:?}");
    let waiting = engine.slots[0].cache.mtp.as_ref().unwrap().n_waiting();
    assert!((1..super::MAX_WAITING).contains(&waiting), "{waiting} states wait");
}

#[test]
fn a_weight_that_is_no_number_is_named() {
    let dir = golden::copy_of_model("dense-a");
    let path = dir.path().join("model.safetensors");
    let mut file = std::fs::read(&path).unwrap();
    let name = "model.layers.0.mlp.up_proj.weight";
    let start = {
        let (header_bytes, metadata) = safetensors::SafeTensors::read_metadata(&file).unwrap();
        8 + header_bytes + metadata.info(name).unwrap().data_offsets.0
    };
    // The largest bits of a bf16, twice.
    file[start..start + 4].fill(0xff);
    std::fs::write(&path, file).unwrap();
    let load = LoadOptions { dir: dir.path().into(), device: DeviceChoice::Cpu, ..LoadOptions::default() };
    let mut engine = Engine::load(&load).unwrap();
    let messages = [Message::text(Role::User, "hello")];
    let answer = engine.answer(&messages, &options(Mtp::Off, 0.0, 5), &Arc::default(), &mut |_| ());
    let error = answer.unwrap_err().to_string();
    assert!(error.contains(name) && error.contains("not numbers"), "{error}");
}

#[test]
fn an_answer_with_a_form_has_it_whether_it_is_drafted_or_not() {
    let mut engine = engine();
    let schema = serde_json::json!({
        "type": "object", "required": ["name", "n"], "additionalProperties": false,
        "properties": {"name": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
    });
    let validator = jsonschema::validator_for(&schema).unwrap();
    let (mut drafted, mut accepted) = (0, 0);
    for (i, question) in questions().step_by(9).enumerate() {
        let messages = [Message::text(Role::User, &question)];
        let temperature = if i % 2 == 0 { 0.0 } else { 1.0 };
        let with =
            |mtp| TurnOptions { form: Some(Form::Schema(schema.clone())), ..options(mtp, temperature, 200) };
        let plain = ask(&mut engine, &messages, &with(Mtp::Off));
        let value = serde_json::from_str(&plain.0).unwrap_or_else(|error| panic!("{error}: {}", plain.0));
        assert!(validator.is_valid(&value), "{value}");
        assert_eq!(plain.1, Ending::Finished(Finish::Stop));
        let depth = Mtp::Depth(1 + (i % MAX_DRAFTS) as u8);
        let other = ask(&mut engine, &messages, &with(depth));
        assert_eq!((&plain.0, plain.1), (&other.0, other.1), "{question} at {depth:?}");
        check_counts(&other.2, other.1);
        drafted += other.2.drafts.n_drafted();
        accepted += other.2.drafts.n_accepted();
    }
    assert!(
        accepted > 0 && accepted < drafted,
        "{accepted} of {drafted} drafts were right: that tests too little"
    );
}

#[test]
fn a_stop_text_ends_the_answer_and_is_not_part_of_it() {
    let mut engine = engine();
    let messages = [Message::text(Role::User, "How do I attach a picture?")];
    let (whole, ..) = ask(&mut engine, &messages, &options(Mtp::Off, 0.0, 60));
    let stop: String = whole.chars().skip(20).take(6).collect();
    let (before, _) = whole.split_once(&stop).unwrap();
    for mtp in [Mtp::Off, Mtp::Depth(3)] {
        let with = TurnOptions { stop: vec!["never said".into(), stop.clone()], ..options(mtp, 0.0, 60) };
        let (text, ending, _) = ask(&mut engine, &messages, &with);
        assert_eq!((text.as_str(), ending), (before, Ending::Finished(Finish::Stop)));
    }
}

#[test]
fn tokens_are_told_with_their_probabilities() {
    let mut engine = engine();
    let messages = [Message::text(Role::User, "How do I quit?")];
    let with = TurnOptions { logprobs: Some(3), ..options(Mtp::Depth(2), 0.0, 20) };
    let mut tokens = Vec::new();
    let mut text = String::new();
    let never = Arc::default();
    let mut progress = |progress| match progress {
        Progress::Token(token) => tokens.push(token),
        Progress::Delta { text: more, .. } => text.push_str(&more),
        _ => {}
    };
    let (_, stats) = engine.answer(&messages, &with, &never, &mut progress).unwrap();
    assert_eq!(tokens.len(), stats.completion_tokens);
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.bytes.clone()).collect();
    assert_eq!(String::from_utf8(bytes).unwrap().trim_start(), text.trim_start());
    for token in &tokens {
        // Greedy: the likeliest one was taken.
        assert_eq!((token.top.len(), token.top[0].0), (3, token.id));
        assert!(token.logprob <= 0.0 && token.top[0].2 >= token.top[1].2);
        let together: f32 = token.top.iter().map(|(_, _, logprob)| logprob.exp()).sum();
        assert!(together <= 1.001);
    }
}
