//! The choice of models in a real terminal, against a Hub on this machine.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::XTERM;
use super::terminal::Terminal;
use crate::support::{FakeHub, TOKEN, copy_repo, noise, write_repo};

const PROGRAM: &str = env!("CARGO_BIN_EXE_loquat");

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo/model")
}

/// A person's empty home.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn start(&self, fake: &FakeHub, arguments: &[&str]) -> Terminal {
        let home = self.0.path().to_str().unwrap();
        let [cache, hub] = ["cache", "hub"].map(|name| format!("{home}/{name}"));
        let environment = [
            ("HOME", home),
            ("XDG_CACHE_HOME", &cache),
            ("HF_HUB_CACHE", &hub),
            ("HF_ENDPOINT", &fake.endpoint),
            ("HF_TOKEN", TOKEN),
            ("HF_HUB_OFFLINE", ""),
            ("OLLAMA_MODELS", "/nowhere"),
        ];
        let arguments = [arguments, &["--images", "off"]].concat();
        Terminal::start_with(self.0.path(), XTERM, Path::new(PROGRAM), &arguments, &environment, 100, 30)
    }
}

#[test]
fn from_an_empty_home_to_the_first_answer_with_one_key() {
    let fake = FakeHub::start(&[], |root| {
        // What it is called on the Hub doesn't matter to what it is.
        copy_repo(&demo(), root, "Qwen/Qwen3.5-0.8B");
    });
    let home = Home::new();
    let mut terminal = home.start(&fake, &["--temperature", "0"]);
    terminal.wait_for_text("Welcome to Loquat");
    terminal.wait_for_text("of memory free");
    terminal.wait_for("the verdict", |screen| {
        let text = screen.contents();
        text.lines().any(|line| line.contains("› Qwen/Qwen3.5-0.8B") && line.contains("fits"))
    });
    terminal.send("\r");
    terminal.wait_for_text("Self-test: ");
    terminal.wait_for_text("The model works.");
    terminal.wait_for_text("Qwen/Qwen3.5-0.8B · CPU");
    terminal.send("How do I attach a picture?\r");
    terminal.wait_for_text("Assistant");
    terminal.wait_for_text("tok/s");
    terminal.send("\x04");
    assert_eq!(terminal.wait_for_exit(), 0);
    terminal.assert_given_back();
    assert!(!terminal.has_written(TOKEN));
    fake.assert_discreet();

    // The next start begins with it and downloads nothing.
    fake.reset();
    let terminal = home.start(&fake, &[]);
    terminal.wait_for_text("Qwen/Qwen3.5-0.8B · CPU");
    terminal.send("/model\r");
    terminal.wait_for_text("› Qwen/Qwen3.5-0.8B");
    terminal.wait_for_text("here, 0 B to download");
    assert!(fake.log().iter().all(|request| request["route"] != "cdn"));
}

#[test]
fn whoever_types_or_presses_escape_talks_to_the_demo_model() {
    let fake = FakeHub::start(&[], |_| {});
    let home = Home::new();
    let terminal = home.start(&fake, &["--temperature", "0"]);
    terminal.wait_for_text("Welcome to Loquat");
    terminal.send("How do I attach a picture?");
    terminal.wait_for("the chat", |screen| {
        let text = screen.contents();
        !text.contains("Welcome") && text.contains("How do I attach a picture?")
    });
    terminal.send("\r");
    terminal.wait_for_text("tok/s");

    let terminal = home.start(&fake, &[]);
    terminal.wait_for_text("Welcome to Loquat");
    terminal.send("\x1b");
    terminal.wait_for("the chat", |screen| !screen.contents().contains("Welcome"));
    assert!(fake.log().iter().all(|request| request["route"] != "cdn"));
}

#[test]
fn a_download_is_paused_goes_on_in_the_background_and_is_cancelled() {
    let fake = FakeHub::start(&["--slow", "300000"], |root| {
        write_repo(root, "fake/big", &[("model.safetensors", noise(40 << 20, 7))]);
    });
    let home = Home::new();
    let terminal = home.start(&fake, &["--model", "demo"]);
    terminal.wait_for_text("ready");
    terminal.send("/model fake/big\r");
    terminal.wait_for_text("› fake/big");
    terminal.send("\r");
    terminal.wait_for_text("downloading fake/big");
    terminal.wait_for_text(" of 40.0 MiB");
    terminal.send("\r");
    terminal.wait_for_text("paused: fake/big");
    terminal.send("\r");
    terminal.wait_for_text("downloading fake/big");
    terminal.send("\x1b");
    terminal.wait_for("the status line", |screen| {
        let text = screen.contents();
        text.contains("downloading fake/big") && text.contains("· /model") && !text.contains("Models")
    });
    terminal.send("/model fake/big\r");
    terminal.wait_for_text("Del cancels");
    terminal.send("\x1b[3~");
    terminal.wait_for_text("Download cancelled");
    terminal.wait_for("no download", |screen| !screen.contents().contains("downloading fake/big"));
}
