//! Syntax highlighting by meaning: a keyword is a keyword in every theme, with sixteen colours as well as with none.
//!
//! Grammars take a while to load and to run, so this happens beside the loop; until then code is plain.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use syntect::parsing::{ParseState, ScopeStack, SyntaxReference, SyntaxSet};

use crate::tui::theme::Tone;
use crate::tui::transcript::Row;

/// More than this is data, not code to read.
const MAX_BYTES: usize = 256 << 10;
/// A longer line isn't code that somebody wrote; grammars may take minutes for it.
const MAX_LINE: usize = 2000;

/// The meanings of scopes, the first that fits; more special ones before more general ones.
const SCOPES: [(&str, Tone); 23] = [
    ("comment", Tone::Comment),
    ("string.regexp", Tone::Number),
    ("constant.character.escape", Tone::Number),
    ("string", Tone::Literal),
    ("constant.numeric", Tone::Number),
    ("constant.language", Tone::Number),
    ("constant", Tone::Number),
    ("entity.name.function", Tone::Function),
    ("support.function", Tone::Function),
    ("variable.function", Tone::Function),
    ("entity.name.type", Tone::Type),
    ("entity.name.class", Tone::Type),
    ("entity.name.struct", Tone::Type),
    ("entity.name.enum", Tone::Type),
    ("entity.name.tag", Tone::Keyword),
    ("entity.other.attribute-name", Tone::Type),
    ("support.type", Tone::Type),
    ("support.class", Tone::Type),
    ("storage", Tone::Keyword),
    ("keyword.operator", Tone::CodeText),
    ("keyword", Tone::Keyword),
    ("markup.inserted", Tone::Literal),
    ("markup.deleted", Tone::Number),
];

/// Code blocks that were highlighted, and those that are being.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Highlights {
    /// By the hash of language and text; `None` while it is being done, or if there is nothing to highlight.
    blocks: HashMap<u64, Option<Arc<Vec<Row>>>>,
}

/// A code block to be highlighted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub language: String,
    pub code: String,
}

/// One that was: the lines of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Its first line with something in it.
    pub begins: String,
    key: u64,
    lines: Option<Arc<Vec<Row>>>,
}

impl Highlights {
    pub fn get(&self, language: &str, code: &str) -> Option<&[Row]> {
        Some(self.blocks.get(&key(language, code))?.as_ref()?.as_slice())
    }

    /// Notes that this block is being highlighted; false if it was noted before.
    pub fn ask(&mut self, block: &Block) -> bool {
        if block.language.is_empty() {
            return false;
        }
        match self.blocks.entry(key(&block.language, &block.code)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(None);
                true
            }
        }
    }

    pub fn fill(&mut self, done: Vec<Done>) {
        self.blocks.extend(done.into_iter().map(|done| (done.key, done.lines)));
    }
}

fn key(language: &str, code: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (language, code.trim_end()).hash(&mut hasher);
    hasher.finish()
}

/// Highlights blocks, however long that takes.
pub fn highlight(blocks: &[Block]) -> Vec<Done> {
    blocks
        .iter()
        .map(|block| Done {
            begins: block
                .code
                .lines()
                .map(str::trim)
                .find(|line| !line.is_empty())
                .unwrap_or_default()
                .to_owned(),
            key: key(&block.language, &block.code),
            lines: lines(&block.language, &block.code).map(Arc::new),
        })
        .collect()
}

/// Grammars of bat, several hundred languages.
static GRAMMARS: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

fn lines(language: &str, code: &str) -> Option<Vec<Row>> {
    if code.len() > MAX_BYTES || code.lines().any(|line| line.len() > MAX_LINE) {
        return None;
    }
    let grammar = grammar(language)?;
    let mut state = ParseState::new(grammar);
    let mut scopes = ScopeStack::new();
    let mut lines = Vec::new();
    let code = code.trim_end();
    for line in code.split('\n') {
        let with_end = format!("{line}\n");
        // A grammar that fails is as good as none.
        let changes = state.parse_line(&with_end, &GRAMMARS).ok()?;
        let mut row = Row::new();
        let mut start = 0;
        let mut push = |row: &mut Row, end: usize, scopes: &ScopeStack| {
            let end = end.min(line.len());
            if start < end {
                push_piece(row, tone(scopes), &line[start..end]);
            }
            start = start.max(end);
        };
        for (at, change) in changes {
            push(&mut row, at, &scopes);
            scopes.apply(&change).ok()?;
        }
        push(&mut row, line.len(), &scopes);
        lines.push(row);
    }
    Some(lines)
}

fn push_piece(row: &mut Row, tone: Tone, text: &str) {
    match row.last_mut() {
        Some((last, before)) if *last == tone => before.push_str(text),
        _ => row.push((tone, text.to_owned())),
    }
}

fn grammar(language: &str) -> Option<&'static SyntaxReference> {
    let language = match language.to_ascii_lowercase().as_str() {
        "" | "text" | "txt" | "plain" | "plaintext" => return None,
        "shell" | "console" | "zsh" | "sh-session" => "bash".to_owned(),
        "jsonc" | "json5" => "json".to_owned(),
        "c++" => "cpp".to_owned(),
        other => other.to_owned(),
    };
    GRAMMARS.find_syntax_by_token(&language)
}

/// The innermost scope that means something.
fn tone(scopes: &ScopeStack) -> Tone {
    for scope in scopes.as_slice().iter().rev() {
        let name = scope.build_string();
        let meant = SCOPES.iter().find(|(prefix, _)| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        if let Some((_, tone)) = meant {
            return *tone;
        }
    }
    Tone::CodeText
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toned(language: &str, code: &str) -> Vec<(Tone, String)> {
        lines(language, code).unwrap().concat()
    }

    #[test]
    fn words_have_their_meanings() {
        let rust = toned("rust", "// note\nfn main() { let x = \"hi\"; 42 }");
        for expected in [
            (Tone::Comment, "// note"),
            (Tone::Function, "main"),
            (Tone::Literal, "\"hi\""),
            (Tone::Number, "42"),
        ] {
            assert!(rust.contains(&(expected.0, expected.1.to_owned())), "{expected:?} in {rust:?}");
        }
        assert!(rust.iter().any(|(tone, text)| *tone == Tone::Keyword && text.contains("fn")), "{rust:?}");
        let python = toned("python", "def f(x):\n    return x + 1  # sum");
        assert!(python.contains(&(Tone::Function, "f".to_owned())), "{python:?}");
        assert!(toned("toml", "a = 1").len() > 1);
        assert!(toned("typescript", "const a: number = 1").len() > 1);
    }

    #[test]
    fn no_letter_is_lost() {
        let code = "def f():\n\n    '''漢字\n    '''\n\treturn \"é\" # 👩‍👧";
        let text: Vec<String> = lines("python", code)
            .unwrap()
            .iter()
            .map(|line| line.iter().map(|(_, text)| text.as_str()).collect())
            .collect();
        assert_eq!(text.join("\n"), code);
    }

    #[test]
    fn what_is_no_language_is_plain() {
        for language in ["", "text", "no-such-language", "\u{1b}[31m"] {
            assert_eq!(lines(language, "x = 1"), None, "{language}");
        }
        assert_eq!(lines("rust", &"x".repeat(MAX_LINE + 1)), None);
    }

    #[test]
    fn a_block_is_asked_for_once() {
        let block = Block { language: "rust".into(), code: "fn f() {}\n".into() };
        let mut highlights = Highlights::default();
        assert!(highlights.ask(&block));
        assert!(!highlights.ask(&block));
        highlights.fill(highlight(std::slice::from_ref(&block)));
        assert!(highlights.get("rust", "fn f() {}\n").is_some());
        assert!(!highlights.ask(&block));
        assert!(highlights.get("rust", "fn f() {}\n").is_some(), "asking again forgets nothing");
        assert!(!highlights.ask(&Block { language: String::new(), code: "x".into() }));
    }
}
