//! The one thread that owns an [`Engine`]: jobs in, events out.
//!
//! Burn's tensors and a conversation's cache stay on this thread; nobody else ever waits for a lock of
//! theirs. A panic in a turn fails that turn, and the engine is loaded anew for the next one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::generate::{Ending, Engine, EngineError, LoadOptions, Progress};
use crate::chat::Message;
use crate::msg::{ErrorCode, Event, TurnError, TurnId, TurnOptions};

/// Without a job for so long, there is time to save what was read.
const IDLE: Duration = Duration::from_secs(20);

/// One turn to run.
pub struct Job {
    pub turn: TurnId,
    pub messages: Vec<Message>,
    pub options: TurnOptions,
    pub cancel: Arc<AtomicBool>,
    /// How long it waited before it was handed over; reported in the figures.
    pub queue_time: Duration,
}

/// Starts the thread and loads the model on it, once the thread `before` has ended and freed its memory. It ends when
/// the sender is dropped.
///
/// `emit` is called on that thread for each event and may block it; it returns false when nobody listens
/// any more. The first event is `ModelLoaded` or `ModelFailed`; then each job ends in exactly one final
/// event.
///
/// # Errors
/// If the system has no thread left.
pub fn spawn(
    load: LoadOptions,
    before: Option<JoinHandle<()>>,
    emit: impl FnMut(Event) -> bool + Send + 'static,
) -> std::io::Result<(Sender<Job>, JoinHandle<()>)> {
    let (sender, jobs) = channel();
    let thread = std::thread::Builder::new().name("engine".into()).spawn(move || {
        // One that panicked has freed its memory too.
        let _ = before.map(JoinHandle::join);
        run(&load, &jobs, emit);
    })?;
    Ok((sender, thread))
}

fn run(load: &LoadOptions, jobs: &Receiver<Job>, mut emit: impl FnMut(Event) -> bool) {
    let mut engine = guarded(|| Engine::load(load));
    let first = match &engine {
        Ok(engine) => Event::ModelLoaded(engine.info().clone()),
        Err(error) => Event::ModelFailed { error: error.clone() },
    };
    if !emit(first) {
        return;
    }
    while let Some(job) = next(jobs, &mut engine) {
        let outcome = match &mut engine {
            Ok(loaded) => {
                let outcome = guarded(|| answer(loaded, &job, &mut emit));
                if matches!(&outcome, Err(error) if error.code == ErrorCode::Engine) {
                    // Whatever failed may have left the cache half written.
                    engine = guarded(|| Engine::load(load));
                }
                outcome
            }
            Err(error) => Err(error.clone()),
        };
        let last = match outcome {
            Ok(event) => event,
            Err(error) => Event::TurnFailed { turn: job.turn, error },
        };
        if !emit(last) {
            break;
        }
    }
    save(&mut engine);
}

/// The next job. While there is none for a while, the state of the conversation is saved.
fn next(jobs: &Receiver<Job>, engine: &mut Result<Engine, TurnError>) -> Option<Job> {
    match jobs.recv_timeout(IDLE) {
        Ok(job) => return Some(job),
        Err(RecvTimeoutError::Disconnected) => return None,
        Err(RecvTimeoutError::Timeout) => save(engine),
    }
    jobs.recv().ok()
}

fn save(engine: &mut Result<Engine, TurnError>) {
    if let Ok(engine) = engine {
        // A panic here must not end the thread: the next turn doesn't need what could not be saved.
        let _ = catch_unwind(AssertUnwindSafe(|| engine.save_state()));
    }
}

fn answer(
    engine: &mut Engine,
    job: &Job,
    emit: &mut impl FnMut(Event) -> bool,
) -> Result<Event, EngineError> {
    let turn = job.turn;
    let mut progress = |progress: Progress| {
        emit(match progress {
            Progress::Started { prompt_tokens } => Event::TurnStarted { turn, prompt_tokens },
            Progress::Picture { picture, pictures, done, total } => {
                Event::PictureProgress { turn, picture, pictures, done, total }
            }
            Progress::Prefill { done, total } => Event::PrefillProgress { turn, done, total },
            Progress::Token(token) => Event::Tokens { turn, tokens: vec![token] },
            Progress::Delta { channel, text, stats } => Event::Delta { turn, channel, text, stats },
        });
    };
    let (ending, mut stats) = engine.answer(&job.messages, &job.options, &job.cancel, &mut progress)?;
    stats.queue_time = job.queue_time;
    Ok(match ending {
        Ending::Finished(finish) => Event::TurnFinished { turn, finish, stats },
        Ending::Cancelled => Event::TurnCancelled { turn, stats },
    })
}

/// Runs `work`; a panic becomes an error like any other.
fn guarded<T>(work: impl FnOnce() -> Result<T, EngineError>) -> Result<T, TurnError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(TurnError { code: error.code(), message: error.to_string() }),
        Err(panic) => {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown reason");
            let message = format!("the engine failed unexpectedly: {what}; please report this");
            Err(TurnError { code: ErrorCode::Engine, message })
        }
    }
}
