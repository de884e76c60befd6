//! Whole screens, reviewed by eye.

use insta::assert_snapshot;
use ratatui::style::Color;

use super::*;

const THOUGHT: &str = "~think(The sign is Italian.\\nLet me read it again, slowly.) ";
const ANSWER: &str =
    "~delta(The sign says **Ponte Vecchio**, 古い橋 in Japanese 👩‍👩‍👧, which is a bridge in Florence.) ";

/// Everything that an answer can have, while it is written.
pub const RICH: &str = "~sees /image photo.jpg<enter> ~ready(4032x3024 11844) What is on it, and how would I count them?<enter> \
    ~start(1200) ~think(Two cats, one dog.) ~delta(## On the picture\\n\\n| Animal | Count |\\n|---|---:|\\n| cat | 2 |\\n| dog 漢字 | 1 |\\n\\nCount *them* with **code**:\\n\\n```python\\ntotal = 2 + 1  # 3\\n```\\n\\n> A quote, $x^2$ and `inline`.\\n\\n) ~steps(3/2 2/2 0/0) ";

/// A script at the three sizes, as one snapshot.
fn everywhere(name: &str, settings: impl Fn() -> TuiSettings, script: &str, then: impl Fn(&mut Run)) {
    let mut screens = String::new();
    for (width, height) in [(40, 12), (80, 24), (200, 60)] {
        let mut run = play_with(settings(), width, height, script);
        then(&mut run);
        screens.push_str(&format!("{width}x{height}\n{}\n", run.screen()));
    }
    assert_snapshot!(name, screens);
}

fn chat(name: &str, script: &str) {
    everywhere(name, TuiSettings::default, script, draw_pictures);
}

/// Makes the previews that were asked for.
fn draw_pictures(run: &mut Run) {
    let is_preview = |effect: &&Effect| matches!(effect, Effect::Work(Work::Preview { .. }));
    let asked: Vec<Effect> = run.effects.iter().filter(is_preview).cloned().collect();
    for effect in asked {
        run.effects.push(effect);
        run.work();
    }
}

#[test]
fn an_answer_with_everything() {
    chat("rich", RICH);
}

#[test]
fn an_answer_with_everything_and_its_thinking_open() {
    chat("rich_thinking_open", &format!("{RICH} ~finish <c-t>"));
}

#[test]
fn an_answer_as_it_was_written() {
    chat("rich_raw", &format!("{RICH} ~finish /raw<enter>"));
}

#[test]
fn searching_what_was_asked() {
    let prompts =
        "~prompts(make soup; write a poem about the sea; name a river; what is a monad?; translate this) ";
    chat("prompt_search", &format!("~loaded {prompts} <c-r>a po"));
}

#[test]
fn everything_that_can_be_done() {
    chat("palette", "~loaded <c-p>thin");
}

#[test]
fn the_context_map() {
    let script = "~loaded /system Answer briefly.<enter> one question about rivers<enter> ~start(5) \
        ~delta(A long answer about rivers.) ~finish and about lakes?<enter> ~start(9) ~delta(Lakes.) ~finish \
        /context<enter> ~counted(12 900 8200 40 410 5)";
    chat("context", script);
}

#[test]
fn a_prompt_that_is_too_long() {
    let script = "~loaded one<enter> ~start(5) ~delta(first) ~finish a long question<enter> ~toolong \
        ~counted(12 20000 13000 5)";
    chat("too_long", script);
}

#[test]
fn two_answers() {
    let script = "~loaded Which is best?<enter> ~start(5) ~delta(**Rust**, because it is *fast*:\\n\\n- no pauses\\n- no nulls) \
        ~finish /regen<enter> ~start(5) ~delta(It depends.\\n\\n| Need | Take |\\n|---|---|\\n| speed | C |) ~finish /compare<enter>";
    chat("compare", script);
}

#[test]
fn a_folded_paste_in_the_draft() {
    let mut run = play("Summarise this: ");
    run.message(Msg::Paste("a line of a log file\r".repeat(400)));
    assert_snapshot!("folded_paste_80x24", run.screen());
}

/// The same script at both sizes, as two snapshots.
fn both(name: &str, script: &str) {
    for (width, height) in [(80, 24), (40, 12)] {
        let mut run = play_on(width, height, script);
        assert_snapshot!(format!("{name}_{width}x{height}"), run.screen());
    }
}

/// The same at one more size.
fn at_three_sizes(name: &str, script: &str) {
    both(name, script);
    assert_snapshot!(format!("{name}_200x60"), play_on(200, 60, script).screen());
}

fn asked(rest: &str) -> String {
    format!("~loaded What is written on the sign?<enter> ~start(1200) {rest}")
}

#[test]
fn loading() {
    both("loading", "~wait(2000)");
}

#[test]
fn empty() {
    both("empty", "~loaded");
}

#[test]
fn device_note() {
    both("device_note", "~note(No GPU was found, so the CPU answers.)");
}

#[test]
fn reading_the_prompt() {
    both("reading", &asked("~prefill(512/1200)"));
}

#[test]
fn thinking_folded() {
    at_three_sizes("thinking_folded", &asked(THOUGHT));
}

#[test]
fn thinking_open() {
    at_three_sizes("thinking_open", &asked(&format!("{THOUGHT} {ANSWER} <c-t>")));
}

#[test]
fn streaming_with_a_queue() {
    both("streaming_queue", &asked(&format!("{THOUGHT} {ANSWER} translate it to German<enter>")));
}

#[test]
fn finished() {
    both("finished", &asked(&format!("{THOUGHT} {ANSWER} ~finish")));
}

#[test]
fn the_lane_of_guesses() {
    at_three_sizes("lane", &asked(&format!("{ANSWER} ~steps(3/2 3/3 0/0 2/1 3/0)")));
}

#[test]
fn a_thought_that_was_closed() {
    let mut run = play_on(80, 24, &asked(&format!("{THOUGHT} {ANSWER}")));
    let turn = run.state.last_turn;
    let stats = TurnStats { thinking_tokens: 512, thinking_was_cut: true, ..TurnStats::default() };
    run.message(Msg::Session(Event::TurnFinished { turn, finish: Finish::Stop, stats }));
    assert!(run.screen().contains("Thought (512 tok, all it was given)"), "{}", run.screen());
}

#[test]
fn stopped() {
    both("stopped", &asked(&format!("{ANSWER} <esc> ~cancelled")));
}

#[test]
fn cut_off() {
    both("cut_off", &asked(&format!("{ANSWER} ~length")));
}

#[test]
fn cut_off_while_thinking() {
    both("cut_off_while_thinking", &asked(&format!("{THOUGHT} ~length")));
}

#[test]
fn failed() {
    at_three_sizes(
        "failed",
        &asked("~failed(The prompt has 40000 tokens, the context holds 32768; /new starts a new chat)"),
    );
}

#[test]
fn model_failed() {
    at_three_sizes("model_failed", "~nomodel(/models/qwen holds no config.json)");
}

#[test]
fn command_list() {
    both("command_list", "~loaded /s");
}

#[test]
fn unknown_command() {
    both("unknown_command", "~loaded /regne<enter>");
}

#[test]
fn stats_and_settings() {
    both("stats", &asked(&format!("{ANSWER} ~finish /set top_p 0.9<enter> /stats<enter>")));
}

#[test]
fn long_draft() {
    let lines = "1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\n10\\n11\\n12 and a long last line that has to be wrapped at any width";
    both("long_draft", &format!("~loaded ~paste({lines})"));
}

#[test]
fn help() {
    both("help", "~loaded <f1>");
}

#[test]
fn help_scrolled_to_its_end() {
    both("help_end", "~loaded <f1> <end>");
}

#[test]
fn without_colours_nothing_is_coloured() {
    let mut run = play(&format!("q<enter> ~start(5) {THOUGHT} {ANSWER} ~steps(3/2) ~failed(no) /x<enter>"));
    run.state.layout();
    for colours in [true, false] {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| view::draw(frame, &run.state, Theme::new(colours))).unwrap();
        let mut cells = terminal.backend().buffer().content().iter();
        assert_eq!(cells.any(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset)), colours);
    }
}

#[test]
fn smallest_and_too_small() {
    let mut run = play_on(20, 6, &asked(ANSWER));
    assert_snapshot!("smallest_20x6", run.screen());
    run.play("~resize(19x6)");
    assert_snapshot!("too_small_19x6", run.screen());
}
