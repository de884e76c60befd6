//! The message being written: a text area with our own soft wrapping and caret.
//!
//! The text area keeps the lines, the undo history and the kill buffer; it counts characters. Here the
//! caret moves by grapheme clusters and by the rows as drawn, so that it never stands inside an emoji
//! or an accented letter. Knows nothing of keys, messages, queues or history.

mod folds;
mod motion;

use std::borrow::Cow;

use ratatui_textarea::{CursorMove, TextArea};
use unicode_segmentation::UnicodeSegmentation;

use super::keymap::Edit;
use super::wrap::{display_width, grapheme_width, wrap_line};

use folds::Folds;
pub use folds::is_big;
pub use motion::Motion;

/// Rows the composer grows to before it scrolls.
pub const MAX_ROWS: usize = 10;

#[derive(Debug, Clone, Default)]
pub struct Composer {
    area: TextArea<'static>,
    /// Columns of text per row, as the screen has them.
    width: usize,
    /// Big pastes, each of which is one character in the text area.
    folds: Folds,
}

/// Styles and undo steps of the text area are no part of what a person sees.
impl PartialEq for Composer {
    fn eq(&self, other: &Self) -> bool {
        self.area.lines() == other.area.lines()
            && self.area.cursor() == other.area.cursor()
            && self.width == other.width
            && self.folds == other.folds
    }
}

/// What to draw: the rows in sight, and the caret among them as (row, column).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub rows: Vec<String>,
    pub caret: (usize, usize),
    pub hidden_above: bool,
    pub hidden_below: bool,
}

impl Composer {
    pub fn set_width(&mut self, width: usize) {
        self.width = width.max(1);
    }

    /// The whole text, with all that is folded.
    pub fn text(&self) -> String {
        self.folds.opened(&self.area.lines().join("\n"))
    }

    /// The first line, as far as it was typed.
    pub fn first_line(&self) -> &str {
        self.area.lines().first().map(String::as_str).unwrap_or_default()
    }

    pub fn n_lines(&self) -> usize {
        self.area.lines().len()
    }

    pub fn is_empty(&self) -> bool {
        self.area.lines().iter().all(String::is_empty) && self.area.lines().len() == 1
    }

    /// Nothing to send: white space at most.
    pub fn is_blank(&self) -> bool {
        self.area.lines().iter().all(|line| line.trim().is_empty())
    }

    /// Replaces the text, with the caret at its end.
    pub fn set_text(&mut self, text: &str) {
        self.folds = Folds::default();
        let text = folds::without_marks(text);
        let mut area = TextArea::new(text.split('\n').map(str::to_owned).collect());
        area.move_cursor(CursorMove::Bottom);
        area.move_cursor(CursorMove::End);
        self.area = area;
    }

    pub fn clear(&mut self) {
        self.area = TextArea::default();
        self.folds = Folds::default();
    }

    pub fn insert(&mut self, text: &str) {
        self.area.insert_str(folds::without_marks(text));
    }

    /// Inserts a paste, folded if it would fill the screen.
    pub fn paste(&mut self, text: &str) {
        match is_big(text).then(|| self.folds.fold(folds::without_marks(text))).flatten() {
            Some(mark) => self.area.insert_char(mark),
            None => self.insert(text),
        }
    }

    /// Opens the folded paste at the caret, or the last one; false if there is none.
    pub fn unfold(&mut self) -> bool {
        let (before, after) = self.around_caret();
        let here = before.chars().next_back().filter(|c| self.folds.text(*c).is_some());
        let next = after.chars().next().filter(|c| self.folds.text(*c).is_some());
        let (line, char_idx) = self.caret();
        let found = match (here, next) {
            (Some(mark), _) => Some((mark, line, char_idx)),
            (None, Some(mark)) => Some((mark, line, char_idx + 1)),
            (None, None) => self.area.lines().iter().enumerate().rev().find_map(|(line, text)| {
                let marks = text.chars().enumerate().filter(|(_, c)| self.folds.text(*c).is_some());
                marks.last().map(|(char_idx, mark)| (mark, line, char_idx + 1))
            }),
        };
        let Some((mark, line, char_idx)) = found else { return false };
        let text = self.folds.text(mark).unwrap_or_default().to_owned();
        self.jump(line, char_idx);
        self.area.delete_char();
        self.area.insert_str(text);
        true
    }

    pub fn has_folds(&self) -> bool {
        !self.folds.is_empty()
    }

    pub fn newline(&mut self) {
        self.area.insert_newline();
    }

    /// Turns a `\` before the caret into a newline: the way to a new line that every terminal can send.
    pub fn backslash_newline(&mut self) -> bool {
        let (before, _) = self.around_caret();
        if !before.ends_with('\\') {
            return false;
        }
        self.area.delete_char();
        self.area.insert_newline();
        true
    }

    /// The caret is before everything.
    pub fn is_at_start(&self) -> bool {
        self.caret() == (0, 0)
    }

    /// What stands between an `@` that begins a word and the caret, if the caret is in such a word.
    pub fn at_word(&self) -> Option<&str> {
        let (before, _) = self.around_caret();
        let start = before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        before[start..].strip_prefix('@')
    }

    /// Replaces that word and its `@`.
    pub fn replace_at_word(&mut self, text: &str) {
        let Some(word) = self.at_word() else { return };
        for _ in 0..word.chars().count() + 1 {
            self.area.delete_char();
        }
        self.area.insert_str(text);
    }

    pub fn type_char(&mut self, c: char) {
        if !folds::is_mark(c) {
            self.area.insert_char(c);
            self.snap();
        }
    }

    pub fn edit(&mut self, edit: Edit) {
        match edit {
            Edit::Left => self.left(),
            Edit::Right => self.right(),
            Edit::WordLeft => self.area.move_cursor(CursorMove::WordBack),
            Edit::WordRight => self.area.move_cursor(CursorMove::WordForward),
            Edit::LineStart => self.area.move_cursor(CursorMove::Head),
            Edit::LineEnd => self.area.move_cursor(CursorMove::End),
            Edit::DeleteBack => self.delete_back(),
            Edit::DeleteForward => self.delete_forward(),
            Edit::DeleteWordBack => drop(self.area.delete_word()),
            Edit::DeleteWordForward => drop(self.area.delete_next_word()),
            Edit::DeleteToStart => drop(self.area.delete_line_by_head()),
            Edit::DeleteToEnd => drop(self.area.delete_line_by_end()),
            Edit::Yank => drop(self.area.paste()),
            Edit::Undo => self.undo(),
            Edit::Redo => self.redo(),
        }
        self.snap();
    }

    pub fn undo(&mut self) {
        self.area.undo();
    }

    pub fn redo(&mut self) {
        self.area.redo();
    }

    /// Moves the caret one drawn row up; false when it is on the first row.
    pub fn up(&mut self) -> bool {
        let (line, char_idx) = self.caret();
        let (row, column) = self.caret_in_line();
        let target = match row.checked_sub(1) {
            Some(row) => (line, row),
            None if line == 0 => return false,
            None => (line - 1, wrap_line(&self.drawn(line - 1), self.width).len() - 1),
        };
        self.jump_to_row(target, column);
        self.caret() != (line, char_idx)
    }

    /// Moves the caret one drawn row down; false when it is on the last row.
    pub fn down(&mut self) -> bool {
        let (line, _) = self.caret();
        let (row, column) = self.caret_in_line();
        let rows_here = wrap_line(&self.drawn(line), self.width).len();
        let target = if row + 1 < rows_here {
            (line, row + 1)
        } else if line + 1 < self.area.lines().len() {
            (line + 1, 0)
        } else {
            return false;
        };
        self.jump_to_row(target, column);
        true
    }

    /// Rows that the text takes, counted no further than `limit`: pastes can be megabytes.
    pub fn n_rows(&self, limit: usize) -> usize {
        let (caret_line, _) = self.caret();
        let (caret_row, _) = self.caret_in_line();
        let mut rows = 0;
        for line_idx in 0..self.area.lines().len() {
            let here = wrap_line(&self.drawn(line_idx), self.width).len();
            // A caret behind the last column of a full row needs a row of its own.
            rows += if line_idx == caret_line { here.max(caret_row + 1) } else { here };
            if rows >= limit {
                return limit;
            }
        }
        rows
    }

    /// The rows around the caret, at most `height`.
    pub fn view(&self, height: usize) -> View {
        let height = height.max(1);
        let lines = self.area.lines();
        let (line, _) = self.caret();
        let (caret_row, caret_column) = self.caret_in_line();
        // Only lines near the caret are wrapped: each has at least one row.
        let first = line.saturating_sub(height);
        let last = (line + height).min(lines.len() - 1);
        let (mut rows, mut caret_at) = (Vec::new(), 0);
        for idx in first..=last {
            if idx == line {
                caret_at = rows.len() + caret_row;
            }
            let text = self.drawn(idx);
            rows.extend(wrap_line(&text, self.width).into_iter().map(|range| text[range].to_owned()));
            if idx == line && caret_at >= rows.len() {
                rows.push(String::new());
            }
        }
        // The window ends at the caret or later, and shows as much before it as fits.
        let top = (caret_at + 1).saturating_sub(height).max(first_top(&rows, height, caret_at));
        let bottom = (top + height).min(rows.len());
        View {
            hidden_above: first > 0 || top > 0,
            hidden_below: last + 1 < lines.len() || bottom < rows.len(),
            caret: (caret_at - top, caret_column),
            rows: rows.drain(top..bottom).collect(),
        }
    }

    /// Puts the caret to a place among the rows that [`Self::view`] shows.
    pub fn point_at(&mut self, row: usize, column: usize, height: usize) {
        let caret_row = self.view(height).caret.0;
        for _ in 0..caret_row.abs_diff(row) {
            let moved = if row < caret_row { self.up() } else { self.down() };
            if !moved {
                break;
            }
        }
        let (line, _) = self.caret();
        let (row, _) = self.caret_in_line();
        self.jump_to_row((line, row), column);
    }

    /// A line as it is drawn.
    fn drawn(&self, line: usize) -> Cow<'_, str> {
        self.folds.drawn(self.area.lines().get(line).map(String::as_str).unwrap_or_default())
    }

    fn caret(&self) -> (usize, usize) {
        let cursor = self.area.cursor();
        (cursor.0, cursor.1)
    }

    /// The caret's line, before and after the caret.
    fn around_caret(&self) -> (&str, &str) {
        let (line, char_idx) = self.caret();
        let line = self.area.lines().get(line).map(String::as_str).unwrap_or_default();
        line.split_at(byte_offset(line, char_idx))
    }

    /// The caret's row and column among the rows of its line.
    fn caret_in_line(&self) -> (usize, usize) {
        let (before, after) = self.around_caret();
        let before = self.folds.drawn(before);
        let at = before.len();
        let ranges = wrap_line(&self.drawn(self.caret().0), self.width);
        let row = ranges.iter().rposition(|range| range.start <= at).unwrap_or(0);
        let column = display_width(&before[ranges[row].start..]);
        match (after.is_empty() && column >= self.width, row) {
            (true, row) => (row + 1, 0),
            // White space hanging over the edge: the caret waits at the last column.
            (false, row) => (row, column.min(self.width - 1)),
        }
    }

    fn jump_to_row(&mut self, (line, row): (usize, usize), column: usize) {
        let text = self.drawn(line);
        let ranges = wrap_line(&text, self.width);
        let is_last = row + 1 >= ranges.len();
        let Some(range) = ranges.get(row).cloned() else { return };
        let (mut used, mut at) = (0, range.start);
        for grapheme in text[range.clone()].graphemes(true) {
            used += grapheme_width(grapheme);
            // The end of a row that goes on is the beginning of the next one.
            if used > column || (!is_last && at + grapheme.len() >= range.end) {
                break;
            }
            at += grapheme.len();
        }
        let char_idx = self.folds.char_idx(&self.area.lines()[line], at);
        drop(text);
        self.jump(line, char_idx);
    }

    fn jump(&mut self, line: usize, char_idx: usize) {
        match (u16::try_from(line), u16::try_from(char_idx)) {
            (Ok(line), Ok(char_idx)) => self.area.move_cursor(CursorMove::Jump(line, char_idx)),
            // The text area can't jump this far. Character by character it can; such texts are rare.
            _ => {
                let step =
                    if (line, char_idx) < self.caret() { CursorMove::Back } else { CursorMove::Forward };
                let forward = matches!(step, CursorMove::Forward);
                loop {
                    let here = self.caret();
                    if (forward && here >= (line, char_idx)) || (!forward && here <= (line, char_idx)) {
                        break;
                    }
                    self.area.move_cursor(step);
                    if self.caret() == here {
                        break;
                    }
                }
            }
        }
    }

    fn left(&mut self) {
        let (line, char_idx) = self.caret();
        let (before, _) = self.around_caret();
        match before.graphemes(true).next_back() {
            Some(grapheme) => self.jump(line, char_idx - grapheme.chars().count()),
            None if line > 0 => self.jump(line - 1, self.area.lines()[line - 1].chars().count()),
            None => {}
        }
    }

    fn right(&mut self) {
        let (line, char_idx) = self.caret();
        let (_, after) = self.around_caret();
        match after.graphemes(true).next() {
            Some(grapheme) => self.jump(line, char_idx + grapheme.chars().count()),
            None if line + 1 < self.area.lines().len() => self.jump(line + 1, 0),
            None => {}
        }
    }

    fn delete_back(&mut self) {
        let (before, _) = self.around_caret();
        let n_chars = before.graphemes(true).next_back().map_or(1, |grapheme| grapheme.chars().count());
        for _ in 0..n_chars {
            self.area.delete_char();
        }
    }

    fn delete_forward(&mut self) {
        let (_, after) = self.around_caret();
        let n_chars = after.graphemes(true).next().map_or(1, |grapheme| grapheme.chars().count());
        for _ in 0..n_chars {
            self.area.delete_next_char();
        }
    }

    /// Moves a caret that stands inside a grapheme cluster to its beginning.
    fn snap(&mut self) {
        let (line, char_idx) = self.caret();
        let at = self.around_caret().0.len();
        let text = &self.area.lines()[line];
        // A boundary between two ASCII characters needs no search of the whole line.
        if at == 0
            || at == text.len()
            || (text.as_bytes()[at].is_ascii() && text.as_bytes()[at - 1].is_ascii())
        {
            return;
        }
        let start =
            text.grapheme_indices(true).map(|(start, _)| start).take_while(|start| *start <= at).last();
        if let Some(start) = start.filter(|start| *start < at) {
            let inside = text[start..at].chars().count();
            self.jump(line, char_idx - inside);
        }
    }
}

/// The top row that keeps a full window when the caret is near the beginning.
fn first_top(rows: &[String], height: usize, caret_at: usize) -> usize {
    rows.len().saturating_sub(height).min(caret_at.saturating_sub(height - 1))
}

fn byte_offset(line: &str, char_idx: usize) -> usize {
    line.char_indices().nth(char_idx).map_or(line.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composer(text: &str, width: usize) -> Composer {
        let mut composer = Composer::default();
        composer.set_width(width);
        composer.set_text(text);
        composer
    }

    #[test]
    fn the_caret_moves_and_deletes_by_grapheme() {
        let mut c = composer("a👩‍👩‍👧e\u{301}", 20);
        c.edit(Edit::Left);
        assert_eq!(c.view(3).caret, (0, 3));
        c.edit(Edit::Left);
        assert_eq!(c.view(3).caret, (0, 1));
        c.edit(Edit::DeleteForward);
        assert_eq!(c.text(), "ae\u{301}");
        c.edit(Edit::Right);
        c.edit(Edit::DeleteBack);
        assert_eq!(c.text(), "a");
    }

    #[test]
    fn up_and_down_follow_the_rows_as_drawn() {
        let mut c = composer("the quick brown fox\nend", 10);
        assert_eq!(c.view(5).rows, ["the quick ", "brown fox", "end"]);
        assert!(c.up());
        assert_eq!(c.view(5).caret, (1, 3));
        assert!(c.up());
        assert_eq!(c.view(5).caret, (0, 3));
        assert!(!c.up());
        assert!(c.down() && c.down());
        assert!(!c.down());
        assert_eq!(c.view(5).caret, (2, 3));
    }

    #[test]
    fn a_full_row_puts_the_caret_on_a_new_one() {
        let c = composer("abcde", 5);
        assert_eq!((c.n_rows(9), c.view(9).caret), (2, (1, 0)));
        assert_eq!(c.view(9).rows, ["abcde", ""]);
    }

    #[test]
    fn a_long_text_shows_the_rows_around_the_caret() {
        let text: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        let mut c = composer(&text.join("\n"), 10);
        let view = c.view(3);
        assert_eq!(
            (view.rows, view.caret, view.hidden_above),
            (vec!["27".into(), "28".into(), "29".into()], (2, 2), true)
        );
        for _ in 0..40 {
            c.up();
        }
        let view = c.view(3);
        assert_eq!((view.caret.0, view.hidden_above, view.hidden_below), (0, false, true));
        assert_eq!(view.rows, ["0", "1", "2"]);
    }

    #[test]
    fn the_word_behind_an_at_sign_is_found_and_replaced() {
        for (text, word) in [
            ("@", Some("")),
            ("see @src/a", Some("src/a")),
            ("x\n@é", Some("é")),
            ("漢\u{3000}@b", Some("b")),
            ("me@example", None),
            ("@a b", None),
            ("", None),
        ] {
            assert_eq!(composer(text, 20).at_word(), word, "{text}");
        }
        let mut c = composer("see @sré", 20);
        c.replace_at_word("src/main.rs ");
        assert_eq!(c.text(), "see src/main.rs ");
    }

    #[test]
    fn a_backslash_before_enter_becomes_a_newline() {
        let mut c = composer("one\\", 10);
        assert!(c.backslash_newline());
        assert_eq!(c.text(), "one\n");
        assert!(!c.backslash_newline());
    }

    #[test]
    fn a_big_paste_is_one_character_that_opens_on_demand() {
        let paste: String = (1..=200).map(|n| format!("line {n}\n")).collect();
        let mut c = composer("see ", 30);
        c.paste(&paste);
        c.type_char('!');
        assert_eq!(c.text(), format!("see {paste}!"));
        assert_eq!((c.view(5).rows, c.view(5).caret), (vec!["see [Pasted 200 lines]!".into()], (0, 23)));
        c.edit(Edit::Left);
        c.edit(Edit::Left);
        assert_eq!(c.view(5).caret, (0, 4), "the caret never stands inside");
        c.edit(Edit::DeleteForward);
        assert_eq!(c.text(), "see !");
        c.undo();
        assert_eq!(c.text(), format!("see {paste}!"));
        assert!(c.unfold() && !c.unfold());
        assert_eq!((c.text(), c.n_lines()), (format!("see {paste}!"), 201));
        assert!(c.view(5).rows.iter().any(|row| row == "line 200"));
    }

    #[test]
    fn the_character_of_a_fold_cannot_be_typed_or_pasted() {
        let mut c = composer("a\u{F0000}b", 30);
        c.paste(&"x\n".repeat(50));
        c.type_char('\u{F0000}');
        c.insert("\u{F0000}");
        assert_eq!(c.text(), format!("ab{}", "x\n".repeat(50)));
    }

    #[test]
    fn a_fold_that_is_broken_over_rows_keeps_the_caret_beside_it() {
        let mut c = composer("", 10);
        c.paste(&"x\n".repeat(50));
        assert_eq!(c.view(5).rows, ["[Pasted 50 ", "lines]"]);
        assert_eq!(c.view(5).caret, (1, 6));
        assert!(c.up());
        assert_eq!(c.view(5).caret, (0, 0));
    }

    #[test]
    fn a_click_puts_the_caret_there() {
        let mut c = composer("the quick brown fox\n漢字", 10);
        c.point_at(0, 4, 5);
        assert_eq!(c.view(5).caret, (0, 4));
        c.point_at(2, 3, 5);
        assert_eq!(c.view(5).caret, (2, 2));
        c.point_at(9, 99, 5);
        assert_eq!(c.view(5).caret, (2, 4));
    }
}
