//! The direction of dependencies, read from the sources: which module may name which.

use std::fs;
use std::path::{Path, PathBuf};

/// Each area of `src` with the areas it may use. `src/lib.rs` says why.
const ALLOWED: [(&str, &[&str]); 30] = [
    ("chat", &[]),
    ("msg", &["chat", "units"]),
    ("sanitize", &[]),
    ("paths", &[]),
    ("private", &[]),
    ("units", &[]),
    ("openai", &["chat", "msg"]),
    ("engine", &["chat", "msg", "private", "units"]),
    ("remote", &["chat", "engine", "msg", "openai"]),
    ("hub", &["sanitize", "units"]),
    ("catalog", &["engine", "hub", "msg", "paths", "sanitize", "units"]),
    ("session", &["catalog", "chat", "msg", "engine", "hub", "remote", "sanitize", "store", "units"]),
    ("store", &["chat", "msg", "private", "units"]),
    ("config", &["chat", "cli", "engine", "msg", "paths", "remote", "sanitize", "tui"]),
    ("themes", &["cli", "paths", "sanitize", "tui"]),
    ("history", &["chat", "cli", "msg", "sanitize", "store"]),
    ("settings", &["chat", "msg", "cli", "engine", "paths", "remote"]),
    ("cli", &["chat", "engine", "msg", "tui"]),
    ("signals", &[]),
    ("batch", &["chat", "msg", "cli", "openai", "sanitize", "session", "settings", "signals", "units"]),
    ("serve", &["batch", "chat", "cli", "msg", "openai", "session", "settings", "signals"]),
    ("tui", &["chat", "msg", "private", "sanitize", "session", "signals", "units"]),
    ("models", &["catalog", "cli", "engine", "hub", "sanitize", "units"]),
    (
        "doctor",
        &[
            "config",
            "engine",
            "hub",
            "installation",
            "paths",
            "sanitize",
            "settings",
            "store",
            "themes",
            "tui",
            "units",
        ],
    ),
    ("installation", &["cli", "config", "hub", "paths", "private", "sanitize", "units"]),
    ("logging", &["private", "sanitize"]),
    ("manual", &["cli"]),
    ("bench", &["cli", "engine", "msg", "sanitize", "units"]),
    ("dev", &["batch", "chat", "engine", "msg", "tui"]),
    ("lib", &[]),
];

/// Words that must not occur in an area: what its head says it knows nothing of.
const ABSENT: [(&str, &[&str]); 7] = [
    ("engine", &["tokio", "ratatui", "crossterm", "println!", "eprintln!"]),
    ("hub", &["ratatui", "crossterm", "println!", "eprintln!", "stdout", "stderr"]),
    ("store", &["tokio", "ratatui", "crossterm", "println!", "eprintln!"]),
    ("chat", &["tokio", "std::fs", "burn", "ratatui"]),
    ("engine/kernels", &["std::fs", "tokenizers", "serde_json"]),
    ("tui/update", &["std::fs", "Instant::now", "tokio", "execute!"]),
    ("tui/view", &["std::fs", "Instant::now", "tokio", "execute!"]),
];

fn sources() -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    files
        .into_iter()
        .filter(|path| !path.ends_with("tests.rs") && !path.ends_with("main.rs"))
        .map(|path| {
            let name = path.strip_prefix(&src).unwrap().with_extension("");
            let text = fs::read_to_string(&path).unwrap();
            // Comments may name what they like.
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            (name.to_str().unwrap().replace('\\', "/"), code.collect::<Vec<_>>().join("\n"))
        })
        .collect()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Areas that a source names as `crate::area`.
fn used_areas(code: &str) -> Vec<String> {
    let after = code.split("crate::").skip(1);
    after.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()).collect()
}

#[test]
fn each_area_uses_only_the_areas_below_it() {
    let mut seen = 0;
    for (file, code) in sources() {
        let area = file.split('/').next().unwrap();
        let (_, allowed) = ALLOWED
            .iter()
            .find(|(name, _)| *name == area)
            .unwrap_or_else(|| panic!("src/{file}.rs is in no area of this test"));
        for used in used_areas(&code) {
            assert!(
                used == area || allowed.contains(&used.as_str()),
                "src/{file}.rs uses crate::{used}, which {area} may not"
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "the search found only {seen} uses; is it still looking at the right places?");
}

#[test]
fn areas_do_not_know_what_their_heads_deny() {
    for (file, code) in sources() {
        for (area, words) in ABSENT {
            if file == area || file.starts_with(&format!("{area}/")) {
                for word in words {
                    assert!(!code.contains(word), "src/{file}.rs contains {word}");
                }
            }
        }
    }
}

#[test]
fn unsafe_code_is_only_where_the_map_says() {
    for (file, code) in sources() {
        let allowed = file.starts_with("engine/kernels/")
            || ["engine/weights", "engine/ram", "engine/prompt/child"].contains(&file.as_str());
        assert!(allowed || !code.contains("unsafe {"), "src/{file}.rs has unsafe code");
    }
}
