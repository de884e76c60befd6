//! Logits to the next token id.
//!
//! The order is that of vLLM and of the model cards: penalties, padding mask, temperature, top-k,
//! top-p, min-p, one draw. Penalties look only at what was generated in this turn: counting the prompt
//! damages answers about the prompt. Everything is deterministic: one seed, one text.
//!
//! Where settings come from is in `sampler/params.rs`. Knows nothing of tokenizers or stop tokens.

use std::cmp::Ordering;
use std::collections::HashMap;

use llguidance::toktrie::SimpleVob;

mod budget;
mod params;
mod rng;

pub use budget::{ThinkingBudget, ThoughtTokens};
pub use params::{GenerationConfig, Mode, SamplingParams, check};
use rng::Rng;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SamplerError {
    #[error("{name} must be {wanted}, not {got}")]
    Param { name: &'static str, wanted: &'static str, got: f32 },
    #[error(
        "the model computed a value that is not a number (token {token}); the weights may be damaged, or the device is at fault"
    )]
    NotANumber { token: usize },
    #[error("the model ruled out every token; the weights may be damaged, or the device is at fault")]
    NothingToChoose,
}

/// A token that may be drawn. Ordered best first: higher logit, then lower id.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate {
    logit: f32,
    id: u32,
}

fn best_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// The sampler of one turn: settings, random numbers, and what was said so far.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    rng: Rng,
    /// How often each token was generated in this turn.
    counts: HashMap<u32, u32>,
    budget: Option<ThinkingBudget>,
    /// Kept from call to call: a vocabulary has 248k logits, one megabyte.
    logits: Vec<f32>,
    candidates: Vec<Candidate>,
}

impl Sampler {
    pub fn new(params: SamplingParams, seed: u64) -> Self {
        Self {
            params,
            rng: Rng::new(seed),
            counts: HashMap::new(),
            budget: None,
            logits: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// From now on a thought is closed when this is spent.
    pub fn limit_thinking(&mut self, budget: ThinkingBudget) {
        self.budget = Some(budget);
    }

    /// Whether a thought was closed because of its budget.
    pub fn closed_thinking(&self) -> bool {
        self.budget.as_ref().is_some_and(ThinkingBudget::was_spent)
    }

    /// Notes a token that became part of the answer, sampled or forced.
    pub fn accept(&mut self, token: u32) {
        if let Some(budget) = &mut self.budget {
            budget.accept(token);
        }
        *self.counts.entry(token).or_default() += 1;
    }

    /// Chooses the next token from the first `n_valid_vocab` logits; rows behind are padding, untrained.
    /// Draws exactly one random number, or none at temperature 0 and where a spent budget of thinking says what comes.
    /// Does not `accept` the token.
    ///
    /// # Errors
    /// `NotANumber` for a NaN or +inf among the logits, `NothingToChoose` if all are -inf or there are none.
    pub fn sample(&mut self, logits: &[f32], n_valid_vocab: usize) -> Result<u32, SamplerError> {
        self.sample_among(logits, n_valid_vocab, None)
    }

    /// The same among the tokens that `allowed` has; among all if it is `None`.
    ///
    /// # Errors
    /// As [`Self::sample`].
    pub fn sample_among(
        &mut self,
        logits: &[f32],
        n_valid_vocab: usize,
        allowed: Option<&SimpleVob>,
    ) -> Result<u32, SamplerError> {
        let valid = valid(logits, n_valid_vocab);
        if let Some(token) = valid.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY) {
            return Err(SamplerError::NotANumber { token });
        }
        if let Some(token) = self.budget.as_ref().and_then(ThinkingBudget::forced) {
            return Ok(token);
        }
        self.logits.clear();
        self.logits.extend_from_slice(valid);
        if let Some(allowed) = allowed {
            // Before anything ranks them: top-k counts only tokens that may come.
            for (logits, bits) in self.logits.chunks_mut(32).zip(allowed.as_slice()) {
                let forbidden = logits.iter_mut().enumerate().filter(|(bit, _)| bits >> bit & 1 == 0);
                forbidden.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
            }
        }
        self.penalize();
        let best = argmax(&self.logits).ok_or(SamplerError::NothingToChoose)?;
        if self.params.temperature == 0.0 {
            return Ok(best.id);
        }
        self.select(best);
        Ok(self.draw(best))
    }

    /// Repetition penalty multiplies, as in Hugging Face, but over generated tokens only (there it also
    /// counts the prompt). Presence and frequency penalty subtract, as in OpenAI's interface.
    fn penalize(&mut self) {
        let SamplingParams { repetition_penalty, presence_penalty, frequency_penalty, .. } = self.params;
        for (&id, &count) in &self.counts {
            let Some(logit) = self.logits.get_mut(id as usize) else { continue };
            *logit = if *logit > 0.0 { *logit / repetition_penalty } else { *logit * repetition_penalty };
            *logit -= presence_penalty + frequency_penalty * count as f32;
            // An infinite logit would make every weight NaN.
            *logit = logit.min(f32::MAX);
        }
    }

    /// Fills `candidates` with what top-k, top-p and min-p leave over. Each of them keeps a best part
    /// of the sorted list, so only that part is ever sorted.
    fn select(&mut self, best: Candidate) {
        let SamplingParams { top_k, top_p, min_p, temperature, .. } = self.params;
        let finite = self.logits.iter().filter(|logit| **logit > f32::NEG_INFINITY).count();
        if top_k > 0 && top_k < finite {
            take_top_k(&self.logits, top_k, &mut self.candidates);
        } else {
            self.candidates.clear();
            let all = self.logits.iter().enumerate().map(|(id, &logit)| Candidate { logit, id: id as u32 });
            self.candidates.extend(all.filter(|candidate| candidate.logit > f32::NEG_INFINITY));
        }
        if top_p < 1.0 {
            keep_top_p(&mut self.candidates, top_p, |logit| weight(logit, best.logit, temperature));
        }
        if min_p > 0.0 {
            // The best token has weight 1, so min_p is a bound on the weights themselves.
            self.candidates.retain(|c| weight(c.logit, best.logit, temperature) >= f64::from(min_p));
        }
    }

    /// One draw, each candidate as likely as its weight.
    fn draw(&mut self, best: Candidate) -> u32 {
        let temperature = self.params.temperature;
        let weight_of = |candidate: &Candidate| weight(candidate.logit, best.logit, temperature);
        let total: f64 = self.candidates.iter().map(weight_of).sum();
        let mut left = self.rng.next_f64() * total;
        for candidate in &self.candidates {
            left -= weight_of(candidate);
            if left < 0.0 {
                return candidate.id;
            }
        }
        // Rounding used up the list. The last candidate with a weight is the one that was meant.
        let last = self.candidates.iter().rev().find(|candidate| weight_of(candidate) > 0.0);
        last.unwrap_or(&best).id
    }
}

/// Probability relative to the best token; f64, because 248k small ones are added up.
fn weight(logit: f32, best_logit: f32, temperature: f32) -> f64 {
    ((f64::from(logit) - f64::from(best_logit)) / f64::from(temperature)).exp()
}

/// Rows of the head behind the vocabulary are padding, untrained.
fn valid(logits: &[f32], n_valid_vocab: usize) -> &[f32] {
    &logits[..n_valid_vocab.min(logits.len())]
}

/// The token with the highest of the first `n_valid_vocab` logits: a guess, without penalties.
pub fn likeliest(logits: &[f32], n_valid_vocab: usize) -> Option<u32> {
    argmax(valid(logits, n_valid_vocab)).map(|best| best.id)
}

/// The highest logit, the lowest id among equals; `None` if there is none above -inf.
fn argmax(logits: &[f32]) -> Option<Candidate> {
    let mut best = Candidate { logit: f32::NEG_INFINITY, id: 0 };
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best.logit {
            best = Candidate { logit, id: id as u32 };
        }
    }
    (best.logit > f32::NEG_INFINITY).then_some(best)
}

/// The `k` best in order. Passes once over the logits with a bound that rises: after the first few
/// thousand almost nothing passes it, so this costs little more than reading the list.
fn take_top_k(logits: &[f32], k: usize, kept: &mut Vec<Candidate>) {
    kept.clear();
    let room = k.saturating_mul(4).max(256);
    let mut bound = f32::NEG_INFINITY;
    for (id, &logit) in logits.iter().enumerate() {
        // An equal logit with a higher id could not displace any of the k that set the bound.
        if logit <= bound {
            continue;
        }
        kept.push(Candidate { logit, id: id as u32 });
        if kept.len() == room {
            kept.select_nth_unstable_by(k - 1, best_first);
            kept.truncate(k);
            bound = kept[k - 1].logit;
        }
    }
    kept.sort_unstable_by(best_first);
    kept.truncate(k);
}

/// Keeps the fewest best candidates whose share reaches `top_p`; always at least one.
fn keep_top_p(candidates: &mut Vec<Candidate>, top_p: f32, weight_of: impl Fn(f32) -> f64) {
    let total: f64 = candidates.iter().map(|candidate| weight_of(candidate.logit)).sum();
    let wanted = f64::from(top_p) * total;
    let mut reached = 0.0;
    let mut sorted = 0;
    // A model is nearly always sure enough for the first block; a flat distribution takes a few more.
    let mut block = 256;
    while sorted < candidates.len() {
        let rest = &mut candidates[sorted..];
        let n = block.min(rest.len());
        if n < rest.len() {
            rest.select_nth_unstable_by(n - 1, best_first);
        }
        rest[..n].sort_unstable_by(best_first);
        for i in sorted..sorted + n {
            reached += weight_of(candidates[i].logit);
            if reached >= wanted {
                candidates.truncate(i + 1);
                return;
            }
        }
        sorted += n;
        block *= 8;
    }
}

#[cfg(test)]
mod tests;
