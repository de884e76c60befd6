//! What text means on the screen, and how each meaning looks.
//!
//! Views name a [`Tone`], never a colour; a theme's file gives each tone its style. Meaning never rests on colour
//! alone: roles, marks and errors are words, so `NO_COLOR` loses nothing. A theme colours text and leaves the
//! terminal's background alone.

pub mod check;
mod colour;
pub mod file;

use std::path::PathBuf;

use ratatui::style::Style;

pub use colour::Depth;

/// The meaning of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Text,
    /// Secondary: hints, figures, rules, borders.
    Faint,
    Brand,
    /// The word above a message of the person.
    You,
    /// The word above an answer.
    Assistant,
    /// The model's thinking, once opened.
    Thinking,
    /// A key or command to be typed.
    Key,
    /// The entry of a list that Enter takes.
    Selected,
    /// Something in progress.
    Active,
    /// A draft of the model that was right.
    Accepted,
    Warning,
    Error,
    Heading,
    Strong,
    Emphasis,
    StrongEmphasis,
    Struck,
    Link,
    /// The mark of a list's item.
    Marker,
    Math,
    /// Code inside of a line.
    Code,
    CodeFrame,
    /// Code that means nothing special.
    CodeText,
    Keyword,
    Literal,
    Number,
    Comment,
    Function,
    Type,
}

/// The names of the tones in theme files.
pub const TOKENS: [(&str, Tone); 29] = [
    ("text", Tone::Text),
    ("text-muted", Tone::Faint),
    ("brand", Tone::Brand),
    ("role-user", Tone::You),
    ("role-assistant", Tone::Assistant),
    ("thinking", Tone::Thinking),
    ("key", Tone::Key),
    ("selection", Tone::Selected),
    ("active", Tone::Active),
    ("spec-accepted", Tone::Accepted),
    ("warning", Tone::Warning),
    ("error", Tone::Error),
    ("heading", Tone::Heading),
    ("strong", Tone::Strong),
    ("emphasis", Tone::Emphasis),
    ("strong-emphasis", Tone::StrongEmphasis),
    ("struck", Tone::Struck),
    ("link", Tone::Link),
    ("list-marker", Tone::Marker),
    ("math", Tone::Math),
    ("code", Tone::Code),
    ("code-frame", Tone::CodeFrame),
    ("code-text", Tone::CodeText),
    ("syntax-keyword", Tone::Keyword),
    ("syntax-string", Tone::Literal),
    ("syntax-number", Tone::Number),
    ("syntax-comment", Tone::Comment),
    ("syntax-function", Tone::Function),
    ("syntax-type", Tone::Type),
];

/// How the tones look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Theme {
    /// In the order of [`TOKENS`].
    styles: [Style; TOKENS.len()],
}

impl Theme {
    pub fn style(&self, tone: Tone) -> Style {
        self.styles[tone as usize]
    }
}

#[cfg(test)]
impl Theme {
    /// The terminal's sixteen colours, or none.
    pub fn new(colours: bool) -> Self {
        let depth = if colours { Depth::Ansi16 } else { Depth::None };
        file::resolve("ansi-dark", None).unwrap().theme(depth)
    }
}

/// Which theme is wanted, and what the terminal can show.
#[derive(Debug, Clone)]
pub struct Colours {
    /// Themes of the person's own.
    pub folder: Option<PathBuf>,
    pub depth: Depth,
    /// Whether the terminal's background is light; `None` if it didn't say.
    pub is_light: Option<bool>,
}

/// The name of no theme: one that fits the terminal is chosen.
pub const AUTO: &str = "auto";

impl Colours {
    /// # Errors
    /// A sentence when there is no such theme, or something is wrong with it.
    pub fn theme(&self, name: &str) -> Result<Theme, String> {
        let name = if name == AUTO { self.fitting() } else { name };
        Ok(file::resolve(name, self.folder.as_deref())?.theme(self.depth))
    }

    fn fitting(&self) -> &'static str {
        match (self.is_light, self.depth) {
            // Leaves text in the terminal's own colour, which can be read on any background.
            (None, _) | (Some(false), Depth::Ansi16 | Depth::None) => "ansi-dark",
            (Some(true), Depth::Ansi16 | Depth::None) => "ansi-light",
            (Some(false), _) => "night",
            (Some(true), _) => "paper",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stand_in_the_order_of_the_tones() {
        for (at, (name, tone)) in TOKENS.iter().enumerate() {
            assert_eq!(*tone as usize, at, "{name}");
        }
    }
}
