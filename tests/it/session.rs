//! The session manager with the real engine and the dense-a model: order, cancelling, and final events.

use std::collections::HashMap;
use std::path::Path;

use loquat::chat::{Message, Role};
use loquat::engine::device::DeviceChoice;
use loquat::engine::generate::LoadOptions;
use loquat::msg::{
    Command, ConversationId, ErrorCode, Event, Finish, ModelCommand, ModelEvent, SamplingOptions, TurnId,
    TurnOptions, TurnStats,
};
use loquat::session::{Session, start};

const TALK: ConversationId = ConversationId(1);

async fn open(context_tokens: usize) -> Session {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dense-a/model");
    let load = LoadOptions {
        dir,
        device: DeviceChoice::Cpu,
        context_tokens: Some(context_tokens),
        ..LoadOptions::default()
    };
    let (mut session, _engine) = start(load).unwrap();
    assert!(matches!(session.events.recv().await, Some(Event::ModelLoaded(_))));
    session
}

/// Without thinking, always the likeliest token.
fn options(max_tokens: usize) -> TurnOptions {
    let sampling =
        SamplingOptions { temperature: Some(0.0), presence_penalty: Some(0.0), ..SamplingOptions::default() };
    TurnOptions { sampling, max_tokens: Some(max_tokens), thinking: Some(false), ..TurnOptions::default() }
}

fn submit(turn: u64, text: &str, max_tokens: usize) -> Command {
    Command::Submit {
        turn: TurnId(turn),
        conversation: TALK,
        message: Message::text(Role::User, text),
        options: options(max_tokens),
    }
}

#[derive(Debug, Default, Clone, PartialEq)]
struct Turn {
    text: String,
    finals: Vec<Event>,
}

impl Turn {
    fn stats(&self) -> TurnStats {
        match &self.finals[..] {
            [Event::TurnFinished { stats, .. } | Event::TurnCancelled { stats, .. }] => *stats,
            other => panic!("one ending with figures, got {other:?}"),
        }
    }
}

/// Collects events until each of `turns` has ended; `react` may send commands on the way.
async fn collect(
    session: &mut Session,
    turns: &[u64],
    mut react: impl FnMut(&Event) -> Option<Command>,
) -> HashMap<u64, Turn> {
    let mut seen: HashMap<u64, Turn> = HashMap::new();
    while !turns.iter().all(|turn| seen.get(turn).is_some_and(|turn| !turn.finals.is_empty())) {
        let event = session.events.recv().await.expect("the session goes on");
        match &event {
            Event::Tokens { .. } => panic!("nobody asked for tokens"),
            Event::Delta { turn, text, .. } => seen.entry(turn.0).or_default().text.push_str(text),
            Event::TurnFinished { turn, .. }
            | Event::TurnCancelled { turn, .. }
            | Event::TurnFailed { turn, .. } => {
                seen.entry(turn.0).or_default().finals.push(event.clone());
            }
            Event::ModelLoaded(_)
            | Event::ModelFailed { .. }
            | Event::TurnStarted { .. }
            | Event::PrefillProgress { .. }
            | Event::PictureProgress { .. }
            | Event::PictureReady { .. }
            | Event::PictureRefused { .. }
            | Event::Examined { .. }
            | Event::Models(_)
            | Event::History(_) => {}
        }
        if let Some(command) = react(&event) {
            session.commands.send(command).await.unwrap();
        }
    }
    seen
}

#[tokio::test]
async fn turns_run_in_order_and_each_ends_once() {
    let mut session = open(4096).await;
    for turn in 1..=3 {
        session.commands.send(submit(turn, "hello", 10)).await.unwrap();
    }
    let mut order = Vec::new();
    let turns = collect(&mut session, &[1, 2, 3], |event| {
        if let Event::TurnFinished { turn, .. } = event {
            order.push(turn.0);
        }
        None
    })
    .await;
    assert_eq!(order, [1, 2, 3]);
    for turn in turns.values() {
        assert_eq!(turn.stats().completion_tokens, 10);
    }
    assert!(turns[&2].stats().prompt_tokens > turns[&1].stats().prompt_tokens, "turns share a conversation");
}

#[tokio::test]
async fn another_model_takes_over_when_the_answer_has_ended_and_the_conversation_goes_on() {
    let mut session = open(4096).await;
    session.commands.send(submit(1, "hello", 30)).await.unwrap();
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dense-b/model");
    let name = other.to_str().unwrap().to_owned();
    let load = |name: &str| Command::Models(ModelCommand::Load(name.to_owned()));
    session.commands.send(load("/nowhere/at/all")).await.unwrap();
    session.commands.send(load(&name)).await.unwrap();
    let mut order = Vec::new();
    let turns = collect(&mut session, &[1, 2], |event| match event {
        Event::TurnFinished { turn, .. } => {
            order.push(format!("turn {}", turn.0));
            None
        }
        Event::ModelLoaded(info) => {
            order.push(info.name.clone());
            None
        }
        Event::Models(ModelEvent::Loading { name: loading }) if *loading == name => {
            Some(submit(2, "hello again", 10))
        }
        _ => None,
    })
    .await;
    assert_eq!(order, ["turn 1", "dense-b/model", "turn 2"]);
    assert!(turns[&2].stats().prompt_tokens > turns[&1].stats().prompt_tokens, "it has read the first turn");
    assert_eq!(turns[&2].stats().cached_tokens, 0, "nothing of the other model's memory counts");
}

#[tokio::test]
async fn a_later_turn_does_not_read_the_history_again() {
    let mut session = open(4096).await;
    session.commands.send(submit(1, "a question with some words in it", 20)).await.unwrap();
    let first = collect(&mut session, &[1], |_| None).await[&1].clone();
    session.commands.send(submit(2, "and another", 20)).await.unwrap();
    let second = collect(&mut session, &[2], |_| None).await;
    assert_eq!(first.stats().cached_tokens, 0);
    assert!(second[&2].stats().cached_tokens > 10, "{:?}", second[&2].stats());

    // The same conversation in a fresh engine, where nothing is cached, continues with the same words.
    let history = vec![
        Message::text(Role::User, "a question with some words in it"),
        Message::text(Role::Assistant, &first.text),
    ];
    let mut uncached = open(4096).await;
    uncached.commands.send(Command::Open { conversation: TALK, messages: history }).await.unwrap();
    uncached.commands.send(submit(2, "and another", 20)).await.unwrap();
    let uncached = collect(&mut uncached, &[2], |_| None).await;
    assert_eq!(uncached[&2].stats().cached_tokens, 0);
    assert_eq!(uncached[&2].text, second[&2].text);
}

#[tokio::test]
async fn cancelling_stops_the_running_turn_and_the_next_one_goes_on() {
    let mut session = open(4096).await;
    session.commands.send(submit(1, "hello", 4000)).await.unwrap();
    session.commands.send(submit(2, "again", 5)).await.unwrap();
    let mut sent = false;
    let turns = collect(&mut session, &[1, 2], |event| match event {
        Event::Delta { turn: TurnId(1), .. } if !sent => {
            sent = true;
            Some(Command::Cancel { turn: TurnId(1) })
        }
        _ => None,
    })
    .await;
    assert!(matches!(turns[&1].finals[..], [Event::TurnCancelled { .. }]));
    assert!(turns[&1].stats().completion_tokens < 4000);
    assert_eq!(turns[&2].stats().completion_tokens, 5);
}

#[tokio::test]
async fn a_waiting_turn_can_be_cancelled_and_leaves_no_trace() {
    let mut session = open(4096).await;
    session.commands.send(submit(1, "hello", 300)).await.unwrap();
    session.commands.send(submit(2, "never asked, but with many words", 300)).await.unwrap();
    session.commands.send(Command::Cancel { turn: TurnId(2) }).await.unwrap();
    session.commands.send(submit(3, "x", 5)).await.unwrap();
    let turns = collect(&mut session, &[1, 2, 3], |_| None).await;
    assert!(matches!(turns[&2].finals[..], [Event::TurnCancelled { .. }]));
    assert_eq!(turns[&2].text, "");

    let mut other = open(4096).await;
    other.commands.send(submit(1, "hello", 300)).await.unwrap();
    other.commands.send(submit(3, "x", 5)).await.unwrap();
    let without = collect(&mut other, &[1, 3], |_| None).await;
    assert_eq!(turns[&3].stats().prompt_tokens, without[&3].stats().prompt_tokens);
    assert_eq!(turns[&3].text, without[&3].text);
}

#[tokio::test]
async fn a_prompt_that_is_too_long_fails_and_the_conversation_can_go_on() {
    let mut session = open(200).await;
    session.commands.send(submit(1, &"word ".repeat(400), 5)).await.unwrap();
    session.commands.send(submit(2, "short", 5)).await.unwrap();
    let turns = collect(&mut session, &[1, 2], |_| None).await;
    match &turns[&1].finals[..] {
        [Event::TurnFailed { error, .. }] => {
            assert_eq!(error.code, ErrorCode::TooLong);
            assert!(error.message.contains("the context holds 200"), "{}", error.message);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(turns[&2].stats().completion_tokens, 5);
}

#[tokio::test]
async fn an_answer_ends_where_the_context_does() {
    let mut session = open(64).await;
    session.commands.send(submit(1, "hello", 4000)).await.unwrap();
    let turns = collect(&mut session, &[1], |_| None).await;
    assert!(matches!(turns[&1].finals[..], [Event::TurnFinished { finish: Finish::Length, .. }]));
    assert_eq!(turns[&1].stats().context_used(), 64);
}

#[tokio::test]
async fn a_model_that_is_not_there_fails_every_turn_with_the_reason() {
    let load = LoadOptions { dir: "/nowhere".into(), device: DeviceChoice::Cpu, ..LoadOptions::default() };
    let (mut session, _engine) = start(load).unwrap();
    session.commands.send(submit(1, "hello", 5)).await.unwrap();
    assert!(matches!(session.events.recv().await, Some(Event::ModelFailed { .. })));
    let turns = collect(&mut session, &[1], |_| None).await;
    assert!(
        matches!(&turns[&1].finals[..], [Event::TurnFailed { error, .. }] if error.message.contains("/nowhere"))
    );
}

#[tokio::test]
async fn a_face_that_does_not_read_loses_no_text() {
    let mut session = open(4096).await;
    session.commands.send(submit(1, "hello", 600)).await.unwrap();
    // Commands are still taken while nobody reads events: more of them than any channel holds.
    for id in 100..400 {
        session.commands.send(Command::Close { conversation: ConversationId(id) }).await.unwrap();
    }
    let turns = collect(&mut session, &[1], |_| None).await;
    assert_eq!(turns[&1].stats().completion_tokens, 600);

    let mut reader = open(4096).await;
    reader.commands.send(submit(1, "hello", 600)).await.unwrap();
    assert_eq!(collect(&mut reader, &[1], |_| None).await[&1].text, turns[&1].text);
}

#[tokio::test]
async fn the_engine_ends_with_its_face() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dense-a/model");
    let load =
        LoadOptions { dir, device: DeviceChoice::Cpu, context_tokens: Some(4096), ..LoadOptions::default() };
    let (session, engine) = start(load).unwrap();
    session.commands.send(submit(1, "hello", 4000)).await.unwrap();
    drop(session);
    engine.await.unwrap();
}

#[tokio::test]
async fn a_cut_answer_goes_on_and_stays_one_answer() {
    let mut session = open(4096).await;
    session.commands.send(submit(1, "hello", 6)).await.unwrap();
    let cut = collect(&mut session, &[1], |_| None).await[&1].clone();
    let go_on = Command::Continue { turn: TurnId(2), conversation: TALK, options: options(6) };
    session.commands.send(go_on).await.unwrap();
    let rest = collect(&mut session, &[2], |_| None).await[&2].clone();
    assert!(rest.stats().cached_tokens > 0, "the prompt isn't read again: {:?}", rest.stats());
    assert!(rest.stats().prompt_tokens > cut.stats().prompt_tokens, "it goes on behind what was said");
    // The next question comes behind one answer with both parts.
    session.commands.send(submit(3, "and?", 1)).await.unwrap();
    let next = collect(&mut session, &[3], |_| None).await[&3].clone();
    assert!(next.stats().prompt_tokens > rest.stats().prompt_tokens + rest.stats().completion_tokens / 2);
}
