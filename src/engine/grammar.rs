//! Answers that are held to a JSON Schema or a regular expression: before each token the grammar says which ones may
//! come, and the sampler looks at no other.
//!
//! The grammar moves with sampled tokens only. A draft of the MTP head that it forbids differs from the sampled token
//! and is dropped like any wrong guess, so there is nothing to take back. What a model thinks before it answers is
//! free: the grammar begins behind `</think>` and the line breaks that templates put there.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use super::tokenizer::Tokenizer;
use crate::msg::Form;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    #[error("the {kind} can't be used: {why}")]
    Unusable { kind: &'static str, why: String },
    #[error("nothing can satisfy the {kind}: {why}")]
    Unsatisfiable { kind: &'static str, why: String },
    #[error("the answer can't go on as its form demands: {0}")]
    Stuck(String),
}

/// The tokenizer as grammars need it, made once: a tree of the bytes of all tokens.
pub struct Grammars {
    factory: ParserFactory,
    close_think: Option<u32>,
    /// Tokens of nothing but line breaks.
    breaks: Vec<u32>,
}

impl Grammars {
    /// # Errors
    /// `Unusable` if the library can't work with this vocabulary.
    pub fn new(tokenizer: &Tokenizer, stop_ids: &[u32]) -> Result<Self, GrammarError> {
        let unusable = |why: String| GrammarError::Unusable { kind: "tokenizer", why };
        let vocab_size = u32::try_from(tokenizer.vocab_size()).map_err(|e| unusable(e.to_string()))?;
        let words: Vec<Vec<u8>> = (0..vocab_size).map(|id| word(tokenizer, id)).collect();
        let stop_ids: Vec<u32> = stop_ids.iter().copied().filter(|id| *id < vocab_size).collect();
        let first =
            *stop_ids.first().ok_or_else(|| unusable("it has no token that ends an answer".into()))?;
        let trie = TokTrie::from(&TokRxInfo::new(vocab_size, first), &words).with_eos_tokens(&stop_ids);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&env).map_err(|error| unusable(error.to_string()))?;
        factory.quiet();
        let is_break = |id: &u32| {
            let bytes = tokenizer.bytes_of(*id);
            !bytes.is_empty() && bytes.len() <= 2 && bytes.iter().all(|byte| *byte == b'\n')
        };
        Ok(Self {
            factory,
            close_think: tokenizer.token_id("</think>"),
            breaks: (0..vocab_size).filter(is_break).collect(),
        })
    }

    /// For one answer. `in_thought`: the model is thinking when it begins.
    ///
    /// # Errors
    /// `Unusable` and `Unsatisfiable`, about what was asked for.
    pub fn guide(&self, form: &Form, in_thought: bool) -> Result<Guide, GrammarError> {
        let (kind, grammar) = match form {
            Form::Schema(schema) => ("schema", TopLevelGrammar::from_json_schema(tidy(schema))),
            Form::Regex(regex) => ("regex", TopLevelGrammar::from_regex(regex)),
        };
        let failed = |why: String| {
            // The library tells these apart by words alone.
            match why.to_lowercase().contains("unsatisfiable") {
                true => GrammarError::Unsatisfiable { kind, why },
                false => GrammarError::Unusable { kind, why },
            }
        };
        let parser = self.factory.create_parser(grammar).map_err(|error| failed(error.to_string()))?;
        let mut matcher = Matcher::new(Ok(parser));
        if let Some(why) = matcher.get_error() {
            return Err(failed(why));
        }
        let mask = matcher.compute_mask().map_err(|error| failed(error.to_string()))?;
        if mask.is_zero() {
            return Err(failed("it is unsatisfiable from its first character on".into()));
        }
        Ok(Guide {
            phase: if in_thought { Phase::Thinking } else { Phase::Held },
            close_think: self.close_think,
            breaks: self.breaks.clone(),
            matcher,
            mask: Some(mask),
        })
    }
}

/// The form of one answer, at the place that the answer has come to.
pub struct Guide {
    matcher: Matcher,
    phase: Phase,
    close_think: Option<u32>,
    breaks: Vec<u32>,
    /// What may come next; `None` until it is asked for.
    mask: Option<SimpleVob>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Thinking,
    /// Right behind a thought: the template's line breaks may come before the answer.
    Between,
    Held,
}

impl Guide {
    /// The tokens that may come next; `None` if all may.
    ///
    /// # Errors
    /// `Stuck` if the grammar has become too complex to go on with.
    pub fn allowed(&mut self) -> Result<Option<&SimpleVob>, GrammarError> {
        if self.phase == Phase::Thinking {
            return Ok(None);
        }
        if self.mask.is_none() {
            let mask = self.matcher.compute_mask_or_eos();
            self.mask = Some(mask.map_err(|error| GrammarError::Stuck(error.to_string()))?);
        }
        let mask = self.mask.as_mut().expect("it was just made");
        if self.phase == Phase::Between {
            self.breaks.iter().for_each(|id| mask.allow_token(*id));
        }
        Ok(Some(mask))
    }

    /// Goes on to the place behind a sampled token.
    ///
    /// # Errors
    /// `Stuck` if the token was not allowed.
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        match self.phase {
            Phase::Thinking => {
                if Some(token) == self.close_think {
                    self.phase = Phase::Between;
                }
                return Ok(());
            }
            // An answer may begin with such a token too, but no form needs it to.
            Phase::Between if self.breaks.contains(&token) => {
                self.phase = Phase::Held;
                self.mask = None;
                return Ok(());
            }
            Phase::Between | Phase::Held => self.phase = Phase::Held,
        }
        self.mask = None;
        self.matcher.consume_token(token).map_err(|error| GrammarError::Stuck(error.to_string()))
    }

    /// Whether nothing can follow.
    pub fn is_complete(&self) -> bool {
        self.phase == Phase::Held && self.matcher.is_stopped()
    }

    /// Whether guesses could all become part of the answer. Only a guess: behind a thought everything could.
    pub fn could_take(&mut self, tokens: &[u32]) -> bool {
        self.phase != Phase::Held || self.matcher.validate_tokens(tokens).is_ok_and(|n| n == tokens.len())
    }
}

/// Between two parts a space, or a line break with its indentation: white space without end is valid JSON too, and a
/// model that has begun on it may never stop.
const WHITE_SPACE: &str = r"( |\n[ \t]{0,16})";

fn tidy(schema: &Value) -> Value {
    let mut schema = match schema {
        Value::Object(_) => schema.clone(),
        Value::Bool(true) => json!({}),
        // Nothing, or no schema: the library says so.
        other => return other.clone(),
    };
    schema["x-guidance"] = json!({"whitespace_pattern": WHITE_SPACE});
    schema
}

/// Tokens that were added to the vocabulary mean something to templates and readers and are never text of an answer,
/// even those that have a text. The mark in front keeps them apart.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    if tokenizer.is_added(id) || tokenizer.bytes_of(id).is_empty() {
        let mut name = vec![TokTrie::SPECIAL_TOKEN_MARKER];
        name.extend(format!("<[{id}]>").bytes());
        return name;
    }
    tokenizer.bytes_of(id).to_vec()
}

#[cfg(test)]
mod tests;
