//! Pages over the screen that are read and scrolled: help, what fills the context, what the model read, two answers
//! side by side.

use crate::chat::NodeId;
use crate::msg::PromptPiece;

#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub what: PageKind,
    /// The first row in sight.
    pub top: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum PageKind {
    /// Keys and commands.
    Help,
    Keys,
    Context(ContextMap),
    /// The prompt, word for word.
    Prompt(Vec<PromptPiece>),
    Compare(Compared),
}

/// What fills the context.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContextMap {
    pub parts: Vec<ContextPart>,
    /// Most tokens that a prompt and its answer may have together.
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextPart {
    /// Who says it, and the number on the screen.
    pub who: String,
    /// Its first words.
    pub beginning: String,
    pub text_tokens: usize,
    pub picture_tokens: usize,
}

/// Answers to the same question, two of which are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    pub answers: Vec<NodeId>,
    pub left: usize,
    pub right: usize,
}

impl Page {
    pub fn new(what: PageKind) -> Self {
        Self { what, top: 0 }
    }
}

impl ContextPart {
    pub fn tokens(&self) -> usize {
        self.text_tokens + self.picture_tokens
    }
}

impl ContextMap {
    pub fn total(&self) -> usize {
        self.parts.iter().map(ContextPart::tokens).sum()
    }
}

impl Compared {
    /// Another answer on the right.
    pub fn turn(&mut self, forward: bool) {
        let n = self.answers.len();
        let step = if forward { 1 } else { n - 1 };
        self.right = (self.right + step) % n;
        if self.right == self.left {
            self.right = (self.right + step) % n;
        }
    }
}
