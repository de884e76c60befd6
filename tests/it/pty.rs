//! The real program in a real pseudo-terminal: what is on the screen, and what it leaves behind.
//!
//! The model has random weights, so its answers are noise; they only have to arrive.

mod terminal;

use std::path::Path;

use terminal::Terminal;

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
