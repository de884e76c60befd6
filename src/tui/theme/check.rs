//! Whether a theme can be read: the contrast of each token with the background that it was made for.

use super::TOKENS;
use super::colour::{Paint, Rgb, XTERM};
use super::file::{Appearance, Resolved};

/// Contrast of text and of what is drawn around it, from WCAG 2.
const TEXT: f64 = 4.5;
const CHROME: f64 = 3.0;

/// Tokens of lines and frames, and of text that is said elsewhere too.
const CHROME_TOKENS: [&str; 3] = ["code-frame", "list-marker", "syntax-comment"];

pub struct Line {
    pub token: &'static str,
    /// `None` for the terminal's own colours, which nobody but the terminal knows.
    pub contrast: Option<f64>,
    pub needed: f64,
}

impl Line {
    pub fn is_good(&self) -> bool {
        self.contrast.is_none_or(|contrast| contrast >= self.needed)
    }
}

pub fn check(theme: &Resolved) -> Vec<Line> {
    TOKENS
        .iter()
        .zip(&theme.looks)
        .map(|((token, _), look)| {
            let rgb = match look.paint {
                Paint::Default => None,
                Paint::Ansi(n) => Some(XTERM[usize::from(n)]),
                Paint::Exact(rgb) => Some(rgb),
            };
            // How dark a terminal makes dim text is its own affair.
            let rgb = rgb.filter(|_| !look.is_dim());
            let needed = if CHROME_TOKENS.contains(token) { CHROME } else { TEXT };
            Line { token, contrast: rgb.map(|rgb| rgb.contrast(theme.background)), needed }
        })
        .collect()
}

/// Whether the background is as light or dark as the theme says.
pub fn fits_background(theme: &Resolved) -> bool {
    let is_light = theme.background.contrast(Rgb(0, 0, 0)) > theme.background.contrast(Rgb(255, 255, 255));
    is_light == (theme.appearance == Appearance::Light)
}

#[cfg(test)]
mod tests {
    use super::super::file::{BUILT_IN, resolve};
    use super::*;

    #[test]
    fn built_in_themes_can_be_read() {
        for (name, _) in BUILT_IN {
            let theme = resolve(name, None).unwrap();
            assert!(fits_background(&theme), "{name}");
            let bad: Vec<String> = check(&theme)
                .iter()
                .filter(|line| !line.is_good())
                .map(|line| format!("{} {:.1}", line.token, line.contrast.unwrap_or_default()))
                .collect();
            assert!(bad.is_empty(), "{name}: {bad:?}");
        }
    }
}
