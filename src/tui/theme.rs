//! What text means on the screen, and how each meaning looks.
//!
//! Views name a [`Tone`], never a colour. Meaning never rests on colour alone: roles, marks and errors
//! are words, so `NO_COLOR` loses nothing. Faint text uses the DIM attribute, because the palette's
//! greys vanish on some backgrounds.

use ratatui::style::{Color, Modifier, Style};

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

/// How the tones look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    colours: bool,
}

impl Theme {
    pub fn new(colours: bool) -> Self {
        Self { colours }
    }

    pub fn style(self, tone: Tone) -> Style {
        let (colour, modifier) = match tone {
            Tone::Text => (None, Modifier::empty()),
            Tone::Faint => (None, Modifier::DIM),
            Tone::Brand => (Some(Color::Yellow), Modifier::BOLD),
            Tone::You => (Some(Color::Cyan), Modifier::BOLD),
            Tone::Assistant => (Some(Color::Yellow), Modifier::BOLD),
            Tone::Thinking => (None, Modifier::DIM.union(Modifier::ITALIC)),
            Tone::Key => (Some(Color::Cyan), Modifier::empty()),
            Tone::Selected => (None, Modifier::BOLD.union(Modifier::UNDERLINED)),
            Tone::Active => (Some(Color::Yellow), Modifier::empty()),
            Tone::Accepted => (Some(Color::Green), Modifier::empty()),
            Tone::Warning => (Some(Color::Yellow), Modifier::empty()),
            Tone::Error => (Some(Color::Red), Modifier::BOLD),
            Tone::Heading => (Some(Color::Yellow), Modifier::BOLD),
            Tone::Strong => (None, Modifier::BOLD),
            Tone::Emphasis => (None, Modifier::ITALIC),
            Tone::StrongEmphasis => (None, Modifier::BOLD.union(Modifier::ITALIC)),
            Tone::Struck => (None, Modifier::CROSSED_OUT),
            Tone::Link => (Some(Color::Blue), Modifier::UNDERLINED),
            Tone::Marker => (Some(Color::Yellow), Modifier::empty()),
            Tone::Math => (None, Modifier::ITALIC),
            // A word in bold where there is no colour.
            Tone::Code if self.colours => (Some(Color::Cyan), Modifier::empty()),
            Tone::Code => (None, Modifier::BOLD),
            Tone::CodeFrame => (None, Modifier::DIM),
            Tone::CodeText => (None, Modifier::empty()),
            Tone::Keyword => (Some(Color::Magenta), Modifier::empty()),
            Tone::Literal => (Some(Color::Green), Modifier::empty()),
            Tone::Number => (Some(Color::Yellow), Modifier::empty()),
            Tone::Comment => (None, Modifier::DIM.union(Modifier::ITALIC)),
            Tone::Function => (Some(Color::Blue), Modifier::empty()),
            Tone::Type => (Some(Color::Cyan), Modifier::empty()),
        };
        let style = Style::new().add_modifier(modifier);
        match colour {
            Some(colour) if self.colours => style.fg(colour),
            _ => style,
        }
    }
}
