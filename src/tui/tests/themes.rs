//! How the themes look: each meaning's style, and where on a screen which style is.

use std::fmt::Write;

use insta::assert_snapshot;
use ratatui::style::{Color, Modifier, Style};

use super::screens::RICH;
use super::*;
use crate::tui::theme::{Depth, TOKENS, file};

fn name(style: Style) -> String {
    let colour = |colour: Option<Color>| match colour {
        None | Some(Color::Reset) => "-".to_owned(),
        Some(Color::Rgb(r, g, b)) => format!("#{r:02x}{g:02x}{b:02x}"),
        Some(other) => other.to_string(),
    };
    let mut name = colour(style.fg);
    if style.bg.is_some_and(|bg| bg != Color::Reset) {
        let _ = write!(name, " on {}", colour(style.bg));
    }
    let modifiers = style.add_modifier.difference(Modifier::empty());
    if !modifiers.is_empty() {
        let _ = write!(name, " {modifiers:?}");
    }
    name
}

/// Styles by letter, in the order in which they occur on the screen, and runs of them in each row.
fn map(run: &mut Run, theme: Theme) -> String {
    run.state.layout();
    let mut terminal = Terminal::new(TestBackend::new(run.state.width, run.state.height)).unwrap();
    terminal.draw(|frame| view::draw(frame, &run.state, theme)).unwrap();
    let buffer = terminal.backend().buffer();
    let mut styles: Vec<Style> = Vec::new();
    let mut rows = String::new();
    for y in 0..buffer.area.height {
        let mut last = None;
        for x in 0..buffer.area.width {
            let cell = &buffer[(x, y)];
            let style = Style { underline_color: None, ..cell.style() };
            let idx = styles.iter().position(|known| *known == style).unwrap_or_else(|| {
                styles.push(style);
                styles.len() - 1
            });
            // A run is told by where it begins.
            if last != Some(idx) && (cell.symbol() != " " || last.is_none()) {
                let _ = write!(rows, "{}{x} ", char::from(b'a' + idx as u8 % 26));
                last = Some(idx);
            }
        }
        rows.push('\n');
    }
    let legend = styles.iter().enumerate();
    let legend =
        legend.map(|(idx, style)| format!("{} {}\n", char::from(b'a' + idx as u8 % 26), name(*style)));
    legend.collect::<String>() + &rows
}

#[test]
fn each_theme_gives_each_meaning_its_style() {
    for theme_name in ["night", "paper", "high-contrast", "ansi-dark", "ansi-light"] {
        let theme = file::resolve(theme_name, None).unwrap().theme(Depth::True);
        let tokens = TOKENS.iter().map(|(token, tone)| format!("{token}: {}\n", name(theme.style(*tone))));
        let mut run = play_on(80, 24, RICH);
        let text = tokens.collect::<String>() + "\n" + &map(&mut run, theme);
        assert_snapshot!(format!("theme_{theme_name}"), text);
    }
}
