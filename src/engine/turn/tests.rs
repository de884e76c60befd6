//! Several answers at a time are the answers that would be given one by one.

use super::*;
use crate::chat::{Channel, Role};
use crate::engine::built_in;
use crate::engine::device::DeviceChoice;
use crate::engine::generate::LoadOptions;
use crate::engine::weights::quantised::{Bits, Quant};
use crate::msg::{Form, SamplingOptions};

fn engine(parallel: usize, quant: Quant) -> Engine {
    Engine::load(&LoadOptions {
        dir: built_in::DIR.into(),
        device: DeviceChoice::Cpu,
        parallel,
        quant,
        ..LoadOptions::default()
    })
    .unwrap()
}

struct Asked {
    messages: Vec<Message>,
    options: TurnOptions,
    /// It is cancelled after so many pieces of text.
    cancel_after: usize,
}

/// Questions of all kinds, each on its own.
fn asked() -> Vec<Asked> {
    let words = ["attach a picture", "quit", "see the keys", "bake bread", "use batch mode", "sing", "undo"];
    let schema = serde_json::json!({"type": "object", "required": ["n"], "additionalProperties": false,
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}});
    (0..21)
        .map(|i| {
            let question = match i % 3 {
                0 => format!("How do I {}?", words[i % 7]),
                1 => format!("{}? ", words[i % 7]).repeat(1 + i),
                _ => format!("I want to {}", words[i % 7]),
            };
            let sampling = SamplingOptions {
                temperature: Some([0.0, 0.8, 1.3][i % 3]),
                presence_penalty: Some(0.3),
                seed: Some(i as u64),
                ..SamplingOptions::default()
            };
            Asked {
                messages: vec![Message::text(Role::User, &question)],
                options: TurnOptions {
                    sampling,
                    max_tokens: Some(1 + (i * 7) % 40),
                    thinking: Some(false),
                    mtp: Some([Mtp::Auto, Mtp::Depth(2), Mtp::Off, Mtp::Depth(8)][i % 4]),
                    form: (i % 5 == 4).then(|| Form::Schema(schema.clone())),
                    is_fresh: true,
                    ..TurnOptions::default()
                },
                cancel_after: if i % 6 == 5 { 3 } else { usize::MAX },
            }
        })
        .collect()
}

/// What came of a question. Where drafting decides when a cancel is seen, only that it was.
#[derive(Debug, PartialEq)]
struct Came {
    text: String,
    ending: Ending,
    tokens: usize,
}

/// Answers all, up to `engine.parallel()` at a time, the next as soon as one has ended.
fn answers(engine: &mut Engine, asked: &[Asked]) -> Vec<(Came, TurnStats)> {
    let mut came: Vec<Option<(Came, TurnStats)>> = asked.iter().map(|_| None).collect();
    let mut texts: Vec<(String, usize)> = vec![(String::new(), 0); asked.len()];
    let (mut turns, mut which, mut next) = (Vec::new(), Vec::new(), 0);
    while next < asked.len() || !turns.is_empty() {
        while next < asked.len() && turns.len() < engine.parallel() {
            let Asked { messages, options, .. } = &asked[next];
            turns.push(engine.begin(messages, options, Arc::default(), &mut |_| ()).unwrap());
            which.push(next);
            next += 1;
        }
        let cancels: Vec<Arc<AtomicBool>> =
            turns.iter().map(|turn: &Turn| turn.limits.cancel.clone()).collect();
        engine.work(&mut turns, &mut |index, progress| {
            if let Progress::Delta { channel: Channel::Answer, text, .. } = progress {
                let (said, n) = &mut texts[which[index]];
                said.push_str(&text);
                *n += 1;
                cancels[index].store(*n >= asked[which[index]].cancel_after, Ordering::Relaxed);
            }
        });
        while let Some(at) = turns.iter().position(Turn::has_ended) {
            let index = which.remove(at);
            let (ending, stats) = engine.end(turns.remove(at)).unwrap();
            let text = texts[index].0.clone();
            came[index] = Some((Came { text, ending, tokens: stats.completion_tokens }, stats));
        }
    }
    came.into_iter().map(|came| came.unwrap()).collect()
}

#[test]
fn answers_in_company_are_those_that_are_given_alone() {
    for quant in [Quant::None, Quant::To(Bits::Eight), Quant::To(Bits::Four)] {
        let asked = asked();
        let alone = answers(&mut engine(1, quant), &asked);
        for parallel in [2, 5, 8] {
            let mut engine = engine(parallel, quant);
            for (i, (came, expected)) in answers(&mut engine, &asked).iter().zip(&alone).enumerate() {
                assert_eq!(came.0, expected.0, "question {i} of {parallel} at a time, {quant:?}");
            }
            assert!(engine.slots.len() <= parallel, "caches are used again");
        }
        let cut = alone.iter().filter(|(came, _)| came.ending == Ending::Cancelled).count();
        assert!(cut > 0 && cut < 6, "{cut} were cancelled");
    }
}

#[test]
fn a_beginning_that_prompts_share_is_read_once() {
    let system = "You answer questions about the program in one short sentence. ".repeat(12);
    let mut asked = asked();
    asked.truncate(8);
    for asked in &mut asked {
        asked.messages.insert(0, Message::text(Role::System, &system));
        asked.options.is_fresh = false;
        asked.options.sampling.temperature = Some(0.0);
        asked.cancel_after = usize::MAX;
    }
    let with = answers(&mut engine(3, Quant::None), &asked);
    for asked in &mut asked {
        asked.options.is_fresh = true;
    }
    let fresh = answers(&mut engine(3, Quant::None), &asked);
    for (i, ((came, stats), (expected, _))) in with.iter().zip(&fresh).enumerate() {
        assert_eq!(came, expected, "question {i}");
        // The first reads it, the second finds out that it is shared; they and the third begin before either is done.
        if i >= 3 {
            assert!(stats.cached_tokens > 100, "question {i}: {stats:?}");
        }
    }
}

#[test]
fn a_conversation_keeps_its_cache_beside_others() {
    let mut engine = engine(2, Quant::None);
    let question = |text: &str| Message::text(Role::User, text);
    let mut talks = [vec![question("How do I quit?")], vec![question("How do I see the keys?")]];
    let options = TurnOptions {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        thinking: Some(false),
        max_tokens: Some(20),
        ..TurnOptions::default()
    };
    for round in 0..3 {
        for talk in &mut talks {
            let asked =
                [Asked { messages: talk.clone(), options: options.clone(), cancel_after: usize::MAX }];
            let (came, stats) = answers(&mut engine, &asked).remove(0);
            assert_eq!(stats.cached_tokens > 0, round > 0, "{stats:?}");
            talk.push(Message::text(Role::Assistant, &came.text));
            talk.push(question("And what else?"));
        }
    }
}
