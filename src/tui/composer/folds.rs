//! Big pastes folded away: each stands in the draft as one character that no font has, is drawn as a label, and is
//! sent in full. One character, so that the caret, deleting and undoing treat it as a whole.

use std::borrow::Cow;

/// More lines or characters than this are folded.
const MAX_LINES: usize = 15;
const MAX_CHARS: usize = 1500;

/// The first character of a plane for private use; what comes from outside loses those that could be meant.
const FIRST_MARK: char = '\u{F0000}';
const MAX_FOLDS: usize = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folds {
    /// Those that were deleted stay: undoing brings their mark back.
    texts: Vec<Folded>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Folded {
    label: String,
    text: String,
}

/// A text that would fill the draft.
pub fn is_big(text: &str) -> bool {
    text.lines().nth(MAX_LINES).is_some() || text.chars().nth(MAX_CHARS).is_some()
}

pub fn is_mark(c: char) -> bool {
    idx(c) < MAX_FOLDS
}

fn idx(c: char) -> usize {
    (u32::from(c)).checked_sub(u32::from(FIRST_MARK)).map_or(usize::MAX, |idx| idx as usize)
}

/// The text without characters that could stand for a fold.
pub fn without_marks(text: &str) -> Cow<'_, str> {
    if text.contains(is_mark) { text.replace(is_mark, "").into() } else { text.into() }
}

impl Folds {
    /// Puts a text away; `None` if there are too many.
    pub fn fold(&mut self, text: Cow<'_, str>) -> Option<char> {
        let idx = self.texts.len();
        let mark = char::from_u32(u32::from(FIRST_MARK) + u32::try_from(idx).ok()?)?;
        if idx >= MAX_FOLDS {
            return None;
        }
        let label = match text.lines().count() {
            0 | 1 => format!("[Pasted {} characters]", text.chars().count()),
            n => format!("[Pasted {n} lines]"),
        };
        self.texts.push(Folded { label, text: text.into_owned() });
        Some(mark)
    }

    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    pub fn text(&self, mark: char) -> Option<&str> {
        self.texts.get(idx(mark)).map(|folded| folded.text.as_str())
    }

    /// With everything that is folded.
    pub fn opened(&self, text: &str) -> String {
        self.replaced(text, |folded| &folded.text).into_owned()
    }

    /// With labels.
    pub fn drawn<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.replaced(text, |folded| &folded.label)
    }

    fn replaced<'a>(&self, text: &'a str, by: impl Fn(&Folded) -> &str) -> Cow<'a, str> {
        if self.texts.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match self.texts.get(idx(c)) {
                Some(folded) => out.push_str(by(folded)),
                None => out.push(c),
            }
        }
        out.into()
    }

    /// The character of `text` at a byte of what is drawn; one inside of a label is the label's.
    pub fn char_idx(&self, text: &str, drawn_at: usize) -> usize {
        let mut end = 0;
        let ends = text.chars().map(|c| {
            end += self.texts.get(idx(c)).map_or(c.len_utf8(), |folded| folded.label.len());
            end
        });
        ends.take_while(|end| *end <= drawn_at).count()
    }
}
