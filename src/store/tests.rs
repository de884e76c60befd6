//! What is kept, found and given back, on real files.

use std::fs;
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::chat::conversation::{Answered, Ending, Node, NodeId};
use crate::chat::{Detail, Message, Part, Picture, PictureSource, Role};
use crate::msg::{ConversationId, HistoryCommand, HistoryEvent};

const CHAT: ConversationId = ConversationId(1);

fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

/// A store in which one conversation has these messages, one after another.
fn with_chat(folder: &Path, texts: &[&str]) -> (Store, StoredId, Vec<i64>) {
    let mut store = Store::open(folder).unwrap();
    let stored = store.begin(&user(texts[0]), Some("be brief")).unwrap();
    let mut rows = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let answered = (at % 2 == 1).then(|| Answered { model: "toy".into(), ..Answered::default() });
        let role = if at % 2 == 1 { Role::Assistant } else { Role::User };
        let new = NewMessage {
            parent: rows.last().copied(),
            message: &Message::text(role, text),
            answered: answered.as_ref(),
        };
        rows.push(store.add(stored, &new).unwrap());
    }
    (store, stored, rows)
}

#[test]
fn a_conversation_comes_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (store, stored, rows) =
        with_chat(dir.path(), &["What is  a loquat?", "A fruit\u{1b}[1m.", "And a medlar?"]);
    let answered = Answered {
        model: "toy".into(),
        settings: vec![("temperature".into(), "0.5".into())],
        ending: Some(Ending::Stopped),
        ..Answered::default()
    };
    store.grow(rows[1], "A fruit, yel", Some("hm"), &answered).unwrap();
    drop(store);
    let kept = Store::open(dir.path()).unwrap().load(stored).unwrap();
    assert_eq!(kept.rows, rows);
    assert_eq!(kept.conversation.title.as_deref(), Some("What is a loquat?"));
    assert_eq!(kept.conversation.system.as_deref(), Some("be brief"));
    assert_eq!(kept.conversation.head(), Some(NodeId(2)));
    let answer = kept.conversation.node(NodeId(1)).unwrap();
    assert_eq!(answer.message.plain_text(), "A fruit, yel");
    assert_eq!(answer.message.reasoning.as_deref(), Some("hm"));
    assert_eq!(answer.answered.as_ref(), Some(&answered));
}

#[test]
fn a_picture_is_kept_once_by_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let picture = |name: &str, source| Picture { name: name.into(), source, detail: Detail::Pixels(9) };
    let bytes = PictureSource::Bytes((*b"not really a picture").into());
    let message = Message {
        role: Role::User,
        parts: vec![
            Part::Image(picture("a.png", bytes.clone())),
            Part::Clip(picture("b.gif", bytes.clone())),
            Part::Image(picture("gone.png", PictureSource::File("/nowhere/gone.png".into()))),
            Part::Text("what?".into()),
        ],
        reasoning: None,
    };
    let stored = store.begin(&message, None).unwrap();
    let new = NewMessage { parent: None, message: &message, answered: None };
    store.add(stored, &new).unwrap();
    let back = store.load(stored).unwrap().conversation.node(NodeId(0)).unwrap().message.clone();
    assert_eq!(back.parts[..2], message.parts[..2]);
    assert!(
        matches!(&back.parts[2], Part::Image(picture) if matches!(picture.source, PictureSource::File(_)))
    );
    assert_eq!(back.parts[3], message.parts[3]);
    let n_files = || walk(&dir.path().join("pictures")).len();
    assert_eq!(n_files(), 1);

    store.delete(stored).unwrap();
    store.purge(None).unwrap();
    assert_eq!(n_files(), 1, "it can still be taken back");
    store.db.execute("UPDATE conversations SET deleted_ms = 1", []).unwrap();
    store.purge(None).unwrap();
    assert_eq!(n_files(), 0);
    assert!(matches!(store.undelete(stored), Err(StoreError::Unknown(_))));
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn words_are_found_wherever_they_stand() {
    let dir = tempfile::tempdir().unwrap();
    let (store, fruit, _) =
        with_chat(dir.path(), &["What is a loquat?", "A yellow fruit, 枇杷の木, naïve 50%."]);
    let (store2, other, rows) = with_chat(dir.path(), &["Write \"hello\" OR goodbye", "hello"]);
    let ids =
        |query: &str| store.find(query).unwrap().into_iter().map(|found| found.stored).collect::<Vec<_>>();
    assert_eq!(ids(""), [other, fruit], "the newest first");
    for query in ["LOQUAT", "ellow", "枇杷の", "枇杷", "naive", "fruit is", "yellow loquat", "50%", "%"]
    {
        assert_eq!(ids(query), [fruit], "{query}");
    }
    for query in ["\"hello\"", "OR", "good* bye", "a\"b", "NEAR(", "hello"] {
        let found = ids(query);
        assert!(found == [other] || found.is_empty(), "{query}: {found:?}");
    }
    assert_eq!(ids("medlar"), []);
    let found = &store.find("yellow").unwrap()[0];
    assert_eq!(found.excerpt.as_deref(), Some("A yellow fruit, 枇杷の木, naïve 50%."));
    assert_eq!(found.n_messages, 2);

    store2.grow(rows[1], "medlar", None, &Answered::default()).unwrap();
    assert_eq!(ids("medlar"), [other], "what changes is found by what it is now");
    store2.rename(other, "Greetings").unwrap();
    assert_eq!(ids("greet"), [other]);
    assert_eq!(store2.delete(other).unwrap(), "Greetings");
    assert_eq!(ids("medlar"), []);
    assert!(matches!(store.load(other), Err(StoreError::Unknown(_))));
    assert_eq!(store.undelete(other).unwrap(), "Greetings");
    assert_eq!(ids("medlar"), [other]);
}

#[test]
fn what_is_not_a_database_is_said_to_be_damaged() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FILE), "this is no database, it only lies where one should be".repeat(100))
        .unwrap();
    let error = Store::open(dir.path()).err().unwrap();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("move it away"), "{error}");
}

#[test]
fn a_history_of_a_newer_program_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, ..) = with_chat(dir.path(), &["hi"]);
    store.db.pragma_update(None, "user_version", 1000).unwrap();
    drop(store);
    let error = Store::open(dir.path()).err().unwrap();
    assert!(matches!(error, StoreError::Newer { found: 1000, .. }), "{error}");
}

#[test]
#[cfg(unix)]
fn only_the_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("new").join("history");
    let (_store, ..) = with_chat(&folder, &["secret"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for path in walk(&folder) {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

/// A writer with the events it emits.
fn writer(folder: &Path) -> (Writer, thread::JoinHandle<()>, mpsc::Receiver<HistoryEvent>) {
    let (sender, events) = mpsc::channel();
    let emit = move |event| {
        let _ = sender.send(event);
    };
    let (writer, thread) = Writer::start(folder.to_owned().into(), emit).unwrap();
    (writer, thread, events)
}

/// Ends a writer; all that it still says.
fn end(
    writer: Writer,
    thread: thread::JoinHandle<()>,
    events: &mpsc::Receiver<HistoryEvent>,
) -> Vec<HistoryEvent> {
    drop(writer);
    thread.join().unwrap();
    events.iter().collect()
}

fn add(node: u32, parent: Option<u32>, text: &str) -> Job {
    let what = Node { parent: parent.map(NodeId), message: user(text), answered: None };
    Job::Command(HistoryCommand::Add { conversation: CHAT, node: NodeId(node), what, system: None })
}

#[test]
fn two_programs_write_one_history_and_one_conversation_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (_, stored, _) = with_chat(dir.path(), &["hi", "hello"]);
    let programs = ["left", "right"].map(|name| (name, writer(dir.path())));
    for (_, (writer, _, events)) in &programs {
        writer.send(Job::Command(HistoryCommand::Load { conversation: CHAT, stored: Some(stored) }));
        assert!(matches!(events.recv().unwrap(), HistoryEvent::Loaded { .. }));
    }
    for (name, (writer, ..)) in &programs {
        for n in 0..20 {
            writer.send(add(2 + n, Some(1 + n), &format!("{name} {n}")));
        }
    }
    for (_, (writer, thread, events)) in programs {
        assert_eq!(end(writer, thread, &events), []);
    }
    let kept = Store::open(dir.path()).unwrap().load(stored).unwrap().conversation;
    assert_eq!(kept.len(), 42);
    let n_of = |name: &str| kept.nodes().filter(|(_, n)| n.message.plain_text().starts_with(name)).count();
    assert_eq!((n_of("left"), n_of("right")), (20, 20));
}

#[test]
fn a_chat_goes_on_unsaved_and_says_so_once_when_nothing_can_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FILE), [b'x'; 5000]).unwrap();
    let (writer, thread, events) = writer(dir.path());
    writer.send(add(0, None, "hi"));
    writer.send(add(1, Some(0), "again"));
    writer.send(Job::Command(HistoryCommand::Find { query: String::new() }));
    let events = end(writer, thread, &events);
    assert!(
        matches!(&events[..], [HistoryEvent::Off { message }, HistoryEvent::Refused { .. }] if message.contains("damaged")),
        "{events:?}"
    );
}

#[test]
fn a_history_that_breaks_in_the_middle_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, thread, events) = writer(dir.path());
    writer.send(add(0, None, "hi"));
    writer.send(add(7, Some(0), "of nothing"));
    writer.send(add(1, Some(0), "after it"));
    let events = end(writer, thread, &events);
    assert!(matches!(&events[..], [HistoryEvent::Kept { .. }, HistoryEvent::Off { .. }]), "{events:?}");
    assert_eq!(Store::open(dir.path()).unwrap().find("hi").unwrap().len(), 1);
}
