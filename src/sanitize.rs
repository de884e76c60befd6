//! Makes untrusted text safe to show: model output, file and model names, messages of other programs.
//!
//! A terminal obeys the escape sequences in what it prints: they can write the clipboard, change the
//! title, move the cursor, or make the terminal type an answer into the next program. So whole
//! sequences go (CSI, OSC, DCS, APC, PM, SOS and the short ones, in their 7-bit and 8-bit forms), then
//! every other control character except newline and tab. Bidirectional overrides, which can make
//! text read otherwise than it is, are shown by their code points.
//!
//! The filter is a state machine over characters, so a stream gives the same result however it is cut.
//! Knows nothing of terminals, colours or the rest of the program.

/// Cleans one complete text.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    Filter::default().push(text, &mut out);
    out
}

/// Cleans a name or a message that is shown in a single row.
pub fn one_line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

/// Cleans text that arrives in pieces. What is still open at the end of the stream is an unfinished
/// escape sequence and is dropped with the filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and at least one intermediate byte, as in `ESC ( B`.
    Intermediate,
    /// After CSI: parameters up to a final byte.
    Csi,
    /// Inside OSC, DCS, APC, PM or SOS: everything up to the string terminator.
    ControlString,
    /// Inside such a string, after an ESC that may begin the terminator.
    ControlStringEscape,
}

impl Filter {
    /// Appends the harmless part of `chunk` to `out`.
    pub fn push(&mut self, chunk: &str, out: &mut String) {
        for c in chunk.chars() {
            self.state = self.step(c, out);
        }
    }

    fn step(self, c: char, out: &mut String) -> State {
        match self.state {
            State::Text => text(c, out),
            State::Escape => match c {
                '[' => State::Csi,
                ']' | 'P' | 'X' | '^' | '_' => State::ControlString,
                ' '..='/' => State::Intermediate,
                '0'..='~' => State::Text,
                _ => text(c, out),
            },
            State::Intermediate => match c {
                ' '..='/' => State::Intermediate,
                '0'..='~' => State::Text,
                _ => text(c, out),
            },
            State::Csi => match c {
                ' '..='?' => State::Csi,
                '@'..='~' => State::Text,
                _ => text(c, out),
            },
            // A newline ends the string too: otherwise a stray introducer would hide the rest of an answer.
            State::ControlString => match c {
                '\u{1b}' => State::ControlStringEscape,
                '\u{07}' | '\u{18}' | '\u{1a}' | '\u{9c}' => State::Text,
                '\n' => text(c, out),
                _ => State::ControlString,
            },
            State::ControlStringEscape => match c {
                '\\' => State::Text,
                _ => Self { state: State::Escape }.step(c, out),
            },
        }
    }
}

/// One character outside any sequence.
fn text(c: char, out: &mut String) -> State {
    match c {
        '\u{1b}' => return State::Escape,
        '\u{9b}' => return State::Csi,
        '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => return State::ControlString,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            out.push_str(&format!("⟨U+{:04X}⟩", u32::from(c)));
        }
        '\n' | '\t' => out.push(c),
        _ if c.is_control() => {}
        _ => out.push(c),
    }
    State::Text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_text_newlines_tabs_and_emoji_stay() {
        let text = "def f():\n\treturn 'naïve 漢字 👩‍👩‍👧 é'\n";
        assert_eq!(clean(text), text);
    }

    #[test]
    fn whole_sequences_go_with_their_contents() {
        for (dirty, expected) in [
            ("a\u{1b}[31mred\u{1b}[0m", "ared"),
            ("\u{1b}]0;title\u{07}x", "x"),
            ("\u{1b}]8;;http://e.example\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}]52;c;aGk=\u{1b}\\y", "y"),
            ("\u{1b}P1$r0m\u{1b}\\z", "z"),
            ("\u{1b}_Gi=1;AAAA\u{1b}\\k", "k"),
            ("\u{1b}^pm\u{1b}\\\u{1b}Xsos\u{1b}\\q", "q"),
            ("\u{1b}(Bplain\u{1b}c\u{1b}7", "plain"),
            ("\u{9b}6nq\u{9d}0;t\u{9c}w", "qw"),
            ("\u{1b}\u{1b}[1mbold", "bold"),
            ("\u{1b}]0;a\u{1b}[31mb", "b"),
        ] {
            assert_eq!(clean(dirty), expected, "{dirty:?}");
        }
    }

    #[test]
    fn an_unfinished_sequence_is_dropped_but_never_hides_the_next_line() {
        assert_eq!(clean("ab\u{1b}"), "ab");
        assert_eq!(clean("ab\u{1b}[12;3"), "ab");
        assert_eq!(clean("ab\u{1b}]0;title"), "ab");
        assert_eq!(clean("ab\u{1b}]0;title\nnext"), "ab\nnext");
        assert_eq!(clean("\u{1b}漢\u{1b}[漢"), "漢漢");
    }

    #[test]
    fn control_characters_go_and_overrides_are_shown() {
        assert_eq!(clean("a\r\nb\u{7}\u{8}\u{0}c\u{7f}\u{85}d"), "a\nbcd");
        assert_eq!(clean("x\u{202e}y\u{2069}"), "x⟨U+202E⟩y⟨U+2069⟩");
    }

    /// Text in which every kind of sequence is likely.
    fn risky_text() -> impl Strategy<Value = String> {
        let pieces = proptest::sample::select(vec![
            "\u{1b}",
            "[",
            "]",
            "P",
            "_",
            "31m",
            "\\",
            "\u{07}",
            "\u{9b}",
            "\u{9d}",
            "\u{9c}",
            "\n",
            "\t",
            "\r",
            "text ",
            "漢",
            "👩‍👧",
            "\u{202e}",
            "(",
            ";",
            "\u{18}",
            "\u{7f}",
        ]);
        proptest::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn the_result_is_the_same_however_the_stream_is_cut(text in risky_text(), cuts in proptest::collection::vec(0usize..40, 0..8)) {
            let chars: Vec<char> = text.chars().collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(chars.len())).collect();
            cuts.extend([0, chars.len()]);
            cuts.sort_unstable();
            let (mut filter, mut streamed) = (Filter::default(), String::new());
            for pair in cuts.windows(2) {
                filter.push(&chars[pair[0]..pair[1]].iter().collect::<String>(), &mut streamed);
            }
            prop_assert_eq!(streamed, clean(&text));
        }

        #[test]
        fn nothing_a_terminal_obeys_comes_out(text in risky_text(), noise in any::<String>()) {
            let cleaned = clean(&(text + &noise));
            prop_assert!(cleaned.chars().all(|c| matches!(c, '\n' | '\t') || !c.is_control()));
            prop_assert_eq!(clean(&cleaned), cleaned);
        }
    }
}
