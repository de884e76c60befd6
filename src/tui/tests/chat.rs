//! Sending, stopping, queueing, scrolling, quitting.

use super::*;
use crate::chat::Role;
use crate::msg::{ConversationId, TurnId};
use crate::tui::state::Scroll;
use crate::tui::theme::Tone;

#[test]
fn enter_sends_the_draft_and_opens_the_conversation_first() {
    let run = play("hello<enter>");
    assert_eq!(run.sent().len(), 2);
    assert_eq!(run.sent()[0], &Command::Open { conversation: ConversationId(1), messages: vec![] });
    assert_eq!(run.submitted(), ["hello"]);
    assert!(run.state.composer.is_empty());
}

#[test]
fn the_second_message_continues_the_same_conversation() {
    let run = play("one<enter> ~start(5) ~delta(1) ~finish two<enter>");
    assert_eq!(run.submitted(), ["one", "two"]);
    assert_eq!(run.sent().iter().filter(|command| matches!(command, Command::Open { .. })).count(), 1);
}

#[test]
fn escape_stops_the_answer_and_keeps_what_was_said() {
    let mut run = play("hello<enter> ~start(5) ~delta(Hi th) <esc> <esc>");
    assert_eq!(run.effects.last(), Some(&Effect::Send(Command::Cancel { turn: TurnId(1) })));
    assert_eq!(run.sent().len(), 3, "a second Esc asks for nothing more");
    assert!(run.screen().contains("stopping"));
    run.play("~delta(ere) ~cancelled");
    assert!(run.screen().contains("Hi there"));
    assert!(run.screen().contains("[stopped]"));
    assert!(run.state.active.is_none());
}

#[test]
fn a_message_written_while_an_answer_comes_waits_for_its_end() {
    let mut run = play("one<enter> ~start(5) ~delta(1) two<enter> three<enter>");
    assert_eq!(run.submitted(), ["one"]);
    run.play("~finish");
    assert_eq!(run.submitted(), ["one", "two"]);
    run.play("~start(5) ~delta(2) ~finish");
    assert_eq!(run.submitted(), ["one", "two", "three"]);
}

#[test]
fn up_takes_a_queued_message_back_for_editing() {
    let mut run = play("one<enter> ~start(5) two<enter> <up>!<enter> ~finish");
    assert_eq!(run.submitted(), ["one", "two!"]);
    assert!(run.state.queue.is_empty());
    assert!(run.screen().contains("two!"));
}

#[test]
fn a_message_written_while_the_model_loads_is_sent_when_it_is_there() {
    let mut run = play_on(80, 24, "early<enter>");
    assert!(run.sent().is_empty());
    assert!(run.screen().contains("queue 1: \"early\""));
    run.play("~loaded");
    assert_eq!(run.submitted(), ["early"]);
}

#[test]
fn a_model_that_fails_gives_the_queue_back() {
    let mut run = play_on(80, 24, "early<enter> ~nomodel(no such folder \\e[31m/models/x)");
    assert_eq!(run.state.composer.text(), "early");
    assert!(run.screen().contains("no such folder /models/x"));
    run.play("<enter>");
    assert!(run.sent().is_empty());
    assert_eq!(run.state.composer.text(), "early", "an unsent draft stays");
}

#[test]
fn a_failed_turn_is_told_and_the_next_one_states_the_conversation_anew() {
    let mut run = play("one<enter> ~start(5) two<enter> ~failed(out of memory)");
    assert!(run.screen().contains("Failed: out of memory"));
    assert_eq!(run.state.composer.text(), "two", "what waited isn't thrown after it");
    run.play("<enter>");
    let opened: Vec<_> = run.sent().into_iter().filter(|c| matches!(c, Command::Open { .. })).collect();
    assert_eq!(opened.len(), 2);
    assert_eq!(opened[1], &Command::Open { conversation: ConversationId(1), messages: vec![] });
}

#[test]
fn every_newline_key_makes_a_new_line() {
    for newline in ["<a-enter>", "<c-j>", "<s-enter>", "<c-enter>", "\\<enter>"] {
        let run = play(&format!("one{newline}two<enter>"));
        assert_eq!(run.submitted(), ["one\ntwo"], "{newline}");
    }
}

#[test]
fn ctrl_c_on_a_draft_clears_it_and_up_brings_it_back() {
    let mut run = play("precious<c-c>");
    assert!(run.state.composer.is_empty());
    run.play("<up>");
    assert_eq!(run.state.composer.text(), "precious");
    assert!(!run.effects.contains(&Effect::Quit));
}

#[test]
fn ctrl_c_twice_within_two_seconds_quits() {
    assert_eq!(play("<c-c> ~wait(1900) <c-c>").effects, [Effect::Quit]);
    assert_eq!(play("<c-c> ~wait(2000) <c-c>").effects, []);
    assert_eq!(play("<c-c> x <c-c>").effects, [], "another key in between starts over");
}

#[test]
fn ctrl_d_quits_only_on_an_empty_draft() {
    assert_eq!(play("<c-d>").effects, [Effect::Quit]);
    assert_eq!(play("x<c-d>").effects, []);
    let run = play("x<enter> ~start(1) <c-d>");
    assert_eq!(run.effects[2..], [Effect::Send(Command::Cancel { turn: TurnId(1) }), Effect::Quit]);
}

#[test]
fn up_and_down_walk_through_earlier_prompts() {
    let mut run = play("one<enter> ~finish two<enter> ~finish <up>");
    assert_eq!(run.state.composer.text(), "two");
    run.play("<up> <up>");
    assert_eq!(run.state.composer.text(), "one");
    run.play("<down> <down>");
    assert!(run.state.composer.is_empty());
    run.play("draft<up>");
    assert_eq!(run.state.composer.text(), "draft", "a draft isn't overwritten");
}

#[test]
fn scrolling_back_keeps_its_place_while_text_arrives() {
    let lines: String = (0..60).map(|n| format!("line {n}\\n")).collect();
    let mut run = play(&format!("q<enter> ~start(5) ~delta({lines}) <pgup>"));
    let before = run.state.top_row(16);
    assert!(run.screen().contains("↓ more below"));
    run.play("~delta(newest)");
    assert!(run.screen().contains("↓ new below"));
    assert!(!run.screen().contains("newest"));
    assert_eq!(run.state.top_row(16), before);
    run.play("<end>");
    assert!(run.screen().contains("newest"));
    assert!(!run.screen().contains("below"));
    run.play("<pgup> <pgdn> <pgdn>");
    assert_eq!(run.state.scroll, Scroll::Follow);
}

#[test]
fn events_of_a_chat_that_was_left_change_nothing() {
    let mut run = play("one<enter> ~start(5) ~delta(secret) queued<enter> <c-n>");
    assert_eq!(run.state.composer.text(), "queued", "what waited isn't lost");
    assert!(run.effects.contains(&Effect::Send(Command::Cancel { turn: TurnId(1) })));
    assert_eq!(run.effects.last(), Some(&Effect::Send(Command::Close { conversation: ConversationId(1) })));
    run.play("~delta(late) ~cancelled");
    assert!(!run.screen().contains("secret") && !run.screen().contains("late"));
    assert_eq!(run.state.context_used, 0);
    run.play("<enter>");
    let last = run.sent().into_iter().next_back();
    assert!(matches!(last, Some(Command::Submit { conversation: ConversationId(2), turn: TurnId(2), .. })));
}

#[test]
fn a_paste_is_text_whatever_is_in_it() {
    let mut run = play("~paste(one\\n\\e[31mtwo\\e]52;c;x\\n/quit)");
    assert_eq!(run.state.composer.text(), "one\ntwo\n/quit");
    assert!(run.effects.is_empty());
    run.play("<enter>");
    assert_eq!(run.submitted(), ["one\ntwo\n/quit"]);
}

#[test]
fn a_huge_paste_is_taken() {
    let mut run = play("");
    run.message(Msg::Paste("0123456789 abcdefg\r".repeat(60_000)));
    run.message(Msg::Paste("x".repeat(200_000)));
    run.play("<a-e><a-e> <left> <bs> <up> <down> y");
    assert!(run.screen().contains('y'));
    run.play("<enter>");
    assert!(run.submitted()[0].len() > 1_200_000);
    run.screen();
}

#[test]
fn what_the_model_says_is_shown_clean_and_read_again_as_it_was() {
    let mut run = play("q<enter> ~start(1) ~delta(a\\e[3) ~delta(1mred\\e]0;title) ~finish");
    assert!(run.screen().contains("ared"));
    run.play("r<enter> ~failed(\\e[2Jno) again<enter>");
    assert!(run.screen().contains("Failed: no"));
    assert!(!run.screen().contains('\u{1b}'));
    let Some(Command::Open { messages, .. }) =
        run.sent().into_iter().rev().find(|command| matches!(command, Command::Open { .. }))
    else {
        panic!("the conversation is stated anew after a failure");
    };
    assert_eq!(messages[1].role, Role::Assistant);
    assert_eq!(messages[1].plain_text(), "a\u{1b}[31mred\u{1b}]0;title");
}

#[test]
fn the_end_of_the_session_is_told_once() {
    let mut run = play("q<enter> ~start(1) ~closed ~closed");
    assert_eq!(run.screen().matches("ended unexpectedly").count(), 1);
    assert!(run.state.active.is_none());
}

#[test]
fn typing_closes_the_help_and_is_not_lost() {
    let mut run = play("<f1>");
    assert!(run.state.page.is_some());
    run.play("hello");
    assert!(run.state.page.is_none());
    assert_eq!(run.state.composer.text(), "hello");
}

#[test]
fn escape_closes_the_help_before_it_stops_an_answer() {
    let run = play("q<enter> ~start(1) <f1> <esc>");
    assert!(run.state.page.is_none());
    assert!(run.state.active.is_some_and(|active| !active.stopping));
}

#[test]
fn nothing_waits_for_time_when_nothing_moves() {
    let mut run = play("");
    assert_eq!(run.state.next_tick(), None);
    run.state.dirty = false;
    run.play("~wait(5000)");
    assert!(!run.state.dirty, "an idle screen isn't drawn again");
    run.play("q<enter>");
    assert!(run.state.next_tick().is_some());
    run.play("~start(1) ~finish");
    assert_eq!(run.state.next_tick(), None);
}

#[test]
fn a_resize_to_the_same_size_draws_everything_again() {
    assert_eq!(play("~resize(50x15)").effects, []);
    assert_eq!(play("~resize(50x15) ~resize(50x15)").effects, [Effect::Redraw]);
}

#[test]
fn other_keys_become_effects() {
    assert_eq!(play("<c-z>").effects, [Effect::Suspend]);
    assert_eq!(play("<c-l>").effects, [Effect::Redraw]);
    assert_eq!(play("<f2> <f2>").effects, [Effect::CaptureMouse(true), Effect::CaptureMouse(false)]);
}

#[test]
fn code_is_highlighted_when_its_block_is_complete() {
    let n_works = |run: &Run| run.effects.iter().filter(|effect| matches!(effect, Effect::Work(_))).count();
    let mut run = play("q<enter> ~start(5) ~delta(```rust\\nfn main\\n)");
    assert_eq!(n_works(&run), 0);
    run.play("~delta(```\\n)");
    run.work();
    run.state.layout();
    let tones: Vec<Tone> = run.state.transcript.rows(0, 100).flatten().map(|(tone, _)| *tone).collect();
    assert!(tones.contains(&Tone::Keyword), "{tones:?}");
    run.play("~delta(more\\n) ~finish");
    assert_eq!(n_works(&run), 0, "once is enough");
}
