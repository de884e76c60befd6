//! Batches as scripts meet them: forms of input and output, killed runs that go on, errors in their place.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dense-a/model")
}

/// Short answers of the dense-a model, in this folder.
fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loquat"));
    command.args(args).args(["--think", "off", "--temperature", "0", "--presence-penalty", "0"]);
    if !args.contains(&"--model") {
        command.arg("--model").arg(model());
    }
    command.current_dir(dir).env_remove("LOQUAT_CONTEXT").env("LOQUAT_DEVICE", "cpu");
    command.env("LOQUAT_SAVED_STATES", "off").env("LOQUAT_CONFIG_DIR", "/nowhere").env("LOQUAT_LOG", "off");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(dir: &Path, args: &[&str], stdin: &[u8]) -> Output {
    let args =
        if args.contains(&"--max-tokens") { args.to_vec() } else { [args, &["--max-tokens", "6"]].concat() };
    let mut child = command(dir, &args).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = stdin.to_vec();
    let writer = std::thread::spawn(move || drop(input.write_all(&bytes)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("the program was not killed")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Good and bad records, some of them in conversations, two of them alike.
fn mixed() -> String {
    let records = [
        r#"{"id":"a","prompt":"one"}"#,
        r#"{"id":"b","prompt":"two","conv":"k"}"#,
        "nonsense",
        r#"{"id":"c","prompt":"three","conv":"k"}"#,
        r#"{"id":"d","prompt":"four","params":{"temperature":0.9}}"#,
        r#"{"id":"e","prompt":"x","params":{"temprature":1}}"#,
        r#"{"prompt":"five"}"#,
        r#"{"prompt":"five"}"#,
        r#"{"id":"f","prompt":"six","conv":"k","params":{"temperature":0.9}}"#,
    ];
    records.join("\n") + "\n"
}

fn folder(input: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in.jsonl"), input).unwrap();
    dir
}

const RESUMED: [&str; 6] = ["batch", "in.jsonl", "--deterministic", "-o", "out.jsonl", "--resume"];

#[test]
fn wherever_a_run_was_cut_off_resuming_gives_the_bytes_of_one_run() {
    let dir = folder(&mixed());
    let out = dir.path().join("out.jsonl");
    let whole = run(dir.path(), &RESUMED, b"");
    assert_eq!(code(&whole), 3, "{}", stderr(&whole));
    let whole = fs::read(&out).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    assert_eq!(text.lines().count(), 9);
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    // At every boundary, and at a place inside every line.
    let inside = ends.iter().enumerate().map(|(i, end)| end - 2 - i * 7);
    for cut in [0].into_iter().chain(ends.iter().copied()).chain(inside) {
        fs::write(&out, &whole[..cut]).unwrap();
        let output = run(dir.path(), &RESUMED, b"");
        assert_eq!(code(&output), 3, "{}", stderr(&output));
        assert_eq!(String::from_utf8(fs::read(&out).unwrap()).unwrap(), text, "cut at {cut}");
    }
}

#[test]
fn a_killed_run_goes_on_to_the_bytes_of_one_run() {
    let dir = folder(&mixed());
    let out = dir.path().join("out.jsonl");
    let args = [&RESUMED[..], &["--max-tokens", "40"]].concat();
    run(dir.path(), &args, b"");
    let whole = fs::read_to_string(&out).unwrap();
    for n_lines in 1..9 {
        fs::remove_file(&out).unwrap();
        let mut child = command(dir.path(), &args).spawn().unwrap();
        while fs::read_to_string(&out).unwrap_or_default().lines().count() < n_lines {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let output = run(dir.path(), &args, b"");
        assert_eq!(code(&output), 3, "{}", stderr(&output));
        assert_eq!(fs::read_to_string(&out).unwrap(), whole, "killed after {n_lines} lines");
    }
}

#[test]
fn other_settings_are_refused_with_what_differs_and_forced_on_demand() {
    let dir = folder("{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n");
    let with = |more: &[&str]| run(dir.path(), &[&RESUMED[..], more].concat(), b"");
    assert_eq!(code(&with(&["--manifest", "run.json"])), 0);
    let before = fs::read(dir.path().join("out.jsonl")).unwrap();
    let refused = with(&["--manifest", "run.json", "--max-tokens", "7"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("max_tokens: 6 -> 7"), "{}", stderr(&refused));
    assert_eq!(fs::read(dir.path().join("out.jsonl")).unwrap(), before);
    fs::write(dir.path().join("in.jsonl"), "{\"prompt\":\"a\"}\n{\"prompt\":\"c\"}\n").unwrap();
    let args =
        ["batch", "in.jsonl", "--deterministic", "-o", "out.jsonl", "--resume=force", "--max-tokens", "7"];
    let forced = run(dir.path(), &args, b"");
    assert_eq!(code(&forced), 0, "{}", stderr(&forced));
    let answers = lines(&fs::read_to_string(dir.path().join("out.jsonl")).unwrap());
    let counts: Vec<&Value> = answers.iter().map(|answer| &answer["usage"]["completion"]).collect();
    assert_eq!(counts, [6, 6, 7]);
    assert!(stderr(&forced).contains("1 answer of the output file"), "{}", stderr(&forced));
}

#[test]
fn failed_records_are_tried_again_only_when_asked() {
    let long = "word ".repeat(80);
    let dir = folder(&format!(
        "{{\"prompt\":\"a\"}}\n{{\"id\":\"long\",\"prompt\":\"{long}\"}}\n{{\"prompt\":\"b\"}}\n"
    ));
    let with = |more: &[&str]| {
        let output = run(dir.path(), &[&RESUMED[..], more].concat(), b"");
        (code(&output), lines(&fs::read_to_string(dir.path().join("out.jsonl")).unwrap()))
    };
    let (code, first) = with(&["--context", "64"]);
    assert_eq!((code, first[1]["error"]["code"].as_str()), (3, Some("too_long")));
    assert_eq!(with(&["--context", "4096"]), (3, first));
    let (code, last) = with(&["--context", "4096", "--retry-errors"]);
    assert_eq!(code, 0);
    let ids: Vec<(&Value, &Value)> = last.iter().map(|line| (&line["index"], &line["status"])).collect();
    assert_eq!(
        ids,
        [(&json!(0), &json!("length")), (&json!(2), &json!("length")), (&json!(1), &json!("length"))]
    );
}

#[test]
fn answers_that_are_there_are_never_written_over() {
    let dir = folder("{\"prompt\":\"a\"}\n");
    fs::write(dir.path().join("out.jsonl"), "my diary\n").unwrap();
    for (more, says) in [(&[][..], "holds something already"), (&["--resume"][..], "is no answer of a batch")]
    {
        let output = run(dir.path(), &[&["batch", "in.jsonl", "-o", "out.jsonl"], more].concat(), b"");
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(dir.path().join("out.jsonl")).unwrap(), "my diary\n");
    }
    let text = run(dir.path(), &["batch", "in.jsonl", "-o", "new", "--resume", "--out", "text"], b"");
    assert!(stderr(&text).contains("--resume needs --out jsonl"));
}

/// Of ten thousand records CI runs three hundred; the rest is the same again.
#[test]
fn every_good_record_is_answered_and_every_bad_one_reported() {
    let n: usize = std::env::var("LOQUAT_TEST_RECORDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let record = |i: usize| match i % 5 {
        3 => format!("{{\"id\":{i},\"prompt\":"),
        4 => format!("{{\"id\":{i},\"promt\":\"x\"}}"),
        _ => format!("{{\"id\":{i},\"prompt\":\"q{i}\"}}"),
    };
    let input: String = (0..n).map(|i| record(i) + "\n").collect();
    let dir = folder(&input);
    let output = run(dir.path(), &["batch", "in.jsonl", "--max-tokens", "2"], b"");
    assert_eq!(code(&output), 3);
    let answers = lines(&stdout(&output));
    assert_eq!(answers.len(), n);
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(answer["index"], i);
        match i % 5 {
            3 | 4 => assert_eq!(answer["error"]["code"], "bad_record"),
            _ => assert_eq!((&answer["id"], &answer["usage"]["completion"]), (&json!(i), &json!(2))),
        }
    }
}

#[test]
fn inputs_of_every_form_are_read() {
    let dir = folder("");
    let texts = |args: &[&str], input: &[u8]| {
        let output = run(dir.path(), &[&["batch", "--out", "jsonl"], args].concat(), input);
        lines(&stdout(&output)).iter().map(|line| line["text"].clone()).collect::<Vec<_>>()
    };
    let one = texts(&[], b"a b\n");
    assert_eq!(one.len(), 1);
    assert_eq!(texts(&["-0"], b"a b\0"), one);
    assert_eq!(texts(&["--in", "whole"], b"a b\n"), one);
    assert_eq!(texts(&["--in", "csv"], b"prompt\na b\n"), one);
    assert_eq!(texts(&["--in", "csv", "--prompt", "a b"], b"id\n7\n"), one);
    assert_eq!(
        texts(&["--template", "{{ prompt }} {{ vars.x }}"], br#"{"prompt":"a","vars":{"x":"b"}}"#),
        one
    );
    fs::write(dir.path().join("t.txt"), "a {{ vars.x }}").unwrap();
    assert_eq!(texts(&["--in", "csv", "--template", "@t.txt"], b"x\nb\n"), one);
    let missing =
        run(dir.path(), &["batch", "--in", "csv", "--out", "jsonl", "--template", "{{ vars.y }}"], b"x\nb\n");
    assert_eq!((code(&missing), &lines(&stdout(&missing))[0]["error"]["code"]), (3, &json!("bad_record")));
}

#[test]
fn outputs_of_every_form_are_written() {
    let dir = folder("");
    let input = b"{\"id\":\"x,y\",\"prompt\":\"a\"}\n{\"prompt\":3}\n";
    let table = run(dir.path(), &["batch", "--out", "csv"], input);
    let mut rows = csv::Reader::from_reader(&table.stdout[..]);
    assert_eq!(rows.headers().unwrap().iter().take(4).collect::<Vec<_>>(), ["index", "id", "status", "text"]);
    let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
    assert_eq!((rows.len(), &rows[0][1], &rows[0][2], &rows[1][4]), (2, "x,y", "length", "bad_record"));
    let nul = run(dir.path(), &["batch", "-0"], b"a\0b\0");
    assert_eq!(nul.stdout.iter().filter(|byte| **byte == 0).count(), 2);
    let request = json!({"custom_id": "r", "method": "POST", "url": "/v1/chat/completions",
        "body": {"model": "any", "max_tokens": 3, "messages": [{"role": "user", "content": "a"}]}});
    let openai = run(dir.path(), &["batch"], format!("{request}\n").as_bytes());
    let answer = &lines(&stdout(&openai))[0];
    assert_eq!((&answer["custom_id"], &answer["error"]), (&json!("r"), &Value::Null));
    let body = &answer["response"]["body"];
    assert_eq!(body["usage"]["completion_tokens"], 3);
    assert_eq!(body["choices"][0]["finish_reason"], "length");
}

#[test]
fn several_jobs_give_the_answers_of_one() {
    let input = mixed();
    let dir = folder(&input);
    let with =
        |jobs: &str| stdout(&run(dir.path(), &["batch", "in.jsonl", "--deterministic", "-j", jobs], b""));
    assert_eq!(with("1"), with("8"));
    let done = run(dir.path(), &["batch", "in.jsonl", "--deterministic", "-j", "8", "--order", "done"], b"");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&stdout(&done)), sorted(&with("1")));
}

#[test]
fn limits_of_time_and_errors_hold() {
    let dir = folder("");
    let late =
        run(dir.path(), &["batch", "--out", "jsonl", "--timeout", "0.001", "--max-tokens", "4000"], b"a\n");
    assert_eq!((code(&late), &lines(&stdout(&late))[0]["error"]["code"]), (3, &json!("timeout")));
    let bad = "{\"prompt\":1}\n".repeat(9);
    let many =
        run(dir.path(), &["batch", "--max-errors", "3"], format!("{{\"prompt\":\"a\"}}\n{bad}").as_bytes());
    assert_eq!((code(&many), stdout(&many).lines().count()), (4, 4));
    let talk = "{\"conv\":1,\"prompt\":\"a\"}\n{\"conv\":1,\"prompt\":\"b\",\"system\":\"late\"}\n{\"conv\":1,\"prompt\":\"c\"}\n";
    let talk = run(dir.path(), &["batch"], talk.as_bytes());
    let statuses: Vec<Value> = lines(&stdout(&talk)).iter().map(|line| line["status"].clone()).collect();
    assert_eq!(statuses, ["length", "error", "skipped"]);
}

#[test]
fn a_conversation_that_grows_too_long_fails_or_forgets_its_beginning() {
    let dir = folder("");
    let turn = format!("{{\"conv\":1,\"prompt\":\"{}\"}}\n", "word ".repeat(10));
    let input = turn.repeat(4);
    let with = |how| {
        let args = ["batch", "--context", "128", "--overflow", how];
        let answers = lines(&stdout(&run(dir.path(), &args, input.as_bytes())));
        answers.iter().map(|answer| answer["status"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(with("error").contains(&"error".to_owned()));
    assert_eq!(with("drop-oldest"), ["length"; 4]);
}

#[test]
fn a_dry_run_counts_and_answers_nothing() {
    let dir = folder("");
    let output = run(dir.path(), &["batch", "--dry-run"], b"{\"id\":1,\"prompt\":\"a\"}\n{\"prompt\":2}\n");
    assert_eq!(code(&output), 3);
    let counted = lines(&stdout(&output));
    let really = lines(&stdout(&run(dir.path(), &["batch"], b"{\"id\":1,\"prompt\":\"a\"}\n")));
    assert_eq!(counted[0]["usage"]["prompt"], really[0]["usage"]["prompt"]);
    assert_eq!((&counted[0]["text"], &counted[1]["status"]), (&Value::Null, &json!("error")));
    assert!(stderr(&output).contains("1 records can be asked and 1 can't"), "{}", stderr(&output));
}

#[test]
fn progress_is_told_on_standard_error_only() {
    let dir = folder("");
    let output = run(dir.path(), &["batch", "--progress", "json"], b"a\nb\n");
    let told = stderr(&output);
    let last = told.lines().rfind(|line| line.starts_with('{')).expect("a line of progress");
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["answered"], &last["tokens"]), (&json!(2), &json!(12)));
    assert!(!stdout(&output).contains("answered"));
}

#[test]
fn a_manifest_runs_a_batch_again_and_shows_what_differs() {
    let dir = folder(
        "{\"id\":\"a\",\"prompt\":\"one\",\"params\":{\"temperature\":1}}\n{\"id\":\"b\",\"prompt\":\"two\"}\n{}\n",
    );
    assert_eq!(code(&run(dir.path(), &["batch", "in.jsonl", "--manifest", "run.json"], b"")), 3);
    let same = run(dir.path(), &["replay", "run.json"], b"");
    assert_eq!(
        (code(&same), stdout(&same)),
        (0, "\"a\": the same\n\"b\": the same\n".into()),
        "{}",
        stderr(&same)
    );
    let path = dir.path().join("run.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&manifest["finished"], manifest["records"].as_array().unwrap().len()), (&json!(true), 3));
    manifest["records"][1]["tokens"][2] = json!(0);
    fs::write(&path, manifest.to_string()).unwrap();
    let other = run(dir.path(), &["replay", "run.json"], b"");
    assert_eq!(code(&other), 3);
    assert!(stdout(&other).contains("\"b\": differs at token 3"), "{}", stdout(&other));
    let nothing = run(dir.path(), &["replay", "in.jsonl"], b"");
    assert_eq!(code(&nothing), 2);
}

#[test]
fn answers_have_the_form_that_was_asked_for() {
    let dir = folder("");
    let schema = dir.path().join("s.json");
    fs::write(&schema, r#"{"type":"object","properties":{"n":{"type":"integer","maximum":9,"minimum":0}},"required":["n"],"additionalProperties":false}"#).unwrap();
    let output = run(dir.path(), &["run", "x", "--schema", "s.json", "--max-tokens", "60"], b"");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let value: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!((0..10).contains(&value["n"].as_i64().unwrap()), "{value}");
    let regex = run(dir.path(), &["batch", "--regex", "(yes|no)"], b"a\nb\n");
    assert!(stdout(&regex).lines().all(|line| line == "yes" || line == "no"), "{}", stdout(&regex));
    let cut = run(dir.path(), &["batch", "--regex", "[a-z]{50}", "--out", "jsonl"], b"a\n");
    assert_eq!((code(&cut), &lines(&stdout(&cut))[0]["error"]["code"]), (3, &json!("schema_unsatisfied")));
    let records = b"{\"prompt\":\"a\",\"regex\":\"z+!\",\"params\":{\"max_tokens\":1}}\n{\"prompt\":\"a\",\"schema\":false}\n{\"prompt\":\"a\",\"regex\":\"(\"}\n";
    let own = run(dir.path(), &["batch"], records);
    let codes: Vec<Value> = lines(&stdout(&own)).iter().map(|line| line["error"]["code"].clone()).collect();
    assert_eq!(codes, ["schema_unsatisfied", "schema_unsatisfied", "bad_record"]);
    fs::write(&schema, "{").unwrap();
    let bad = run(dir.path(), &["run", "x", "--schema", "s.json"], b"");
    assert_eq!(code(&bad), 2);
    assert!(stderr(&bad).contains("s.json is not valid JSON"), "{}", stderr(&bad));
}

/// Serves one file at `/a.png`.
fn file_server(content: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut first = String::new();
            reader.read_line(&mut first).unwrap();
            let mut line = String::from("headers");
            while !line.trim().is_empty() {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            let (status, body) = match first.starts_with("GET /a.png") {
                true => ("200 OK", &content[..]),
                false => ("404 Not Found", &b"<html>no such page</html>"[..]),
            };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let stream = reader.get_mut();
            stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        }
    });
    address
}

#[test]
fn pictures_come_from_the_network_only_if_that_is_allowed() {
    let server =
        file_server(fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/self-test.png")).unwrap());
    let dir = folder("");
    let record = |path: &str| json!({"prompt": "a", "images": [format!("{server}{path}?signature=secret")]});
    let input = format!("{}\n{}\n", record("/a.png"), record("/gone.png"));
    let refused = run(dir.path(), &["batch"], input.as_bytes());
    assert_eq!(code(&refused), 4);
    for line in lines(&stdout(&refused)) {
        assert!(line["error"]["message"].as_str().unwrap().contains("--allow-net"), "{line}");
    }
    let allowed = run(dir.path(), &["batch", "--model", "demo", "--allow-net"], input.as_bytes());
    let answers = lines(&stdout(&allowed));
    assert_eq!(code(&allowed), 3, "{}", stderr(&allowed));
    assert!(answers[0]["usage"]["image"].as_u64().unwrap() > 0, "{}", answers[0]);
    let why = answers[1]["error"]["message"].as_str().unwrap();
    assert_eq!(answers[1]["error"]["code"], "image_missing");
    assert!(why.contains("/gone.png") && why.contains("404") && !why.contains("secret"), "{why}");
}
