//! The decode loop: one pass of the model after the other, each over the last token and the drafts behind it, of every
//! answer that is being written.
//!
//! Every row of a pass is sampled from as if it stood alone, with one random number, until a sample differs from the
//! draft that was to be judged. So a draft, or another answer beside it, changes how long an answer takes, and nothing
//! of its text.

use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::time::Instant;

use super::cache::Cache;
use super::generate::{Ending, Engine, EngineError, Progress, read};
use super::grammar::Guide;
use super::logprobs::token_info;
use super::model::Tokens;
use super::sampler::likeliest;
use super::tokenizer::{Decoder, Tokenizer};
use super::turn::{Stage, Tell, Turn};
use crate::chat::Channel;
use crate::chat::splitter::Splitter;
use crate::chat::stop::StopFinder;
use crate::msg::{Finish, Mtp, TurnStats};

/// States that wait for the MTP head while nothing is drafted; in a batch of this size its weights are read once.
const MAX_WAITING: usize = 32;
/// Tokens of all answers in one pass: as many as linear layers multiply one by one, so that a token gets the same
/// numbers in any company.
pub const MAX_TOGETHER: usize = 32;

/// An answer behind its prompt.
pub(super) struct Writing {
    writer: Writer,
    /// Of the last pass: its rows for the last token and each draft are this part of all of them.
    logits: (Rc<Vec<f32>>, Range<usize>),
    /// What the rows of `logits` judge; the last row judges nothing.
    drafts: Vec<u32>,
    /// `None` before the first pass: the logits came from the prompt.
    pass: Option<Pass>,
    n_emitted: usize,
}

struct Pass {
    /// Since when it is measured; not if it was made for several answers.
    started: Option<Instant>,
}

impl Writing {
    /// `logits` of the prompt's last token.
    pub fn new(writer: Writer, logits: Vec<f32>) -> Self {
        let all = 0..logits.len();
        Self { writer, logits: (Rc::new(logits), all), drafts: Vec::new(), pass: None, n_emitted: 0 }
    }
}

impl Engine {
    /// Takes the tokens of the last pass and makes the next one, for all turns that are being written. Those that end
    /// say so in their stage.
    pub(super) fn write(&mut self, turns: &mut [Turn], tell: &mut Tell) {
        let mut next = Vec::new();
        for (index, turn) in turns.iter_mut().enumerate() {
            match self.take(turn, &mut |event| tell(index, event)) {
                Ok(Some(last)) => next.push((turn, last)),
                Ok(None) => {}
                Err(error) => turn.end_with(Err(error)),
            }
        }
        if next.is_empty() {
            return;
        }
        if let Err(error) = self.pass(&mut next) {
            for (turn, _) in next {
                turn.end_with(Err(EngineError::DeviceFailed(error.to_string())));
            }
        }
    }

    /// Samples from the rows of the last pass; gives the last token if the answer goes on behind it.
    fn take(
        &mut self,
        turn: &mut Turn,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<u32>, EngineError> {
        let Turn { slot, stage, sampler, guide, stats, limits, .. } = turn;
        let Stage::Writing(writing) = stage else { return Ok(None) };
        let Writing { writer, logits, drafts, pass, n_emitted } = &mut **writing;
        let n_valid = self.tokenizer.vocab_size();
        let mut accepted = 0;
        let mut ending = None;
        let mut last = None;
        let (logits, part) = logits;
        for (i, row) in logits[part.clone()].chunks_exact(self.model.config.vocab_size).enumerate() {
            let allowed = guide.as_mut().map(Guide::allowed).transpose()?.flatten();
            let id = sampler.sample_among(row, n_valid, allowed)?;
            if self.stop_ids.contains(&id) {
                ending = Some(Ending::Finished(Finish::Stop));
                break;
            }
            sampler.accept(id);
            self.coverage.note(id);
            if let Some(guide) = guide {
                guide.accept(id)?;
            }
            let is_right = drafts.get(i) == Some(&id);
            accepted += usize::from(is_right);
            if let Some(n_top) = limits.logprobs {
                let row = &row[..n_valid.min(row.len())];
                progress(Progress::Token(token_info(&self.tokenizer, row, id, n_top, writer.channel())));
            }
            let goes_on = writer.token(id, stats, progress);
            *n_emitted += 1;
            last = Some(id);
            let is_complete = goes_on.is_break() || guide.as_ref().is_some_and(Guide::is_complete);
            ending = match (limits.is_cancelled(), *n_emitted == limits.max_tokens) {
                (true, _) => Some(Ending::Cancelled),
                (false, _) if is_complete => Some(Ending::Finished(Finish::Stop)),
                (false, true) => Some(Ending::Finished(Finish::Length)),
                (false, false) => None,
            };
            if ending.is_some() || !is_right {
                break;
            }
        }
        if let Some(pass) = pass {
            stats.drafts.note(drafts.len(), accepted);
            // The accepted drafts are in the cache; the token after them isn't yet.
            slot.cache.keep(1 + accepted, 1 + drafts.len());
            if let Some(started) = pass.started {
                self.speculation.note(drafts.len(), accepted, started.elapsed());
            }
        }
        let Some(ending) = ending else { return Ok(last) };
        stats.thinking_was_cut = sampler.closed_thinking();
        let Stage::Writing(writing) = std::mem::replace(stage, Stage::Ended(Ok(ending))) else {
            unreachable!("it was being written")
        };
        writing.writer.finish(*stats, progress);
        Ok(None)
    }

    /// One pass of the model for all `turns`, behind their last tokens.
    fn pass(&mut self, turns: &mut [(&mut Turn, u32)]) -> Result<(), EngineError> {
        let is_alone = turns.len() == 1;
        let room = MAX_TOGETHER / turns.len();
        let mut read_next: Vec<Vec<u32>> = Vec::with_capacity(turns.len());
        for (turn, last) in turns.iter_mut() {
            let Stage::Writing(writing) = &mut turn.stage else { continue };
            writing.pass = Some(Pass { started: is_alone.then(Instant::now) });
            let depth = match turn.limits.mtp {
                // Several answers in one pass gain what drafts would, and more surely.
                Mtp::Auto if !is_alone => 0,
                mtp => self.speculation.depth(mtp),
            };
            // A longer draft than there is room for would be thrown away.
            let depth = depth.min(turn.limits.max_tokens - writing.n_emitted - 1).min(room - 1);
            writing.drafts = self.draft(*last, depth, &mut turn.slot.cache, turn.guide.as_mut())?;
            read_next.push([*last].into_iter().chain(writing.drafts.iter().copied()).collect());
        }
        let sequences = turns.iter_mut().zip(&read_next).map(|((turn, _), ids)| {
            let cache = &mut turn.slot.cache;
            (Tokens { is_draft: ids.len() > 1, ..Tokens::text(ids, cache.next_position()) }, cache)
        });
        let hidden = self.model.forward_together(sequences.collect(), None);
        let logits = Rc::new(read(self.model.logits(hidden))?);
        let mut done = 0;
        for ((turn, _), ids) in turns.iter_mut().zip(&read_next) {
            let end = done + ids.len() * self.model.config.vocab_size;
            if let Stage::Writing(writing) = &mut turn.stage {
                writing.logits = (logits.clone(), done..end);
            }
            done = end;
            self.let_head_read(&mut turn.slot.cache);
        }
        Ok(())
    }

    /// The MTP head reads along in batches: each state that waits for it is copied when the next one joins, so a long
    /// answer without drafts must not let them pile up.
    fn let_head_read(&self, cache: &mut Cache) {
        if cache.mtp.as_ref().is_some_and(|mtp| mtp.n_waiting() >= MAX_WAITING) {
            self.model.catch_up(cache);
        }
    }

    /// Guesses at most `depth` tokens after `last`; what the guide forbids isn't worth judging.
    fn draft(
        &self,
        last: u32,
        depth: usize,
        cache: &mut Cache,
        mut guide: Option<&mut Guide>,
    ) -> Result<Vec<u32>, EngineError> {
        if depth == 0 || !self.model.can_draft() {
            return Ok(Vec::new());
        }
        let n_valid = self.tokenizer.vocab_size();
        let mut stopped = false;
        let mut guesses = Vec::with_capacity(depth);
        self.model.draft(last, depth, cache, self.coverage.shortlist(), |guess| {
            // Nothing follows the end of an answer.
            if stopped {
                return Ok(None);
            }
            let logits = read(guess.logits)?;
            let id = match guess.shortlist {
                Some(list) => likeliest(&logits, list.len()).map(|index| list.id(index)),
                None => likeliest(&logits, n_valid),
            };
            stopped = id.is_some_and(|id| self.stop_ids.contains(&id));
            guesses.extend(id);
            let is_possible = stopped || guide.as_mut().is_none_or(|guide| guide.could_take(&guesses));
            Ok(id.filter(|_| is_possible))
        })
    }
}

/// Turns tokens into text of the two channels, and keeps the figures.
pub(super) struct Writer {
    decoder: Decoder,
    splitter: Splitter,
    stop: StopFinder,
    think: [Option<u32>; 2],
    started: Instant,
    decode_started: Instant,
}

impl Writer {
    pub(super) fn new(tokenizer: &Tokenizer, in_thought: bool, stop: &[String], started: Instant) -> Self {
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
