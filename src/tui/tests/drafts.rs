//! What drafting did, as a person sees it.

use insta::assert_snapshot;

use super::*;
use crate::msg::Mtp;

/// Nine steps: 19 drafts, of which 12 were right; 22 tokens with the one out of the prompt.
const STEPS: &str = "~steps(3/3 3/2 3/0) ~steps(3/1 0/0 1/1) ~steps(1/1 2/2 3/2) ";

fn asked(rest: &str) -> String {
    format!("~loaded Tell me more.<enter> ~start(12) {rest}")
}

/// The line about drafts, if it is there.
fn spec_line(run: &mut Run) -> Option<String> {
    run.screen().lines().find(|line| line.starts_with(" spec ")).map(str::to_owned)
}

#[test]
fn while_an_answer_is_written() {
    for (width, height) in [(100, 24), (80, 24), (60, 14), (40, 12)] {
        let mut run = play_on(width, height, &asked(STEPS));
        assert_snapshot!(format!("drafts_{width}x{height}"), run.screen());
    }
}

#[test]
fn after_the_answer() {
    for (width, height) in [(120, 24), (80, 24), (40, 12), (30, 12)] {
        let mut run = play_on(width, height, &asked(&format!("{STEPS} ~finish")));
        assert_snapshot!(format!("drafts_finished_{width}x{height}"), run.screen());
    }
}

#[test]
fn figures_on_demand() {
    let mut run = play_on(80, 30, &asked(&format!("{STEPS} ~finish /mtp 3<enter> /stats<enter>")));
    assert_snapshot!("drafts_stats_80x30", run.screen());
}

#[test]
fn without_colours_the_marks_say_the_same() {
    let mut run = play(&asked(STEPS).replace("~loaded ", ""));
    let plain = run.screen_in(Theme::new(false));
    assert_eq!(plain, run.screen());
    assert!(plain.contains(" spec ▯▯▯ ▮▯▯ · ▮ ▮ ▮▮ ▮▮▯   pos1 88 %"), "{plain}");
}

#[test]
fn the_line_stands_for_the_newest_answer_and_only_if_something_was_drafted() {
    let mut run = play_on(80, 40, "~loaded one<enter> ~start(5)");
    assert_eq!(spec_line(&mut run), None);
    run.play("~steps(0/0 0/0)");
    assert_eq!(spec_line(&mut run), None, "steps without drafts");
    run.play("~steps(2/1)");
    assert!(spec_line(&mut run).unwrap().contains(" · · ▮▯ "));
    run.play("~finish /stats<enter>");
    assert!(spec_line(&mut run).is_some(), "it stays after the answer");
    run.play("two<enter> ~start(5) ~steps(0/0)");
    assert_eq!(spec_line(&mut run), None, "the second answer had no drafts");
    assert_eq!(run.screen().matches("MTP 1.33 tok/step (accepted 50 %)").count(), 2, "in chat and /stats");
    run.play("~finish <c-n>");
    assert_eq!(spec_line(&mut run), None);
}

#[test]
fn ctrl_e_and_the_command_hide_and_show_it() {
    let mut run = play(&format!("one<enter> ~start(5) {STEPS} <c-e>"));
    assert!(spec_line(&mut run).is_some(), "a tint first");
    run.play("<c-e>");
    assert_eq!(spec_line(&mut run), None);
    assert!(run.screen().contains("MTP's guesses are hidden"));
    run.play("<c-e>");
    assert!(spec_line(&mut run).is_some());
    run.play("/spec off<enter>");
    assert_eq!(spec_line(&mut run), None);
    run.play("/spec lane<enter>");
    assert!(spec_line(&mut run).is_some());
    run.play("text<home><c-e>!");
    assert_eq!(run.state.composer.text(), "text!", "in a draft the key goes to the end of the line");
    assert!(spec_line(&mut run).is_some());
    run.play("~resize(80x12) <c-c> /spec lane<enter>");
    assert_eq!(spec_line(&mut run), None);
    assert!(run.screen().contains("MTP's guesses are shown, in a larger window"));
    let mut early = play("<c-e><c-e><c-e>");
    assert!(early.screen().contains("MTP's guesses are shown, as soon as there are any"));
}

#[test]
fn the_mode_holds_for_the_messages_after_it() {
    let modes = |run: &Run| -> Vec<Option<Mtp>> {
        run.sent()
            .into_iter()
            .filter_map(|command| match command {
                Command::Submit { options, .. } => Some(options.mtp),
                _ => None,
            })
            .collect()
    };
    let mut run = play("one<enter> ~start(5) /mtp off<enter> ~steps(2/1) ~finish two<enter> ~start(5)");
    run.play("~steps(0/0) ~finish /mtp 3<enter> three<enter> ~start(5) ~steps(3/3) ~finish");
    assert_eq!(modes(&run), [None, Some(Mtp::Off), Some(Mtp::Depth(3))]);
    assert!(run.screen().contains("mtp 3"), "the status line says what will hold");
    run.play("/mtp 9<enter>");
    assert!(run.screen().contains("/mtp can't be 9: expected off, auto or a number up to 8"));
    assert!(play("/mtp<enter>").screen().contains("MTP is auto"));
    assert!(play("/stats<enter>").screen().contains("MTP is auto"));
}
