//! Kept conversations and their branches, as a person uses them.

use insta::assert_snapshot;

use super::*;
use crate::chat::conversation::{Answered, Conversation, Ending};
use crate::chat::{Message, NodeId, Part, Role};
use crate::msg::{ConversationId, HistoryCommand};

fn keeping() -> TuiSettings {
    TuiSettings { keeps_chats: true, ..TuiSettings::default() }
}

/// Plays in a chat that is kept.
fn play_kept(script: &str) -> Run {
    play_with(keeping(), 80, 24, &format!("~loaded {script}"))
}

fn asked_history(run: &Run) -> Vec<&HistoryCommand> {
    run.sent()
        .into_iter()
        .filter_map(|command| match command {
            Command::History(command) => Some(command),
            _ => None,
        })
        .collect()
}

/// What the model was told of the conversation last.
fn opened(run: &Run) -> Vec<String> {
    let opened = run.sent().into_iter().rev().find_map(|command| match command {
        Command::Open { messages, .. } => Some(messages.iter().map(Message::plain_text).collect()),
        _ => None,
    });
    opened.expect("a conversation was opened")
}

const TWO: &str =
    "one<enter> ~start(5) ~delta(first answer) ~finish two<enter> ~start(9) ~delta(second) ~finish";

#[test]
fn every_message_is_kept_before_it_is_sent() {
    let run = play_kept(TWO);
    let added: Vec<(NodeId, Option<NodeId>, Role)> = asked_history(&run)
        .into_iter()
        .filter_map(|command| match command {
            HistoryCommand::Add { node, what, .. } => Some((*node, what.parent, what.message.role)),
            _ => None,
        })
        .collect();
    let node = NodeId;
    assert_eq!(
        added,
        [
            (node(0), None, Role::User),
            (node(1), Some(node(0)), Role::Assistant),
            (node(2), Some(node(1)), Role::User),
            (node(3), Some(node(2)), Role::Assistant),
        ]
    );
    let followed = asked_history(&run).into_iter().filter(|c| matches!(c, HistoryCommand::Follow { .. }));
    assert_eq!(followed.count(), 2);
    assert!(asked_history(&play(TWO)).is_empty(), "without a history nothing is asked of it");
}

#[test]
fn another_answer_leaves_the_first_as_a_branch() {
    let mut run = play_kept(&format!("{TWO} /regen 7<enter> ~start(9) ~delta(another) ~finish"));
    let screen = run.screen();
    assert!(screen.contains("another") && !screen.contains("second"), "{screen}");
    assert_eq!(opened(&run), ["one", "first answer"]);
    let Some(Command::Submit { options, .. }) = run.sent().last().copied() else { panic!("it was asked") };
    assert_eq!(options.sampling.seed, Some(7));
    run.play("<c-b>");
    assert_snapshot!(run.screen());
    run.play("<down> <enter>");
    assert!(run.screen().contains("second"));
    run.play("/undo<enter>");
    assert!(run.screen().contains("another"));
}

#[test]
fn editing_a_message_begins_a_branch_in_its_place() {
    let mut run = play_kept(&format!("{TWO} /edit 1<enter>"));
    assert_eq!(run.state.composer.text(), "one");
    assert!(run.screen().contains("Editing [1]"));
    run.play("!<enter>");
    assert_eq!(run.submitted().last().map(String::as_str), Some("one!"));
    assert_eq!(opened(&run), [""; 0]);
    run.play("~start(5) ~delta(new) ~finish");
    let screen = run.screen();
    assert!(screen.contains("one!") && !screen.contains("two"), "{screen}");
    run.play("/undo<enter>");
    assert!(run.screen().contains("second"), "the branch before is there again");
    assert_eq!(run.state.composer.text(), "one!");
}

#[test]
fn escape_leaves_a_message_as_it_is() {
    let mut run = play_kept(&format!("{TWO} /edit<enter> <esc> <enter>"));
    assert_eq!(run.submitted().last().map(String::as_str), Some("two"));
    assert_eq!(run.state.transcript.n_messages(), 6, "it is a new message");
    run.play("~start(1) ~finish /edit 2<enter>");
    assert!(run.screen().contains("[2] is an answer"));
    run.play("/edit 77<enter>");
    assert!(run.screen().contains("There is no message [77]"));
}

#[test]
fn undo_takes_the_last_message_back_into_the_draft() {
    let mut run = play_kept(&format!("{TWO} /undo<enter>"));
    assert_eq!(run.state.composer.text(), "two");
    assert!(!run.screen().contains("second"));
    assert!(
        asked_history(&run)
            .contains(&&HistoryCommand::SetHead { conversation: ConversationId(1), head: Some(NodeId(1)) })
    );
    run.play("<enter>");
    assert_eq!(opened(&run), ["one", "first answer"]);
}

#[test]
fn a_cut_answer_goes_on_where_it_was_cut() {
    let mut run = play_kept("tell<enter> ~start(5) ~delta(Once upon) ~length /continue<enter>");
    assert!(matches!(run.sent().last(), Some(Command::Continue { .. })));
    run.play("~start(7) ~delta( a time) ~finish");
    let screen = run.screen();
    assert!(screen.contains("Once upon a time") && !screen.contains("cut off"), "{screen}");
    assert_eq!(run.state.transcript.n_messages(), 2);
    let answer = run.state.chat.node(NodeId(1)).unwrap();
    assert_eq!(answer.message.plain_text(), "Once upon a time");
    run.play("/new<enter> /continue<enter>");
    assert!(run.screen().contains("Nothing to go on with yet"));
}

fn kept_chat() -> Conversation {
    let mut chat = Conversation::new(None);
    chat.title = Some("Fruit\u{1b}[2J".into());
    let question = chat.add(None, Message::text(Role::User, "What is a loquat?"), None);
    let answered = Answered { ending: None, ..Answered::default() };
    let answer = Message::text(Role::Assistant, "A \u{1b}[31mfruit");
    chat.add(Some(question), answer, Some(answered));
    chat
}

fn loaded(run: &mut Run) {
    let conversation = run.state.loading.expect("a conversation was asked for");
    run.message(history(HistoryEvent::Loaded {
        conversation,
        stored: StoredId(12),
        loaded: Box::new(kept_chat()),
    }));
}

#[test]
fn a_conversation_is_searched_opened_and_goes_on() {
    let mut run = play_kept("/history fruit<enter>");
    assert_eq!(asked_history(&run), [&HistoryCommand::Find { query: "fruit".into() }]);
    run.play(
        "~history(12 Fruit of Japan; 9 Shopping list, with a title so long that it has to be cut somewhere)",
    );
    assert_snapshot!(run.screen());
    run.play("<enter>");
    assert!(matches!(
        asked_history(&run).last(),
        Some(HistoryCommand::Load { stored: Some(StoredId(12)), .. })
    ));
    loaded(&mut run);
    assert_snapshot!(run.screen());
    assert_eq!(run.state.stored, Some(StoredId(12)));
    run.play("And now?<enter>");
    assert_eq!(opened(&run), ["What is a loquat?", "A \u{1b}[31mfruit"], "the model reads what it wrote");
    assert!(matches!(
        asked_history(&run)[..],
        [
            ..,
            HistoryCommand::Add { node: NodeId(2), .. },
            HistoryCommand::Add { node: NodeId(3), .. },
            HistoryCommand::Follow { .. }
        ]
    ));
}

#[test]
fn the_list_on_a_small_screen() {
    let mut run =
        play_with(keeping(), 40, 12, "~loaded /history<enter> ~history(12 Fruit of Japan; 9 Shopping)");
    assert_snapshot!(run.screen());
    run.play("xyz ~history()");
    assert!(run.screen().contains("nothing found"));
}

#[test]
fn a_deletion_can_be_taken_back() {
    let mut run =
        play_kept("one<enter> ~kept(7) ~start(5) ~delta(1) ~finish /history<enter> ~history(7 one; 8 two)");
    run.play("<del>");
    assert_eq!(asked_history(&run).last(), Some(&&HistoryCommand::Delete { stored: StoredId(7) }));
    run.play("~deleted(7 one) ~history(8 two)");
    assert_eq!(run.state.transcript.n_messages(), 0, "the open one is left");
    run.play("<c-u>");
    assert_eq!(asked_history(&run).last(), Some(&&HistoryCommand::Undelete { stored: StoredId(7) }));
    run.play("<esc> ~deleted(8 two) /undo<enter>");
    assert_eq!(asked_history(&run).last(), Some(&&HistoryCommand::Undelete { stored: StoredId(8) }));
}

#[test]
fn a_conversation_is_renamed_in_the_list_and_in_the_chat() {
    let mut run = play_kept("/history<enter> ~history(8 two) <c-r> !<enter>");
    let rename = HistoryCommand::Rename { stored: StoredId(8), title: "two!".into() };
    assert_eq!(asked_history(&run).last(), Some(&&rename));
    run.play("<esc> /rename x<enter>");
    assert!(run.screen().contains("isn't kept"));
    run.play("one<enter> ~kept(7) ~start(1) ~finish /rename My chat<enter>");
    let title = HistoryCommand::Title { conversation: ConversationId(1), title: "My chat".into() };
    assert_eq!(asked_history(&run).last(), Some(&&title));
    run.play("~renamed(7 My chat)");
    assert_eq!(run.state.title().as_deref(), Some("My chat"));
}

#[test]
fn a_history_that_fails_is_told_and_the_chat_goes_on() {
    let mut run =
        play_kept("~off(the history /h is damaged) one<enter> ~start(5) ~delta(still here) ~finish");
    let screen = run.screen();
    assert!(screen.contains("this chat is not kept: the history /h is damaged"), "{screen}");
    assert!(screen.contains("still here"));
    assert!(asked_history(&run).is_empty());
}

#[test]
fn pictures_of_a_kept_conversation_are_shown_again() {
    let mut run = play_with(keeping(), 80, 24, "~sees /resume 12<enter>");
    let conversation = run.state.loading.expect("a conversation was asked for");
    let mut chat = Conversation::default();
    let picture = Picture {
        name: "sign.jpg".into(),
        source: PictureSource::Bytes(tiny_picture()),
        detail: crate::chat::Detail::Auto,
    };
    let parts = vec![Part::Image(picture.clone()), Part::Text("what?".into())];
    let question = chat.add(None, Message { role: Role::User, parts, reasoning: None }, None);
    let answered = Answered { ending: Some(Ending::Finished), ..Answered::default() };
    chat.add(Some(question), Message::text(Role::Assistant, "a sign"), Some(answered));
    let loaded = Box::new(chat);
    run.message(history(HistoryEvent::Loaded { conversation, stored: StoredId(12), loaded }));
    assert!(matches!(run.sent().last(), Some(Command::Inspect { .. })));
    run.play("~ready(4032x3024 11844)");
    assert!(run.screen().contains("[Image 1  sign.jpg 4032x3024"));
    run.play("and now?<enter>");
    let opened = run.sent().into_iter().rev().find_map(|command| match command {
        Command::Open { messages, .. } => Some(messages.clone()),
        _ => None,
    });
    assert_eq!(opened.unwrap()[0].parts[0], Part::Image(picture));
}

#[test]
fn text_is_copied_from_its_source() {
    let mut run = play_kept(
        "q<enter> ~start(5) ~delta(See:\\n```rust\\nlet a = 1;\\n```\\nand\\n```\\nplain\\n```\\n) ~finish /copy c1<enter>",
    );
    assert_eq!(run.effects.last(), Some(&Effect::Copy("let a = 1;\n".into())));
    run.play("/copy c2<enter>");
    assert_eq!(run.effects.last(), Some(&Effect::Copy("plain\n".into())));
    run.play("/copy 1<enter>");
    assert_eq!(run.effects.last(), Some(&Effect::Copy("q".into())));
    run.play("/copy<enter>");
    assert!(matches!(run.effects.last(), Some(Effect::Copy(text)) if text.starts_with("See:\n```rust")));
    run.play("/copy c3<enter>");
    assert!(run.screen().contains("There is no code block 3; the last one is 2"));
}

#[test]
fn a_conversation_is_exported_to_a_new_file() {
    let mut run = play_kept("one<enter> ~kept(7) ~start(5) ~delta(answer) ~finish /export<enter>");
    let Some(Effect::Work(Work::Export { path, text })) = run.effects.last() else { panic!("no export") };
    assert_eq!(path.to_str(), Some("loquat-7.md"));
    assert!(text.contains("## You\n\none\n\n## Assistant\n\nanswer\n"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("my chat.json");
    run.play(&format!("/export json \"{}\"<enter>", file.display()));
    run.work();
    assert!(run.screen().contains("Written: "));
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"role\": \"user\""));
    run.play(&format!("/export json \"{}\"<enter>", file.display()));
    run.work();
    assert!(run.screen().contains("exists already"));
}
