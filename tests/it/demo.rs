//! The built-in model, as somebody meets it who has downloaded nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use image::{Rgb, RgbImage};
use serde_json::{Value, json};

/// Runs the program with no model named, or the one that `args` name; greedy.
fn run(args: &[&str], stdin: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loquat"));
    command.args(args).args(["--temperature", "0"]);
    for name in ["LOQUAT_MODEL", "LOQUAT_CONTEXT", "LOQUAT_DEVICE", "LOQUAT_QUANT"] {
        command.env_remove(name);
    }
    command.env("LOQUAT_SAVED_STATES", "off").env("LOQUAT_CONFIG_DIR", "/nowhere").env("LOQUAT_LOG", "off");
    let input = tempfile::NamedTempFile::new().unwrap();
    fs::write(&input, stdin).unwrap();
    command.stdin(Stdio::from(input.reopen().unwrap())).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A white picture with one filled rectangle, at a place and of a size given in shares of the sides.
fn rectangle(path: &Path, (width, height): (u32, u32), colour: [u8; 3], [x, y, w, h]: [f32; 4]) {
    let inside = |at: u32, n: u32, from: f32, len: f32| {
        let at = at as f32 / n as f32;
        at >= from && at < from + len
    };
    let image = RgbImage::from_fn(width, height, |px, py| {
        match inside(px, width, x, w) && inside(py, height, y, h) {
            true => Rgb(colour),
            false => Rgb([250, 250, 250]),
        }
    });
    image.save(path).unwrap();
}

#[test]
fn the_first_command_answers_with_nothing_downloaded() {
    let output = run(&["run", "How do I attach a picture?"], "");
    let answer = stdout(&output);
    assert!(answer.contains("/image"), "{answer}");
    assert!(stderr(&output).contains("built-in demo model"), "{}", stderr(&output));
    assert!(stderr(&output).contains("--model DIR"), "{}", stderr(&output));
}

#[test]
fn who_asks_for_the_demo_model_is_not_told_about_it() {
    let output = run(&["run", "--model", "demo", "--json", "How do I attach a picture?"], "");
    assert!(!stderr(&output).contains("demo model"), "{}", stderr(&output));
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(json["model"], "demo");
    // It stops by itself.
    assert_eq!((&json["status"], &json["finish"]), (&json!("ok"), &json!("stop")));
}

#[test]
fn with_fewer_bits_it_still_knows_and_sees() {
    let dir = tempfile::tempdir().unwrap();
    let picture = dir.path().join("square.png");
    rectangle(&picture, (128, 128), [30, 60, 220], [0.3, 0.3, 0.4, 0.4]);
    for quant in ["q8", "q4"] {
        let told = run(&["run", "--quant", quant, "How do I attach a picture?"], "");
        assert!(stdout(&told).contains("/image"), "{quant}: {}", stdout(&told));
        assert!(stderr(&told).contains(&format!("quantised to {quant}")), "{}", stderr(&told));
        let picture = picture.to_str().unwrap();
        let seen = stdout(&run(&["run", "--quant", quant, "-i", picture, "What colour is the shape?"], ""));
        assert!(seen.contains("blue"), "{quant}: {seen}");
    }
    let output = run(&["run", "--quant", "q3", "hello"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("auto, none, q8 or q4"), "{}", stderr(&output));
}

#[test]
fn a_folder_called_demo_is_named_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_loquat"));
    fs::create_dir(dir.path().join("demo")).unwrap();
    let output = command
        .current_dir(dir.path())
        .args(["run", "--model", "./demo", "hello"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert!(stderr(&output).contains("no config.json"));
}

#[test]
fn a_batch_with_pictures_costs_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    rectangle(&dir.path().join("red.png"), (400, 300), [220, 30, 30], [0.3, 0.25, 0.38, 0.5]);
    let input = dir.path().join("in.jsonl");
    let record = |id: u32, images: Value| json!({"id": id, "prompt": "What colour is it?", "images": images});
    let lines =
        [record(1, json!(["red.png"])), record(2, json!(["missing.png"])), record(3, json!(["in.jsonl"]))];
    fs::write(&input, lines.map(|line| line.to_string()).join("\n")).unwrap();
    let output = run(&["batch", "--model", "demo", input.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(answers[0]["text"].as_str().unwrap().contains("red"), "{}", answers[0]);
    assert!(answers[0]["usage"]["image"].as_u64().unwrap() > 0, "{}", answers[0]);
    assert_eq!(answers[1]["error"]["code"], "image_missing");
    assert_eq!(answers[2]["error"]["code"], "image_unreadable");
    assert!(answers[2]["error"]["message"].as_str().unwrap().contains("not a picture"), "{}", answers[2]);
}
