//! A chat line by line: in pipes, in a dumb terminal, killed, and what it keeps.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::pty::terminal::{Terminal, USUAL_ANSWERS};

fn program(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loquat"));
    command.args(arguments).env("LOQUAT_DATA_DIR", data).env("LOQUAT_CONFIG_DIR", data);
    command.env("LOQUAT_STATE_DIR", data.join("state")).env("LOQUAT_SAVED_STATES", "off");
    command.env("HF_HUB_OFFLINE", "1");
    for name in ["LOQUAT_HISTORY", "LOQUAT_MODEL", "ACCESSIBLE", "LOQUAT_LOG"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Lets it read these lines to the end.
fn chat(data: &Path, arguments: &[&str], lines: &str) -> Output {
    let mut child = program(data, arguments).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const PLAIN: [&str; 6] = ["chat", "--plain", "--model", "demo", "--temperature", "0"];

#[test]
fn a_script_gets_the_answers_on_standard_output_and_nothing_else_there() {
    let dir = tempfile::tempdir().unwrap();
    let lines = "How do I quit?\n/think off\n/stats\nHow do I attach\\\na picture?\n";
    let output = chat(dir.path(), &PLAIN, lines);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    let answers: Vec<&str> = out.lines().collect();
    assert_eq!(answers.len(), 2, "{out}");
    assert!(answers[0].contains("Ctrl+D") && answers[1].contains("/image"), "{out}");
    assert!(err.contains("Thinking is off") && err.contains("MTP"), "{err}");
    assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'));
    // `chat` goes without saying.
    let short = chat(dir.path(), &[&PLAIN[1..], &["--no-history"]].concat(), lines);
    assert_eq!((text(&short.stdout), short.status.code()), (out, Some(0)));
    // Kept as any chat is.
    let listed = chat(dir.path(), &["history", "list", "--json"], "");
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!((&listed["title"], &listed["messages"]), (&"How do I quit?".into(), &4.into()));
}

#[test]
fn what_has_no_answer_is_in_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let long = "word ".repeat(6000) + "\nHow do I quit?\n";
    let arguments = [&PLAIN[..], &["--config", "c.toml"]].concat();
    fs::write(dir.path().join("c.toml"), "overflow = \"error\"\n").unwrap();
    let config = dir.path().join("c.toml");
    let arguments: Vec<&str> =
        arguments.iter().map(|it| if *it == "c.toml" { config.to_str().unwrap() } else { it }).collect();
    let output = chat(dir.path(), &arguments, &long);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Ctrl+D"), "the next line has its answer");
    let broken = dir.path().join("broken");
    fs::create_dir(&broken).unwrap();
    let output = chat(dir.path(), &["chat", "--plain", "--model", broken.to_str().unwrap()], "hi\n");
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
}

#[test]
fn what_is_left_out_and_summed_up_stays_so_on_another_day() {
    let dir = tempfile::tempdir().unwrap();
    chat(dir.path(), &PLAIN, "How do I quit?\nHow do I stop an answer?\nWhat is 2 + 2?\n/drop 1\n");
    let resume = ["resume", "--plain", "--model", "demo", "--temperature", "0"];
    let output = chat(dir.path(), &resume, "/prompt\n/compact\n");
    let err = text(&output.stderr);
    let (_, prompt) = err.split_once("demo on CPU").unwrap();
    let (prompt, _) = prompt.split_once("In place of the older").unwrap();
    assert!(prompt.contains("2 + 2") && !prompt.contains("How do I quit"), "{err}");
    assert_eq!(text(&output.stdout), "", "a summary is no answer");
    let output = chat(dir.path(), &resume, "/prompt\n/compact off\n/prompt\n");
    let err = text(&output.stderr);
    let (_, prompts) = err.split_once("demo on CPU").unwrap();
    let (summed_up, whole) = prompts.split_once("reads everything again").unwrap();
    let has_summary = summed_up.contains("What was said before, summed up:");
    assert!(has_summary && !summed_up.contains("stop an answer?"), "{err}");
    assert!(whole.contains("user\nHow do I quit?") && whole.contains("stop an answer?"), "{err}");
}

#[test]
fn answers_can_be_held_to_a_schema() {
    let dir = tempfile::tempdir().unwrap();
    let schema = dir.path().join("s.json");
    fs::write(&schema, r#"{"type":"object","required":["n"],"additionalProperties":false,"properties":{"n":{"enum":[1,2]}}}"#).unwrap();
    let lines = format!(
        "/schema {}\nHow do I quit?\n/schema off\nHow do I quit?\n/schema nowhere\n",
        schema.display()
    );
    let output = chat(dir.path(), &PLAIN, &lines);
    let out = text(&output.stdout);
    let mut values = serde_json::Deserializer::from_str(&out).into_iter::<Value>();
    let json = values.next().unwrap().unwrap();
    let free = &out[values.byte_offset()..];
    assert!(json["n"] == 1 || json["n"] == 2, "{out}");
    assert!(free.contains("Ctrl+D"), "{out}");
    assert!(text(&output.stderr).contains("nowhere can't be read"));
}

#[test]
fn settings_are_shown_with_their_origin_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    let lines = "/config ui.theme\n/config ui.theme night\n/config ui.theme\n/config ui.thme\n";
    let output = chat(dir.path(), &PLAIN, lines);
    let err = text(&output.stderr);
    assert!(err.contains("ui.theme is not set"), "{err}");
    assert!(err.contains("ui.theme holds from the next start"), "{err}");
    assert!(err.contains("ui.theme = \"night\"") && err.contains("did you mean ui.theme?"), "{err}");
}

#[test]
fn the_log_tells_what_happened_and_nothing_of_what_was_said() {
    let dir = tempfile::tempdir().unwrap();
    chat(dir.path(), &PLAIN, "How do I quit?\n");
    assert!(!dir.path().join("state").exists(), "nothing was wrong");
    let arguments = [&PLAIN[..], &["--log", "trace"]].concat();
    chat(dir.path(), &arguments, "How do I quit with the secret word hf_abcdefghijkl?\n");
    let log = fs::read_to_string(dir.path().join("state/loquat.log")).unwrap();
    assert!(log.contains("model demo on CPU") && log.contains("turn 1: "), "{log}");
    for said in ["quit", "secret", "hf_", "Ctrl+D"] {
        assert!(!log.contains(said), "{said} in {log}");
    }
}

#[test]
fn a_dumb_terminal_is_never_sent_a_control_sequence() {
    let dir = tempfile::tempdir().unwrap();
    let environment = [("TERM", "dumb"), ("HF_HUB_OFFLINE", "1")];
    let arguments = ["--model", "demo", "--temperature", "0"];
    let program = Path::new(env!("CARGO_BIN_EXE_loquat"));
    let mut terminal =
        Terminal::start_with(dir.path(), USUAL_ANSWERS, program, &arguments, &environment, 80, 24);
    terminal.wait_for_text("User [1]: ");
    assert!(!terminal.is_raw());
    terminal.send("How do I quit?\n");
    terminal.wait_for_text("Assistant [2]: ");
    terminal.wait_for_text("User [3]: ");
    terminal.send("/preset\n");
    terminal.wait_for_text("1. model");
    terminal.send("2\n");
    terminal.wait_for_text("Preset precise");
    terminal.send("\x03");
    terminal.wait_for_text("again quits");
    terminal.send("\x03");
    assert_eq!(terminal.wait_for_exit(), 0);
    assert!(!terminal.has_written("\x1b"));
}

#[test]
fn kills_at_any_point_leave_a_whole_history() {
    // Each takes a second on a busy machine; LOQUAT_TEST_KILLS asks for more.
    let n_kills = env::var("LOQUAT_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let dir = tempfile::tempdir().unwrap();
    let endless = [
        "chat",
        "--plain",
        "--model",
        "tests/golden/dense-a/model",
        "--device",
        "cpu",
        "--think",
        "off",
        "--max-tokens",
        "100000",
        "--temperature",
        "0",
    ];
    let (mut n_with_text, mut random) = (0, 7u64);
    for round in 1..=n_kills {
        let mut child = program(dir.path(), &endless).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(format!("question {round}\n").as_bytes()).unwrap();
        // After some number of bytes, whatever is done at that moment.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let n_bytes = 1 + (random >> 33) as usize % 3000;
        let mut said = vec![0; n_bytes];
        child.stdout.take().unwrap().read_exact(&mut said).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let database = rusqlite::Connection::open(dir.path().join("history/history.db")).unwrap();
        let intact: String = database.query_row("PRAGMA quick_check", [], |row| row.get(0)).unwrap();
        assert_eq!(intact, "ok", "round {round}");
        let sql = "SELECT text FROM messages WHERE role = 'assistant' ORDER BY id DESC LIMIT 1";
        let kept: String = database.query_row(sql, [], |row| row.get(0)).unwrap_or_default();
        let kept = kept.trim_start().as_bytes();
        let n = kept.len().min(said.len());
        assert_eq!(kept[..n], said[..n], "round {round}");
        n_with_text += usize::from(n > 0);
    }
    assert!(n_with_text > 0, "no kill came while text was kept: that tests too little");
    let listed = chat(dir.path(), &["history", "list", "--json"], "");
    let titles: Vec<Value> =
        text(&listed.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(titles.len(), n_kills);
}
