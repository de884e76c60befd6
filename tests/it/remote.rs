//! A model on a server: our own, and one that fails in every way that servers do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

fn loquat(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loquat"));
    command
        .args(args)
        .env("LOQUAT_CONFIG_DIR", "/nowhere")
        .env("LOQUAT_LOG", "off")
        .env("LOQUAT_SAVED_STATES", "off");
    command.env_remove("LOQUAT_MODEL").env_remove("LOQUAT_ENGINE").env("LOQUAT_DEVICE", "cpu");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str], input: &str) -> Output {
    finish(loquat(args).spawn().unwrap(), input)
}

fn finish(mut child: Child, input: &str) -> Output {
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a request of this number gets: the whole answer, as bytes; an empty one breaks the connection.
type Script = Box<dyn Fn(usize, &Value) -> String + Send + Sync>;

/// A server that answers by a script and keeps what it was asked.
struct Fake {
    url: String,
    asked: Arc<Mutex<Vec<Value>>>,
    /// Most requests that were open at the same time.
    most: Arc<AtomicUsize>,
}

impl Fake {
    fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (asked, most) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let (log, peak, open, script) =
            (asked.clone(), most.clone(), Arc::new(AtomicUsize::new(0)), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (log, peak, open, script) = (log.clone(), peak.clone(), open.clone(), script.clone());
                std::thread::spawn(move || answer(stream, &log, &peak, &open, &script));
            }
        });
        Self { url, asked, most }
    }
}

fn answer(
    mut stream: TcpStream,
    log: &Mutex<Vec<Value>>,
    peak: &AtomicUsize,
    open: &AtomicUsize,
    script: &Script,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
            break;
        }
        if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    if first.starts_with("GET") {
        let models = json!({"data": [{"id": "fake", "max_model_len": 1000}]}).to_string();
        let _ = stream.write_all(http(200, "", &models).as_bytes());
        return;
    }
    peak.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    let body: Value = serde_json::from_slice(&body).unwrap();
    let number = {
        let mut log = log.lock().unwrap();
        log.push(body.clone());
        log.len() - 1
    };
    let _ = stream.write_all(script(number, &body).as_bytes());
    open.fetch_sub(1, Ordering::SeqCst);
}

fn http(status: u16, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} x\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A stream of these deltas.
fn stream(deltas: &[Value], finish: &str) -> String {
    let chunk = |delta: &Value, finish: Value| {
        format!(
            "data: {}\r\n\r\n",
            json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        )
    };
    let mut body = String::from(": hello\n\n");
    deltas.iter().for_each(|delta| body.push_str(&chunk(delta, Value::Null)));
    body.push_str(&chunk(&json!({}), finish.into()));
    body.push_str(&format!(
        "data: {}\n\n",
        json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
    ));
    body.push_str("data: [DONE]\n\n");
    http(200, "Content-Type: text/event-stream\r\n", &body)
}

fn said(text: &str) -> String {
    stream(&[json!({"content": text})], "stop")
}

#[test]
fn an_answer_comes_with_its_thoughts_and_figures() {
    let fake = Fake::start(Box::new(|_, _| {
        stream(
            &[json!({"reasoning_content": "hm"}), json!({"content": "Pa"}), json!({"content": "ris ✓"})],
            "stop",
        )
    }));
    let output = run(
        &[
            "run",
            "Capital?",
            "--engine",
            &fake.url,
            "--json",
            "--temperature",
            "0.7",
            "--max-tokens",
            "9",
            "--think",
            "off",
        ],
        "",
    );
    let answer: Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_eq!((&answer["text"], &answer["thinking"]), (&json!("Paris ✓"), &json!("hm")));
    assert_eq!((&answer["usage"]["prompt"], &answer["usage"]["completion"]), (&json!(7), &json!(5)));
    assert_eq!(answer["model"], "fake");
    let asked = &fake.asked.lock().unwrap()[0];
    assert_eq!(
        (&asked["temperature"], &asked["max_tokens"], &asked["model"]),
        (&json!(0.7), &json!(9), &json!("fake"))
    );
    assert_eq!(asked["chat_template_kwargs"]["enable_thinking"], false);
    assert_eq!(asked["messages"][0]["content"], "Capital?");
}

#[test]
fn pictures_are_sent_as_their_content() {
    let fake = Fake::start(Box::new(|_, _| said("a dot")));
    let pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let output = run(&["run", "What?", "-i", pixel, "--engine", &fake.url], "");
    assert_eq!(stdout(&output), "a dot\n", "{}", stderr(&output));
    assert_eq!(fake.asked.lock().unwrap()[0]["messages"][0]["content"][0]["image_url"]["url"], pixel);
}

#[test]
fn a_busy_server_is_asked_again_and_a_refusal_is_told() {
    let fake = Fake::start(Box::new(|number, _| match number {
        0 => http(429, "Retry-After: 0\r\n", "{}"),
        1 => http(500, "", "oops"),
        2 => String::new(),
        _ => said("at last"),
    }));
    let output = run(&["run", "x", "--engine", &fake.url], "");
    assert_eq!(stdout(&output), "at last\n", "{}", stderr(&output));
    assert_eq!(fake.asked.lock().unwrap().len(), 4);
    // The same question each time, seed included.
    assert!(fake.asked.lock().unwrap().windows(2).all(|pair| pair[0] == pair[1]));

    let refusals = [
        (401, r#"{"error":{"message":"no key"}}"#, 5, "wants a key"),
        (404, r#"{"error":{"message":"unknown model"}}"#, 5, "has no such model"),
        (400, r#"{"error":{"message":"bad top_k"}}"#, 2, "bad top_k"),
        (400, r#"{"error":{"message":"maximum context length is 10"}}"#, 2, "holds no conversation"),
    ];
    for (status, body, code, says) in refusals {
        let fake = Fake::start(Box::new(move |_, _| http(status, "", body)));
        let output = run(&["run", "x", "--engine", &fake.url], "");
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(fake.asked.lock().unwrap().len(), 1, "a refusal isn't asked again");
    }
    let nobody = run(&["run", "x", "--engine", "http://127.0.0.1:1/v1"], "");
    assert_eq!(nobody.status.code(), Some(7));
    assert!(stderr(&nobody).contains("is the server running?"), "{}", stderr(&nobody));
}

#[test]
fn an_answer_that_breaks_off_fails_and_is_not_asked_again() {
    let whole = said("half of it");
    let cut = whole.find("finish_reason\":\"stop").unwrap();
    for broken in [
        whole[..cut].to_owned(),
        http(200, "", "data: {\"error\":{\"message\":\"gone\"}}\n\n"),
        http(200, "", "data: what\n\n"),
        http(200, "", ""),
    ] {
        let fake = Fake::start(Box::new(move |_, _| broken.clone()));
        let output = run(&["run", "x", "--engine", &fake.url], "");
        assert_eq!(output.status.code(), Some(7), "{}", stdout(&output));
        assert!(stderr(&output).contains("broke off in the middle"), "{}", stderr(&output));
        assert_eq!(fake.asked.lock().unwrap().len(), 1);
    }
}

#[test]
fn a_batch_asks_several_at_a_time_and_loses_none() {
    let fake = Fake::start(Box::new(|number, body| {
        // Every third is refused once.
        if number % 3 == 2 {
            return http(429, "Retry-After: 0\r\n", "{}");
        }
        let question = body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
        said(&format!("re {question}"))
    }));
    let input: String = (0..60).map(|i| format!("q{i}\n")).collect();
    let output = run(&["batch", "--engine", &fake.url, "-j", "6"], &input);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected: String = (0..60).map(|i| format!("re q{i}\n")).collect();
    assert_eq!(stdout(&output), expected);
    assert!((2..=6).contains(&fake.most.load(Ordering::SeqCst)), "{:?}", fake.most);
}

#[test]
fn our_own_server_answers_as_the_engine_itself_does() {
    let mut server = loquat(&["serve", "--port", "0", "--model", "demo"]).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let url = line
        .split_whitespace()
        .find(|word| word.starts_with("http"))
        .unwrap()
        .trim_end_matches(';')
        .to_owned();
    std::thread::spawn(move || lines.for_each(drop));
    let ready = format!("{}/health", url.trim_end_matches("/v1")).replace("http://", "");
    let (address, path) = ready.split_once('/').unwrap();
    loop {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
    }
    let args = ["run", "How do I quit?", "--temperature", "0", "--think", "off", "--max-tokens", "30"];
    let remote = run(&[&args[..], &["--engine", &url]].concat(), "");
    let local = run(&[&args[..], &["--model", "demo"]].concat(), "");
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(!stdout(&local).is_empty());
    assert_eq!(stdout(&remote), stdout(&local), "{}", stderr(&remote));
}

#[test]
fn servers_are_named_in_settings_and_keys_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::start(Box::new(|_, _| said("hello")));
    let file = dir.path().join("c.toml");
    let with = |text: String, key: Option<&str>| {
        std::fs::write(&file, text).unwrap();
        let mut command = loquat(&["run", "x", "--engine", "office", "--config", file.to_str().unwrap()]);
        command.env_remove("OFFICE_KEY");
        if let Some(key) = key {
            command.env("OFFICE_KEY", key);
        }
        finish(command.spawn().unwrap(), "")
    };
    let office =
        format!("[remote.office]\nurl = \"{}/\"\nmodel = \"big\"\nkey_env = \"OFFICE_KEY\"\n", fake.url);
    assert_eq!(stdout(&with(office.clone(), Some("k"))), "hello\n");
    assert_eq!(fake.asked.lock().unwrap()[0]["model"], "big");
    let keyless = with(office, None);
    assert_eq!(keyless.status.code(), Some(2));
    assert!(stderr(&keyless).contains("OFFICE_KEY is not set"), "{}", stderr(&keyless));
    assert!(stderr(&with(String::new(), None)).contains("there is no server office"));
    assert!(stderr(&with("[remote.office]\nkey = \"k\"\n".into(), None)).contains("a server has url"));
    std::fs::write(dir.path().join(".loquat.toml"), "[remote.office]\nurl = \"http://evil\"\n").unwrap();
    let mut stranger = loquat(&["run", "x", "--engine", "office"]);
    let stranger = finish(stranger.current_dir(dir.path()).spawn().unwrap(), "");
    assert!(stderr(&stranger).contains("a folder may not set remote"), "{}", stderr(&stranger));
}

#[test]
fn an_answer_that_is_cancelled_is_cancelled_at_the_server() {
    // Says a word and goes on for ever, until the other end has gone.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (gone, has_gone) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, gone) = (stream.unwrap(), gone.clone());
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                let n = stream.read(&mut buffer).unwrap();
                if buffer[..n].starts_with(b"GET") {
                    let models = json!({"data": [{"id": "fake"}]}).to_string();
                    return drop(stream.write_all(http(200, "", &models).as_bytes()));
                }
                let word = json!({"choices": [{"index": 0, "delta": {"content": "word"}}]});
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(format!("{head}data: {word}\n\n").as_bytes());
                while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
                let _ = gone.send(());
            });
        }
    });
    let output = run(&["batch", "--engine", &url, "--timeout", "0.5", "--out", "jsonl"], "a\n");
    let line: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(line["error"]["code"], "timeout", "{line}");
    has_gone.recv_timeout(std::time::Duration::from_secs(20)).expect("the connection was closed");
}
