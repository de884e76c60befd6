//! A guess at how fast a model would write here: each token reads all of its active weights once, so no faster than
//! the memory is.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::engine::inspect::Inspection;
use crate::engine::weights::groups::Group;

/// Of the memory's speed, what reading weights reaches in practice.
const REACHED: f64 = 0.7;

/// Larger than the caches of a desktop's processor.
const BYTES: usize = 192 << 20;

/// Long enough to be right to one digit.
const PATIENCE: Duration = Duration::from_millis(150);

/// How many bytes a second all processors together read from memory. Measured once.
pub fn bandwidth() -> u64 {
    static MEASURED: OnceLock<u64> = OnceLock::new();
    *MEASURED.get_or_init(measure)
}

fn measure() -> u64 {
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from).min(64);
    // Not zeros, which the system may keep as one page.
    let words: Vec<u64> = (0..BYTES as u64 / 8).collect();
    let (started, mut n_bytes) = (Instant::now(), 0);
    while n_bytes == 0 || started.elapsed() < PATIENCE {
        std::thread::scope(|scope| {
            for part in words.chunks(words.len().div_ceil(n_threads)) {
                scope.spawn(move || black_box(part.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word))));
            }
        });
        n_bytes += BYTES;
    }
    (n_bytes as f64 / started.elapsed().as_secs_f64()) as u64
}

/// Tokens a second; `None` for a device whose memory isn't the CPU's.
pub fn estimate(inspection: &Inspection) -> Option<u32> {
    // A GPU without memory of its own is asked about the same memory.
    inspection.memory.available?;
    let bytes = inspection.memory.needs.weights as f64 * active_share(inspection);
    let per_second = REACHED * bandwidth() as f64 / bytes.max(1.0);
    (per_second >= 1.0).then_some(per_second.min(9999.0) as u32)
}

/// The part of the weights that one token needs: of the experts only those that are chosen for it.
fn active_share(inspection: &Inspection) -> f64 {
    let Some(moe) = &inspection.config.moe else { return 1.0 };
    let tensors = inspection.checkpoint.tensors();
    let is_of_text = |group| !matches!(group, Group::Vision | Group::Mtp | Group::Other);
    let all: u64 = tensors.iter().filter(|it| is_of_text(it.group)).map(|it| it.bytes).sum();
    let experts: u64 = tensors.iter().filter(|it| it.group == Group::Experts).map(|it| it.bytes).sum();
    let chosen = moe.num_experts_per_tok as f64 / moe.num_experts.max(1) as f64;
    1.0 - experts as f64 / all.max(1) as f64 * (1.0 - chosen)
}
