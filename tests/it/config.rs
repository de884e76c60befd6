//! Settings from files, and themes, with the real program.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::pty::terminal::{Answers, Terminal};

fn loquat(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loquat"));
    command.args(arguments).current_dir(folder).env("LOQUAT_CONFIG_DIR", folder.join("config"));
    for name in [
        "LOQUAT_MODEL",
        "LOQUAT_DEVICE",
        "LOQUAT_CONTEXT",
        "LOQUAT_THEME",
        "LOQUAT_HISTORY",
        "LOQUAT_IMAGES",
        "HF_HUB_CACHE",
    ] {
        command.env_remove(name);
    }
    command.env("LOQUAT_SAVED_STATES", "off").env("LOQUAT_DATA_DIR", folder).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_setting_is_changed_shown_and_holds() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| loquat(dir.path(), arguments);
    let path = text(&run(&["config", "path"]));
    assert_eq!(Path::new(path.trim()), dir.path().join("config/config.toml"));
    assert_eq!(text(&run(&["config", "show"])), "saved_states = \"off\"\n", "only what is set is shown");
    text(&run(&["config", "set", "max_tokens", "3"]));
    text(&run(&["config", "set", "ui.theme", "paper"]));
    assert_eq!(text(&run(&["config", "get", "max_tokens"])), "3\n");
    let shown = text(&run(&["config", "show", "--origin"]));
    text(&run(&["config", "set", "think", "false"]));
    assert!(text(&run(&["config", "show"])).contains("think = false\n"));
    assert!(shown.contains("max_tokens = 3") && shown.contains("config.toml"), "{shown}");
    assert!(shown.contains("saved_states = \"off\"") && shown.contains("# LOQUAT_SAVED_STATES"), "{shown}");
    assert!(shown.contains("sampling.seed is not set") && shown.contains("# default"), "{shown}");
    assert!(fs::read_to_string(path.trim()).unwrap().contains("# Settings of Loquat."));

    // Three tokens, and more with a flag.
    let cut = text(&run(&["run", "--temperature", "0", "--json", "What is Loquat?"]));
    assert!(cut.contains("\"completion\":3"), "{cut}");
    let more = text(&run(&["run", "--temperature", "0", "--json", "--max-tokens", "5", "What is Loquat?"]));
    assert!(more.contains("\"completion\":5"), "{more}");
}

#[test]
fn mistakes_in_files_stop_everything_but_their_mending() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".loquat.toml"), "model = \"/somewhere\"\n").unwrap();
    let refused = refusal(&loquat(dir.path(), &["run", "hi"]));
    assert!(refused.contains("a folder may not set model"), "{refused}");
    fs::write(dir.path().join(".loquat.toml"), "[sampling]\ntemprature = 1\n").unwrap();
    let refused = refusal(&loquat(dir.path(), &["run", "hi"]));
    assert!(refused.contains("did you mean sampling.temperature?"), "{refused}");
    assert!(refusal(&loquat(dir.path(), &["config", "check"])).contains("temprature"));
    let unknown = refusal(&loquat(dir.path(), &["config", "set", "ui.colour", "red"]));
    assert!(unknown.contains("there is no setting ui.colour"), "{unknown}");
    fs::remove_file(dir.path().join(".loquat.toml")).unwrap();
    text(&loquat(dir.path(), &["config", "check"]));
}

#[test]
#[cfg(unix)]
fn the_editor_gets_a_file_with_everything_in_it_and_mistakes_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let edit = |editor: &str| {
        Command::new(env!("CARGO_BIN_EXE_loquat"))
            .args(["config", "edit"])
            .env("LOQUAT_CONFIG_DIR", dir.path())
            .env_remove("VISUAL")
            .env("EDITOR", editor)
            .output()
            .unwrap()
    };
    text(&edit("grep -q repetition_penalty"));
    let script = dir.path().join("bad.sh");
    fs::write(&script, "#!/bin/sh\necho 'mtp = 99' >> \"$1\"\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert!(refusal(&edit(script.to_str().unwrap())).contains("ui.mtp"));
    assert!(refusal(&edit("/nowhere/editor")).contains("can't be started"));
}

#[test]
fn themes_are_listed_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let list = text(&loquat(dir.path(), &["theme", "list"]));
    assert_eq!(list, "ansi-dark\nansi-light\nnight\npaper\nhigh-contrast\n");
    let check = text(&loquat(dir.path(), &["theme", "check"]));
    assert!(check.contains("  ok  text") && !check.contains("LOW"), "{check}");
    fs::create_dir_all(dir.path().join("config/themes")).unwrap();
    let mine = "inherits = \"night\"\n[tokens]\ntext = { fg = \"#202020\" }\n";
    fs::write(dir.path().join("config/themes/mine.toml"), mine).unwrap();
    let output = loquat(dir.path(), &["theme", "check", "mine"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("LOW text"));
    assert!(refusal(&loquat(dir.path(), &["theme", "check", "nihgt"])).contains("did you mean night?"));
}

const DARK: Answers = &[("\x1b[c", "\x1b]11;rgb:1616/1919/1d1d\x1b\\\x1b[?62;22c")];
const LIGHT: Answers = &[("\x1b[c", "\x1b]11;rgb:fbfb/f8f8/f1f1\x1b\\\x1b[?62;22c")];
const SILENT: Answers = &[("\x1b[c", "\x1b[?62;22c")];

#[test]
fn colours_fit_the_background_that_the_terminal_says_it_has() {
    // The brand's colour: of night, of paper, and the terminal's own yellow.
    for (answers, colour) in [(DARK, "38;5;215;"), (LIGHT, "38;5;94;"), (SILENT, "38;5;3;")] {
        let program = Path::new(env!("CARGO_BIN_EXE_loquat"));
        let terminal = Terminal::start_answering(answers, program, &["--images", "off"], 80, 24);
        terminal.wait_for_text("loquat");
        terminal.wait_for_bytes(colour);
    }
}

#[test]
fn a_theme_is_tried_out_and_left_again() {
    let program = Path::new(env!("CARGO_BIN_EXE_loquat"));
    let terminal = Terminal::start(program, &["--images", "off", "--theme", "night"], 80, 24);
    terminal.wait_for_text("ready");
    terminal.wait_for_bytes("38;5;215;");
    terminal.send("/theme\r");
    terminal.wait_for_text("Enter keeps it");
    terminal.send("paper");
    terminal.wait_for_bytes("38;5;94;");
    terminal.send("\r");
    terminal.wait_for_text("Theme paper");
}
