//! Searching a list by a few letters, the best match first.

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

/// What fits, best first, and what comes earlier before what fits as well; everything in its order if nothing is typed.
pub fn ranked<T>(typed: &str, items: impl IntoIterator<Item = T>, text: impl Fn(&T) -> &str) -> Vec<T> {
    let pattern = Pattern::parse(typed, CaseMatching::Ignore, Normalization::Smart);
    let mut matcher = Matcher::new(Config::DEFAULT);
    let mut buffer = Vec::new();
    let scored = items.into_iter().filter_map(|item| {
        let score = pattern.score(Utf32Str::new(text(&item), &mut buffer), &mut matcher)?;
        Some((score, item))
    });
    let mut scored: Vec<(u32, T)> = scored.collect();
    // Stable: what fits as well stays in its order.
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    scored.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_may_be_scattered_and_together_is_better() {
        let items = ["new chat", "no changes", "branches", "ch"];
        assert_eq!(ranked("ne ch", items, |item| item)[0], "new chat");
        assert_eq!(ranked("nche", items, |item| item), ["no changes", "branches"]);
        assert_eq!(ranked("", items, |item| item), items);
        assert!(ranked("zz", items, |item| item).is_empty());
    }
}
