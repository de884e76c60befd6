//! The threads that share the work of one operation.
//!
//! A token of decode is some hundred short operations one after the other, each shared by all cores: waking a thread
//! anew takes as long as the work. So a thread that has nothing to do keeps looking for more for a moment before it
//! sleeps. Tasks are taken one by one and nobody waits for a thread that has taken none: a core that is busy with
//! something else, or slower than the others, takes fewer and delays nobody.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a thread looks for work before it sleeps: longer than what lies between two operations of a token.
const PATIENCE: Duration = Duration::from_micros(200);
/// Looks between two glances at the clock.
const LOOKS: usize = 64;

/// What one task does, given its number.
type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// Threads for work in tasks.
pub struct Pool {
    shared: Arc<Shared>,
    /// Held by whoever has given the present job.
    giver: Mutex<()>,
}

struct Shared {
    /// How many tasks the present job has (high half), and the first that nobody has taken (low half).
    tasks: AtomicU64,
    /// The present job. It is written while no task is left to take, and read by whoever has taken one.
    job: UnsafeCell<Option<*const Task<'static>>>,
    /// Tasks that are done.
    done: AtomicUsize,
    /// What a task panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    workers: Vec<Worker>,
}

#[derive(Default)]
struct Worker {
    thread: OnceLock<Thread>,
    sleeps: AtomicBool,
}

// SAFETY: `job` is written and read as described there, which `take` and `run` keep to; a task is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(n_threads()));

/// As many as there are cores for this process, unless the environment says otherwise.
fn n_threads() -> usize {
    let wanted = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok());
    wanted.filter(|n| *n > 0).unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Does tasks `0..n` on all cores; the caller works along.
///
/// # Panics
/// If a task does.
pub fn for_each(n: usize, task: impl Fn(usize) + Sync) {
    POOL.run(n, &task);
}

/// How many threads work together.
pub fn threads() -> usize {
    POOL.shared.workers.len() + 1
}

/// Has `work` change `items` in pieces of `size`, the last of which may be shorter. It is told a piece's number.
pub fn chunks_mut<T: Send>(items: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let n = items.len();
    let start = Start(items.as_mut_ptr());
    for_each(n.div_ceil(size), |i| {
        let first = i * size;
        // SAFETY: the piece lies inside `items`, and its number is given to one task only.
        work(i, unsafe { std::slice::from_raw_parts_mut(start.at(first), size.min(n - first)) });
    });
}

/// What `work` makes of each item, in their order.
pub fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    enum Place<T, R> {
        Waits(T),
        Taken,
        Done(R),
    }
    let places: Vec<Mutex<Place<T, R>>> =
        items.into_iter().map(|item| Mutex::new(Place::Waits(item))).collect();
    for_each(places.len(), |i| {
        let mut place = places[i].lock().expect("nobody else has this place");
        if let Place::Waits(item) = std::mem::replace(&mut *place, Place::Taken) {
            *place = Place::Done(work(item));
        }
    });
    let results = places.into_iter().map(|place| match place.into_inner() {
        Ok(Place::Done(result)) => result,
        _ => unreachable!("all tasks are done"),
    });
    results.collect()
}

/// Where a slice begins whose parts are written by several threads.
pub struct Start<T>(pub *mut T);

impl<T> Clone for Start<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Start<T> {}

// SAFETY: each task writes elements that no other task touches; see the uses.
unsafe impl<T: Send> Send for Start<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    /// # Safety
    /// `index` lies inside the slice or at its end.
    pub unsafe fn at(self, index: usize) -> *mut T {
        // SAFETY: the caller keeps `index` inside the allocation.
        unsafe { self.0.add(index) }
    }
}

impl Pool {
    fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            tasks: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            done: AtomicUsize::new(0),
            panic: Mutex::new(None),
            workers: (1..threads).map(|_| Worker::default()).collect(),
        });
        for i in 0..shared.workers.len() {
            let shared = shared.clone();
            // Fewer threads than hoped for are slower, and nothing else.
            let _ = thread::Builder::new().name(format!("kernels-{i}")).spawn(move || shared.serve(i));
        }
        Self { shared, giver: Mutex::new(()) }
    }

    fn run(&self, n: usize, task: &Task) {
        // A job that is given while another runs, from within it or from elsewhere, is done where it is given.
        let giver = match self.shared.workers.is_empty() || n < 2 {
            true => None,
            false => match self.giver.try_lock() {
                Ok(giver) => Some(giver),
                Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(std::sync::TryLockError::WouldBlock) => None,
            },
        };
        let Some(giver) = giver else { return (0..n).for_each(task) };
        let shared = &*self.shared;
        // SAFETY: only its lifetime changes. All tasks are done when this function returns, and a job without tasks
        // is never read.
        let job: *const Task<'static> = unsafe { std::mem::transmute::<*const Task, _>(task) };
        shared.done.store(0, Ordering::Relaxed);
        // SAFETY: all tasks of the last job are done, so nobody reads it.
        unsafe { *shared.job.get() = Some(job) };
        let n_tasks = u32::try_from(n).expect("a job has fewer tasks than that");
        shared.tasks.store(u64::from(n_tasks) << 32, Ordering::SeqCst);
        for worker in &shared.workers {
            if worker.sleeps.swap(false, Ordering::SeqCst)
                && let Some(thread) = worker.thread.get()
            {
                thread.unpark();
            }
        }
        while shared.do_one() {}
        let mut looks = 0;
        while shared.done.load(Ordering::Acquire) < n {
            looks += 1;
            match looks < 100 * LOOKS {
                true => std::hint::spin_loop(),
                // Whoever has the last task may be waiting for this core.
                false => thread::yield_now(),
            }
        }
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(giver);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Shared {
    /// Takes a task and does it, if there is one.
    fn do_one(&self) -> bool {
        let mut tasks = self.tasks.load(Ordering::Acquire);
        let index = loop {
            let (n, next) = (tasks >> 32, tasks & u64::from(u32::MAX));
            if next >= n {
                return false;
            }
            // Should the job have changed since the load, to one of which just as much is left, then the task is one
            // of the new job, which is read below.
            match self.tasks.compare_exchange_weak(tasks, tasks + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break next as usize,
                Err(now) => tasks = now,
            }
        };
        // SAFETY: a task of the present job was taken and isn't done, so its giver waits and keeps it alive.
        let result = catch_unwind(AssertUnwindSafe(|| unsafe {
            let job = (*self.job.get()).expect("a job with tasks was given");
            (*job)(index);
        }));
        if let Err(panic) = result {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        self.done.fetch_add(1, Ordering::Release);
        true
    }

    fn has_tasks(&self) -> bool {
        let tasks = self.tasks.load(Ordering::SeqCst);
        tasks & u64::from(u32::MAX) < tasks >> 32
    }

    fn serve(&self, index: usize) {
        let worker = &self.workers[index];
        let _ = worker.thread.set(thread::current());
        loop {
            while self.do_one() {}
            let idle = Instant::now();
            while !self.has_tasks() && idle.elapsed() < PATIENCE {
                for _ in 0..LOOKS {
                    std::hint::spin_loop();
                }
            }
            if !self.has_tasks() {
                worker.sleeps.store(true, Ordering::SeqCst);
                // Given between the last look and the note, a job would be slept through.
                while !self.has_tasks() && worker.sleeps.load(Ordering::SeqCst) {
                    thread::park();
                }
                worker.sleeps.store(false, Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(pool: &Pool, n: usize) -> Vec<usize> {
        let counts: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
        pool.run(n, &|i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_task_is_done_once_by_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for n in (0..200).chain([5000]) {
                assert_eq!(sums(&pool, n), vec![1; n], "{n} tasks, {threads} threads");
            }
        }
    }

    #[test]
    fn threads_that_sleep_are_woken() {
        let pool = Pool::new(2);
        for _ in 0..5 {
            while !pool.shared.workers[0].sleeps.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            // Each task waits for the other, so one thread alone would never end.
            let met = AtomicUsize::new(0);
            pool.run(2, &|_| {
                met.fetch_add(1, Ordering::SeqCst);
                while met.load(Ordering::SeqCst) < 2 {
                    thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn jobs_within_jobs_and_beside_them_are_done_too() {
        let pool = Pool::new(3);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let inner = AtomicUsize::new(0);
                        pool.run(7, &|_| {
                            pool.run(5, &|_| {
                                inner.fetch_add(1, Ordering::Relaxed);
                            })
                        });
                        assert_eq!(inner.into_inner(), 35);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_giver_and_the_pool_goes_on() {
        let pool = Pool::new(2);
        let result = catch_unwind(AssertUnwindSafe(|| pool.run(50, &|i| assert!(i != 20, "twenty"))));
        assert_eq!(result.unwrap_err().downcast_ref(), Some(&"twenty"));
        assert_eq!(sums(&pool, 50), vec![1; 50]);
    }

    #[test]
    fn results_come_in_the_order_of_their_items() {
        for n in [0, 1, 2, 50] {
            let texts = map((0..n).map(|i| i.to_string()).collect(), |text: String| text + "!");
            assert_eq!(texts, (0..n).map(|i| format!("{i}!")).collect::<Vec<_>>());
        }
    }

    #[test]
    fn pieces_are_changed_in_place() {
        let mut items: Vec<usize> = vec![0; 103];
        chunks_mut(&mut items, 10, |i, piece| piece.iter_mut().for_each(|x| *x = i));
        assert!(items.iter().enumerate().all(|(at, x)| *x == at / 10));
    }
}
