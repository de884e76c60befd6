//! The command line as scripts meet it: what goes to which stream, exit codes, and bad input.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn model(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case).join("model")
}

fn loquat(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loquat"));
    command.args(args).env_remove("LOQUAT_MODEL").env_remove("LOQUAT_CONTEXT").env("LOQUAT_DEVICE", "cpu");
    command.env("LOQUAT_SAVED_STATES", "off").env("LOQUAT_CONFIG_DIR", "/nowhere").env("LOQUAT_LOG", "off");
    command
}

/// Runs with this standard input, and the dense-a model unless the arguments name another.
fn run(args: &[&str], stdin: &[u8]) -> Output {
    let mut command = loquat(args);
    if !args.contains(&"--model") {
        command.arg("--model").arg(model("dense-a"));
    }
    finish(command, stdin)
}

fn finish(mut command: Command, stdin: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = stdin.to_vec();
    // A thread, because a program that doesn't read its input must not block the test.
    let writer = std::thread::spawn(move || {
        let _ = input.write_all(&bytes);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("the program was not killed")
}

/// Short and repeatable.
const BRIEF: [&str; 8] =
    ["--think", "off", "--temperature", "0", "--presence-penalty", "0", "--max-tokens", "12"];

fn brief<'a>(command: &'a [&'a str]) -> Vec<&'a str> {
    [command, &BRIEF].concat()
}

#[test]
fn run_writes_the_answer_and_nothing_else_to_stdout() {
    let output = run(&brief(&["run", "hello"]), b"");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let json = run(&brief(&["run", "hello", "--json"]), b"");
    let record: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(
        stdout(&output).trim_end_matches('\n'),
        record["text"].as_str().unwrap().trim_end_matches('\n')
    );
    assert_eq!(record["status"], "length");
    assert_eq!(record["usage"]["completion"], 12);
    assert_eq!(record["model"], "dense-a/model");
}

#[test]
fn stdin_comes_before_the_argument_with_a_blank_line_between() {
    let joined = run(&brief(&["run", "--json", "b"]), b"a\n");
    let whole = run(&brief(&["run", "--json", "a\n\nb"]), b"");
    let piped = run(&brief(&["run", "--json"]), b"a\n\nb");
    let bare = run(&brief(&[]), b"a\n\nb");
    let text = |output: &Output| serde_json::from_slice::<Value>(&output.stdout).unwrap()["text"].clone();
    assert_eq!(text(&joined), text(&whole));
    assert_eq!(text(&joined), text(&piped));
    assert_eq!(code(&bare), 0);
    assert_eq!(stdout(&bare).trim_end(), text(&joined).as_str().unwrap().trim_end());
}

#[test]
fn the_same_seed_gives_the_same_text_and_another_one_another() {
    let text = |seed: &str| {
        let args = ["run", "hi", "--max-tokens", "30", "--think", "off", "--seed", seed];
        stdout(&run(&args, b""))
    };
    assert_eq!(text("7"), text("7"));
    assert_ne!(text("7"), text("8"));
}

#[test]
fn batch_answers_each_line_in_order() {
    let output = run(&brief(&["batch", "--out", "jsonl"]), b"a\n\nb\r\n");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    for (i, (line, prompt)) in lines.iter().zip(["a", "b"]).enumerate() {
        assert_eq!((line["v"].clone(), line["index"].clone()), (json!(1), json!(i)));
        let alone = run(&brief(&["run", "--json", prompt]), b"");
        assert_eq!(line["text"], serde_json::from_slice::<Value>(&alone.stdout).unwrap()["text"]);
    }
    let text = run(&brief(&["batch", "--one-line"]), b"a\nb\n");
    assert_eq!(stdout(&text).lines().count(), 2);
}

#[test]
fn batch_reports_bad_records_in_their_place_and_goes_on() {
    let input =
        b"{\"id\":\"x\",\"prompt\":\"a\"}\nnot json\n{\"id\":2,\"prompt\":\"b\",\"images\":[\"a.png\"]}\n\
        {\"prompt\":\"c\",\"params\":{\"temperature\":-1}}\n{\"id\":[3],\"prompt\":\"d\"}\n";
    let output = run(&brief(&["batch"]), input);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let statuses: Vec<&str> = lines.iter().map(|line| line["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["length", "error", "error", "error", "length"]);
    assert_eq!(lines[0]["id"], "x");
    assert_eq!(lines[1]["error"]["code"], "bad_record");
    assert_eq!(lines[2]["error"]["code"], "image_missing");
    assert!(lines[3]["error"]["message"].as_str().unwrap().contains("temperature"));
    assert_eq!(lines[4]["id"], json!([3]));

    let stopped = run(&brief(&["batch", "--on-error", "stop"]), input);
    assert_eq!((code(&stopped), stdout(&stopped).lines().count()), (3, 2));
    let nothing = run(&brief(&["batch", "--in", "jsonl"]), b"nope\nnope\n");
    assert_eq!(code(&nothing), 4);
    let empty = run(&brief(&["batch"]), b"");
    assert_eq!((code(&empty), stdout(&empty)), (0, String::new()));
}

#[test]
fn a_failed_record_is_an_empty_line_of_text() {
    let output = run(
        &brief(&["batch", "--out", "text", "--one-line"]),
        b"{\"prompt\":\"a\"}\n{bad\n{\"prompt\":\"c\"}\n",
    );
    let text = stdout(&output);
    assert_eq!(code(&output), 3);
    assert_eq!(text.lines().count(), 3, "{text}");
    assert_eq!(text.lines().nth(1), Some(""));
}

#[test]
fn an_output_that_is_the_input_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let questions = dir.path().join("q.txt");
    fs::write(&questions, "a\nb\n").unwrap();
    let link = dir.path().join("link.txt");
    fs::hard_link(&questions, &link).unwrap();
    let questions = questions.to_str().unwrap();
    for output in [questions, link.to_str().unwrap()] {
        assert_refused(&run(&["batch", questions, "-o", output], b""), 2, "both input and output");
        assert_eq!(fs::read_to_string(questions).unwrap(), "a\nb\n");
    }
    assert_refused(&run(&["batch", questions, "-o", "/nowhere/out"], b""), 2, "cannot write /nowhere/out");
}

#[test]
fn environment_variables_stand_for_flags_and_are_named_when_wrong() {
    let with = |name: &str, value: &str, args: &[&str]| {
        let mut command = loquat(args);
        command.env("LOQUAT_MODEL", model("dense-a")).env(name, value);
        finish(command, b"")
    };
    assert_eq!(code(&with("LOQUAT_DEVICE", "", &brief(&["run", "hi"]))), 0);
    assert_eq!(code(&with("LOQUAT_CONTEXT", "", &brief(&["run", "hi"]))), 0);
    assert_refused(&with("LOQUAT_DEVICE", "tpu", &["run", "hi"]), 2, "LOQUAT_DEVICE is \"tpu\"");
    assert_refused(&with("LOQUAT_CONTEXT", "many", &["run", "hi"]), 2, "LOQUAT_CONTEXT is \"many\"");
    assert_refused(&with("LOQUAT_CONTEXT", "64", &["run", &"word ".repeat(99)]), 2, "the context holds 64");
    let none = with("LOQUAT_MODEL", "", &["run", "hi"]);
    assert!(stderr(&none).contains("No model was named"), "{}", stderr(&none));
}

#[test]
fn the_first_ctrl_c_finishes_the_record_that_is_being_answered() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jsonl");
    let mut child = loquat(&["batch", "--think", "off", "--max-tokens", "400", "--out", "jsonl", "-o"])
        .arg(&out)
        .arg("--model")
        .arg(model("dense-a"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all("hello\n".repeat(500).as_bytes()).unwrap();
    // The first record in the file shows that the second one is being answered.
    while fs::read_to_string(&out).unwrap_or_default().lines().count() == 0 {
        std::thread::yield_now();
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130);
    assert!(stderr(&output).contains("finishing the record"), "{}", stderr(&output));
    let text = fs::read_to_string(&out).unwrap();
    assert!(text.lines().count() < 500);
    for line in text.lines() {
        assert_eq!(serde_json::from_str::<Value>(line).unwrap()["usage"]["completion"], 400);
    }
}

#[test]
fn records_with_the_same_conv_go_on_with_each_other() {
    let input = br#"{"prompt":"one","conv":"k"}
{"prompt":"two","conv":"k"}
{"prompt":"two"}
"#;
    let output = run(&brief(&["batch"]), input);
    let prompts: Vec<u64> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["usage"]["prompt"].as_u64().unwrap())
        .collect();
    assert!(prompts[1] > prompts[2], "the second question comes with the first one before it: {prompts:?}");
}

#[test]
fn a_reader_that_leaves_ends_a_batch_quietly() {
    let script = format!(
        "yes hello | head -200 | '{}' batch --device cpu --max-tokens 4 --model '{}' --out jsonl 2>err.txt | head -1 \
         >out.txt; echo ${{PIPESTATUS[2]}}",
        env!("CARGO_BIN_EXE_loquat"),
        model("dense-a").display()
    );
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("bash").arg("-c").arg(script).current_dir(dir.path()).output().unwrap();
    assert_eq!(stdout(&output).trim(), "0");
    assert_eq!(fs::read_to_string(dir.path().join("out.txt")).unwrap().lines().count(), 1);
    let said = fs::read_to_string(dir.path().join("err.txt")).unwrap();
    assert_eq!(said.lines().count(), 1, "only the guess of the input's form: {said}");
}

#[test]
fn closed_standard_streams_never_block() {
    let script = format!(
        "'{0}' run hi --device cpu --max-tokens 3 --model '{1}' <&- 2>/dev/null; echo $?; \
         '{0}' batch --device cpu --model '{1}' <&- 2>/dev/null; echo $?",
        env!("CARGO_BIN_EXE_loquat"),
        model("dense-a").display()
    );
    let output = Command::new("bash").arg("-c").arg(script).output().unwrap();
    let codes: Vec<String> =
        stdout(&output).lines().filter(|l| ["0", "1", "2"].contains(l)).map(str::to_owned).collect();
    assert_eq!(codes, ["0", "0"]);
}

/// One line on standard error, no panic, nothing on standard output.
fn assert_refused(output: &Output, expected_code: i32, says: &str) {
    let said = stderr(output);
    assert_eq!(code(output), expected_code, "{said}");
    assert!(said.contains(says), "expected {says:?} in: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(said.starts_with("loquat: "), "{said}");
    assert_eq!(stdout(output), "");
}

/// A copy of the dense-a model folder to be damaged.
fn damaged(damage: impl FnOnce(&Path)) -> Output {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(model("dense-a")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    damage(dir.path());
    run(&["run", "hi", "--model", dir.path().to_str().unwrap()], b"")
}

fn edit_config(dir: &Path, key: &str, value: Value) {
    let path = dir.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config[key] = value;
    fs::write(&path, config.to_string()).unwrap();
}

#[test]
fn a_model_that_cannot_be_used_is_refused_with_one_line() {
    assert_refused(&run(&["run", "hi", "--model", "/nowhere"], b""), 5, "the folder doesn't exist");
    assert_refused(&run(&["run", "hi", "--model", "/dev/null"], b""), 5, "not a folder");
    let empty = tempfile::tempdir().unwrap();
    assert_refused(&run(&["run", "hi", "--model", empty.path().to_str().unwrap()], b""), 5, "no config.json");

    let gone = |name: &'static str| damaged(move |dir| fs::remove_file(dir.join(name)).unwrap());
    assert_refused(&gone("tokenizer.json"), 5, "tokenizer.json is missing");
    assert_refused(&gone("model.safetensors"), 5, "holds no model.safetensors");
    let no_template = damaged(|dir| {
        fs::remove_file(dir.join("chat_template.jinja")).unwrap();
        fs::write(dir.join("tokenizer_config.json"), "{}").unwrap();
    });
    assert_refused(&no_template, 5, "has no chat template");
    assert_refused(
        &damaged(|dir| fs::write(dir.join("config.json"), "{").unwrap()),
        5,
        "config.json is not valid",
    );
    assert_refused(
        &damaged(|dir| fs::write(dir.join("tokenizer.json"), "{}").unwrap()),
        5,
        "not a valid tokenizer",
    );
    assert_refused(
        &damaged(|dir| edit_config(dir, "model_type", json!("llama"))),
        5,
        "model type \"llama\" is not supported",
    );
    assert_refused(
        &damaged(|dir| edit_config(dir, "hidden_size", json!(128))),
        5,
        "has shape [512, 64], the config says [512, 128]",
    );
    assert_refused(
        &damaged(|dir| edit_config(dir, "num_hidden_layers", json!(5))),
        5,
        "4 entries for 5 layers",
    );
    let truncated = damaged(|dir| {
        let file = fs::OpenOptions::new().write(true).open(dir.join("model.safetensors")).unwrap();
        file.set_len(300_000).unwrap();
    });
    assert_refused(&truncated, 5, "model.safetensors is damaged");
    let not_numbers = damaged(|dir| {
        let path = dir.join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        // The first tensor of the file is a small one in f32.
        let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        bytes[data..data + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        fs::write(&path, bytes).unwrap();
    });
    assert_refused(&not_numbers, 5, "not numbers");
}

/// What `models inspect` says of a model, as JSON.
fn inspected(args: &[&str]) -> Value {
    let output = finish(loquat(&[&["models", "inspect", "--json"], args].concat()), b"");
    assert_eq!((code(&output), stderr(&output)), (0, String::new()), "{args:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn inspect_says_what_a_model_is_and_what_it_takes() {
    let dense = inspected(&[model("dense-a").to_str().unwrap()]);
    assert_eq!(dense["layers"], json!({"linear_attention": 3, "full_attention": 1}));
    assert_eq!(
        (&dense["architecture"], &dense["vision"], &dense["experts"]),
        (&json!("qwen3_5_text"), &json!(false), &Value::Null)
    );
    assert_eq!((&dense["memory"]["fits"], &dense["memory"]["device"]), (&json!(true), &json!("cpu")));
    let sum = |object: &Value, key: &str| -> u64 {
        object.as_object().unwrap().values().map(|part| part[key].as_u64().unwrap()).sum()
    };
    for key in ["bytes", "parameters"] {
        assert_eq!(
            (sum(&dense["parts"], key), sum(&dense["formats"], key)),
            (dense[key].as_u64().unwrap(), dense[key].as_u64().unwrap())
        );
    }
    let tensors = dense["tensors"].as_array().unwrap();
    let bytes: u64 = tensors.iter().map(|tensor| tensor["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, dense["bytes"]);
    let terms: u64 =
        dense["memory"]["terms"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(terms, dense["memory"]["total"]);

    let gguf = model("gguf").with_file_name("dense-a-q8_0.gguf");
    let gguf = inspected(&["--model", gguf.to_str().unwrap()]);
    assert!(gguf["found"].as_str().unwrap().ends_with("GGUF, 1 file"), "{}", gguf["found"]);
    assert_eq!(gguf["parameters"], dense["parameters"]);
    assert!(gguf["bytes"].as_u64() < dense["bytes"].as_u64());
    let moe = inspected(&[model("moe").to_str().unwrap(), "--context", "64"]);
    assert!(
        moe["parts"]["experts"]["bytes"].as_u64() > Some(0) && moe["vision"] == true && moe["mtp"] == true
    );
    assert_eq!(moe["memory"]["context"], 64);
    // Without a name: the built-in model, as everywhere.
    assert_eq!(inspected(&[])["name"], "demo");
}

#[test]
fn inspect_writes_for_people_and_lists_tensors_when_asked() {
    let dense = model("dense-a");
    let dense = dense.to_str().unwrap();
    let text = |args: &[&str]| stdout(&finish(loquat(&[&["models", "inspect", dense], args].concat()), b""));
    let brief = text(&[]);
    for line in
        ["dense-a/model\n", "4: 3 linear attention, 1 full attention", "safetensors, 1 file", "It fits."]
    {
        assert!(brief.contains(line), "{line}: {brief}");
    }
    assert!(!brief.contains("model.layers.0."));
    let long = text(&["--tensors"]);
    let tensor =
        long.lines().find(|line| line.ends_with(" model.embed_tokens.weight")).expect("it is listed");
    assert!(tensor.contains("BF16 ") && tensor.contains(" [512, 64] "), "{tensor}");
    assert!(long.starts_with(brief.split("\nmemory").next().unwrap()));
}

#[test]
fn inspect_refuses_what_loading_would_and_cleans_what_it_prints() {
    let inspect = |path: &str| finish(loquat(&["models", "inspect", path]), b"");
    assert_refused(&inspect("/nowhere"), 5, "the folder doesn't exist");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert_refused(&inspect(path), 5, "no config.json");
    fs::copy(model("dense-a").join("config.json"), dir.path().join("config.json")).unwrap();
    assert_refused(&inspect(path), 5, "holds no model.safetensors");
    let write = |header: Value, bytes: usize| {
        let header = header.to_string();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.resize(file.len() + bytes, 0);
        fs::write(dir.path().join("model.safetensors"), file).unwrap();
    };
    write(json!({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}), 0);
    assert_refused(&inspect(path), 5, "model.safetensors is damaged");
    write(json!({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}), 4);
    assert_refused(&inspect(path), 5, "model.embed_tokens.weight is missing");
    write(json!({"model.embed_tokens.weight": {"dtype": "I64", "shape": [1, 1], "data_offsets": [0, 8]}}), 8);
    assert_refused(&inspect(path), 5, "stored as I64, which is not supported");

    let embedding = json!({"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]});
    let hostile = json!({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]});
    write(
        json!({"model.embed_tokens.weight": embedding, "\u{1b}]52;c;eA==\u{7}new\nline\u{9b}2J": hostile}),
        8,
    );
    for args in [["--tensors"], ["--json"]] {
        let output = finish(loquat(&["models", "inspect", path, args[0]]), b"");
        let text = stdout(&output);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(
            text.contains("new line") && !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text:?}"
        );
    }
}

/// Arguments for a model that needs more memory than any machine has.
fn with_giant(args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(model("dense-a")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    for (key, value) in [
        ("max_position_embeddings", 1 << 24),
        ("num_attention_heads", 1024),
        ("num_key_value_heads", 1024),
        ("head_dim", 4096),
    ] {
        edit_config(dir.path(), key, json!(value));
    }
    let folder = dir.path().to_str().unwrap();
    run(&[args, &["--context", "16777216", "--model", folder]].concat(), b"")
}

#[test]
fn a_model_that_does_not_fit_is_refused_before_it_is_loaded_unless_forced() {
    let refused = with_giant(&["run", "hi"]);
    assert_refused(&refused, 6, "with a context of 16777216 tokens the model needs ");
    let said = stderr(&refused);
    assert!(said.contains("KV cache ") && said.contains(" are available (weights "), "{said}");
    assert!(said.contains("--force"), "{said}");
    // Loading goes on to what else is wrong with it.
    assert_refused(&with_giant(&["run", "hi", "--force"]), 5, "has shape");
    // A toy in all of its context fits everywhere, and nothing is said about it.
    let fits = run(&brief(&["run", "hi", "--context", "16777216"]), b"");
    assert_eq!((code(&fits), stderr(&fits).contains("memory")), (0, false));
}

#[test]
fn input_that_cannot_be_answered_is_refused_with_one_line() {
    assert_refused(&run(&["run"], b"\xff\xfe"), 2, "standard input is not valid UTF-8");
    assert_refused(&run(&["run"], b"  \n"), 2, "there is no prompt");
    assert_refused(&run(&["run", "hi", "--temperature", "-1"], b""), 2, "temperature");
    let long = "word ".repeat(3000);
    let refused = run(&["run", "--context", "256", &long], b"");
    assert_refused(&refused, 2, "the context holds 256");
    assert!(stderr(&refused).contains("the prompt has "));
    assert_refused(&run(&["batch", "/nowhere.txt"], b""), 2, "cannot open /nowhere.txt");
    assert_refused(&run(&["chat"], b""), 2, "a chat needs a terminal");
}

#[test]
fn a_picture_that_is_not_there_is_told_before_the_model_is_loaded() {
    let args = ["run", "-i", "/nowhere/a.png", "what is it?", "--model", "/nowhere"];
    assert_refused(&run(&args, b""), 2, "/nowhere/a.png doesn't exist");
    assert_refused(&run(&["run", "--clip", "/nowhere/a.gif", "x"], b""), 2, "/nowhere/a.gif doesn't exist");
    let json = run(&[&args[..], &["--json"]].concat(), b"");
    let record: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!((code(&json), record["error"]["code"].as_str()), (2, Some("image_missing")));
}

#[test]
fn a_picture_on_standard_input_needs_its_prompt_as_an_argument() {
    let picture = b"\x89PNG\r\n\x1a\n";
    assert_refused(&run(&["run", "-i", "-"], picture), 2, "give the prompt as an argument");
    assert_refused(&run(&["run", "-i", "-", "-i", "-", "x"], picture), 2, "only one picture");
    assert_refused(&run(&["run", "-i", "-", "x"], b""), 2, "no picture on standard input");
    // These bytes are no text, and nobody takes them for a prompt.
    assert_eq!(code(&run(&["run", "-i", "-", "x"], picture)), 2);
}

/// Runs with the toy model that sees.
fn run_seeing(args: &[&str], stdin: &[u8]) -> Output {
    let vision = model("vision");
    run(&[args, &BRIEF, &["--model", vision.to_str().unwrap()]].concat(), stdin)
}

fn photo() -> PathBuf {
    model("vision").join("../images/photo.jpg")
}

#[test]
fn run_looks_at_pictures_from_files_and_from_standard_input() {
    let photo = photo();
    let path = photo.to_str().unwrap();
    let output = run_seeing(&["run", "-i", path, "-i", path, "what changed?", "--json"], b"");
    let two: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let output = run_seeing(&["run", "-i", path, "what is it?", "--json"], b"");
    let one: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let tokens = |record: &Value| record["usage"]["image"].as_u64().unwrap();
    assert!(tokens(&one) > 0);
    assert_eq!(tokens(&two), 2 * tokens(&one));
    let piped = run_seeing(&["run", "-i", "-", "what is it?", "--json"], &fs::read(&photo).unwrap());
    let piped: Value = serde_json::from_str(&stdout(&piped)).unwrap();
    assert_eq!((&piped["text"], &piped["usage"]), (&one["text"], &one["usage"]));
    let text = run_seeing(&["run", "-i", path, "--json"], b"what is it?");
    let text: Value = serde_json::from_str(&stdout(&text)).unwrap();
    assert_eq!(text["text"], one["text"], "the prompt may be on standard input when no picture is");
    let blind = run(&brief(&["run", "-i", path, "x"]), b"");
    assert_eq!((code(&blind), stderr(&blind).lines().count()), (2, 1), "{}", stderr(&blind));
    let broken = run_seeing(&["run", "-i", "-", "x", "--json"], b"not a picture");
    let broken: Value = serde_json::from_str(&stdout(&broken)).unwrap();
    assert_eq!(broken["error"]["code"], "image_unreadable");
}

#[test]
fn pictures_of_a_batch_begin_beside_its_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("pics")).unwrap();
    fs::copy(photo(), dir.path().join("pics/a b.jpg")).unwrap();
    fs::write(dir.path().join("broken.png"), "x").unwrap();
    let questions = dir.path().join("q.jsonl");
    let content = r#"{"prompt":"p","images":["pics/a b.jpg"]}
{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"pics/a b.jpg","detail":"low"}},{"type":"text","text":"p"}]}]}
{"prompt":"p","images":["gone.jpg"]}
{"prompt":"p","images":["pics/a b.jpg","broken.png"]}
{"prompt":"p"}
"#;
    fs::write(&questions, content).unwrap();
    let output = run_seeing(&["batch", questions.to_str().unwrap()], b"");
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    assert!(lines[0]["usage"]["image"].as_u64().unwrap() > 0, "{}", lines[0]);
    assert_eq!(lines[1]["text"], lines[0]["text"]);
    assert_eq!(lines[2]["error"]["code"], "image_missing");
    assert!(lines[2]["error"]["message"].as_str().unwrap().contains("gone.jpg"));
    assert_eq!(lines[3]["error"]["code"], "image_unreadable");
    assert_eq!(lines[4]["usage"]["image"], 0);
}

#[test]
fn pictures_of_a_batch_are_local_files_or_part_of_the_record() {
    let input = br#"{"prompt":"a","images":["https://example.org/a.png"]}
{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,?"}}]}]}
{"prompt":"b","images":[7]}
"#;
    let output = run(&brief(&["batch"]), input);
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let says = ["not fetched from the network", "no valid base64", "not a list of file names"];
    for (line, says) in lines.iter().zip(says) {
        assert_eq!(line["error"]["code"], "bad_record");
        assert!(line["error"]["message"].as_str().unwrap().contains(says), "{line}");
    }
    assert_eq!((code(&output), lines.len()), (4, 3));
}

#[test]
fn wrong_options_are_usage_errors() {
    for args in [
        vec!["--device", "tpu", "run", "x"],
        vec!["run", "--nope"],
        vec!["--images", "braille", "run", "x"],
        vec!["--detail", "0", "run", "x"],
        vec!["run", "--max-tokens", "0", "x"],
        vec!["run", "--context", "1", "x"],
        vec!["frobnicate", "x"],
    ] {
        let output = run(&args, b"");
        assert_eq!(code(&output), 2, "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

#[test]
fn models_with_experts_answer_with_drafts_pictures_and_in_batches() {
    let picture = model("vision").join("../images/square.png");
    let picture = picture.to_str().unwrap();
    let record = |case: &str, more: &[&str]| -> Value {
        let path = model(case);
        let args = [&["--model", path.to_str().unwrap(), "run", "hello", "--json"], more].concat();
        let output = run(&brief(&args), b"");
        assert_eq!(code(&output), 0, "{case} {more:?}: {}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    for more in [vec![], vec!["-i", picture]] {
        let plain = record("moe", &[&more[..], &["--mtp", "off"]].concat());
        let drafted = record("moe", &[&more[..], &["--mtp", "3"]].concat());
        assert_eq!(plain["usage"]["completion"], 12);
        assert_eq!(plain["usage"]["image"].as_u64() > Some(0), !more.is_empty());
        assert_eq!(plain["text"], drafted["text"]);
        assert!(drafted["spec"]["drafted"].as_u64() > Some(0));
    }
    let path = model("next");
    let alone = record("next", &[]);
    let output = run(&brief(&["--model", path.to_str().unwrap(), "batch"]), b"{\"prompt\":\"hello\"}\n");
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&answer["text"], &answer["status"]), (&alone["text"], &json!("length")));
}

#[test]
fn a_signal_ends_a_run_with_its_code() {
    for (signal, expected) in [("INT", 130), ("TERM", 143)] {
        let mut child = loquat(&["run", "hi", "--max-tokens", "4000", "--think", "off", "--model"])
            .arg(model("dense-a"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The first byte of the answer shows that it runs.
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let killed =
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(expected));
    }
}

#[test]
fn dev_forward_writes_what_the_reference_computed() {
    let dir = tempfile::tempdir().unwrap();
    let golden = fs::read(model("dense-a").join("../golden/prompt_65.safetensors")).unwrap();
    let golden = safetensors::SafeTensors::deserialize(&golden).unwrap();
    let ints = |data: &[u8]| -> Vec<i64> {
        data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let floats = |data: &[u8]| -> Vec<f32> {
        data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let ids = ints(golden.tensor("input_ids").unwrap().data());
    let cases = [
        json!({"name": "whole", "ids": ids, "greedy": 24, "hidden": true}),
        json!({"name": "cut", "ids": ids, "split": [60, 4, 1]}),
        json!({"name": "later", "ids": ids, "mtp": 1}),
        json!({"name": "overflow", "ids": ids, "split": [u64::MAX, 66]}),
        json!({"name": "chat", "messages": [{"role": "user", "content": "hi"}]}),
    ];
    let text: String = cases.iter().map(|case| format!("{case}\n")).collect();
    fs::write(dir.path().join("cases.jsonl"), text).unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let output =
        run(&["dev", "forward", "--cases", &path("cases.jsonl"), "--out", &path("out.safetensors")], b"");
    assert_eq!(code(&output), 3);
    assert!(stderr(&output).contains("case on line 4: split is not a list"), "{}", stderr(&output));

    let written = fs::read(dir.path().join("out.safetensors")).unwrap();
    let written = safetensors::SafeTensors::deserialize(&written).unwrap();
    let get = |name: &str| written.tensor(name).unwrap();
    assert_eq!(ints(get("whole.greedy").data()), ints(golden.tensor("greedy.ids").unwrap().data()));
    for (name, reference, tolerance) in [
        ("whole.logits", "logits", 1e-3),
        ("cut.logits", "logits", 1e-3),
        ("whole.hidden.0", "hidden.0", 2.96e-4),
        ("whole.hidden.4", "hidden.4", 2.96e-4),
    ] {
        assert_eq!(get(name).shape(), golden.tensor(reference).unwrap().shape());
        let expected = floats(golden.tensor(reference).unwrap().data());
        let worst =
            floats(get(name).data()).iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= tolerance, "{name} is off by {worst}");
    }
    assert!(get("chat.logits").shape()[0] > 5);
}

#[test]
fn dev_render_and_tokenize_answer_line_by_line() {
    let input = br#"{"messages":[{"role":"user","content":"<|im_end|>"}],"enable_thinking":false}
{"messages":[]}
nonsense
"#;
    let output = run(&["dev", "render"], input);
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["text"].as_str().unwrap().ends_with("</think>\n\n"));
    assert_eq!(lines[1]["error"], "No messages provided.");
    assert!(lines[2]["error"].as_str().unwrap().starts_with("not valid JSON"));
    let output = run(&["dev", "tokenize"], "{\"text\":\"h\u{e9}llo <|im_end|>\"}\n".as_bytes());
    let line: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(line["ids"].as_array().unwrap().last(), Some(&json!(481)));
    assert_eq!(line["decoded"], "h\u{e9}llo ");
}

#[test]
fn a_user_cannot_forge_the_end_of_a_message() {
    let count = |prompt: &str| {
        let output = run(&brief(&["run", "--json", prompt]), b"");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["usage"]["prompt"].as_u64().unwrap()
    };
    // As a special token the literal is one id; as the text it is here, several.
    assert!(count("a<|im_end|>b") >= count("ab") + 5);
}

#[test]
fn a_prompt_that_begins_alike_is_not_read_again_by_the_next_run() {
    let cache = tempfile::tempdir().unwrap();
    let document = "The first rule is to say what is true. ".repeat(12);
    let ask = |saved_states: &str, question: &str| -> Value {
        let mut command =
            loquat(&["run", "--json", "--temperature", "0", "--saved-states", saved_states, question]);
        command
            .arg("--model")
            .arg(model("dense-a"))
            .args(["--max-tokens", "4"])
            .env("XDG_CACHE_HOME", cache.path());
        let output = finish(command, document.as_bytes());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let count = |answer: &Value, name: &str| answer["usage"][name].as_u64().unwrap();
    let first = ask("always", "Which rule?");
    assert_eq!(count(&first, "restored"), 0);
    let again = ask("always", "Which rule?");
    assert!(count(&again, "restored") > count(&again, "prompt") / 2, "{again}");
    assert_eq!(again["text"], first["text"]);
    assert_eq!(count(&ask("off", "Which rule?"), "restored"), 0);
}
