//! Whether a model thinks before it answers, and for how long.

use std::fmt;
use std::str::FromStr;

use super::TurnOptions;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Think {
    Off,
    /// For as long as the model wants.
    On,
    /// For so many tokens at most: then its thinking is closed, and it answers.
    Tokens(usize),
}

impl Think {
    /// Enough to order the facts of a question.
    pub const LOW: Self = Self::Tokens(512);
    /// Enough to work most things out; models that think on usually go in circles.
    pub const HIGH: Self = Self::Tokens(4096);
    const EXPECTED: &str = "expected on, off, low, high or a number of tokens";

    pub fn apply(self, options: &mut TurnOptions) {
        (options.thinking, options.max_thinking) = match self {
            Self::Off => (Some(false), None),
            Self::On => (Some(true), None),
            Self::Tokens(most) => (Some(true), Some(most)),
        };
    }
}

impl TurnOptions {
    /// What was said about thinking; `None`: as the model does by itself.
    pub fn think(&self) -> Option<Think> {
        self.thinking.map(|thinking| match (thinking, self.max_thinking) {
            (false, _) => Think::Off,
            (true, None) => Think::On,
            (true, Some(most)) => Think::Tokens(most),
        })
    }
}

impl FromStr for Think {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" | "0" => Ok(Self::Off),
            "on" => Ok(Self::On),
            "low" => Ok(Self::LOW),
            "high" => Ok(Self::HIGH),
            _ => text.parse().map(Self::Tokens).map_err(|_| Self::EXPECTED.to_owned()),
        }
    }
}

/// As it is typed.
impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::On => f.write_str("on"),
            Self::Tokens(most) => most.fmt(f),
        }
    }
}
