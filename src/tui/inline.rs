//! The chat below what the terminal shows already: what is finished becomes ordinary lines of its scrollback, and only
//! the rows below it, with the draft, are drawn again.
//!
//! The cursor moves relative to where it is, lines begin by newlines: nothing has to be known of the rest of the screen.

use std::fmt::Write as _;
use std::io::{self, Write};

use ratatui::Terminal;
use ratatui::backend::{Backend, TestBackend};
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier, Style};

use crate::chat::NodeId;

use super::state::State;
use super::theme::{Theme, Tone};
use super::transcript::Row;
use super::view;
use super::wrap::display_width;

/// What is drawn again and again, as it stands on the screen.
#[derive(Default)]
pub struct Inline {
    /// The entries that became lines, by their messages.
    printed: Vec<Option<NodeId>>,
    /// Columns of each live row.
    live: Vec<usize>,
    /// The live row in which the cursor is.
    caret: usize,
}

impl Inline {
    /// Prints what is finished, and draws the rest below it.
    ///
    /// # Errors
    /// When the terminal can't be written.
    pub fn draw(&mut self, state: &mut State, theme: Theme) -> io::Result<()> {
        // What is printed can't be drawn again.
        while !state.transcript.is_settled() {
            state.layout();
        }
        let mut out = self.go_to_top(usize::from(state.width));
        for row in self.finished(state) {
            let spans = row.iter().map(|(tone, text)| (theme.style(*tone), text.as_str()));
            line(spans, &mut out);
            out.push_str("\r\n");
        }
        let Some(height) = state.areas().map(|areas| areas.composer.bottom()) else {
            return write(&(out + "too small"));
        };
        let mut off_screen =
            Terminal::new(TestBackend::new(state.width, height)).map_err(io::Error::other)?;
        let mut has_caret = false;
        let drawn = off_screen
            .draw(|frame| {
                view::draw(frame, state, theme);
                has_caret = state.focus == super::state::Focus::Draft;
            })
            .map_err(io::Error::other)?;
        let rows: Vec<Vec<Cell>> =
            (0..height).map(|y| (0..state.width).map(|x| drawn.buffer[(x, y)].clone()).collect()).collect();
        self.live.clear();
        for (row, y) in rows.iter().zip(0..) {
            if y > 0 {
                out.push_str("\r\n");
            }
            self.live.push(cells(row, &mut out));
        }
        let caret = off_screen.backend_mut().get_cursor_position().map_err(io::Error::other)?;
        self.caret = usize::from(height - 1);
        if has_caret {
            self.caret = usize::from(caret.y.min(height - 1));
            let up = usize::from(height - 1) - self.caret;
            if up > 0 {
                let _ = write!(out, "\x1b[{up}A");
            }
            let _ = write!(out, "\r");
            if caret.x > 0 {
                let _ = write!(out, "\x1b[{}C", caret.x);
            }
            out.push_str("\x1b[?25h");
        }
        write(&out)
    }

    /// Takes the live rows off the screen.
    ///
    /// # Errors
    /// When the terminal can't be written.
    pub fn clear(&mut self, width: u16) -> io::Result<()> {
        let out = self.go_to_top(usize::from(width));
        write(&(out + "\x1b[?25h"))
    }

    /// Something else was written: the live rows are drawn below it.
    pub fn forget(&mut self) {
        self.live.clear();
        self.caret = 0;
    }

    /// To the first live row, and nothing below it.
    fn go_to_top(&mut self, width: usize) -> String {
        // Terminals that became narrower have wrapped rows that are too long now.
        let wrapped = |columns: &usize| columns.div_ceil(width.max(1)).max(1);
        let up: usize = self.live.iter().take(self.caret).map(wrapped).sum();
        self.forget();
        let mut out = "\x1b[?25l\r".to_owned();
        if up > 0 {
            let _ = write!(out, "\x1b[{up}A");
        }
        out.push_str("\x1b[J");
        out
    }

    /// The rows of what is finished and wasn't printed yet.
    fn finished(&mut self, state: &mut State) -> Vec<Row> {
        let shown: Vec<Option<NodeId>> =
            state.transcript.numbered_entries().map(|(message, _)| message.map(|(node, _)| node)).collect();
        let n_known = self.printed.iter().zip(&shown).take_while(|(printed, shown)| printed == shown).count();
        let mut rows = Vec::new();
        if n_known < self.printed.len() {
            self.printed.truncate(n_known);
            rows.push(vec![(Tone::Faint, " ── another place of the conversation ──".to_owned())]);
            rows.push(Row::new());
        }
        let n_finished = state.transcript.n_finished().max(n_known);
        for (idx, node) in shown.iter().enumerate().take(n_finished).skip(n_known) {
            let indented =
                |row: &Row| std::iter::once((Tone::Text, " ".to_owned())).chain(row.clone()).collect();
            rows.extend(state.transcript.entry_rows(idx).iter().map(indented));
            self.printed.push(*node);
        }
        state.n_printed = Some(self.printed.len());
        rows
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    // Terminals that know this mode show it at once; others ignore it.
    write!(out, "\x1b[?2026h{text}\x1b[?2026l")?;
    out.flush()
}

/// Text with its styles; says its columns.
fn line<'a>(spans: impl Iterator<Item = (Style, &'a str)>, out: &mut String) -> usize {
    let mut columns = 0;
    let mut now = Style::reset();
    for (style, text) in spans {
        let style = Style::reset().patch(style);
        if style != now {
            out.push_str(&if style == Style::reset() { "\x1b[0m".to_owned() } else { sgr(style) });
            now = style;
        }
        out.push_str(text);
        columns += display_width(text);
    }
    if now != Style::reset() {
        out.push_str("\x1b[0m");
    }
    columns
}

/// A row of cells, without the empty ones at its end.
fn cells(row: &[Cell], out: &mut String) -> usize {
    let is_empty = |cell: &Cell| cell.symbol() == " " && cell.bg == Color::Reset && cell.modifier.is_empty();
    let end = row.iter().rposition(|cell| !is_empty(cell)).map_or(0, |last| last + 1);
    let mut skip = 0;
    let spans = row[..end].iter().filter_map(|cell| {
        // A wide character covers the cells behind it.
        if skip > 0 {
            skip -= 1;
            return None;
        }
        skip = display_width(cell.symbol()).saturating_sub(1);
        Some((cell.style(), cell.symbol()))
    });
    line(spans, out)
}

/// The control sequence of a style.
fn sgr(style: Style) -> String {
    const MODIFIERS: [(Modifier, u8); 6] = [
        (Modifier::BOLD, 1),
        (Modifier::DIM, 2),
        (Modifier::ITALIC, 3),
        (Modifier::UNDERLINED, 4),
        (Modifier::REVERSED, 7),
        (Modifier::CROSSED_OUT, 9),
    ];
    let mut codes = vec!["0".to_owned()];
    codes.extend(
        MODIFIERS
            .iter()
            .filter(|(modifier, _)| style.add_modifier.contains(*modifier))
            .map(|(_, code)| code.to_string()),
    );
    codes.extend(style.fg.and_then(|colour| code(colour, 30)));
    codes.extend(style.bg.and_then(|colour| code(colour, 40)));
    format!("\x1b[{}m", codes.join(";"))
}

/// The code of a colour: `base` is 30 in front and 40 behind.
fn code(colour: Color, base: u8) -> Option<String> {
    let dark = |n: u8| Some((base + n).to_string());
    let bright = |n: u8| Some((base + 60 + n).to_string());
    match colour {
        Color::Reset => None,
        Color::Black => dark(0),
        Color::Red => dark(1),
        Color::Green => dark(2),
        Color::Yellow => dark(3),
        Color::Blue => dark(4),
        Color::Magenta => dark(5),
        Color::Cyan => dark(6),
        Color::Gray => dark(7),
        Color::DarkGray => bright(0),
        Color::LightRed => bright(1),
        Color::LightGreen => bright(2),
        Color::LightYellow => bright(3),
        Color::LightBlue => bright(4),
        Color::LightMagenta => bright(5),
        Color::LightCyan => bright(6),
        Color::White => bright(7),
        Color::Indexed(n) => Some(format!("{};5;{n}", base + 8)),
        Color::Rgb(r, g, b) => Some(format!("{};2;{r};{g};{b}", base + 8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_with_their_styles_and_without_their_empty_ends() {
        let mut row: Vec<Cell> = vec![Cell::default(); 8];
        row[0].set_symbol("a").set_style(Style::new().fg(Color::Rgb(1, 2, 3)).bold());
        row[1].set_symbol("漢");
        row[3].set_symbol("b");
        let mut out = String::new();
        assert_eq!(cells(&row, &mut out), 4);
        assert_eq!(out, "\x1b[0;1;38;2;1;2;3ma\x1b[0m漢b");
    }
}
