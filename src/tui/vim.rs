//! Vim's normal mode in the draft: operators, counts and motions. Insert mode is the ordinary way of typing.
//!
//! Keys that it doesn't know go on to the keymap, so that Enter sends and Ctrl+C clears in either mode.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::composer::{Composer, Motion};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vim {
    pub mode: Mode,
    operator: Option<char>,
    count: usize,
    /// `g` was pressed.
    goes: bool,
    /// What was deleted last were whole lines.
    lines: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Insert,
    Normal,
}

/// Whether the key was one of normal mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Yes,
    No,
    /// It went on over the first or the last row.
    Over(Edge),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    First,
    Last,
}

pub const HELP: &[(&str, &str)] = &[
    ("Esc", "normal mode; there: stop the answer, close what is open"),
    ("i a I A o O", "insert mode: here, behind, at the line's start or end, on a new line below or above"),
    ("h l 0 ^ $", "left, right, start and end of the line"),
    ("j k", "down, up; at the edge: later and earlier prompts"),
    ("w b e gg G", "by words; to the first, the last line"),
    ("x X D C", "delete a character forward, back; to the end of the line; and insert"),
    ("d c y", "with a motion, or twice for the line: delete, change, yank"),
    ("p P", "put behind, before"),
    ("u Ctrl+R", "undo, redo"),
    ("2 … 9", "before a motion or x: as often"),
];

/// More than any draft needs; a count may be typed endlessly.
const MAX_COUNT: usize = 999;

impl Vim {
    pub fn key(&mut self, key: KeyEvent, composer: &mut Composer) -> Taken {
        let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
        match (self.mode, key.code) {
            (Mode::Insert, KeyCode::Esc) if plain => {
                *self = Self { mode: Mode::Normal, lines: self.lines, ..Self::default() };
                composer.go(Motion::LeftInLine);
                Taken::Yes
            }
            (Mode::Insert, _) => Taken::No,
            (Mode::Normal, KeyCode::Esc) if self.is_begun() => {
                self.begin_anew();
                Taken::Yes
            }
            (Mode::Normal, KeyCode::Char('r')) if key.modifiers == KeyModifiers::CONTROL => {
                composer.redo();
                Taken::Yes
            }
            (Mode::Normal, KeyCode::Char(c)) if plain => self.normal(c, composer),
            (Mode::Normal, _) => Taken::No,
        }
    }

    fn is_begun(&self) -> bool {
        self.operator.is_some() || self.count > 0 || self.goes
    }

    fn begin_anew(&mut self) {
        (self.operator, self.count, self.goes) = (None, 0, false);
    }

    fn normal(&mut self, c: char, composer: &mut Composer) -> Taken {
        if let Some(digit) = c.to_digit(10).filter(|digit| *digit > 0 || self.count > 0) {
            self.count = (self.count * 10 + digit as usize).min(MAX_COUNT);
            return Taken::Yes;
        }
        let count = self.count.max(1);
        let motion = match (c, std::mem::take(&mut self.goes)) {
            ('g', true) => Some(Motion::First),
            ('g', false) => {
                self.goes = true;
                return Taken::Yes;
            }
            (_, true) => None,
            (c, false) => motion(c),
        };
        if let Some(motion) = motion {
            match self.operator {
                Some(operator) => self.operate(operator, motion, count, composer),
                None => (0..count).for_each(|_| composer.go(motion)),
            }
            self.begin_anew();
            if self.mode == Mode::Normal {
                composer.rest_on_character();
            }
            return Taken::Yes;
        }
        match (c, self.operator) {
            // Whoever goes on over the edge leaves the draft.
            ('j' | 'k', None) => {
                let moved =
                    (0..count).filter(|_| if c == 'j' { composer.down() } else { composer.up() }).count();
                self.begin_anew();
                return match (moved, c) {
                    (0, 'j') => Taken::Over(Edge::Last),
                    (0, _) => Taken::Over(Edge::First),
                    _ => Taken::Yes,
                };
            }
            ('d' | 'c' | 'y', None) => {
                self.operator = Some(c);
                return Taken::Yes;
            }
            (c, Some(operator)) if c == operator => {
                self.lines = true;
                match operator {
                    'y' => composer.yank_lines(count),
                    'c' => composer.change_line(),
                    _ => composer.delete_lines(count),
                }
                if operator == 'c' {
                    self.mode = Mode::Insert;
                }
            }
            (_, Some(_)) => {}
            ('i', None) => self.mode = Mode::Insert,
            ('a', None) => {
                composer.go(Motion::RightInLine);
                self.mode = Mode::Insert;
            }
            ('I', None) => {
                composer.go(Motion::FirstWord);
                self.mode = Mode::Insert;
            }
            ('A', None) => {
                composer.go(Motion::LineEnd);
                self.mode = Mode::Insert;
            }
            ('o', None) => {
                composer.go(Motion::LineEnd);
                composer.newline();
                self.mode = Mode::Insert;
            }
            ('O', None) => {
                composer.go(Motion::LineStart);
                composer.newline();
                composer.up();
                self.mode = Mode::Insert;
            }
            ('x', None) => self.operate('d', Motion::RightInLine, count, composer),
            ('X', None) => self.operate('d', Motion::LeftInLine, count, composer),
            ('D', None) => self.operate('d', Motion::LineEnd, 1, composer),
            ('C', None) => self.operate('c', Motion::LineEnd, 1, composer),
            ('u', None) => composer.undo(),
            ('p' | 'P', None) => (0..count).for_each(|_| composer.put(self.lines, c == 'p')),
            _ => {}
        }
        self.begin_anew();
        if self.mode == Mode::Normal {
            composer.rest_on_character();
        }
        Taken::Yes
    }

    fn operate(&mut self, operator: char, motion: Motion, count: usize, composer: &mut Composer) {
        self.lines = false;
        // Changing a word leaves the space behind it.
        let motion = if operator == 'c' && motion == Motion::WordRight { Motion::WordEnd } else { motion };
        match operator {
            'y' => composer.yank_over(motion, count),
            _ => composer.delete_over(motion, count),
        }
        if operator == 'c' {
            self.mode = Mode::Insert;
        }
    }
}

fn motion(c: char) -> Option<Motion> {
    Some(match c {
        'h' => Motion::LeftInLine,
        'l' | ' ' => Motion::RightInLine,
        '0' => Motion::LineStart,
        '^' => Motion::FirstWord,
        '$' => Motion::LineEnd,
        'w' => Motion::WordRight,
        'b' => Motion::WordLeft,
        'e' => Motion::WordEnd,
        'G' => Motion::Last,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types into a draft whose mode is normal, with the caret on the first character.
    fn typed(text: &str, keys: &str) -> (String, Mode) {
        let mut composer = Composer::default();
        composer.set_width(80);
        composer.set_text(text);
        composer.go(Motion::First);
        let mut vim = Vim { mode: Mode::Normal, ..Vim::default() };
        for c in keys.chars() {
            let key = match c {
                '\u{1b}' => KeyEvent::from(KeyCode::Esc),
                '\u{12}' => KeyEvent::new(KeyCode::Char('r'), KeyModifiers::CONTROL),
                c => KeyEvent::from(KeyCode::Char(c)),
            };
            if vim.key(key, &mut composer) == Taken::No
                && let (Mode::Insert, KeyCode::Char(c)) = (vim.mode, key.code)
            {
                composer.type_char(c);
            }
        }
        (composer.text(), vim.mode)
    }

    #[test]
    fn operators_take_counts_and_motions() {
        for (text, keys, after) in [
            ("one two three", "dw", "two three"),
            ("one two three", "2dw", "three"),
            ("one two three", "d2w", "three"),
            ("one two three", "wcwTWO\u{1b}", "one TWO three"),
            ("one two three", "$x", "one two thre"),
            ("one two three", "wD", "one "),
            ("one two three", "3x", " two three"),
            ("漢字 x", "x", "字 x"),
            ("one\ntwo\nthree", "dd", "two\nthree"),
            ("one\ntwo\nthree", "2dd", "three"),
            ("one\ntwo", "Gdd", "one"),
            ("one\ntwo", "yyp", "one\none\ntwo"),
            ("one\ntwo", "ddp", "two\none"),
            ("one two", "ywP", "one one two"),
            ("one", "ccTWO\u{1b}", "TWO"),
            ("one", "xu", "one"),
            ("one", "xu\u{12}", "ne"),
            ("one", "Atwo", "onetwo"),
            ("  one", "Ix", "  xone"),
            ("one", "otwo\u{1b}Ozero", "one\nzero\ntwo"),
            ("one two", "d\u{1b}x", "ne two"),
            ("one\ntwo\nthree", "Gggx", "ne\ntwo\nthree"),
        ] {
            assert_eq!(typed(text, keys).0, after, "{keys} in {text}");
        }
    }

    #[test]
    fn escape_leaves_insert_mode_and_i_comes_back() {
        assert_eq!(typed("one", "ix").1, Mode::Insert);
        assert_eq!(typed("one", "ix\u{1b}").1, Mode::Normal);
        assert_eq!(typed("one", "cw").1, Mode::Insert);
        assert_eq!(typed("one", "999999999999999999999999l").1, Mode::Normal);
    }
}
