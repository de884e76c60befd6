//! What is offered while something is typed: files behind an `@`, commands behind a `/`, and what a command takes.

use std::sync::Arc;

use super::commands::{self, COMMANDS};
use super::fuzzy;

/// Files that are offered at once.
const MAX_FILES: usize = 8;

/// The files to choose from, looked for when an `@` is typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Files {
    #[default]
    Unknown,
    Searching,
    Found(Arc<Vec<String>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Command,
    /// The first argument of a command.
    Argument,
}

/// What is offered for the word at the caret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    pub kind: Kind,
    /// What is typed of it.
    pub word: String,
    pub matches: Vec<Offer>,
    pub selected: usize,
    /// The person moved the cursor: Enter means what it is on.
    pub is_chosen: bool,
    /// The files are still being looked for.
    pub searching: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// What takes the word's place.
    pub text: String,
    /// What is shown of it, if that is more.
    pub shown: String,
    pub help: String,
}

impl Offer {
    fn plain(text: &str, help: &str) -> Self {
        Self { text: text.to_owned(), shown: text.to_owned(), help: help.to_owned() }
    }
}

/// The best matches: in the file's name before in its folders, together before scattered, short before long.
pub fn files(files: &[String], word: &str) -> Vec<Offer> {
    let word = word.to_lowercase();
    let mut scored: Vec<(u32, usize, &String)> =
        files.iter().filter_map(|path| Some((rank(path, &word)?, path.len(), path))).collect();
    scored.sort();
    scored.into_iter().take(MAX_FILES).map(|(_, _, path)| Offer::plain(path, "")).collect()
}

/// Lower is better. A matcher that weighs letters prefers `cache.rs` to `cat.png` for `ca`; people mean names.
fn rank(path: &str, word: &str) -> Option<u32> {
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    if name.starts_with(word) {
        Some(0)
    } else if name.contains(word) {
        Some(1)
    } else if path.contains(word) {
        Some(2)
    } else if is_scattered_in(word, name) {
        Some(3)
    } else {
        is_scattered_in(word, &path).then_some(4)
    }
}

fn is_scattered_in(word: &str, text: &str) -> bool {
    let mut chars = text.chars();
    word.chars().all(|wanted| chars.any(|c| c == wanted))
}

/// Commands whose names begin so; without any, those in whose names the letters occur.
pub fn commands(typed: &str) -> Vec<Offer> {
    let mut found: Vec<&commands::Spec> =
        COMMANDS.iter().filter(|spec| spec.name.starts_with(typed)).collect();
    if found.is_empty() {
        found = fuzzy::ranked(typed, COMMANDS, |spec| spec.name);
    }
    let offer = |spec: &commands::Spec| Offer {
        text: spec.name.to_owned(),
        shown: format!("/{} {}", spec.name, spec.arguments).trim_end().to_owned(),
        help: spec.help.to_owned(),
    };
    found.into_iter().map(offer).collect()
}

/// What a command takes that begins so: words of the table, or names that only the chat knows.
pub fn arguments(command: &str, typed: &str, names: &[(String, String)]) -> Vec<Offer> {
    let Some(spec) = COMMANDS.iter().find(|spec| spec.name == command) else { return Vec::new() };
    let words = spec.arguments.trim_matches(['[', ']']).split(['|', ' ']);
    let is_word = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
    let words = if spec.arguments.contains('|') { words.filter(is_word).collect() } else { Vec::new() };
    let settings = if command == "set" { commands::SETTINGS } else { &[] };
    let fixed = words.into_iter().map(|word| Offer::plain(word, ""));
    let fixed = fixed.chain(settings.iter().map(|(name, help)| Offer::plain(name, help)));
    let named = names.iter().map(|(name, help)| Offer::plain(name, help));
    fixed.chain(named).filter(|offer| offer.text.starts_with(typed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(offers: Vec<Offer>) -> Vec<String> {
        offers.into_iter().map(|offer| offer.text).collect()
    }

    #[test]
    fn the_best_file_comes_first() {
        let all = ["docs/cat.md", "a/b/c/chart-cat.png", "c/a/t/x.txt", "chair.png", "dog.png"];
        let all: Vec<String> = all.map(str::to_owned).into();
        assert_eq!(texts(files(&all, "cat")), ["docs/cat.md", "a/b/c/chart-cat.png", "c/a/t/x.txt"]);
        assert_eq!(texts(files(&all, "CHPNG")), ["chair.png", "a/b/c/chart-cat.png"]);
        assert_eq!(texts(files(&all, "t/x")), ["c/a/t/x.txt"]);
        assert_eq!(files(&all, "").len(), 5);
        assert!(files(&all, "zzz").is_empty());
    }

    #[test]
    fn a_command_offers_what_it_takes() {
        assert_eq!(texts(arguments("detail", "", &[])), ["low", "auto", "high"]);
        assert_eq!(texts(arguments("detail", "h", &[])), ["high"]);
        assert_eq!(texts(arguments("set", "top", &[])), ["top_k", "top_p"]);
        assert!(arguments("rename", "", &[]).is_empty());
        let themes = [("night".to_owned(), String::new()), ("paper".to_owned(), String::new())];
        assert_eq!(texts(arguments("theme", "p", &themes)), ["paper"]);
        assert_eq!(texts(commands("the")), ["theme"]);
        assert_eq!(texts(commands("clratt")), ["clear-attachments"]);
    }
}
