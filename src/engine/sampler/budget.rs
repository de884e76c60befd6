//! A budget of thinking: when it is spent, the next tokens are no longer the model's choice but those that close a
//! thought, and the model answers.
//!
//! It moves with the tokens of the answer and with nothing else, so that drafts change nothing of it: a draft other
//! than the token that must come is a wrong guess.

/// The two tags of a thought, and what closes it as the family's templates do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThoughtTokens {
    pub open: Option<u32>,
    pub close: u32,
    /// With `close` in it.
    pub closing: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinkingBudget {
    tokens: ThoughtTokens,
    phase: Phase,
    /// Tokens of thought that may still come.
    left: usize,
    was_spent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing came yet: some models open their thought themselves.
    Before,
    Thinking,
    /// So many of the closing tokens came.
    Closing(usize),
    Over,
}

impl ThinkingBudget {
    /// `most` tokens of thought, the tag that ends it among them. `in_thought`: the prompt has opened it.
    pub fn new(tokens: ThoughtTokens, most: usize, in_thought: bool) -> Self {
        let of_closing = tokens.closing.iter().take_while(|token| **token != tokens.close).count() + 1;
        let phase = if in_thought { Phase::Thinking } else { Phase::Before };
        Self { tokens, phase, left: most.saturating_sub(of_closing), was_spent: false }
    }

    /// The token that must come next.
    pub fn forced(&self) -> Option<u32> {
        let at = match self.phase {
            Phase::Closing(at) => at,
            Phase::Thinking if self.left == 0 => 0,
            Phase::Before | Phase::Thinking | Phase::Over => return None,
        };
        self.tokens.closing.get(at).copied()
    }

    /// Notes a token of the answer.
    pub fn accept(&mut self, token: u32) {
        self.phase = match self.phase {
            Phase::Before if Some(token) == self.tokens.open => Phase::Thinking,
            Phase::Before | Phase::Over => Phase::Over,
            Phase::Closing(at) if at + 1 < self.tokens.closing.len() => Phase::Closing(at + 1),
            Phase::Closing(_) => Phase::Over,
            Phase::Thinking if self.left == 0 => {
                self.was_spent = true;
                if self.tokens.closing.len() > 1 { Phase::Closing(1) } else { Phase::Over }
            }
            Phase::Thinking if token == self.tokens.close => Phase::Over,
            Phase::Thinking => {
                self.left -= 1;
                Phase::Thinking
            }
        };
    }

    /// Whether it was this that ended the thought.
    pub fn was_spent(&self) -> bool {
        self.was_spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: u32 = 8;
    const CLOSE: u32 = 9;

    fn budget(most: usize, in_thought: bool) -> ThinkingBudget {
        let tokens = ThoughtTokens { open: Some(OPEN), close: CLOSE, closing: vec![1, CLOSE, 2] };
        ThinkingBudget::new(tokens, most, in_thought)
    }

    /// The answer of a model that wants to say `wants`, as long as it may.
    fn said(mut budget: ThinkingBudget, wants: &[u32]) -> (Vec<u32>, bool) {
        let mut wants = wants.iter();
        let mut said = Vec::new();
        while let Some(token) = budget.forced().or_else(|| wants.next().copied()) {
            budget.accept(token);
            said.push(token);
        }
        (said, budget.was_spent())
    }

    #[test]
    fn a_spent_budget_closes_the_thought_and_only_it() {
        assert_eq!(said(budget(4, true), &[5, 5, 7, 7, 7]), (vec![5, 5, 1, CLOSE, 2, 7, 7, 7], true));
        assert_eq!(said(budget(1, true), &[7]), (vec![1, CLOSE, 2, 7], true));
        assert_eq!(said(budget(4, true), &[5, CLOSE, 7, 7, 7, 7]), (vec![5, CLOSE, 7, 7, 7, 7], false));
    }

    #[test]
    fn a_thought_that_the_model_opens_counts_too() {
        assert_eq!(said(budget(3, false), &[OPEN, 5, 7]), (vec![OPEN, 5, 1, CLOSE, 2, 7], true));
        assert_eq!(said(budget(3, false), &[7, 7, 7, 7, OPEN]), (vec![7, 7, 7, 7, OPEN], false));
    }
}
