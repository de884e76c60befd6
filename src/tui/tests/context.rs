//! What fills the context, what is done when it is full, and answers side by side.

use super::*;
use crate::msg::{HistoryCommand, SamplingOptions};
use crate::tui::state::Overflow;

const TWO: &str =
    "one<enter> ~start(5) ~delta(first answer) ~finish two<enter> ~start(9) ~delta(second) ~finish ";

/// What the model was told of the conversation last.
fn opened(run: &Run) -> Vec<String> {
    let opened = run.sent().into_iter().rev().find_map(|command| match command {
        Command::Open { messages, .. } => Some(messages.iter().map(|message| message.plain_text()).collect()),
        _ => None,
    });
    opened.expect("a conversation was opened")
}

fn examined(run: &Run) -> Vec<String> {
    match run.sent().last() {
        Some(Command::Examine { messages, .. }) => messages.iter().map(|it| it.plain_text()).collect(),
        other => panic!("nothing was to be examined: {other:?}"),
    }
}

#[test]
fn the_context_is_shown_message_by_message_with_the_draft() {
    let mut run = play(&format!("/system be brief<enter> {TWO} /context<enter>"));
    assert_eq!(examined(&run), ["be brief", "one", "first answer", "two", "second"]);
    run.play("~counted(7 12 900 15 400 5)");
    let screen = run.screen();
    for part in [
        "1339 of 32768 tokens",
        "System prompt",
        "[2] Assistant               900",
        "Beginning of the answer",
    ] {
        assert!(screen.contains(part), "{part} in {screen}");
    }
    run.play("<esc>");
    assert!(run.state.page.is_none());
    assert!(play("/context<enter>").screen().contains("the context is empty"));
}

#[test]
fn what_the_model_reads_can_be_read() {
    let mut run = play(&format!("{TWO} /prompt<enter> ~counted(12 900 15 400 5)"));
    assert!(run.screen().contains("900 tokens"), "{}", run.screen());
}

#[test]
fn a_message_left_out_is_marked_and_not_read_until_it_is_taken_back() {
    let mut run = play(&format!("{TWO} /drop 2<enter>"));
    assert!(run.screen().contains("left out [1]") && run.screen().contains("left out [2]"));
    run.play("three<enter>");
    assert_eq!(opened(&run), ["two", "second"]);
    run.play("~start(3) ~delta(x) ~finish /drop 1<enter> four<enter>");
    assert_eq!(opened(&run), ["one", "first answer", "two", "second", "three", "x"]);
    assert!(play("/drop 3<enter>").screen().contains("There is no message [3]"));
}

fn too_long(overflow: Overflow, rest: &str) -> Run {
    let settings = TuiSettings { overflow, ..TuiSettings::default() };
    play_with(settings, 80, 24, &format!("~loaded {TWO} a long question<enter> ~toolong {rest}"))
}

#[test]
fn a_prompt_that_does_not_fit_is_asked_about_with_the_numbers() {
    let mut run = too_long(Overflow::Ask, "~counted(12 20000 15 2000 11000 5)");
    let screen = run.screen();
    assert!(screen.contains("Leave out the oldest 2 messages and answer"), "{screen}");
    assert!(screen.contains("33032 → 13020 of 32768 tok"), "{screen}");
    assert!(screen.contains("Ask it in a new chat") && screen.contains("11005 of 32768 tok"));
    run.play("<enter>");
    assert_eq!(run.submitted(), ["one", "two", "a long question", "a long question"]);
    assert_eq!(opened(&run), ["two", "second"]);

    let mut run = too_long(Overflow::Ask, "~counted(12 20000 15 2000 11000 5) <down><enter>");
    assert_eq!(opened(&run), Vec::<String>::new(), "a new chat");
    assert_eq!(run.submitted().last().map(String::as_str), Some("a long question"));
    assert!(!run.screen().contains("first answer"));

    let run = too_long(Overflow::Ask, "~counted(12 20000 15 2000 11000 5) <end><enter>");
    assert_eq!(run.state.composer.text(), "a long question");
}

#[test]
fn a_question_that_is_too_long_alone_can_only_be_made_shorter() {
    let mut run = too_long(Overflow::Ask, "~counted(12 20 15 20 40000 5)");
    let screen = run.screen();
    assert!(
        !screen.contains("Leave out") && !screen.contains("new chat") && screen.contains("make it shorter")
    );
    run.play("<enter>");
    assert_eq!(run.state.composer.text(), "a long question");
}

#[test]
fn the_settings_may_decide_it() {
    let run = too_long(Overflow::DropOldest, "~counted(12 20000 15 2000 11000 5)");
    assert_eq!(run.submitted().len(), 4);
    assert_eq!(opened(&run), ["two", "second"]);
    let run = too_long(Overflow::Error, "");
    assert!(!run.sent().iter().any(|command| matches!(command, Command::Examine { .. })));
}

#[test]
fn two_answers_stand_side_by_side_and_enter_goes_on_with_the_right_one() {
    let mut run = play("/compare<enter>");
    assert!(run.screen().contains("There is no answer yet"));
    run.play("one<enter> ~start(5) ~delta(Uno **dos**) ~finish /compare<enter>");
    assert!(run.screen().contains("There is one answer only"));
    run.play("/regen<enter> ~start(5) ~delta(Eins zwei) ~finish /compare<enter>");
    let screen = run.screen();
    let row = screen.lines().find(|line| line.contains("Uno dos")).unwrap();
    assert!(row.contains("Eins zwei"), "{screen}");
    run.play("/regen<enter>");
    run.play("<esc>~start(5) ~delta(Un deux) ~finish /compare<enter> <right>");
    run.play("<enter>");
    assert!(run.screen().contains("Uno"), "{}", run.screen());
}

#[test]
fn personas_and_presets_are_taken_by_name() {
    let settings = || TuiSettings {
        personas: vec![("pirate".into(), "Talk like a pirate".into()), ("poet".into(), "Rhyme".into())],
        presets: vec![
            ("model".into(), SamplingOptions::default()),
            ("precise".into(), SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() }),
        ],
        ..TuiSettings::default()
    };
    let mut run =
        play_with(settings(), 80, 24, "~loaded /persona pirate<enter> /preset precise<enter> hi<enter>");
    assert_eq!(opened(&run), ["Talk like a pirate"]);
    assert_eq!(run.state.options.sampling.temperature, Some(0.0));
    assert!(run.screen().contains("persona pirate") || run.state.active.is_some());
    run.play("~start(3) ~delta(x) ~finish /persona<enter> poe<enter> /preset<enter><enter> ho<enter>");
    assert_eq!(opened(&run), ["Rhyme", "hi", "x"]);
    assert_eq!(run.state.options.sampling.temperature, None);
    run.play("~start(3) ~delta(x) ~finish /persona off<enter> /preset precis<enter>");
    assert_eq!(run.state.chat.system, None);
    let mut run = play_with(settings(), 80, 24, "~loaded /persona pirtae<enter>");
    assert!(run.screen().contains("did you mean pirate?"), "{}", run.screen());
    assert!(play("/persona<enter>").screen().contains("No personas yet"));
}

#[test]
fn what_was_guessed_is_tinted() {
    let mut run = play("q<enter> ~start(5)");
    let turn = run.state.last_turn;
    let mut stats = TurnStats::default();
    // A step of two right guesses and one token more, then a step without any.
    for (text, steps) in [("a ", 0), ("b ", 1), ("c ", 1), ("d ", 1), ("e", 2)] {
        stats.completion_tokens += 1;
        while stats.drafts.steps < steps {
            stats.drafts.note(2, 2);
        }
        run.message(Msg::Session(Event::Delta { turn, channel: Channel::Answer, text: text.into(), stats }));
    }
    run.play("~finish /spec tint<enter>");
    run.state.layout();
    let row = run.state.transcript.rows(0, 99).find(|row| row.iter().any(|(_, text)| text.contains('a')));
    let tinted: Vec<&str> = run
        .state
        .transcript
        .rows(0, 99)
        .flatten()
        .filter(|(tone, _)| *tone == crate::tui::theme::Tone::Accepted)
        .map(|(_, text)| text.as_str())
        .collect();
    assert_eq!(tinted, ["b c "], "{row:?}");
}

#[test]
fn a_part_of_a_picture_is_cut_out_and_comes_back_whole() {
    let mut run = play_on(80, 24, "~sees /image a.png<enter> ~ready(8x4 12) /crop 1 right<enter>");
    run.work();
    assert_eq!(run.state.attached[0].what.name, "part of a.png");
    let PictureSource::Bytes(bytes) = &run.state.attached[0].what.source else { panic!("it was read") };
    let part = image::load_from_memory(bytes).unwrap();
    assert_eq!((part.width(), part.height()), (4, 4));
    run.play("/crop 1 off<enter>");
    assert_eq!(run.state.attached[0].what.name, "a.png");
    assert!(play("/crop 1 left<enter>").screen().contains("There is no picture 1"));
}

#[test]
fn what_is_older_is_summed_up_by_the_model_and_read_again_when_that_is_taken_back() {
    let mut run = play(&format!("{TWO} /compact<enter>"));
    assert_eq!(opened(&run), ["one", "first answer"]);
    let asked = run.submitted();
    assert!(asked[2].starts_with("Sum up our conversation"), "{asked:?}");
    assert!(run.screen().contains("summing up"));
    run.play("~start(9) ~delta(counting) ~finish");
    let screen = run.screen();
    assert!(screen.contains("In place of the older 2 messages") && screen.contains("counting"), "{screen}");
    assert!(screen.contains("left out [1]") && screen.contains("summed up"), "{screen}");
    run.play("three<enter>");
    assert_eq!(opened(&run), ["What was said before, summed up:\ncounting", "two", "second"]);
    run.play("~start(3) ~delta(x) ~finish /compact off<enter> four<enter>");
    assert_eq!(opened(&run), ["one", "first answer", "two", "second", "three", "x"]);
    let kept =
        run.sent().into_iter().any(|it| matches!(it, Command::History(HistoryCommand::SetReading { .. })));
    assert!(!kept, "this chat is not kept");
}

#[test]
fn a_summary_can_be_stopped_and_fail_and_undone() {
    let mut run = play(&format!("{TWO} /compact<enter> ~start(9) ~delta(half) <esc> ~cancelled"));
    assert!(run.screen().contains("Not summed up"));
    run.play("/compact<enter> ~failed(no room) ");
    assert!(run.screen().contains("Not summed up: no room"));
    run.play("/compact<enter> ~start(9) ~delta(whole) ~finish /undo<enter> three<enter>");
    assert_eq!(opened(&run), ["one", "first answer", "two", "second"]);
    assert!(
        play("one<enter> ~start(5) ~delta(a) ~finish /compact<enter>").screen().contains("nothing older")
    );
}
