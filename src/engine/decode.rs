//! The decode loop: one pass of the model after the other, each over the last token and the drafts behind it.
//!
//! Every row of a pass is sampled from as if it stood alone, with one random number, until a sample differs from the
//! draft that was to be judged. So a draft changes how many passes an answer takes, and nothing of its text.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::tensor::Tensor;

use super::generate::{Ending, Engine, EngineError, Progress, read};
use super::grammar::Guide;
use super::sampler::{Sampler, likeliest};
use super::tokenizer::{Decoder, Tokenizer};
use crate::chat::Channel;
use crate::chat::splitter::Splitter;
use crate::chat::stop::StopFinder;
use crate::msg::{DraftStats, Finish, Mtp, TurnStats};

/// States that wait for the MTP head while nothing is drafted; in a batch of this size its weights are read once.
const MAX_WAITING: usize = 32;

/// Gets each token with the figures of the steps before it and the logits that it was sampled from; says whether the
/// answer goes on.
pub(super) type Emit<'a> = dyn FnMut(u32, DraftStats, &[f32]) -> ControlFlow<()> + 'a;

/// How an answer is written, and what ends it.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    pub mtp: Mtp,
    pub max_tokens: usize,
    pub cancel: &'a AtomicBool,
}

impl Engine {
    /// Writes tokens until the model stops, as many as allowed are there, or it is cancelled. `hidden` is the state of
    /// the prompt's last token; `guide` is what the answer is held to.
    pub(super) fn decode(
        &mut self,
        hidden: Tensor<2>,
        limits: Limits,
        sampler: &mut Sampler,
        mut guide: Option<&mut Guide>,
        emit: &mut Emit,
    ) -> Result<(Ending, DraftStats), EngineError> {
        let Limits { mtp, max_tokens, cancel } = limits;
        let n_valid = self.tokenizer.vocab_size();
        let mut stats = DraftStats::default();
        let mut n_emitted = 0;
        let mut logits = read(self.model.logits(hidden))?;
        // What the rows of `logits` judge; the last row judges nothing.
        let mut drafts: Vec<u32> = Vec::new();
        let mut started: Option<Instant> = None;
        loop {
            let mut accepted = 0;
            let mut ending = None;
            let mut last = None;
            for (i, row) in logits.chunks_exact(self.model.config.vocab_size).enumerate() {
                let allowed = guide.as_mut().map(|guide| guide.allowed()).transpose()?.flatten();
                let id = sampler.sample_among(row, n_valid, allowed)?;
                if self.stop_ids.contains(&id) {
                    ending = Some(Ending::Finished(Finish::Stop));
                    break;
                }
                sampler.accept(id);
                self.coverage.note(id);
                if let Some(guide) = &mut guide {
                    guide.accept(id)?;
                }
                let is_right = drafts.get(i) == Some(&id);
                accepted += usize::from(is_right);
                let goes_on = emit(id, stats, &row[..n_valid.min(row.len())]);
                n_emitted += 1;
                last = Some(id);
                let is_complete =
                    goes_on.is_break() || guide.as_ref().is_some_and(|guide| guide.is_complete());
                ending = match (cancel.load(Ordering::Relaxed), n_emitted == max_tokens) {
                    (true, _) => Some(Ending::Cancelled),
                    (false, _) if is_complete => Some(Ending::Finished(Finish::Stop)),
                    (false, true) => Some(Ending::Finished(Finish::Length)),
                    (false, false) => None,
                };
                if ending.is_some() || !is_right {
                    break;
                }
            }
            if let Some(started) = started {
                stats.note(drafts.len(), accepted);
                // The accepted drafts are in the cache; the token after them isn't yet.
                self.cache.keep(1 + accepted, 1 + drafts.len());
                self.speculation.note(drafts.len(), accepted, started.elapsed());
            }
            if let Some(ending) = ending {
                return Ok((ending, stats));
            }
            let last = last.expect("a row was sampled and did not stop");

            started = Some(Instant::now());
            // A longer draft than there is room for would be thrown away.
            let depth = self.speculation.depth(mtp).min(max_tokens - n_emitted - 1);
            drafts = self.draft(last, depth, n_valid, guide.as_deref_mut())?;
            let hidden = match drafts.is_empty() {
                true => self.step(last),
                false => self.model.judge(last, &drafts, &mut self.cache),
            };
            logits = read(self.model.logits(hidden))?;
        }
    }

    /// Runs one token without drafts. The MTP head reads along in batches: each state that waits for it is copied
    /// when the next one joins, so a long answer must not let them pile up.
    fn step(&mut self, last: u32) -> Tensor<2> {
        let hidden = self.model.forward(&[last], &mut self.cache, None);
        if self.cache.mtp.as_ref().is_some_and(|mtp| mtp.n_waiting() >= MAX_WAITING) {
            self.model.catch_up(&mut self.cache);
        }
        hidden
    }

    /// Guesses at most `depth` tokens after `last`; what the guide forbids isn't worth judging.
    fn draft(
        &mut self,
        last: u32,
        depth: usize,
        n_valid: usize,
        mut guide: Option<&mut Guide>,
    ) -> Result<Vec<u32>, EngineError> {
        if depth == 0 || !self.model.can_draft() {
            return Ok(Vec::new());
        }
        let stop_ids = &self.stop_ids;
        let mut stopped = false;
        let mut guesses = Vec::with_capacity(depth);
        self.model.draft(last, depth, &mut self.cache, self.coverage.shortlist(), |guess| {
            // Nothing follows the end of an answer.
            if stopped {
                return Ok(None);
            }
            let logits = read(guess.logits)?;
            let id = match guess.shortlist {
                Some(list) => likeliest(&logits, list.len()).map(|index| list.id(index)),
                None => likeliest(&logits, n_valid),
            };
            stopped = id.is_some_and(|id| stop_ids.contains(&id));
            guesses.extend(id);
            let is_possible = stopped || guide.as_mut().is_none_or(|guide| guide.could_take(&guesses));
            Ok(id.filter(|_| is_possible))
        })
    }
}

/// Turns tokens into text of the two channels, and keeps the figures.
pub(super) struct Writer<'a> {
    decoder: Decoder<'a>,
    splitter: Splitter,
    stop: StopFinder,
    think: [Option<u32>; 2],
    started: Instant,
    decode_started: Instant,
}

impl<'a> Writer<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, in_thought: bool, stop: &[String], started: Instant) -> Self {
        Self {
            decoder: tokenizer.decoder(),
            splitter: Splitter::new(in_thought),
            stop: StopFinder::new(stop.to_vec()),
            think: ["<think>", "</think>"].map(|tag| tokenizer.token_id(tag)),
            started,
            decode_started: Instant::now(),
        }
    }

    /// Whose token comes next.
    pub(super) fn channel(&self) -> Channel {
        self.splitter.channel()
    }

    /// Says whether the answer goes on: not behind a text that was to end it.
    pub(super) fn token(
        &mut self,
        id: u32,
        stats: &mut TurnStats,
        progress: &mut dyn FnMut(Progress),
    ) -> ControlFlow<()> {
        stats.completion_tokens += 1;
        stats.time_to_first_token.get_or_insert_with(|| self.started.elapsed());
        stats.decode_time = self.decode_started.elapsed();
        if self.splitter.channel() == Channel::Thinking {
            stats.thinking_tokens += 1;
        }
        let pieces = match self.think {
            [Some(open), _] if id == open => self.tag(Splitter::push_think_open),
            [_, Some(close)] if id == close => self.tag(Splitter::push_think_close),
            _ => self.splitter.push_text(&self.decoder.push(id)),
        };
        self.tell(pieces, *stats, progress);
        if self.stop.found() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn tell(&mut self, pieces: Vec<(Channel, String)>, stats: TurnStats, progress: &mut dyn FnMut(Progress)) {
        for (channel, text) in pieces {
            let text = if channel == Channel::Answer { self.stop.push(&text) } else { text };
            if !text.is_empty() {
                progress(Progress::Delta { channel, text, stats });
            }
        }
    }

    /// Text that was still incomplete before a tag, then the tag.
    fn tag(&mut self, push: fn(&mut Splitter) -> Vec<(Channel, String)>) -> Vec<(Channel, String)> {
        let mut pieces = self.splitter.push_text(&self.decoder.finish());
        pieces.extend(push(&mut self.splitter));
        pieces
    }

    pub(super) fn finish(mut self, stats: TurnStats, progress: &mut dyn FnMut(Progress)) {
        let pieces = self.splitter.push_text(&self.decoder.finish());
        self.tell(pieces, stats, progress);
        let text = self.stop.finish();
        if !text.is_empty() {
            progress(Progress::Delta { channel: Channel::Answer, text, stats });
        }
    }
}

#[cfg(test)]
mod tests;
