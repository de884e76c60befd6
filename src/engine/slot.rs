//! What one conversation leaves in memory: a cache, and places of its past that a prompt which differs further on can
//! go on from.

use std::time::Duration;

use super::cache::{Cache, Checkpoint, TokenKey};
use super::checkpoints::Checkpoints;
use super::model::Model;
use super::states::{self, States};

pub struct Slot {
    pub cache: Cache,
    /// The ends of prompts before the words that ask for an answer, because templates rewrite what follows those, and
    /// some in long prompts.
    pub checkpoints: Checkpoints,
    /// How long it took to read what the cache holds and no saved state does.
    pub unsaved: Duration,
}

impl Slot {
    /// An empty one, of `n` that share the memory for checkpoints.
    pub fn new(model: &Model, n: usize) -> Self {
        Self {
            cache: model.new_drafting_cache(),
            checkpoints: Checkpoints::new(&model.config, n),
            unsaved: Duration::ZERO,
        }
    }

    /// One that has read what `prefix` has, and nothing else.
    pub fn copy_of(prefix: &Cache, model: &Model, n: usize) -> Self {
        let mut slot = Self { cache: prefix.clone(), ..Self::new(model, n) };
        slot.checkpoints.push(slot.cache.checkpoint());
        slot
    }

    /// Empties the cache.
    pub fn forget(&mut self) {
        self.cache.reset();
        self.checkpoints.put(Vec::new());
        self.unsaved = Duration::ZERO;
    }

    /// How many tokens of a prompt it can go on behind. At least one token is left to run, because logits come from
    /// a forward pass only.
    pub fn reach(&self, keys: &[TokenKey]) -> usize {
        let common = common_prefix(self.cache.tokens(), keys).min(keys.len() - 1);
        match common < self.cache.len() {
            true => self.checkpoints.reach(common),
            false => common,
        }
    }

    /// Leaves in the cache the longest usable beginning of a prompt, and says how many tokens of it came from a
    /// saved state.
    pub fn reuse(&mut self, keys: &[TokenKey], states: Option<&States>) -> usize {
        let here = self.reach(keys);
        if here < self.checkpoints.last(1).first().map_or(0, Checkpoint::len) {
            // Another conversation, or an earlier place of this one: what is left may be wanted again.
            self.save(states);
        }
        if let Some((states, found)) = states.and_then(|states| Some((states, states.find(keys, here)?))) {
            self.unsaved = Duration::ZERO;
            let restored = states.restore(&found, &mut self.cache);
            let is_restored = restored.is_some();
            self.checkpoints.put(restored.unwrap_or_default());
            if is_restored {
                return self.cache.len();
            }
            self.cache.reset();
        } else if here < self.cache.len() && !self.checkpoints.rewind(&mut self.cache, here) {
            self.unsaved = Duration::ZERO;
            self.cache.reset();
        }
        0
    }

    /// Whether [`Self::save`] would write something.
    pub fn is_worth_saving(&self, states: Option<&States>) -> bool {
        let worth = states.map(|states| states.options.worth);
        worth.is_some_and(|worth| self.unsaved > worth) && !self.checkpoints.last(1).is_empty()
    }

    /// Saves the cache for prompts that begin alike, if it took long enough to read it. A failure costs nothing but
    /// the time that it would have saved.
    pub fn save(&mut self, states: Option<&States>) {
        if let Some(states) = states.filter(|_| self.is_worth_saving(states)) {
            let _ = states.save(&self.cache, self.checkpoints.last(states::CHECKPOINTS));
            self.unsaved = Duration::ZERO;
        }
    }
}

pub fn common_prefix<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
