//! Theme files: TOML with a palette and a style for each token; what a file doesn't say comes from the theme that it
//! inherits. The built-in themes are such files too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ratatui::style::{Modifier, Style};
use serde::Deserialize;

use crate::tui::commands::nearest;

use super::colour::{Depth, Paint, Rgb};
use super::{TOKENS, Theme};

/// Built-in themes by name.
pub const BUILT_IN: [(&str, &str); 5] = [
    ("ansi-dark", include_str!("../../../themes/ansi-dark.toml")),
    ("ansi-light", include_str!("../../../themes/ansi-light.toml")),
    ("night", include_str!("../../../themes/night.toml")),
    ("paper", include_str!("../../../themes/paper.toml")),
    ("high-contrast", include_str!("../../../themes/high-contrast.toml")),
];

/// Theme files are small; a larger one is something else.
const MAX_BYTES: u64 = 256 << 10;
/// Longer chains of themes that inherit from one another are circles.
const MAX_DEPTH: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Appearance {
    Dark,
    Light,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// For people.
    #[serde(default, rename = "name")]
    _name: Option<String>,
    inherits: Option<String>,
    appearance: Option<Appearance>,
    /// The background that the colours were chosen for; it is never painted.
    background: Option<String>,
    #[serde(default)]
    palette: BTreeMap<String, String>,
    #[serde(default)]
    tokens: BTreeMap<String, Spec>,
}

/// How a token looks.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Spec {
    fg: Option<String>,
    bold: bool,
    dim: bool,
    italic: bool,
    underline: bool,
    reversed: bool,
    crossed_out: bool,
    /// Where there are no colours, instead of the colour.
    without_colours: Option<Box<Spec>>,
}

/// A theme with everything that it inherits.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub appearance: Appearance,
    pub background: Rgb,
    /// In the order of [`TOKENS`].
    pub looks: Vec<Look>,
}

#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub paint: Paint,
    modifier: Modifier,
    modifier_without_colours: Modifier,
}

impl Look {
    pub fn is_dim(self) -> bool {
        self.modifier.contains(Modifier::DIM)
    }
}

/// Names of all themes: the built-in ones, and the files of a folder.
pub fn names(folder: Option<&Path>) -> Vec<String> {
    let mut names: Vec<String> = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
    let entries = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let mut own: Vec<String> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let is_theme = path.extension().is_some_and(|extension| extension == "toml");
            is_theme.then(|| path.file_stem().map(|stem| stem.to_string_lossy().into_owned())).flatten()
        })
        .filter(|name| !names.contains(name))
        .collect();
    own.sort();
    names.append(&mut own);
    names
}

/// Finds a theme by its name, in a folder before the built-in ones, or by its path.
///
/// # Errors
/// A sentence that says what is wrong with which file.
pub fn resolve(name: &str, folder: Option<&Path>) -> Result<Resolved, String> {
    let mut chain = Vec::new();
    let mut next = Some(name.to_owned());
    while let Some(name) = next {
        if chain.len() == MAX_DEPTH {
            return Err(format!("theme {name}: it inherits from itself"));
        }
        let text = find(&name, folder)?;
        let file: File = toml::from_str(&text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            format!("theme {name}, line {line}: {}", error.message())
        })?;
        next = file.inherits.clone();
        chain.push((name, file));
    }
    merged(chain)
}

/// The nearest theme comes first.
fn merged(chain: Vec<(String, File)>) -> Result<Resolved, String> {
    let appearance = chain.iter().find_map(|(_, file)| file.appearance).unwrap_or(Appearance::Dark);
    let background = match chain.iter().find_map(|(name, file)| Some((name, file.background.as_ref()?))) {
        Some((name, background)) => {
            background.parse().map_err(|why| format!("theme {name}, background: {why}"))?
        }
        None if appearance == Appearance::Light => Rgb(255, 255, 255),
        None => Rgb(0, 0, 0),
    };
    for (name, file) in &chain {
        if let Some(unknown) = file.tokens.keys().find(|token| TOKENS.iter().all(|(known, _)| known != token))
        {
            let known = TOKENS.iter().map(|(known, _)| *known);
            let hint = nearest(unknown, known).map(|near| format!("; did you mean {near}?"));
            return Err(format!("theme {name}: there is no token {unknown}{}", hint.unwrap_or_default()));
        }
    }
    let paint = |token: &str, colour: &str| -> Result<Paint, String> {
        // A palette may be replaced by the theme that inherits it.
        let named = chain.iter().find_map(|(_, file)| file.palette.get(colour));
        let value = named.map_or(colour, String::as_str);
        value.parse().map_err(|why| format!("theme {}, {token}: {why}", chain[0].0))
    };
    let mut looks = Vec::new();
    for (token, _) in TOKENS {
        let spec = chain.iter().find_map(|(_, file)| file.tokens.get(token)).cloned().unwrap_or_default();
        let modifier = spec.modifier();
        looks.push(Look {
            paint: spec.fg.as_deref().map_or(Ok(Paint::Default), |colour| paint(token, colour))?,
            modifier,
            modifier_without_colours: spec.without_colours.map_or(modifier, |other| other.modifier()),
        });
    }
    Ok(Resolved { appearance, background, looks })
}

impl Spec {
    fn modifier(&self) -> Modifier {
        [
            (self.bold, Modifier::BOLD),
            (self.dim, Modifier::DIM),
            (self.italic, Modifier::ITALIC),
            (self.underline, Modifier::UNDERLINED),
            (self.reversed, Modifier::REVERSED),
            (self.crossed_out, Modifier::CROSSED_OUT),
        ]
        .into_iter()
        .filter(|(is_on, _)| *is_on)
        .fold(Modifier::empty(), |all, (_, modifier)| all | modifier)
    }
}

impl Resolved {
    pub fn theme(&self, depth: Depth) -> Theme {
        let mut styles = [Style::new(); TOKENS.len()];
        for (style, look) in styles.iter_mut().zip(&self.looks) {
            *style = match depth {
                Depth::None => Style::new().add_modifier(look.modifier_without_colours),
                _ => Style::new().add_modifier(look.modifier),
            };
            if let Some(colour) = look.paint.shown(depth) {
                *style = style.fg(colour);
            }
        }
        Theme { styles }
    }
}

fn find(name: &str, folder: Option<&Path>) -> Result<String, String> {
    let is_path = name.contains(['/', '\\'])
        || Path::new(name).extension().is_some_and(|extension| extension == "toml");
    let path = match folder {
        _ if is_path => Some(PathBuf::from(name)),
        Some(folder) => Some(folder.join(format!("{name}.toml"))).filter(|path| path.is_file()),
        None => None,
    };
    if let Some(path) = path {
        let unreadable = |why: String| format!("theme {}: can't be read: {why}", path.display());
        let meta = fs::metadata(&path).map_err(|error| unreadable(error.to_string()))?;
        if !meta.is_file() || meta.len() > MAX_BYTES {
            return Err(unreadable("it is no theme".into()));
        }
        return fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()));
    }
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok((*text).to_owned()),
        None => {
            let known = names(folder);
            let near = nearest(name, known.iter().map(String::as_str));
            let hint = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            Err(format!("there is no theme {name}; {hint}`loquat theme list` shows all"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::Tone;

    #[test]
    fn built_in_themes_give_every_token_a_look() {
        for (name, _) in BUILT_IN {
            let resolved = resolve(name, None).unwrap();
            let theme = resolved.theme(Depth::True);
            for (token, tone) in TOKENS {
                let is_plain = ["text", "code-text"].contains(&token);
                assert!(is_plain || theme.style(tone) != Style::new(), "{name}: {token}");
            }
            let plain = resolved.theme(Depth::None);
            assert!(TOKENS.iter().all(|(_, tone)| plain.style(*tone).fg.is_none()), "{name}");
            assert_ne!(plain.style(Tone::Code), Style::new(), "{name}: code is marked without colours too");
        }
    }

    #[test]
    fn a_theme_inherits_what_it_does_not_say() {
        let dir = tempfile::tempdir().unwrap();
        let text = "inherits = \"night\"\n[palette]\nleaf = \"#010203\"\n[tokens]\nerror = { fg = \"red\", underline = true }\n";
        fs::write(dir.path().join("mine.toml"), text).unwrap();
        let mine = resolve("mine", Some(dir.path())).unwrap();
        let night = resolve("night", None).unwrap();
        let (mine, night) = (mine.theme(Depth::True), night.theme(Depth::True));
        assert_eq!(mine.style(Tone::Link), night.style(Tone::Link));
        assert_ne!(mine.style(Tone::Error), night.style(Tone::Error));
        assert_eq!(names(Some(dir.path())).last().map(String::as_str), Some("mine"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        for (text, says) in [
            ("[tokens]\nheadding = { bold = true }", "no token headding; did you mean heading?"),
            ("[tokens]\nheading = { fg = \"purplish\" }", "\"purplish\" is no colour"),
            ("inherits = \"bad\"", "inherits from itself"),
            ("colours = 3", "line 1: unknown field `colours`"),
            ("a = [", "line 1"),
            ("inherits = \"nihgt\"", "did you mean night?"),
        ] {
            fs::write(dir.path().join("bad.toml"), text).unwrap();
            let error = resolve("bad", Some(dir.path())).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
