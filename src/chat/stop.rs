//! Texts that end an answer. They may come in pieces, and are never shown.

/// Finds the first of several texts in a stream. What `push` and `finish` give, joined, does not depend on how the
/// stream was cut.
#[derive(Debug, Clone, Default)]
pub struct StopFinder {
    stops: Vec<String>,
    /// May be the beginning of a stop.
    held: String,
    found: bool,
}

impl StopFinder {
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops, ..Self::default() }
    }

    /// Whether a stop has come; nothing is said after it.
    pub fn found(&self) -> bool {
        self.found
    }

    /// What can be shown now.
    pub fn push(&mut self, text: &str) -> String {
        if self.found {
            return String::new();
        }
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.found = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let may_be_stop = |at: &usize| {
            let rest = &self.held[*at..];
            self.stops.iter().any(|stop| stop.starts_with(rest))
        };
        let boundaries = self.held.char_indices().map(|(at, _)| at);
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let near = self.held.len().saturating_sub(longest);
        let keep = boundaries.filter(|at| *at >= near).find(may_be_stop).unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        std::mem::replace(&mut self.held, rest)
    }

    /// What was held back, at the end of the stream.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(pieces: &[&str], stops: &[&str]) -> (String, bool) {
        let mut finder = StopFinder::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
        let mut shown: String = pieces.iter().map(|piece| finder.push(piece)).collect();
        shown.push_str(&finder.finish());
        (shown, finder.found())
    }

    #[test]
    fn the_earliest_stop_ends_the_text_and_is_not_shown() {
        assert_eq!(cut(&["a\n", "\nb"], &["\n\n"]), ("a".into(), true));
        assert_eq!(cut(&["one two three"], &["three", "two"]), ("one ".into(), true));
        assert_eq!(cut(&["almost EN", "ding"], &["END"]), ("almost ENding".into(), false));
        assert_eq!(cut(&["é"], &["é"]), (String::new(), true));
        assert_eq!(cut(&["text"], &[]), ("text".into(), false));
    }

    proptest! {
        #[test]
        fn the_same_however_it_is_cut(text in "[ab\u{e9}]{0,12}", at in 0usize..13, stop in "[ab\u{e9}]{1,3}") {
            let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            let expected = text.split_once(&stop).map_or((text.clone(), false), |(before, _)| (before.into(), true));
            prop_assert_eq!(cut(&[&text[..at], &text[at..]], &[&stop]), expected);
        }
    }
}
