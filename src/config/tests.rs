//! Files, their order, and their mistakes.

use std::fs;
use std::path::Path;

use clap::Parser;

use super::edit::{TEMPLATE, set, write};
use super::files::check_text;
use super::*;

fn error_of(name: &str, text: &str) -> String {
    check_text(Path::new(name), text).unwrap_err().to_string()
}

/// The commented lines of the template as settings.
fn uncommented() -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) && rest.contains(" = ") => {
            rest.to_owned()
        }
        _ => line.to_owned(),
    };
    TEMPLATE.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_template_has_every_setting_and_sets_none() {
    check_text(Path::new("config.toml"), TEMPLATE).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("all.toml");
    fs::write(&path, uncommented()).unwrap();
    let all = Config::load(Some(&path), dir.path()).unwrap();
    for key in &KEYS {
        assert!(all.get(key.name).is_some(), "config/default.toml doesn't have {}", key.name);
    }
}

#[test]
fn mistakes_are_told_with_a_way_out() {
    for (text, says) in [
        ("temprature = 1", "there is no setting temprature"),
        ("[sampling]\ntemprature = 1", "did you mean sampling.temperature?"),
        ("[ui]\nthemes = \"night\"", "did you mean ui.theme?"),
        ("mtp = 9", "mtp can't be \"9\": expected off, auto or a number up to 8"),
        ("context = 3", "at least 16"),
        ("a\nb = [", "config.toml, line 1"),
        ("[sampling]\ntop_p = true", "expected a number"),
        ("model = \"\"", "expected some text"),
    ] {
        let error = error_of("config.toml", text);
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn a_folder_may_set_harmless_things_only() {
    check_text(Path::new(".loquat.toml"), "think = false\n[ui]\ntheme = \"paper\"\n[sampling]\nseed = 3")
        .unwrap();
    for text in [
        "model = \"/evil\"",
        "system = \"obey\"",
        "[history]\nsave = false",
        "[ui]\ntheme = \"../evil.toml\"",
    ] {
        assert!(error_of(".loquat.toml", text).contains("a folder may not set"), "{text}");
    }
}

#[test]
fn flags_come_before_files_and_one_file_before_another() {
    let dir = tempfile::tempdir().unwrap();
    let explicit = dir.path().join("mine.toml");
    fs::write(&explicit, "max_tokens = 5\nsystem = \"brief\"\n[history]\nsave = false\n").unwrap();
    fs::write(dir.path().join(".loquat.toml"), "max_tokens = 9\nthink = true\n[sampling]\ntop_k = 3\n")
        .unwrap();
    let config = Config::load(Some(&explicit), dir.path()).unwrap();
    let mut cli = Cli::parse_from(["loquat", "--system", "long"]);
    fill(&mut cli, &config).unwrap();
    assert_eq!(cli.turn.system.as_deref(), Some("long"));
    assert_eq!(cli.turn.max_tokens, Some(5));
    assert_eq!(cli.turn.think, Some(Think::On));
    assert_eq!(cli.turn.top_k, Some(3));
    assert!(cli.history.no_history);
    assert!(matches!(config.get("max_tokens"), Some((_, "5", Origin::File(path))) if path == explicit));
    let missing = Config::load(Some(Path::new("/nowhere.toml")), dir.path()).unwrap_err();
    assert!(missing.to_string().contains("/nowhere.toml can't be read"));
}

#[test]
fn a_change_keeps_comments_and_a_bad_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/config.toml");
    set(&path, "ui.theme", "night").unwrap();
    set(&path, "sampling.temperature", "0.5").unwrap();
    set(&path, "think", "false").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("theme = \"night\"")
            && text.contains("temperature = 0.5")
            && text.contains("think = false")
    );
    for line in TEMPLATE.lines() {
        assert!(text.contains(line), "{line} is gone");
    }
    write(&path, "# mine\nmtp = 3 # three\n").unwrap();
    set(&path, "mtp", "auto").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "# mine\nmtp = \"auto\" # three\n");
    for (name, value) in [("mtp", "99"), ("nothing", "1"), ("ui", "x")] {
        assert!(set(&path, name, value).is_err(), "{name}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "# mine\nmtp = \"auto\" # three\n");
}
