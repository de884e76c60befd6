//! Soft wrapping by display width.
//!
//! Lines break after white space, and between characters where one of the two is double-width (Chinese,
//! Japanese, Korean, emoji); a word longer than the line is broken anywhere, but never inside a grapheme
//! cluster. Leading white space stays, because it is code. Widths agree with what ratatui draws.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Columns of a tab. Fixed, not to the next stop: then a wrapped piece is as wide wherever it begins.
const TAB: &str = "    ";

/// Columns that one grapheme cluster takes.
pub fn grapheme_width(grapheme: &str) -> usize {
    if grapheme == "\t" { TAB.len() } else { grapheme.width() }
}

/// Columns that a text without newlines takes.
pub fn display_width(text: &str) -> usize {
    text.graphemes(true).map(grapheme_width).sum()
}

/// The text as it is drawn: tabs become spaces, which terminals and ratatui measure alike.
pub fn drawable(text: &str) -> String {
    text.replace('\t', TAB)
}

/// Cuts a text without newlines into at most `width` columns; `…` marks the cut.
pub fn shorten(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for grapheme in text.graphemes(true) {
        used += grapheme_width(grapheme);
        if used > width {
            break;
        }
        out.push_str(grapheme);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// The byte ranges of the rows of one line (no newlines in it). The ranges cover the line without gaps,
/// and there is always at least one. White space at a break hangs over the end of its row.
pub fn wrap_line(line: &str, width: usize) -> Vec<Range<usize>> {
    let width = width.max(1);
    let mut rows = Vec::new();
    let mut start = 0;
    // Columns used in this row, and the same at the last place where it may break.
    let mut used = 0;
    let mut break_at = None;
    let mut previous_wide = false;
    let mut previous_space = true;
    for (at, grapheme) in line.grapheme_indices(true) {
        let columns = grapheme_width(grapheme);
        let space = grapheme.chars().all(char::is_whitespace);
        let may_break_before = at > start && (previous_space || previous_wide || columns > 1);
        if !space && may_break_before {
            break_at = Some((at, used));
        }
        // White space never begins a row by itself; it hangs over the edge and isn't drawn there.
        if used + columns > width && at > start && !(space && used >= width) {
            let (cut, kept) = match break_at {
                Some((cut, kept)) if cut > start && has_text(&line[start..cut]) => (cut, kept),
                _ => (at, used),
            };
            rows.push(start..cut);
            start = cut;
            used -= kept;
            break_at = None;
        }
        used += columns;
        previous_wide = columns > 1 && !space;
        previous_space = space;
    }
    rows.push(start..line.len());
    rows
}

fn has_text(text: &str) -> bool {
    text.chars().any(|c| !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(text: &str, width: usize) -> Vec<&str> {
        wrap_line(text, width).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn words_move_to_the_next_row_whole() {
        assert_eq!(rows("the quick brown fox", 10), ["the quick ", "brown fox"]);
        assert_eq!(rows("exactly ten", 7), ["exactly ", "ten"]);
        assert_eq!(rows("", 5), [""]);
    }

    #[test]
    fn a_word_longer_than_the_row_is_broken() {
        assert_eq!(rows("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(rows("a abcdefgh", 4), ["a ", "abcd", "efgh"]);
    }

    #[test]
    fn indentation_stays_with_its_code() {
        assert_eq!(rows("    let x = 1;", 10), ["    let x ", "= 1;"]);
        assert_eq!(rows("    abcdefghij", 8), ["    abcd", "efghij"]);
    }

    #[test]
    fn wide_characters_and_clusters_are_measured_as_drawn() {
        assert_eq!(rows("漢字漢字", 5), ["漢字", "漢字"]);
        assert_eq!(rows("ab漢字", 4), ["ab漢", "字"]);
        assert_eq!(rows("👩‍👩‍👧👩‍👩‍👧", 3), ["👩‍👩‍👧", "👩‍👩‍👧"]);
        assert_eq!(rows("e\u{301}e\u{301}e\u{301}", 2), ["e\u{301}e\u{301}", "e\u{301}"]);
        assert_eq!(rows("漢", 1), ["漢"]);
    }

    #[test]
    fn shortening_never_exceeds_the_width() {
        assert_eq!(shorten("Qwen3.5-0.8B", 8), "Qwen3.5…");
        assert_eq!(shorten("漢字漢字", 4), "漢…");
        assert_eq!(shorten("abc", 0), "");
    }

    proptest! {
        #[test]
        fn rows_cover_the_line_and_fit(text in "[a-c \\t漢é👩‍👧-]{0,60}", width in 1usize..20) {
            let ranges = wrap_line(&text, width);
            let mut at = 0;
            for range in &ranges {
                prop_assert_eq!(range.start, at);
                at = range.end;
                let shown = text[range.clone()].trim_end();
                let one_grapheme = shown.graphemes(true).count() == 1;
                prop_assert!(display_width(shown) <= width || one_grapheme, "{:?}", shown);
            }
            prop_assert_eq!(at, text.len());
        }
    }
}
