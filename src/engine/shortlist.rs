//! The part of the vocabulary that drafts are chosen from: tokens that make up nearly all text, so that a guess doesn't
//! cost a product with the whole head, a third of a step where weights have four bits. Judging sees all tokens, so
//! nothing of an answer changes; a token that isn't on the list is one that no draft can guess.
//!
//! Byte-pair vocabularies are numbered in the order of their merges, the most frequent first, which makes the first ids
//! the list. Of Qwen3.5's, the first 65,536 of 248,320 cover 98 % of the tokens of English text and of program code
//! (measured on Rust, Python and Markdown), but few of Chinese or Russian: so it is watched how much of the text is on
//! the list, and if it is too little, drafts are chosen from all tokens.

use std::ops::Range;

/// Ids of ordinary tokens on the list.
const COMMON: usize = 65_536;
/// A vocabulary that isn't much larger needs no list.
const MIN_VOCABULARY: usize = 2 * COMMON;
/// Share of a text's tokens that must be on the list.
const MIN_SHARE: f64 = 0.93;
/// Tokens that the share is remembered of.
const MEMORY: f64 = 128.0;

/// Two ranges of ids: the common tokens, and those behind the ordinary ones, which end an answer and structure it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortlist {
    common: Range<usize>,
    special: Range<usize>,
}

impl Shortlist {
    /// `special` is the least id that stops an answer; `n_valid` how many ids stand for tokens.
    pub fn new(special: Option<u32>, n_valid: usize) -> Option<Self> {
        if n_valid < MIN_VOCABULARY {
            return None;
        }
        // A product with some rows begins at a whole panel of them.
        let special = special.map_or(n_valid, |id| id as usize / 16 * 16);
        (special >= COMMON).then_some(Self { common: 0..COMMON, special: special..n_valid })
    }

    pub fn ranges(&self) -> [Range<usize>; 2] {
        [self.common.clone(), self.special.clone()]
    }

    /// How many tokens are on it.
    pub fn len(&self) -> usize {
        self.common.len() + self.special.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of the token at `index` of the list.
    pub fn id(&self, index: u32) -> u32 {
        match (index as usize).checked_sub(self.common.len()) {
            None => index,
            Some(behind) => (self.special.start + behind) as u32,
        }
    }

    fn contains(&self, id: u32) -> bool {
        self.ranges().iter().any(|range| range.contains(&(id as usize)))
    }
}

/// A shortlist, and how well it has been covering the text.
pub struct Coverage {
    shortlist: Option<Shortlist>,
    share: f64,
}

impl Coverage {
    pub fn new(shortlist: Option<Shortlist>) -> Self {
        Self { shortlist, share: 1.0 }
    }

    /// The text goes on with this token.
    pub fn note(&mut self, id: u32) {
        if let Some(shortlist) = &self.shortlist {
            self.share += (f64::from(u8::from(shortlist.contains(id))) - self.share) / MEMORY;
        }
    }

    /// The list, if it is worth drafting from.
    pub fn shortlist(&self) -> Option<&Shortlist> {
        self.shortlist.as_ref().filter(|_| self.share >= MIN_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_common_and_the_special_tokens() {
        let list = Shortlist::new(Some(248_044), 248_070).unwrap();
        assert_eq!(list.ranges(), [0..65_536, 248_032..248_070]);
        assert_eq!([0, 65_535, 65_536, 65_573].map(|index| list.id(index)), [0, 65_535, 248_032, 248_069]);
        assert_eq!(list.len(), 65_574);
        assert_eq!(Shortlist::new(Some(5), 248_070), None, "what stops an answer is common itself");
        assert_eq!(Shortlist::new(Some(900), 1000), None, "a small vocabulary");
    }

    #[test]
    fn text_of_other_words_is_drafted_from_all_tokens() {
        let mut coverage = Coverage::new(Shortlist::new(Some(248_044), 248_070));
        (0..200).for_each(|id| coverage.note(id));
        assert!(coverage.shortlist().is_some());
        (0..30).for_each(|id| coverage.note(100_000 + id));
        assert!(coverage.shortlist().is_none());
        (0..400).for_each(|id| coverage.note(id));
        assert!(coverage.shortlist().is_some());
        assert!(Coverage::new(None).shortlist().is_none());
    }
}
