//! Colours as themes name them, and what is left of them in a terminal with fewer.

use std::str::FromStr;

use ratatui::style::Color;

/// How many colours the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    None,
    Ansi16,
    Ansi256,
    True,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rgb(pub u8, pub u8, pub u8);

/// A colour of a theme: one of the terminal's own sixteen, or an exact one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// The terminal's own text colour.
    Default,
    Ansi(u8),
    Exact(Rgb),
}

impl Depth {
    /// By what the environment says; <https://no-color.org>: set and not empty.
    pub fn read() -> Self {
        let text = |name| std::env::var(name).unwrap_or_default();
        Self::of(&text("NO_COLOR"), &text("COLORTERM"), &text("TERM"), !text("WT_SESSION").is_empty())
    }

    fn of(no_color: &str, colorterm: &str, term: &str, is_windows_terminal: bool) -> Self {
        if !no_color.is_empty() {
            Self::None
        } else if ["truecolor", "24bit"].contains(&colorterm)
            || is_windows_terminal
            || term.ends_with("-direct")
        {
            Self::True
        } else if ["256color", "kitty", "alacritty", "foot", "ghostty"]
            .iter()
            .any(|known| term.contains(known))
        {
            Self::Ansi256
        } else {
            Self::Ansi16
        }
    }
}

const NAMES: [&str; 16] = [
    "black",
    "red",
    "green",
    "yellow",
    "blue",
    "magenta",
    "cyan",
    "white",
    "bright-black",
    "bright-red",
    "bright-green",
    "bright-yellow",
    "bright-blue",
    "bright-magenta",
    "bright-cyan",
    "bright-white",
];

/// What xterm shows for the sixteen; a terminal may show others.
pub const XTERM: [Rgb; 16] = [
    Rgb(0, 0, 0),
    Rgb(205, 0, 0),
    Rgb(0, 205, 0),
    Rgb(205, 205, 0),
    Rgb(0, 0, 238),
    Rgb(205, 0, 205),
    Rgb(0, 205, 205),
    Rgb(229, 229, 229),
    Rgb(127, 127, 127),
    Rgb(255, 0, 0),
    Rgb(0, 255, 0),
    Rgb(255, 255, 0),
    Rgb(92, 92, 255),
    Rgb(255, 0, 255),
    Rgb(0, 255, 255),
    Rgb(255, 255, 255),
];

impl FromStr for Paint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "default" {
            return Ok(Self::Default);
        }
        if let Some(at) = NAMES.iter().position(|name| *name == text) {
            return Ok(Self::Ansi(at as u8));
        }
        text.parse().map(Self::Exact)
    }
}

impl FromStr for Rgb {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6);
        match digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
            Some(n) => Ok(Self((n >> 16) as u8, (n >> 8) as u8, n as u8)),
            None => Err(format!(
                "{text:?} is no colour: expected #rrggbb, default or one of {}",
                NAMES.join(", ")
            )),
        }
    }
}

impl Paint {
    /// The nearest colour that the terminal shows; `None` for its own.
    pub fn shown(self, depth: Depth) -> Option<Color> {
        match (self, depth) {
            (Self::Default, _) | (_, Depth::None) => None,
            (Self::Ansi(n), _) => Some(Color::Indexed(n)),
            (Self::Exact(Rgb(r, g, b)), Depth::True) => Some(Color::Rgb(r, g, b)),
            (Self::Exact(rgb), Depth::Ansi256) => Some(Color::Indexed(nearest(rgb, 16..=255))),
            (Self::Exact(rgb), Depth::Ansi16) => Some(Color::Indexed(nearest(rgb, 0..=15))),
        }
    }
}

/// The colour with this number in a terminal of 256.
fn indexed(n: u8) -> Rgb {
    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    match n {
        0..16 => XTERM[usize::from(n)],
        16..232 => Rgb(level((n - 16) / 36), level((n - 16) / 6 % 6), level((n - 16) % 6)),
        232.. => Rgb(8 + 10 * (n - 232), 8 + 10 * (n - 232), 8 + 10 * (n - 232)),
    }
}

fn nearest(Rgb(r, g, b): Rgb, among: std::ops::RangeInclusive<u8>) -> u8 {
    let square = |a: u8, b: u8| i32::from(a).abs_diff(i32::from(b)).pow(2);
    among
        .min_by_key(|n| {
            let Rgb(x, y, z) = indexed(*n);
            // Eyes tell greens apart best.
            2 * square(r, x) + 4 * square(g, y) + 3 * square(b, z)
        })
        .unwrap_or_default()
}

impl Rgb {
    /// Contrast as WCAG 2 defines it, from 1 to 21.
    pub fn contrast(self, other: Self) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// Relative luminance: 0 is black, 1 is white.
    pub fn luminance(self) -> f64 {
        let linear = |channel: u8| {
            let value = f64::from(channel) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(self.0) + 0.7152 * linear(self.1) + 0.0722 * linear(self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_names_or_numbers() {
        assert_eq!("#8fbc8b".parse(), Ok(Paint::Exact(Rgb(0x8f, 0xbc, 0x8b))));
        assert_eq!("bright-red".parse(), Ok(Paint::Ansi(9)));
        assert_eq!("default".parse(), Ok(Paint::Default));
        for bad in ["", "#fff", "#12345g", "purple", "#é12345"] {
            assert!(bad.parse::<Paint>().unwrap_err().contains("expected #rrggbb"), "{bad}");
        }
    }

    #[test]
    fn the_environment_says_how_many_colours_there_are() {
        assert_eq!(Depth::of("1", "truecolor", "xterm-256color", false), Depth::None);
        assert_eq!(Depth::of("", "truecolor", "xterm", false), Depth::True);
        assert_eq!(Depth::of("", "", "screen-256color", false), Depth::Ansi256);
        assert_eq!(Depth::of("", "", "xterm", true), Depth::True);
        assert_eq!(Depth::of("", "", "linux", false), Depth::Ansi16);
    }

    #[test]
    fn fewer_colours_are_the_nearest_ones() {
        let red = Paint::Exact(Rgb(250, 10, 5));
        assert_eq!(red.shown(Depth::True), Some(Color::Rgb(250, 10, 5)));
        assert_eq!(red.shown(Depth::Ansi256), Some(Color::Indexed(196)));
        assert_eq!(red.shown(Depth::Ansi16), Some(Color::Indexed(9)));
        assert_eq!(red.shown(Depth::None), None);
        assert_eq!(Paint::Exact(Rgb(128, 128, 128)).shown(Depth::Ansi256), Some(Color::Indexed(244)));
    }

    #[test]
    fn contrast_is_that_of_the_guidelines() {
        assert!((Rgb(0, 0, 0).contrast(Rgb(255, 255, 255)) - 21.0).abs() < 1e-9);
        assert!((Rgb(119, 119, 119).contrast(Rgb(255, 255, 255)) - 4.48).abs() < 0.01);
    }
}
