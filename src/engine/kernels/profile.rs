//! Where the time goes: how long the kernels of the CPU take and how many bytes of weights they read, while somebody
//! wants to know. Otherwise it costs one look at a flag per call.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

static WANTED: AtomicBool = AtomicBool::new(false);
static SPENT: Mutex<BTreeMap<&'static str, Spent>> = Mutex::new(BTreeMap::new());

/// What one kind of kernel took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    pub calls: usize,
    pub time: Duration,
    pub weight_bytes: usize,
}

/// Does `work`, which reads so many bytes of weights, and notes it under `name` if that is wanted.
pub(super) fn noted<R>(name: &'static str, weight_bytes: usize, work: impl FnOnce() -> R) -> R {
    if !WANTED.load(Ordering::Relaxed) {
        return work();
    }
    let started = Instant::now();
    let result = work();
    let time = started.elapsed();
    let mut spent = SPENT.lock().unwrap_or_else(PoisonError::into_inner);
    let spent = spent.entry(name).or_default();
    spent.calls += 1;
    spent.time += time;
    spent.weight_bytes += weight_bytes;
    result
}

/// Does `work` and says what its kernels took. Work of other threads meanwhile counts, too.
pub fn of<R>(work: impl FnOnce() -> R) -> (R, BTreeMap<&'static str, Spent>) {
    SPENT.lock().unwrap_or_else(PoisonError::into_inner).clear();
    WANTED.store(true, Ordering::Relaxed);
    let result = work();
    WANTED.store(false, Ordering::Relaxed);
    (result, std::mem::take(&mut *SPENT.lock().unwrap_or_else(PoisonError::into_inner)))
}
