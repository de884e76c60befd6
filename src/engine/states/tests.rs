//! A conversation that is gone on with from a file says what it would have said without, and a file that can't be
//! trusted is as good as none.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::chat::{Channel, Message, Role};
use crate::engine::built_in;
use crate::engine::device::DeviceChoice;
use crate::engine::generate::{Engine, LoadOptions, Progress};
use crate::msg::{Mtp, SamplingOptions, TurnOptions, TurnStats};

fn engine(folder: &Path) -> Engine {
    engine_of(built_in::DIR.into(), folder, Duration::ZERO)
}

fn engine_of(dir: PathBuf, folder: &Path, worth: Duration) -> Engine {
    Engine::load(&LoadOptions {
        dir,
        device: DeviceChoice::Cpu,
        states: Some(StateOptions { folder: folder.join("states"), worth }),
        ..LoadOptions::default()
    })
    .unwrap()
}

fn ask(engine: &mut Engine, talk: &mut Vec<Message>, question: &str) -> (String, TurnStats) {
    talk.push(Message::text(Role::User, question));
    let options = TurnOptions {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        max_tokens: Some(24),
        thinking: Some(false),
        mtp: Some(Mtp::Depth(2)),
        ..TurnOptions::default()
    };
    let mut text = String::new();
    let mut progress = |progress| {
        if let Progress::Delta { channel: Channel::Answer, text: more, .. } = progress {
            text.push_str(&more);
        }
    };
    let (_, stats) = engine.answer(talk, &options, &Arc::default(), &mut progress).unwrap();
    talk.push(Message::text(Role::Assistant, &text));
    (text, stats)
}

const QUESTIONS: [&str; 3] = ["How do I attach a picture?", "And how do I quit?", "What is 2 + 2?"];

/// A conversation of three turns, at whose end its state is saved.
fn saved(folder: &Path) -> Vec<Message> {
    saved_by(engine(folder))
}

fn saved_by(mut engine: Engine) -> Vec<Message> {
    let mut talk = Vec::new();
    for question in QUESTIONS {
        ask(&mut engine, &mut talk, question);
    }
    engine.save_states();
    talk
}

fn paths(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("states")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn a_conversation_goes_on_after_the_program_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (mut never_closed, mut talk) = (engine(folder.path()), Vec::new());
    for question in QUESTIONS {
        ask(&mut never_closed, &mut talk, question);
    }
    never_closed.save_states();
    assert!(!never_closed.is_worth_saving(), "it is saved");
    let mut reopened = engine(folder.path());
    let mut same_talk = talk.clone();
    for (i, question) in ["How do I send a message?", "hello", "What is 3 + 4?"].into_iter().enumerate() {
        let (expected, kept) = ask(&mut never_closed, &mut talk, question);
        let (text, stats) = ask(&mut reopened, &mut same_talk, question);
        assert_eq!(text, expected, "{question}");
        assert_eq!(stats.cached_tokens, kept.cached_tokens, "{question}");
        assert_eq!(stats.drafts.accepted, kept.drafts.accepted, "the head goes on as well");
        assert_eq!(stats.restored_tokens, if i == 0 { stats.cached_tokens } else { 0 });
        assert!(stats.cached_tokens > stats.prompt_tokens / 2);
    }
}

#[test]
fn an_earlier_turn_goes_on_from_an_earlier_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let talk = saved(folder.path());
    let mut branch = talk[..4].to_vec();
    let mut fresh_branch = branch.clone();
    let (text, stats) = ask(&mut engine(folder.path()), &mut branch, "Who are you?");
    assert!(stats.restored_tokens > 0 && stats.restored_tokens < stats.prompt_tokens);
    let elsewhere = tempfile::tempdir().unwrap();
    let (fresh, stats) = ask(&mut engine(elsewhere.path()), &mut fresh_branch, "Who are you?");
    assert_eq!((text, stats.restored_tokens), (fresh, 0));
}

#[test]
fn switching_between_two_conversations_reads_neither_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine(folder.path());
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for question in QUESTIONS {
        ask(&mut engine, &mut a, question);
    }
    ask(&mut engine, &mut b, "Explain batch mode, please. I have a list of prompts.");
    ask(&mut engine, &mut b, "Which exit codes are there?");
    for talk in [&mut a, &mut b] {
        let (_, back) = ask(&mut engine, talk, "hello");
        assert!(back.restored_tokens > back.prompt_tokens / 2, "{back:?}");
    }
}

#[test]
fn a_longer_state_takes_the_place_of_the_one_it_continues() {
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, mut talk) = (engine(folder.path()), Vec::new());
    ask(&mut engine, &mut talk, QUESTIONS[0]);
    engine.save_states();
    let first = paths(folder.path());
    ask(&mut engine, &mut talk, QUESTIONS[1]);
    engine.save_states();
    let second = paths(folder.path());
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second);
}

#[test]
fn damaged_files_are_removed_and_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let talk = saved(folder.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let (expected, _) = ask(&mut engine(elsewhere.path()), &mut talk.clone(), "hello");
    let path = paths(folder.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    let middle = whole.len() / 2;
    let mut flipped = whole.clone();
    flipped[middle] ^= 1;
    for damaged in [flipped, whole[..middle].to_vec(), whole[..9].to_vec(), Vec::new(), vec![0xff; 64]] {
        fs::write(&path, &damaged).unwrap();
        let (text, stats) = ask(&mut engine(folder.path()), &mut talk.clone(), "hello");
        assert_eq!((text, stats.restored_tokens), (expected.clone(), 0), "{} bytes", damaged.len());
    }
    fs::write(&path, &whole).unwrap();
    let (text, stats) = ask(&mut engine(folder.path()), &mut talk.clone(), "hello");
    assert!(stats.restored_tokens > 0, "the whole file is used");
    assert_eq!(text, expected);
}

#[test]
fn another_model_of_the_same_shape_has_its_own_states() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    for name in [
        "config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "model.safetensors",
        "generation_config.json",
    ] {
        fs::write(model.join(name), built_in::file(&Path::new(built_in::DIR).join(name)).unwrap()).unwrap();
    }
    let talk = saved_by(engine_of(model.clone(), folder.path(), Duration::ZERO));
    let moved = folder.path().join("moved");
    fs::rename(&model, &moved).unwrap();
    let model = moved;
    let restored = |talk: &[Message]| {
        let mut engine = engine_of(model.clone(), folder.path(), Duration::ZERO);
        ask(&mut engine, &mut talk.to_vec(), "hello").1.restored_tokens
    };
    assert!(restored(&talk) > 0, "the same model at another place");
    // Every number changed a little, as by training it further.
    let path = model.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[header..].chunks_exact_mut(2).for_each(|value| value[0] ^= 1);
    fs::write(&path, bytes).unwrap();
    assert_eq!(restored(&talk), 0);
}

#[test]
fn what_was_read_quickly_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine_of(built_in::DIR.into(), folder.path(), Duration::from_secs(3600));
    ask(&mut engine, &mut Vec::new(), QUESTIONS[0]);
    assert!(!engine.is_worth_saving());
    engine.save_states();
    assert!(!folder.path().join("states").exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("states"), "a file").unwrap();
    let (mut engine, mut talk) = (engine(folder.path()), Vec::new());
    ask(&mut engine, &mut talk, QUESTIONS[0]);
    engine.save_states();
    let (text, _) = ask(&mut engine, &mut talk, QUESTIONS[1]);
    assert!(!text.is_empty());
}

#[cfg(unix)]
#[test]
fn what_was_said_is_for_its_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path());
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("states")), 0o700);
    assert_eq!(mode(&paths(folder.path())[0]), 0o600);
}
