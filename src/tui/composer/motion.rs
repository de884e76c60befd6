//! Motions and what operators do over them, for modes in which letters are commands.

use ratatui_textarea::CursorMove;

use super::Composer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Motion {
    LeftInLine,
    RightInLine,
    LineStart,
    /// The first character of the line that is no space.
    FirstWord,
    LineEnd,
    WordRight,
    WordLeft,
    /// The last character of the word.
    WordEnd,
    /// The first and the last line.
    First,
    Last,
}

impl Composer {
    pub fn go(&mut self, motion: Motion) {
        let (line, _) = self.caret();
        let (before, after) = self.around_caret();
        match motion {
            Motion::LeftInLine if before.is_empty() => {}
            Motion::LeftInLine => self.left(),
            Motion::RightInLine if after.is_empty() => {}
            Motion::RightInLine => self.right(),
            Motion::LineStart => self.area.move_cursor(CursorMove::Head),
            Motion::FirstWord => {
                let indent = self.area.lines()[line].chars().take_while(|c| c.is_whitespace()).count();
                self.jump(line, indent);
            }
            Motion::LineEnd => self.area.move_cursor(CursorMove::End),
            Motion::WordRight => self.area.move_cursor(CursorMove::WordForward),
            Motion::WordLeft => self.area.move_cursor(CursorMove::WordBack),
            Motion::WordEnd => self.area.move_cursor(CursorMove::WordEnd),
            Motion::First => self.jump(0, 0),
            Motion::Last => self.jump(self.n_lines() - 1, 0),
        }
        self.snap();
    }

    /// A caret behind the last character of a line goes onto it.
    pub fn rest_on_character(&mut self) {
        let (before, after) = self.around_caret();
        if after.is_empty() && !before.is_empty() {
            self.left();
        }
    }

    pub fn delete_over(&mut self, motion: Motion, count: usize) {
        if let Some((first, last)) = self.lines_over(motion) {
            self.jump(first, 0);
            return self.delete_lines(last - first + 1);
        }
        self.select_over(motion, count);
        self.area.cut();
        self.area.cancel_selection();
        self.snap();
    }

    pub fn yank_over(&mut self, motion: Motion, count: usize) {
        if let Some((first, last)) = self.lines_over(motion) {
            return self.yank(first, last);
        }
        let start = self.caret();
        self.select_over(motion, count);
        let end = self.caret();
        self.area.copy();
        self.area.cancel_selection();
        let (line, char_idx) = start.min(end);
        self.jump(line, char_idx);
    }

    /// Motions by lines take whole lines.
    fn lines_over(&self, motion: Motion) -> Option<(usize, usize)> {
        let (line, _) = self.caret();
        match motion {
            Motion::First => Some((0, line)),
            Motion::Last => Some((line, self.n_lines() - 1)),
            _ => None,
        }
    }

    fn select_over(&mut self, motion: Motion, count: usize) {
        let (line, _) = self.caret();
        self.area.start_selection();
        for _ in 0..count {
            self.go(motion);
        }
        let (end, char_idx) = self.caret();
        match motion {
            // The last word of a line ends with it.
            Motion::WordRight if end > line && self.is_indent(end, char_idx) => {
                self.jump(end - 1, self.area.lines()[end - 1].chars().count());
            }
            Motion::WordEnd => self.right(),
            _ => {}
        }
    }

    fn is_indent(&self, line: usize, char_idx: usize) -> bool {
        self.area.lines()[line].chars().take(char_idx).all(char::is_whitespace)
    }

    pub fn yank_lines(&mut self, count: usize) {
        let (line, _) = self.caret();
        self.yank(line, line + count - 1);
    }

    fn yank(&mut self, first: usize, last: usize) {
        let last = last.min(self.n_lines() - 1);
        let text = self.area.lines()[first..=last].join("\n") + "\n";
        self.area.set_yank_text(text);
    }

    pub fn delete_lines(&mut self, count: usize) {
        let (first, _) = self.caret();
        let last = (first + count - 1).min(self.n_lines() - 1);
        let text = self.area.lines()[first..=last].join("\n") + "\n";
        let end = match last + 1 < self.n_lines() {
            true => {
                self.jump(first, 0);
                (last + 1, 0)
            }
            false => {
                // The last lines take the line break before them along.
                match first.checked_sub(1) {
                    Some(before) => self.jump(before, self.area.lines()[before].chars().count()),
                    None => self.jump(0, 0),
                }
                (last, self.area.lines()[last].chars().count())
            }
        };
        self.area.start_selection();
        self.jump(end.0, end.1);
        self.area.cut();
        self.area.cancel_selection();
        self.area.set_yank_text(text);
        self.area.move_cursor(CursorMove::Head);
    }

    /// Empties the line, so that another one can be written in its place.
    pub fn change_line(&mut self) {
        self.area.move_cursor(CursorMove::Head);
        self.delete_over(Motion::LineEnd, 1);
    }

    /// Puts what was yanked or deleted last behind the caret or before it; whole lines below or above.
    pub fn put(&mut self, lines: bool, behind: bool) {
        let text = self.area.yank_text();
        match (lines, behind) {
            (true, true) => {
                self.area.move_cursor(CursorMove::End);
                let (line, _) = self.caret();
                self.area.insert_str(format!("\n{}", text.trim_end_matches('\n')));
                self.jump(line + 1, 0);
            }
            (true, false) => {
                self.area.move_cursor(CursorMove::Head);
                let (line, _) = self.caret();
                self.area.insert_str(format!("{}\n", text.trim_end_matches('\n')));
                self.jump(line, 0);
            }
            (false, _) => {
                if behind {
                    self.go(Motion::RightInLine);
                }
                self.area.insert_str(text);
            }
        }
    }
}
