//! Answers in the making, one or several at a time: prompt ids -> prefill in pieces -> rounds of decoding -> end.
//!
//! Each has a conversation's cache to itself. Prompts are read one after the other; what is written, is written for
//! all together, so that the weights are read once for all (`decode.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::tensor::Tensor;

use super::cache::{Cache, TokenKey};
use super::decode::{MAX_TOGETHER, Writer, Writing};
use super::generate::{Ending, Engine, EngineError, Features, PREFILL_CHUNK, Progress, Prompt, read};
use super::grammar::Guide;
use super::sampler::{Sampler, ThinkingBudget};
use super::slot::{Slot, common_prefix};
use crate::chat::Message;
use crate::msg::{Finish, Mtp, TurnOptions, TurnStats};

/// Tokens between two checkpoints of a long prompt; a whole number of chunks.
const CHECKPOINT_EVERY: usize = 4 * PREFILL_CHUNK;
/// Longest answer unless told otherwise. A model that runs in circles stops here, visibly.
pub const DEFAULT_MAX_TOKENS: usize = 8_192;
/// Tokens at the end of a prompt that say which words an answer will be made of.
const NOTED_TOKENS: usize = 512;
/// A beginning that two prompts in a row share is remembered for the next if it has at least so many tokens.
const MIN_SHARED: usize = 32;
/// And at most so many: a copy of it is kept beside the conversations.
const MAX_SHARED: usize = 8 * PREFILL_CHUNK;

/// Tells what happens in the turn of an index.
pub type Tell<'a> = dyn FnMut(usize, Progress) + 'a;

/// An answer in the making.
pub struct Turn {
    pub(super) slot: Slot,
    pub(super) stage: Stage,
    pub(super) sampler: Sampler,
    pub(super) guide: Option<Guide>,
    pub(super) stats: TurnStats,
    pub(super) limits: Limits,
    prompt: Prompt,
    stop: Vec<String>,
    started: Instant,
    /// Where the prompt leaves what it shares with the one before.
    shared: Option<usize>,
}

pub(super) enum Stage {
    Reading { features: Option<Features> },
    Writing(Box<Writing>),
    Ended(Result<Ending, EngineError>),
}

/// How an answer is written, and what ends it.
pub(super) struct Limits {
    pub mtp: Mtp,
    pub max_tokens: usize,
    pub logprobs: Option<usize>,
    pub cancel: Arc<AtomicBool>,
}

impl Limits {
    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

impl Turn {
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended(_))
    }

    pub(super) fn end_with(&mut self, result: Result<Ending, EngineError>) {
        self.stage = Stage::Ended(result);
    }
}

/// A beginning that several prompts in a row have had.
#[derive(Default)]
pub struct SharedPrefix {
    last: Vec<TokenKey>,
    cache: Option<Cache>,
}

impl SharedPrefix {
    /// How many tokens of a prompt need not be read by one who has the copy.
    fn reach(&self, keys: &[TokenKey]) -> usize {
        let copy = self.cache.as_ref().map_or(&[][..], Cache::tokens);
        if keys.len() > copy.len() && keys.starts_with(copy) { copy.len() } else { 0 }
    }

    /// Where a prompt, of which `known` tokens needn't be read, will have read all that it shares with the last one.
    fn note(&mut self, keys: &[TokenKey], known: usize) -> Option<usize> {
        let common = common_prefix(&self.last, keys).min(keys.len() - 1);
        self.last = keys.to_vec();
        (common >= known + MIN_SHARED && common <= MAX_SHARED).then_some(common)
    }
}

impl Engine {
    /// Answers a conversation whose last message is the question, or goes on with the answer that is its last
    /// message.
    ///
    /// `cancel` is looked at before each forward pass. `progress` is called on this thread.
    ///
    /// # Errors
    /// [`EngineError`] if the prompt can't be used or the device fails; the engine can go on with the next.
    pub fn answer(
        &mut self,
        messages: &[Message],
        options: &TurnOptions,
        cancel: &Arc<AtomicBool>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Ending, TurnStats), EngineError> {
        let mut turn = self.begin(messages, options, cancel.clone(), progress)?;
        while !turn.has_ended() {
            self.work(std::slice::from_mut(&mut turn), &mut |_, event| progress(event));
        }
        self.end(turn)
    }

    /// Begins an answer; [`Self::work`] then makes it and [`Self::end`] gives its figures.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn begin(
        &mut self,
        messages: &[Message],
        options: &TurnOptions,
        cancel: Arc<AtomicBool>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Turn, EngineError> {
        let started = Instant::now();
        let prompt = self.prompt(messages, options)?;
        let mut sampler = Sampler::new(prompt.params, prompt.seed);
        if let (Some(most), Some(tokens)) = (options.max_thinking, self.thought_tokens()?) {
            sampler.limit_thinking(ThinkingBudget::new(tokens, most, prompt.in_thought));
        }
        let mut stats = TurnStats {
            prompt_tokens: prompt.ids.len(),
            image_tokens: prompt.layout.spans.iter().map(|span| span.len).sum(),
            seed: prompt.seed,
            ..TurnStats::default()
        };
        progress(Progress::Started { prompt_tokens: stats.prompt_tokens });
        // Before the prompt is read: a form that can't be used need not wait for that.
        let guide = match &options.form {
            Some(form) if !options.only_count => Some(self.grammars()?.guide(form, prompt.in_thought)?),
            _ => None,
        };
        let mut shared = None;
        let slot = match (options.only_count, options.is_fresh) {
            // Nothing is read: any will do, as it is.
            (true, _) => self.last_slot(),
            (false, true) => {
                let mut slot = self.last_slot();
                slot.forget();
                slot
            }
            (false, false) => {
                let keys = &prompt.layout.keys;
                let mut slot = self.slot_for(keys);
                stats.restored_tokens = slot.reuse(keys, self.states.as_ref());
                shared = self.shared.note(keys, slot.cache.len());
                slot
            }
        };
        if !options.only_count {
            stats.cached_tokens = slot.cache.len();
        }
        self.n_busy += 1;
        let max_tokens = options.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
        Ok(Turn {
            slot,
            stage: match options.only_count {
                true => Stage::Ended(Ok(Ending::Finished(Finish::Stop))),
                false => Stage::Reading { features: None },
            },
            sampler,
            guide,
            stats,
            limits: Limits {
                mtp: options.mtp.unwrap_or_default(),
                max_tokens: max_tokens.min(self.info().context_tokens - prompt.ids.len()),
                logprobs: options.logprobs,
                cancel,
            },
            prompt,
            stop: options.stop.clone(),
            started,
            shared,
        })
    }

    /// Goes on with some turns: reads a piece of prompts, and writes at least a token of every answer that has come so
    /// far.
    pub fn work(&mut self, turns: &mut [Turn], tell: &mut Tell) {
        let mut n_read = 0;
        for (index, turn) in turns.iter_mut().enumerate() {
            // Short prompts are read on end, so that their answers are written together; behind a long one the others
            // go on first.
            while n_read < PREFILL_CHUNK && matches!(turn.stage, Stage::Reading { .. }) {
                let before = turn.slot.cache.len();
                if let Err(error) = self.read_piece(turn, &mut |event| tell(index, event)) {
                    turn.end_with(Err(error));
                }
                n_read += turn.slot.cache.len() - before;
            }
        }
        self.write(turns, tell);
    }

    /// The figures of a turn. One that is still on its way is given up.
    ///
    /// # Errors
    /// What it failed with; its cache is thrown away then.
    pub fn end(&mut self, turn: Turn) -> Result<(Ending, TurnStats), EngineError> {
        let Turn { mut slot, stage, stats, .. } = turn;
        self.n_busy -= 1;
        let result = match stage {
            Stage::Ended(result) => result,
            Stage::Reading { .. } | Stage::Writing(_) => Ok(Ending::Cancelled),
        };
        if let Err(error) = result {
            return Err(self.explained(error));
        }
        slot.unsaved += stats.prefill_time;
        self.slots.push(slot);
        let n_too_many = self.slots.len().saturating_sub(self.parallel());
        self.slots.drain(..n_too_many);
        result.map(|ending| (ending, stats))
    }

    /// The idle slot that has read most of a prompt. If none has read any of it, a new one while there may be more,
    /// or else that which was not used for the longest time.
    fn slot_for(&mut self, keys: &[TokenKey]) -> Slot {
        let by_copy = self.shared.reach(keys);
        let reaches = self.slots.iter().map(|slot| slot.reach(keys)).enumerate();
        if let Some((index, _)) = reaches.filter(|(_, n)| *n > 0 && *n >= by_copy).max_by_key(|(_, n)| *n) {
            return self.slots.remove(index);
        }
        let mut idle = None;
        if self.slots.len() + self.n_busy >= self.parallel() && !self.slots.is_empty() {
            idle = Some(self.slots.remove(0));
        }
        match &self.shared.cache {
            Some(prefix) if by_copy > 0 => {
                if let Some(mut slot) = idle {
                    slot.save(self.states.as_ref());
                }
                Slot::copy_of(prefix, &self.model, self.parallel())
            }
            _ => idle.unwrap_or_else(|| self.empty_slot()),
        }
    }

    /// That of the last turn, or a new one.
    fn last_slot(&mut self) -> Slot {
        self.slots.pop().unwrap_or_else(|| self.empty_slot())
    }

    fn empty_slot(&self) -> Slot {
        Slot::new(&self.model, self.parallel())
    }

    /// Turns that may be on their way at the same time.
    fn parallel(&self) -> usize {
        self.info().parallel
    }

    /// Reads a piece of a prompt. The first piece looks at the pictures, the last one leads to the answer.
    fn read_piece(&mut self, turn: &mut Turn, progress: &mut dyn FnMut(Progress)) -> Result<(), EngineError> {
        let Stage::Reading { features } = &mut turn.stage else { return Ok(()) };
        let Turn { slot, prompt, limits, .. } = turn;
        if features.is_none() {
            *features = self.look_closely(prompt, slot.cache.len(), &limits.cancel, progress)?;
            prompt.ids.iter().rev().take(NOTED_TOKENS).for_each(|id| self.coverage.note(*id));
        }
        let features = match features {
            Some(features) if !limits.is_cancelled() => features,
            _ => {
                turn.stats.prefill_time = turn.started.elapsed();
                turn.end_with(Ok(Ending::Cancelled));
                return Ok(());
            }
        };
        let (done, total) = (slot.cache.len(), prompt.ids.len());
        progress(Progress::Prefill { done, total });
        // A piece ends where a later prompt will go on, so that a checkpoint can be taken there.
        let stops = [turn.shared, Some(prompt.resume_at), Some(total)];
        let until = stops.into_iter().flatten().filter(|stop| *stop > done).min().expect("some is left");
        let end = until.min((done + PREFILL_CHUNK) / PREFILL_CHUNK * PREFILL_CHUNK);
        let rows = self.model.forward_tokens(prompt.tokens(done..end, features), &mut slot.cache, None);
        let last = rows.narrow(0, end - done - 1, 1);
        self.model.catch_up(&mut slot.cache);
        // Waiting here keeps the progress true and makes a cancel take effect on a GPU as well.
        self.model.device.tensors.sync().map_err(|e| EngineError::DeviceFailed(format!("{e:?}")))?;
        if turn.shared == Some(end) && self.parallel() > 1 {
            self.shared.cache = Some(slot.cache.clone());
        }
        if end == prompt.resume_at || turn.shared == Some(end) || end.is_multiple_of(CHECKPOINT_EVERY) {
            slot.checkpoints.push(slot.cache.checkpoint());
        }
        if end == total {
            progress(Progress::Prefill { done: total, total });
            turn.stats.prefill_time = turn.started.elapsed();
            self.start_writing(turn, last)?;
        }
        Ok(())
    }

    /// `hidden` is the state of the prompt's last token.
    fn start_writing(&mut self, turn: &mut Turn, hidden: Tensor<2>) -> Result<(), EngineError> {
        let writer = Writer::new(&self.tokenizer, turn.prompt.in_thought, &turn.stop, turn.started);
        let logits = read(self.model.logits(hidden))?;
        turn.stage = Stage::Writing(Box::new(Writing::new(writer, logits)));
        Ok(())
    }
}

/// Turns that there may be at the same time at most: each has a token in every pass.
pub const MAX_PARALLEL: usize = MAX_TOGETHER;

#[cfg(test)]
mod tests;
