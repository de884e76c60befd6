//! The real program in a real pseudo-terminal: what is on the screen, and what it leaves behind.
//!
//! The model has random weights, so its answers are noise; they only have to arrive.

mod keys;
mod models;
pub mod terminal;

use std::path::Path;

use terminal::{Answers, Terminal};

const MODEL: [&str; 6] = ["--model", "tests/golden/dense-a/model", "--max-tokens", "4000", "--device", "cpu"];

fn loquat(columns: u16, rows: u16) -> Terminal {
    let terminal = Terminal::start(Path::new(env!("CARGO_BIN_EXE_loquat")), &MODEL, columns, rows);
    terminal.wait_for("alternate screen", vt100::Screen::alternate_screen);
    terminal
}

/// The draft's frame, whole and of this width.
fn has_frame(screen: &vt100::Screen, columns: usize) -> bool {
    let is_edge =
        |line: &str| line.starts_with('╭') && line.ends_with('╮') && line.chars().count() == columns;
    screen.contents().lines().any(is_edge)
}

/// Asks something and waits until the answer is being written.
fn ask(terminal: &Terminal) {
    terminal.send("Tell me a long story\r");
    terminal.wait_for_text("Assistant");
    terminal.wait_for_text("tok/s");
}

#[test]
fn an_answer_streams_stops_and_the_terminal_is_given_back() {
    let mut terminal = loquat(80, 24);
    assert!(terminal.is_raw());
    terminal.wait_for_text("ready");
    ask(&terminal);
    assert!(terminal.screen().contains("Esc stops"));

    terminal.send("\x1b");
    terminal.wait_for_text("[stopped]");
    terminal.wait_for_text("ready");

    terminal.resize(50, 15);
    terminal.wait_for("frame of 50 columns", |screen| has_frame(screen, 50));
    terminal.resize(80, 24);
    terminal.wait_for("frame of 80 columns", |screen| has_frame(screen, 80));
    terminal.wait_for_text("[stopped]");

    // So fast that the program may hear of one change only.
    terminal.resize(50, 15);
    terminal.resize(81, 24);
    terminal.wait_for("frame of 81 columns", |screen| has_frame(screen, 81));
    terminal.wait_for_text("[stopped]");

    terminal.send("\x04");
    assert_eq!(terminal.wait_for_exit(), 0);
    terminal.assert_given_back();
}

#[test]
fn a_signal_while_an_answer_streams_gives_the_terminal_back() {
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        let mut terminal = loquat(80, 24);
        ask(&terminal);
        terminal.signal(signal);
        assert_eq!(terminal.wait_for_exit(), code, "{signal}");
        terminal.assert_given_back();
    }
}

#[test]
fn a_tiny_terminal_is_survived() {
    let mut terminal = loquat(10, 3);
    terminal.wait_for_text("too small");
    terminal.resize(80, 24);
    terminal.wait_for_text("Write a message");
    terminal.resize(1, 1);
    terminal.resize(81, 24);
    terminal.send("still here");
    terminal.wait_for_text("still here");
    assert!(terminal.is_running());
    terminal.send("\x03\x03");
    assert_eq!(terminal.wait_for_exit(), 0);
    terminal.assert_given_back();
}

#[test]
fn suspending_where_no_shell_could_continue_it_changes_nothing() {
    let mut terminal = loquat(80, 24);
    terminal.wait_for_text("Write a message");
    terminal.send("a draft\x1a and more");
    terminal.wait_for_text("a draft and more");
    terminal.wait_for("alternate screen", vt100::Screen::alternate_screen);
    assert!(terminal.is_running());
}

#[test]
fn pasted_text_with_newlines_and_escapes_is_a_draft() {
    let mut terminal = loquat(80, 24);
    terminal.send("\x1b[200~first line\r\x1b[31msecond line\r/quit\r\x1b[201~");
    terminal.wait_for_text("second line");
    terminal.wait_for_text("/quit");
    assert!(terminal.is_running());
}

#[test]
fn a_model_that_reads_text_only_says_so_when_a_picture_is_attached() {
    let terminal = loquat(100, 24);
    terminal.wait_for_text("ready");
    terminal.send("/image tests/golden/any.png\r");
    terminal.wait_for_text("reads text only: it doesn't see pictures");
}

/// A toy model that sees.
const SEEING: [&str; 6] = ["--model", "tests/golden/vision/model", "--max-tokens", "20", "--device", "cpu"];

fn seeing(answers: Answers, images: &str) -> Terminal {
    let arguments = [&SEEING[..], &["--images", images]].concat();
    let program = Path::new(env!("CARGO_BIN_EXE_loquat"));
    let terminal = Terminal::start_answering(answers, program, &arguments, 100, 40);
    terminal.wait_for_text("Ctrl+O picture");
    terminal
}

#[test]
fn a_picture_is_attached_shown_and_answered() {
    let terminal = seeing(XTERM, "auto");
    terminal.send("/image tests/golden/vision/images/photo.jpg nowhere.png\r");
    terminal.wait_for_text("[Image 1  photo.jpg 150x110 ");
    terminal.wait_for_text("Not attached: nowhere.png: ");
    terminal.send("what is it?\r");
    terminal.wait_for_text("Assistant");
    terminal.wait_for_text("20 tok");
    terminal.wait_for("the picture in half blocks", |screen| {
        let text = screen.contents();
        text.contains("[Image 1  photo.jpg") && (text.contains('▀') || text.contains('▄'))
    });
}

#[test]
fn the_built_in_model_sees_what_is_attached() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("it.png");
    image::RgbImage::from_fn(200, 200, |x, y| match (60..140).contains(&x) && (60..140).contains(&y) {
        true => image::Rgb([35, 65, 220]),
        false => image::Rgb([250, 250, 250]),
    })
    .save(&path)
    .unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_loquat"));
    let arguments = ["--temperature", "0", "--images", "off"];
    let terminal = Terminal::start(program, &arguments, 100, 40);
    // The offer of other models is in nobody's way.
    terminal.wait_for_text("built-in demo model");
    terminal.wait_for_text("Ctrl+O picture");
    terminal.send(&format!("/image {}\r", path.display()));
    terminal.wait_for_text("[Image 1  it.png 200x200 ");
    terminal.send("What colour is it?\r");
    terminal.wait_for_text("It is blue.");
}

#[test]
fn a_dropped_file_is_attached_and_another_text_is_not() {
    let terminal = seeing(XTERM, "off");
    terminal.send("\x1b[200~'tests/golden/vision/images/odd.png' \x1b[201~");
    terminal.wait_for_text("[Image 1  odd.png ");
    terminal.send("\x1b[200~nowhere.png\x1b[201~");
    terminal.wait_for_text("│ nowhere.png ");
    terminal.send("\x15\x7f");
    terminal.wait_for("no picture", |screen| !screen.contents().contains("[Image"));
}

#[test]
fn the_file_picker_and_the_list_of_files_read_the_folder() {
    let terminal = seeing(XTERM, "blocks");
    terminal.send("\x0f");
    terminal.wait_for_text("src/");
    for folder in ["tests", "golden", "vision", "images"] {
        terminal.send(folder);
        terminal.wait_for_text(&format!("› {folder}/"));
        terminal.send("\r");
        terminal.wait_for_text(&format!("{folder} ─"));
        terminal.wait_for_text("type to search here");
    }
    terminal.send("photo");
    terminal.wait_for_text("150x110 · ");
    terminal.send("\r");
    terminal.wait_for_text("[Image 1  photo.jpg 150x110 ");
    terminal.send("read @keymap");
    terminal.wait_for_text("› src/tui/keymap.rs");
    terminal.send("\t");
    terminal.wait_for_text("read src/tui/keymap.rs");
}

const XTERM: Answers = &[("\x1b[16t", "\x1b[6;20;10t"), ("\x1b[c", "\x1b[?62;22c")];
const KITTY: Answers = &[
    ("\x1b_Gi=31", "\x1b_Gi=31;OK\x1b\\"),
    ("\x1b[16t", "\x1b[6;20;10t"),
    ("\x1b[?u", "\x1b[?0u"),
    ("\x1b[c", "\x1b[?62;c"),
];
const SIXEL: Answers = &[("\x1b[16t", "\x1b[6;20;10t"), ("\x1b[c", "\x1b[?62;4;22c")];
const SILENT: Answers = &[];
const GARBAGE: Answers = &[("\x1b[c", "\x1b_Gi=31;EINVAL\x1b\\\x1b[;;;x\x1b[?c")];

#[test]
fn whatever_a_terminal_answers_at_the_start_no_key_is_lost_or_made_up() {
    for (name, answers) in [("kitty", KITTY), ("sixel", SIXEL), ("silent", SILENT), ("garbage", GARBAGE)] {
        let program = Path::new(env!("CARGO_BIN_EXE_loquat"));
        let mut terminal = Terminal::start_answering(answers, program, &MODEL, 80, 24);
        terminal.wait_for_bytes("\x1b[c");
        terminal.send("typed at once");
        terminal.wait_for_text("typed at once");
        terminal.send(" and later");
        terminal.wait_for_text("│ typed at once and later ");
        assert!(terminal.is_raw(), "{name}");
        assert!(terminal.is_running(), "{name}");
        terminal.send("\x03\x03");
        assert_eq!(terminal.wait_for_exit(), 0, "{name}");
        terminal.assert_given_back();
    }
}

#[test]
fn pictures_are_drawn_in_the_way_that_the_terminal_answers_or_the_person_wants() {
    let ways = [
        ("kitty", KITTY, "auto", "\x1b_Gq=2,i="),
        ("sixel", SIXEL, "auto", "\x1bP"),
        ("iterm2", XTERM, "iterm2", "\x1b]1337;File=inline=1"),
        ("blocks", KITTY, "blocks", "▄"),
    ];
    for (name, answers, images, written) in ways {
        let terminal = seeing(answers, images);
        terminal.send("/image tests/golden/vision/images/photo.jpg\r");
        terminal.wait_for_text("[Image 1  photo.jpg 150x110 ");
        terminal.send("look\r");
        terminal.wait_for_bytes(written);
        terminal.wait_for_text("20 tok");
        for (other, _, _, bytes) in
            ways.into_iter().filter(|(other, ..)| *other != name && *other != "blocks")
        {
            assert!(!terminal.has_written(bytes), "{name} wrote {other}");
        }
    }
}

#[test]
fn with_pictures_off_the_terminal_is_asked_nothing_about_them() {
    let arguments = [&MODEL[..], &["--images", "off"]].concat();
    let terminal = Terminal::start(Path::new(env!("CARGO_BIN_EXE_loquat")), &arguments, 80, 24);
    terminal.wait_for_text("ready");
    for question in ["\x1b_G", "\x1b[16t", "\x1bP", "\x1b]1337"] {
        assert!(!terminal.has_written(question), "{question:?}");
    }
}

#[test]
fn what_is_finished_stays_in_the_scrollback_of_a_chat_in_line() {
    let arguments = ["--inline", "--model", "demo", "--temperature", "0"];
    let mut terminal = Terminal::start(Path::new(env!("CARGO_BIN_EXE_loquat")), &arguments, 80, 24);
    terminal.wait_for_text("Write a message");
    terminal.send("How do I quit?\r");
    terminal.wait_for_text("Press Ctrl+D on an empty draft");
    terminal.wait_for_text("ready");
    assert!(!terminal.has_written("\x1b[?1049h"), "the screen is the terminal's own");
    // What covers the chat has a screen of its own, and leaves this one as it was.
    terminal.send("\x1bOP");
    terminal.wait_for("help", vt100::Screen::alternate_screen);
    terminal.wait_for_text("Keys");
    terminal.send("\x1b");
    terminal.wait_for("the chat", |screen| !screen.alternate_screen());
    terminal.wait_for_text("Write a message");
    terminal.send("/th");
    terminal.wait_for_text("/theme");
    terminal.send("\x15");
    terminal.wait_for("no list", |screen| !screen.contents().contains("/theme"));
    terminal.send("\x04");
    assert_eq!(terminal.wait_for_exit(), 0);
    let screen = terminal.screen();
    assert!(screen.contains("How do I quit?") && screen.contains("Press Ctrl+D"), "{screen}");
    assert!(!screen.contains("Write a message"), "{screen}");
    terminal.wait_for_bytes("\x1b[?2004l");
    assert!(!terminal.is_raw());
}

#[test]
fn keys_are_tried_out_and_the_terminal_is_given_back() {
    let mut terminal =
        Terminal::start(Path::new(env!("CARGO_BIN_EXE_loquat")), &["keys", "--probe"], 100, 24);
    terminal.wait_for_text("Ctrl+C twice ends");
    terminal.send("\x12\x1b[5~q");
    terminal.wait_for_text("search_history");
    terminal.wait_for_text("page_up");
    terminal.wait_for_text("typed");
    terminal.send("\x1b[200~pasted\x1b[201~");
    terminal.wait_for_text("a paste of 6 characters");
    terminal.send("\x03\x03");
    assert_eq!(terminal.wait_for_exit(), 0);
    terminal.wait_for_bytes("\x1b[?2004l");
    assert!(!terminal.is_raw());
}
