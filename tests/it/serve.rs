//! The local server: raw HTTP as any client speaks it, and the official Python client where there is one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// The demo model, which sees, on a free port.
    fn start(args: &[&str], key: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loquat"));
        command.args(["serve", "--port", "0", "--model", "demo", "--device", "cpu"]).args(args);
        command
            .env("LOQUAT_CONFIG_DIR", "/nowhere")
            .env("LOQUAT_LOG", "off")
            .env("LOQUAT_SAVED_STATES", "off")
            .env_remove("LOQUAT_SERVE_KEY");
        if let Some(key) = key {
            command.env("LOQUAT_SERVE_KEY", key);
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().expect("it says where it is").unwrap();
        let address =
            line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect(&line).to_owned();
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let server = Self { child, address };
        while server.ask("GET", "/health", &[], "").0 != 200 {
            std::thread::yield_now();
        }
        server
    }

    fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let host = if headers.to_lowercase().contains("host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        write!(stream, "{method} {path} HTTP/1.1\r\n{host}{headers}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
            true => unchunked(body),
            false => body.to_owned(),
        };
        (status, body)
    }

    fn chat(&self, body: Value) -> (u16, Value) {
        let (status, body) = self.ask("POST", "/v1/chat/completions", &[], &with_question(body).to_string());
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// The chunks of a stream, which must end as streams do.
    fn stream(&self, mut body: Value) -> Vec<Value> {
        body["stream"] = true.into();
        let (status, body) = self.ask("POST", "/v1/chat/completions", &[], &with_question(body).to_string());
        assert_eq!(status, 200, "{body}");
        let data: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let (last, chunks) = data.split_last().unwrap();
        assert_eq!(*last, "[DONE]");
        chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        body.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    body
}

/// Greedy and short, unless the body says otherwise.
fn with_question(body: Value) -> Value {
    let mut whole = json!({"model": "demo", "temperature": 0, "max_tokens": 24, "enable_thinking": false,
        "messages": [{"role": "user", "content": "How do I quit?"}]});
    for (key, value) in body.as_object().unwrap() {
        whole[key] = value.clone();
    }
    whole
}

fn content(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

#[test]
fn questions_are_answered_whole_and_in_pieces_alike() {
    let server = Server::start(&[], None);
    let (status, models) = server.ask("GET", "/v1/models", &[], "");
    assert_eq!(
        (status, serde_json::from_str::<Value>(&models).unwrap()["data"][0]["id"].as_str()),
        (200, Some("demo"))
    );
    let (status, whole) = server.chat(json!({}));
    assert_eq!((status, &whole["object"]), (200, &json!("chat.completion")));
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(!text.is_empty());
    let chunks = server.stream(json!({"stream_options": {"include_usage": true}}));
    assert_eq!(content(&chunks), text);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let usage = &chunks.last().unwrap()["usage"];
    assert_eq!(usage["completion_tokens"], whole["usage"]["completion_tokens"]);
    let reasons: Vec<&Value> =
        chunks.iter().map(|chunk| &chunk["choices"][0]["finish_reason"]).filter(|r| !r.is_null()).collect();
    assert_eq!(reasons, [&whole["choices"][0]["finish_reason"]]);

    let stop: String = text.chars().skip(10).take(4).collect();
    let (_, stopped) = server.chat(json!({"stop": [stop]}));
    assert_eq!(stopped["choices"][0]["message"]["content"], text.split_once(&stop).unwrap().0);
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");

    let (_, probable) = server.chat(json!({"logprobs": true, "top_logprobs": 2, "max_tokens": 5}));
    let tokens = probable["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!((tokens.len(), tokens[0]["top_logprobs"].as_array().unwrap().len()), (5, 2));
    let seeded = |seed: i64| {
        server.chat(json!({"seed": seed, "temperature": 5, "top_k": 0, "top_p": 1})).1["choices"][0]["message"].clone()
    };
    assert_eq!(seeded(-5), seeded(-5));
    assert_ne!(seeded(1), seeded(2));
}

#[test]
fn forms_tools_and_pictures_are_taken() {
    let server = Server::start(&[], None);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let (_, formed) = server.chat(json!({"response_format": format, "max_tokens": 100}));
    let value: Value =
        serde_json::from_str(formed["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(value["n"].is_u64(), "{value}");
    let (status, error) = server.chat(
        json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}}),
    );
    assert_eq!((status, &error["error"]["code"]), (400, &json!("bad_record")));

    // The prompt with tools is longer, and calls in the history are rendered.
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}});
    let (_, plain) = server.chat(json!({}));
    let (status, with_tools) = server.chat(json!({"tools": [tool]}));
    assert_eq!(status, 200);
    let prompt = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(prompt(&with_tools) > prompt(&plain) + 50);
    let call = json!({"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}});
    let (status, answer) = server.chat(json!({"tools": [tool], "messages": [
        {"role": "user", "content": "Weather?"}, {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny"}]}));
    assert_eq!(status, 200, "{answer}");
    assert!(!server.stream(json!({"tools": [tool]})).is_empty());

    let pixel =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let picture = |url: &str| {
        json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]}]})
    };
    let (status, seen) = server.chat(picture(&format!("data:image/png;base64,{pixel}")));
    assert_eq!(status, 200, "{seen}");
    assert!(prompt(&seen) > 20);
    for (url, says) in [
        ("/etc/passwd", "data: addresses"),
        ("file:///etc/passwd", "data: addresses"),
        ("https://x/a.png", "not fetched"),
    ] {
        let (status, error) = server.chat(picture(url));
        assert_eq!(status, 400);
        assert!(error["error"]["message"].as_str().unwrap().contains(says), "{error}");
    }
}

#[test]
fn bad_requests_get_an_answer_and_the_next_one_too() {
    let server = Server::start(&["--context", "256"], None);
    let post = |body: &str| server.ask("POST", "/v1/chat/completions", &[], body);
    for (body, says) in [
        ("", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("{}", "messages is missing"),
        (r#"{"messages":[]}"#, "empty"),
    ] {
        let (status, answer) = post(body);
        assert_eq!(status, 400);
        assert!(answer.contains(says), "{answer}");
    }
    let (status, long) = server.chat(json!({"messages": [{"role": "user", "content": "word ".repeat(400)}]}));
    assert_eq!((status, &long["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert_eq!(server.ask("GET", "/nowhere", &[], "").0, 404);
    assert_eq!(server.ask("GET", "/v1/chat/completions", &[], "").0, 405);
    assert_eq!(server.ask("GET", "/v1/models", &["Origin: https://evil.example"], "").0, 403);
    assert_eq!(server.ask("GET", "/v1/models", &["Host: evil.example"], "").0, 403);
    // One that goes away in the middle of its answer.
    let mut gone = TcpStream::connect(&server.address).unwrap();
    let body = with_question(json!({"stream": true, "max_tokens": 200, "temperature": 2})).to_string();
    write!(
        gone,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    gone.read_exact(&mut [0; 40]).unwrap();
    drop(gone);
    assert_eq!(server.chat(json!({})).0, 200);
}

#[test]
fn a_full_queue_refuses_and_keys_are_asked_for() {
    let server = Server::start(&["--queue", "0"], Some("secret"));
    assert_eq!(server.ask("GET", "/v1/models", &[], "").0, 401);
    let key = "Authorization: Bearer secret";
    assert_eq!(server.ask("GET", "/v1/models", &[key], "").0, 200);
    let body =
        with_question(json!({"stream": true, "max_tokens": 4000, "temperature": 2, "top_k": 0})).to_string();
    let mut busy = TcpStream::connect(&server.address).unwrap();
    write!(
        busy,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    busy.read_exact(&mut [0; 40]).unwrap();
    let (status, refused) =
        server.ask("POST", "/v1/chat/completions", &[key], &with_question(json!({})).to_string());
    // An answer of the demo model may be over already.
    assert!(status == 429 && refused.contains("queue_full") || status == 200, "{refused}");
}

#[test]
fn other_machines_are_served_only_with_a_key() {
    let output = Command::new(env!("CARGO_BIN_EXE_loquat"))
        .args(["serve", "--port", "0", "--host", "0.0.0.0", "--model", "demo"])
        .env("LOQUAT_CONFIG_DIR", "/nowhere")
        .env("LOQUAT_LOG", "off")
        .env_remove("LOQUAT_SERVE_KEY")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("a key is needed"));
}

/// `.ci/run` makes the environment with the client.
#[expect(clippy::print_stdout, reason = "a measurement, and tests that were skipped, are said")]
#[test]
fn the_official_python_client_is_served() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("target/openai-client/bin/python");
    if !python.exists() {
        println!("skipped: {} is not there (.ci/run makes it)", python.display());
        return;
    }
    let server = Server::start(&[], Some("secret"));
    let output = Command::new(python)
        .arg(root.join("tests/it/support/openai_client.py"))
        .arg(format!("http://{}/v1", server.address))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "models chat stream image tools json_schema errors"
    );
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_even_while_it_answers() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let mut server = Server::start(&[], None);
        // The beginning of an answer shows that it is being written.
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let body = with_question(json!({"stream": true, "max_tokens": 4000})).to_string();
        write!(stream, "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", server.address, body.len()).unwrap();
        assert!(stream.read(&mut [0; 64]).unwrap() > 0);
        std::process::Command::new("kill")
            .args([format!("-{signal}"), server.child.id().to_string()])
            .status()
            .unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let status = loop {
            if let Some(status) = server.child.try_wait().unwrap() {
                break status;
            }
            assert!(std::time::Instant::now() < end, "it goes on after SIG{signal}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(code));
    }
}
