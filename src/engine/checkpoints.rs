//! The checkpoints of one cache, within a budget of memory.

use super::cache::{Cache, Checkpoint};
use super::config::ModelConfig;

/// Memory for all checkpoints together.
const BUDGET_BYTES: usize = 256 << 20;
/// However large one is: the end of the last prompt, and a few before it to edit an earlier message.
const MIN_COUNT: usize = 4;
/// The same of each of several caches, whose conversations are those of programs: they rarely go back.
const MIN_COUNT_OF_SEVERAL: usize = 2;

fn max_count(config: &ModelConfig, n_caches: usize) -> usize {
    let least = if n_caches > 1 { MIN_COUNT_OF_SEVERAL } else { MIN_COUNT };
    (BUDGET_BYTES / config.state_bytes().max(1) / n_caches).clamp(least, 256)
}

/// Memory that the checkpoints of `n_caches` caches take when there are as many as there may be.
pub fn most_bytes(config: &ModelConfig, n_caches: usize) -> usize {
    n_caches * max_count(config, n_caches) * config.state_bytes()
}

/// Sorted by length.
pub struct Checkpoints {
    kept: Vec<Checkpoint>,
    max_count: usize,
}

impl Checkpoints {
    /// Of one of `n_caches` caches.
    pub fn new(config: &ModelConfig, n_caches: usize) -> Self {
        Self { kept: Vec::new(), max_count: max_count(config, n_caches) }
    }

    /// Adds the newest one, which is behind all others. When there are too many, the one goes whose absence costs
    /// the fewest tokens to read again.
    pub fn push(&mut self, checkpoint: Checkpoint) {
        if self.kept.last().is_some_and(|last| last.len() == checkpoint.len()) {
            self.kept.pop();
        }
        self.kept.push(checkpoint);
        if self.kept.len() > self.max_count {
            let start_of = |i: usize| if i == 0 { 0 } else { self.kept[i - 1].len() };
            let gaps = (0..self.kept.len() - 1).map(|i| (self.kept[i].len() - start_of(i), i));
            let (_, least) = gaps.min().expect("there are more than four");
            self.kept.remove(least);
        }
    }

    /// Those of a cache that was restored, sorted by length.
    pub fn put(&mut self, kept: Vec<Checkpoint>) {
        self.kept = kept;
    }

    /// The last `n`, or fewer.
    pub fn last(&self, n: usize) -> &[Checkpoint] {
        &self.kept[self.kept.len().saturating_sub(n)..]
    }

    /// How many tokens a cache has when it is taken back by [`Self::rewind`]; 0 if it has to be reset.
    pub fn reach(&self, len: usize) -> usize {
        self.kept.iter().map(Checkpoint::len).filter(|n| *n <= len).max().unwrap_or(0)
    }

    /// Takes `cache` back to the last checkpoint that is not behind `len`; false if there is none. Those behind it
    /// are forgotten.
    pub fn rewind(&mut self, cache: &mut Cache, len: usize) -> bool {
        while let Some(checkpoint) = self.kept.last() {
            if checkpoint.len() <= len && cache.rewind(checkpoint).is_ok() {
                return true;
            }
            self.kept.pop();
        }
        false
    }
}
