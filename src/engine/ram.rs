//! How much of the machine's memory is free for a model, how fast it is, and how much this program has taken.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

/// Bytes that can be had without taking them from other programs; `None` if the system doesn't say.
///
/// Pages that only repeat a file count as free, because the system gives them back when they are wanted. That holds
/// inside a container too, where sysinfo's own `free_memory` takes them for used; so its limit is taken, less what
/// the group holds apart from files.
pub fn available() -> Option<u64> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    let machine = Some(system.available_memory()).filter(|bytes| *bytes > 0);
    let limits = sysinfo::get_current_pid().ok().and_then(|pid| {
        system.refresh_processes_specifics(
            ProcessesToUpdate::Some(&[pid]),
            false,
            ProcessRefreshKind::nothing(),
        );
        system.process(pid)?.cgroup_limits()
    });
    let group = limits.or_else(|| system.cgroup_limits());
    let group = group.map(|limits| limits.total_memory.saturating_sub(limits.rss));
    machine.into_iter().chain(group).min()
}

/// Gives memory that was freed back to the system, where the allocator keeps it. Reading a tokenizer frees some hundred
/// mebibytes.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it touches nothing but what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

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

/// The most memory that this program has held so far, files that it has mapped included; `None` where the system doesn't
/// say.
pub fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_not_more_than_the_machine_has() {
        let mut system = System::new().unwrap();
        system.refresh_memory();
        let available = available().expect("the systems that tests run on say it");
        assert!(available > 1 << 20 && available <= system.total_memory(), "{available}");
    }
}
