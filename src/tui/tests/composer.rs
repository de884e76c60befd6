//! Writing a message: what its keys do.

use super::*;
use crate::tui::attach::Kind;
use crate::tui::keymap::{Keymap, Preset};
use crate::tui::state::Focus;

fn with_keys(preset: Preset, script: &str) -> Run {
    let settings = TuiSettings { keymap: Keymap::new(preset), ..TuiSettings::default() };
    play_with(settings, 80, 24, &format!("~loaded {script}"))
}

fn text(run: &Run) -> String {
    run.state.composer.text()
}

#[test]
fn a_big_paste_is_folded_and_sent_in_full() {
    let mut run = play("look: ");
    run.message(Msg::Paste("line\r".repeat(212)));
    let screen = run.screen();
    assert!(screen.contains("[Pasted 212 lines]") && screen.contains("Alt+E opens it"), "{screen}");
    run.play("<enter>");
    assert_eq!(run.submitted(), [format!("look:{}", "line\n".repeat(212).trim_end())]);
    let mut run = play("");
    run.message(Msg::Paste("line\r".repeat(212)));
    run.play("<a-e>");
    assert!(run.screen().contains("│ line") && !run.screen().contains("[Pasted"));
    run.play("<bs><c-_><c-_><c-_>");
    assert!(run.screen().contains("[Pasted 212 lines]"), "undo folds it again: {}", run.screen());
}

#[test]
fn earlier_prompts_are_found_by_a_few_letters() {
    let mut run = play("one<enter> ~finish ~prompts(make soup; write a poem; name a river) <c-r>");
    let screen = run.screen();
    let at = |text: &str| screen.find(text).unwrap_or_else(|| panic!("{text} in {screen}"));
    assert!(at("one") < at("name a river") && at("name a river") < at("make soup"), "the latest first");
    run.play("poe<enter>");
    assert_eq!(text(&run), "write a poem");
    assert_eq!(run.submitted(), ["one"], "it isn't sent by itself");
    run.play("<c-c>~wait(3000) <c-r><c-r><enter>");
    assert_eq!(text(&run), "one", "the draft that was cleared is the latest, the same key goes on");
    run.play("<c-r>zzz<esc>");
    assert_eq!((text(&run).as_str(), run.state.list.is_none()), ("one", true));
}

#[test]
fn up_goes_on_into_earlier_runs() {
    let run = play("one<enter> ~finish ~prompts(first; second) <up><up>");
    assert_eq!(text(&run), "second");
}

#[test]
fn a_draft_is_put_aside_with_its_pictures_and_comes_back() {
    let mut run = play_on(80, 24, "~sees /image a.png<enter> half a thought <c-s>");
    assert_eq!((text(&run).as_str(), run.state.attached.len()), ("", 0));
    assert!(run.screen().contains("Put aside"));
    run.play("quick question<enter>");
    assert_eq!(run.submitted(), ["quick question"]);
    run.play("<c-s>");
    assert_eq!((text(&run).as_str(), run.state.attached.len()), ("half a thought", 1));
    assert_eq!(run.state.attached[0].kind, Kind::Still);
    run.play("<c-c><c-s>");
    assert!(run.screen().contains("Pictures taken back") || run.screen().contains("Put aside"));
}

#[test]
fn the_editor_gets_the_draft_and_gives_it_back() {
    for keys in ["<c-g>", "<c-x><c-e>"] {
        let mut run = play(&format!("one {keys}"));
        assert_eq!(run.effects, [Effect::Write("one".into())]);
        run.play("~edited(two\\nlines\\n)");
        assert_eq!(text(&run), "two\nlines");
    }
}

#[test]
fn two_keys_are_told_while_the_second_is_awaited_and_never_typed() {
    let mut run = play("a<c-x>");
    assert!(run.screen().contains("Ctrl+X …"));
    run.play("q");
    assert!(run.screen().contains("Ctrl+X q does nothing"));
    assert_eq!(text(&run), "a");
    run.play("q");
    assert_eq!(text(&run), "aq");
}

#[test]
fn the_emacs_keys_are_those_of_emacs() {
    let mut run = with_keys(Preset::Emacs, "one<enter> ~finish <c-p>");
    assert_eq!(text(&run), "one");
    run.play("<c-n>");
    assert_eq!(text(&run), "");
    run.play("abc<c-b><c-b>x<c-g>");
    assert_eq!(text(&run), "axbc");
    assert_eq!(with_keys(Preset::Emacs, "<c-x><c-c>").effects.last(), Some(&Effect::Quit));
    assert!(with_keys(Preset::Emacs, "<a-x>").screen().contains("Everything that can be done"));
}

#[test]
fn vim_has_a_normal_mode_that_the_frame_names() {
    let mut run = with_keys(Preset::Vim, "hello world<esc>");
    assert!(run.screen().contains("NORMAL"));
    run.play("0dwiX<esc>");
    assert_eq!(text(&run), "Xworld");
    run.play("A!<esc><enter>");
    assert_eq!(run.submitted(), ["Xworld!"], "Enter sends in either mode");
    run.play("<esc>");
    assert!(matches!(run.sent().last(), Some(Command::Cancel { .. })), "Esc in normal mode stops");
    run.play("~cancelled k");
    assert_eq!(text(&run), "Xworld!", "k at the top goes to the prompt before");
    run.play("i");
    assert!(run.screen().contains("INSERT"));
}

#[test]
fn keys_of_ones_own_are_in_the_hints_and_the_help() {
    let keymap = crate::tui::keymap::read("newline = [\"f7\"]\nthinking = []", Preset::Default).unwrap();
    let settings = TuiSettings { keymap, ..TuiSettings::default() };
    let mut run = play_with(settings, 80, 24, "~loaded a");
    run.message(Msg::Key(KeyCode::F(7).into()));
    assert_eq!(text(&run), "a\n");
    assert!(run.screen().contains("F7 newline"));
    run.play("<f1>");
    assert!(run.screen().contains("F7 "));
}

#[test]
fn the_palette_does_what_is_chosen() {
    let mut run = play("<c-p>put draft aside");
    assert!(run.screen().contains("Ctrl+S"), "{}", run.screen());
    run.play("<esc><c-p>redraw<enter>");
    assert_eq!(run.effects, [Effect::Redraw]);
    let run = play("<c-p>/compare<enter>");
    assert_eq!(text(&run), "/compare ");
}

#[test]
fn commands_are_chosen_with_the_arrows_and_sent_with_enter() {
    let mut run = play("/st");
    assert!(run.screen().contains("› /stats"));
    run.play("<enter>");
    assert!(run.screen().contains("No answer yet, so no figures"));
    let mut run = play("/detail <space>");
    assert!(run.screen().contains("› low"));
    run.play("<down><down><enter>");
    assert_eq!(run.state.detail, crate::chat::Detail::High);
    let run = play("/set top<tab>0<esc>");
    assert_eq!(text(&run), "/set top_k 0");
    let mut run = play("/the<esc><up>");
    assert!(!run.screen().contains("› /theme"), "closed until the draft is another one");
}

#[test]
fn the_transcript_takes_the_keys_for_scrolling_and_copying() {
    let code = "```py\\nprint 1\\n```\\n";
    let mut run = play(&format!("q<enter> ~start(3) ~delta(Look:\\n{code}done.) ~finish <tab>"));
    assert_eq!(run.state.focus, Focus::Transcript);
    assert!(run.screen().contains("y copy"), "{}", run.screen());
    run.play("y1");
    assert_eq!(run.effects.last(), Some(&Effect::Copy("print 1\n".into())));
    run.play("yy");
    assert!(matches!(run.effects.last(), Some(Effect::Copy(text)) if text.starts_with("Look:")));
    run.play("yxjk");
    assert_eq!((text(&run).as_str(), run.state.focus), ("", Focus::Transcript));
    run.play("w");
    assert_eq!((text(&run).as_str(), run.state.focus), ("w", Focus::Draft));
    assert_eq!(play("<tab>").state.focus, Focus::Draft, "there is nothing to scroll");
}

#[test]
fn a_click_puts_the_caret_and_opens_thinking() {
    let mut run = play("q<enter> ~start(3) ~think(hm) ~delta(ok) ~finish hello");
    run.screen();
    run.message(Msg::Click { column: 3, row: 22 });
    run.play("X");
    assert_eq!(text(&run), "hXello");
    let screen = run.screen();
    let row = screen.lines().position(|line| line.contains("▸ Thought")).unwrap() as u16;
    run.message(Msg::Click { column: 5, row });
    assert!(run.state.thinking_open);
}

#[test]
fn pages_slide_when_they_are_asked_to() {
    let settings = TuiSettings { smooth: true, ..TuiSettings::default() };
    let long = "a\\n\\n".repeat(80);
    let mut run = play_with(settings, 80, 24, &format!("~loaded q<enter> ~start(3) ~delta({long}) ~finish"));
    run.screen();
    let top = |run: &Run| run.state.top_row(16);
    let bottom = top(&run);
    run.play("<pgup>");
    let mut tops = vec![top(&run)];
    while run.state.slide != 0 {
        run.play("~wait(16)");
        tops.push(top(&run));
    }
    assert!(tops.len() > 3 && tops.is_sorted_by(|a, b| a >= b), "{tops:?}");
    let mut at_once = play(&format!("q<enter> ~start(3) ~delta({long}) ~finish"));
    at_once.screen();
    at_once.play("<pgup>");
    assert_eq!((tops[0], tops[tops.len() - 1]), (bottom, top(&at_once)), "in the end as far as without");
}
