//! File names behind an `@`: which files fit what is typed, best first.

use std::sync::Arc;

/// Rows that are offered at once.
pub const MAX_MATCHES: usize = 8;

/// The files to choose from, looked for when an `@` is typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Files {
    #[default]
    Unknown,
    Searching,
    Found(Arc<Vec<String>>),
}

/// What is offered for the word at the caret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// What stands behind the `@`.
    pub word: String,
    pub matches: Vec<String>,
    pub selected: usize,
    /// The files are still being looked for.
    pub searching: bool,
}

/// The best matches: in the file's name before in its folders, together before scattered, short before long.
pub fn matches(files: &[String], word: &str) -> Vec<String> {
    let word = word.to_lowercase();
    let mut scored: Vec<(u32, usize, &String)> =
        files.iter().filter_map(|path| Some((rank(path, &word)?, path.len(), path))).collect();
    scored.sort();
    scored.into_iter().take(MAX_MATCHES).map(|(_, _, path)| path.clone()).collect()
}

/// Lower is better.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_match_comes_first() {
        let files = ["docs/cat.md", "a/b/c/chart-cat.png", "c/a/t/x.txt", "chair.png", "dog.png"];
        let files: Vec<String> = files.map(str::to_owned).into();
        assert_eq!(matches(&files, "cat"), ["docs/cat.md", "a/b/c/chart-cat.png", "c/a/t/x.txt"]);
        assert_eq!(matches(&files, "CHPNG"), ["chair.png", "a/b/c/chart-cat.png"]);
        assert_eq!(matches(&files, "t/x"), ["c/a/t/x.txt"]);
        assert_eq!(matches(&files, "").len(), 5);
        assert!(matches(&files, "zzz").is_empty());
    }
}
