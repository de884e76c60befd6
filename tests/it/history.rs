//! Kept conversations with the real program: killed, twice at once, damaged, resumed, and from the shell.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::pty::terminal::{Terminal, USUAL_ANSWERS};

/// Random weights write noise for as long as they are let.
/// The likeliest tokens of this model, which knows nothing, go round in a circle; chance would end an answer some time.
const ENDLESS: [&str; 10] = [
    "--model",
    "tests/golden/dense-a/model",
    "--max-tokens",
    "100000",
    "--think",
    "off",
    "--device",
    "cpu",
    "--temperature",
    "0",
];

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_loquat"))
}

fn chat(data: &Path, arguments: &[&str]) -> Terminal {
    Terminal::start_in(data, USUAL_ANSWERS, program(), arguments, 100, 30)
}

fn loquat(data: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.args(arguments).env("LOQUAT_DATA_DIR", data).env("LOQUAT_CONFIG_DIR", data);
    command.env_remove("LOQUAT_HISTORY");
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn listed(data: &Path) -> Vec<Value> {
    let lines = text(&loquat(data, &["history", "list", "--json"]));
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The whole of a conversation.
fn exported(data: &Path, id: &Value) -> Value {
    let json = text(&loquat(data, &["history", "export", &id.to_string(), "--format", "json"]));
    serde_json::from_str(&json).unwrap()
}

fn quit(mut terminal: Terminal) {
    terminal.send("\x04");
    assert_eq!(terminal.wait_for_exit(), 0);
}

/// Waits until something of the newest answer is kept, while it is still being written.
fn wait_until_kept(data: &Path, question: &str) -> String {
    let database = rusqlite::Connection::open(data.join("history/history.db")).unwrap();
    let sql = "SELECT answer.text FROM messages answer JOIN messages question ON answer.parent = question.id
               WHERE question.text = ?1";
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        // The row of an answer comes with its first words.
        let text: String = database.query_row(sql, [question], |row| row.get(0)).unwrap_or_default();
        if !text.is_empty() {
            return text;
        }
        assert!(Instant::now() < end, "nothing is kept");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_program_that_is_killed_in_the_middle_of_an_answer_has_kept_it() {
    let dir = tempfile::tempdir().unwrap();
    for round in 1..=3 {
        let mut terminal = chat(dir.path(), &ENDLESS);
        terminal.wait_for_text("ready");
        terminal.send(&format!("question {round}\r"));
        terminal.wait_for_text("tok/s");
        let kept_before = wait_until_kept(dir.path(), &format!("question {round}"));
        terminal.signal("KILL");
        terminal.wait_for_exit();
        let all = listed(dir.path());
        assert_eq!(all.len(), round);
        assert_eq!(all[0]["title"], format!("question {round}"));
        let kept = exported(dir.path(), &all[0]["id"]);
        assert_eq!(kept["messages"][0]["content"], format!("question {round}"));
        assert!(kept["messages"][1]["content"].as_str().unwrap().starts_with(&kept_before));
        assert_eq!(kept["messages"][1]["answered"]["ending"], Value::Null);
    }
    let check = rusqlite::Connection::open(dir.path().join("history/history.db")).unwrap();
    let intact: String = check.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(intact, "ok");
    // What was cut off is there, and goes on.
    let terminal = chat(dir.path(), &[&["resume", "3"], &ENDLESS[..]].concat());
    terminal.wait_for_text("question 3");
    terminal.wait_for_text("The conversation goes on");
}

#[test]
fn two_chats_at_once_keep_both() {
    let dir = tempfile::tempdir().unwrap();
    let both: Vec<Terminal> = ["left", "right"]
        .map(|name| {
            let terminal = chat(dir.path(), &["--temperature", "0", "--images", "off"]);
            terminal.wait_for_text("ready");
            terminal.send(&format!("What is Loquat? said {name}\r"));
            terminal
        })
        .into();
    for terminal in both {
        terminal.wait_for_text("tok/s");
        terminal.wait_for_text("ready");
        quit(terminal);
    }
    let all = listed(dir.path());
    assert_eq!(all.len(), 2);
    for conversation in &all {
        let kept = exported(dir.path(), &conversation["id"]);
        assert_eq!(kept["messages"][1]["answered"]["ending"], "finished", "{kept}");
        assert!(!kept["messages"][1]["content"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_conversation_goes_on_another_day_and_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--temperature", "0", "--images", "off", "--saved-states", "always"];
    let mut first = chat(dir.path(), &arguments);
    first.wait_for_text("ready");
    first.send("Please tell me, in a few words that a person without any knowledge of it will understand, what Loquat is.\r");
    first.wait_for_text("tok/s");
    first.wait_for_text("ready");
    first.send("\x04");
    assert_eq!(first.wait_for_exit(), 0);
    first.wait_for_text("loquat resume 1");

    let second = chat(dir.path(), &[&["resume"], &arguments[..]].concat());
    second.wait_for_text("in a few words");
    second.wait_for_text("ready");
    second.send("And who made it?\r");
    second.wait_for_text("[4]");
    second.wait_for_text("ready");
    second.send("/stats\r");
    second.wait_for_text("tok restored from a saved state");
    quit(second);
    let kept = exported(dir.path(), &1.into());
    assert_eq!(kept["messages"].as_array().unwrap().len(), 4);
    assert!(kept["messages"][3]["answered"]["figures"]["restored_tokens"].as_u64().unwrap() > 0);
    assert_eq!(kept["messages"][3]["parent"], 2);
}

#[test]
fn a_damaged_history_is_told_and_the_chat_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("history")).unwrap();
    fs::write(dir.path().join("history/history.db"), "not a database at all ".repeat(500)).unwrap();
    let terminal = chat(dir.path(), &["--model", "demo", "--temperature", "0", "--images", "off"]);
    terminal.wait_for_text("From now on this chat is not kept");
    terminal.wait_for_text("is damaged");
    terminal.wait_for_text("ready");
    terminal.send("What is Loquat?\r");
    terminal.wait_for_text("tok/s");
    terminal.send("/history\r");
    terminal.wait_for_text("nothing is kept yet");
    let list = loquat(dir.path(), &["history", "list"]);
    assert_eq!(list.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&list.stderr).contains("damaged"));
}

#[test]
fn nothing_is_kept_when_that_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let terminal = chat(dir.path(), &["--no-history", "--images", "off"]);
    terminal.wait_for_text("ready");
    terminal.send("a secret\r");
    terminal.wait_for_text("tok/s");
    quit(terminal);
    assert!(!dir.path().join("history").exists());
    let resumed = chat(dir.path(), &["--no-history", "resume"]);
    resumed.wait_for_text("nothing can be resumed without a history");
}

#[test]
fn conversations_are_listed_searched_renamed_deleted_and_exported_from_the_shell() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    assert_eq!(text(&loquat(data, &["history", "list"])), "");
    let terminal = chat(data, &["--temperature", "0", "--images", "off", "--max-tokens", "8"]);
    terminal.wait_for_text("ready");
    terminal.send("Where do quinces grow?\r");
    terminal.wait_for_text("tok/s");
    terminal.wait_for_text("ready");
    quit(terminal);

    let list = text(&loquat(data, &["history", "list"]));
    assert!(list.contains("Where do quinces grow?") && list.contains("2 messages"), "{list}");
    assert!(text(&loquat(data, &["history", "search", "QUINCE"])).contains("quinces"));
    assert_eq!(text(&loquat(data, &["history", "search", "medlar"])), "");
    text(&loquat(data, &["history", "rename", "1", "Fruit", "trees"]));
    assert!(text(&loquat(data, &["history", "list"])).contains("Fruit trees"));
    let shown = text(&loquat(data, &["history", "show", "1"]));
    assert!(
        shown.starts_with("# Fruit trees\n\n## You\n\nWhere do quinces grow?\n\n## Assistant\n"),
        "{shown}"
    );

    let file = data.join("out.html");
    let export = ["history", "export", "1", "--format", "html", "-o", file.to_str().unwrap()];
    text(&loquat(data, &export));
    assert!(fs::read_to_string(&file).unwrap().contains("<h1>Fruit trees</h1>"));
    assert_eq!(loquat(data, &export).status.code(), Some(2), "no file is written over");

    assert!(text(&loquat(data, &["history", "delete", "1"])).contains("undelete 1"));
    assert_eq!(text(&loquat(data, &["history", "list"])), "");
    let gone = loquat(data, &["history", "show", "1"]);
    assert_eq!(gone.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("there is no conversation 1"));
    text(&loquat(data, &["history", "undelete", "1"]));
    assert!(text(&loquat(data, &["history", "list"])).contains("Fruit trees"));
    let resumed = chat(data, &["resume", "77"]);
    resumed.wait_for_text("there is no conversation 77");
}
