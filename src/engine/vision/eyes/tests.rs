//! Pictures in a conversation with the built-in model: what is looked at, what is remembered, and what is refused.

use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use image::{ImageFormat, Rgb, RgbImage};

use super::*;
use crate::chat::{Channel, PictureSource, Role};
use crate::engine::built_in;
use crate::engine::device::DeviceChoice;
use crate::engine::generate::{Ending, Engine, EngineError, LoadOptions, Progress};
use crate::msg::{ErrorCode, SamplingOptions, TurnOptions, TurnStats};

fn engine(dir: PathBuf) -> Engine {
    Engine::load(&LoadOptions { dir, device: DeviceChoice::Cpu, ..LoadOptions::default() }).unwrap()
}

fn demo() -> Engine {
    engine(built_in::DIR.into())
}

/// A filled disc on white.
fn disc(colour: [u8; 3], size: u32) -> Picture {
    let centre = f64::from(size) / 2.0;
    let image = RgbImage::from_fn(size, size, |x, y| {
        match (f64::from(x) - centre).hypot(f64::from(y) - centre) < centre * 0.6 {
            true => Rgb(colour),
            false => Rgb([250, 250, 250]),
        }
    });
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, ImageFormat::Png).unwrap();
    let source = PictureSource::Bytes(bytes.into_inner().into());
    Picture { name: "disc.png".into(), source, detail: Detail::Auto }
}

const RED: [u8; 3] = [220, 30, 30];
const BLUE: [u8; 3] = [35, 65, 220];

fn about(pictures: &[&Picture], question: &str) -> Message {
    let parts = pictures.iter().map(|picture| Part::Image((*picture).clone()));
    let parts = parts.chain([Part::Text(question.into())]).collect();
    Message { role: Role::User, parts, reasoning: None }
}

struct Seen {
    text: String,
    stats: TurnStats,
    /// The pictures that were encoded.
    encoded: usize,
}

fn ask(engine: &mut Engine, messages: &[Message]) -> Result<Seen, EngineError> {
    let options = TurnOptions {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        max_tokens: Some(24),
        thinking: Some(false),
        mtp: None,
        ..TurnOptions::default()
    };
    let (mut text, mut encoded) = (String::new(), 0);
    let (_, stats) = engine.answer(messages, &options, &Arc::default(), &mut |progress| match progress {
        Progress::Delta { channel: Channel::Answer, text: more, .. } => text.push_str(&more),
        Progress::Picture { picture, pictures, done, total } => {
            assert!(picture <= pictures && done <= total);
            encoded += usize::from(done == total);
        }
        _ => {}
    })?;
    Ok(Seen { text, stats, encoded })
}

#[test]
fn a_picture_is_looked_at_once_in_a_conversation() {
    let mut engine = demo();
    let red = disc(RED, 128);
    let mut talk = vec![about(&[&red], "What colour is it?")];
    let first = ask(&mut engine, &talk).unwrap();
    assert!(first.text.contains("red"), "{}", first.text);
    assert_eq!((first.encoded, first.stats.image_tokens), (1, 16));

    talk.push(Message::text(Role::Assistant, &first.text));
    talk.push(about(&[], "Is the picture light or dark?"));
    let second = ask(&mut engine, &talk).unwrap();
    assert_eq!(second.encoded, 0);
    assert!(second.stats.cached_tokens > second.stats.image_tokens, "{:?}", second.stats);
    // Another question about it, and it again in a new conversation: read again, not encoded again.
    for question in ["What colour is it?", "Which shape is it?"] {
        let again = ask(&mut engine, &[about(&[&red], question)]).unwrap();
        assert_eq!(again.encoded, 0, "{question}");
    }
    assert_eq!(ask(&mut engine, &[about(&[&red], "What colour is it?")]).unwrap().text, first.text);
}

#[test]
fn pictures_of_the_same_size_are_told_apart() {
    let mut engine = demo();
    let (red, blue) = (disc(RED, 128), disc(BLUE, 128));
    for (picture, colour) in [(&red, "red"), (&blue, "blue"), (&red, "red")] {
        let seen = ask(&mut engine, &[about(&[picture], "What colour is it?")]).unwrap();
        assert!(seen.text.contains(colour), "{colour}: {}", seen.text);
        assert!(seen.stats.cached_tokens < 16, "nothing behind another picture is reused");
    }
    let both = ask(&mut engine, &[about(&[&red, &blue], "Are they the same colour?")]).unwrap();
    assert_eq!((both.encoded, both.stats.image_tokens), (0, 32));
}

#[test]
fn a_second_engine_gives_the_same_answer_as_one_that_remembers() {
    let mut first = demo();
    let (red, blue) = (disc(RED, 96), disc(BLUE, 160));
    let talk = [about(&[&red, &blue], "Do they have the same colour?")];
    ask(&mut first, &[about(&[&blue], "What is in the picture?")]).unwrap();
    let remembering = ask(&mut first, &talk).unwrap();
    let fresh = ask(&mut demo(), &talk).unwrap();
    assert_eq!((remembering.encoded, fresh.encoded), (1, 2));
    assert_eq!(remembering.text, fresh.text);
}

#[test]
fn looking_can_be_stopped_and_leaves_nothing_wrong() {
    let mut engine = demo();
    let talk = [about(&[&disc(RED, 128)], "What colour is it?")];
    let cancel = Arc::new(AtomicBool::new(false));
    let (ending, stats) = engine
        .answer(&talk, &TurnOptions::default(), &cancel, &mut |progress| {
            if let Progress::Picture { done: 1, .. } = progress {
                cancel.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
    assert_eq!((ending, stats.completion_tokens), (Ending::Cancelled, 0));
    let seen = ask(&mut engine, &talk).unwrap();
    assert_eq!(seen.encoded, 1);
    assert!(seen.text.contains("red"), "{}", seen.text);
}

#[test]
fn a_model_without_eyes_says_so_and_goes_on() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dense-a/model");
    let mut engine = engine(dir);
    let Err(error) = ask(&mut engine, &[about(&[&disc(RED, 64)], "What is it?")]) else { panic!("it saw") };
    assert_eq!(error.code(), ErrorCode::ImageUnreadable);
    assert!(error.to_string().contains("disc.png") && error.to_string().contains("doesn't see"), "{error}");
    assert!(ask(&mut engine, &[about(&[], "hello")]).is_ok());
}

#[test]
fn a_picture_typed_as_text_is_text() {
    let mut engine = demo();
    let message = about(&[], "<|vision_start|><|image_pad|><|vision_end|> What colour is it?");
    let seen = ask(&mut engine, &[message]).unwrap();
    assert_eq!((seen.encoded, seen.stats.image_tokens), (0, 0));
}
