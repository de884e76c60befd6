//! The one thread that owns an [`Engine`]: jobs in, events out, several turns at a time where there is memory for it.
//!
//! Burn's tensors and a conversation's cache stay on this thread; nobody else ever waits for a lock of
//! theirs. A panic fails the turns that are on their way, and the engine is loaded anew for the next ones.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::generate::{Ending, Engine, EngineError, LoadOptions, Progress};
use super::turn::Turn;
use crate::chat::Message;
use crate::msg::{ErrorCode, Event, TurnError, TurnId, TurnOptions, TurnStats};

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
    let mut engine = load_engine(load);
    let first = match &engine {
        Ok(engine) => Event::ModelLoaded(engine.info().clone()),
        Err(error) => Event::ModelFailed { error: error.clone() },
    };
    if !emit(first) {
        return;
    }
    let mut desk = Desk::default();
    while let Some(job) = next(jobs, &mut engine, desk.turns.len()) {
        let goes_on = match (&mut engine, job) {
            (Ok(engine), Next::Job(job)) => desk.begin(engine, job, &mut emit),
            (Ok(engine), Next::Nothing) => desk.work(engine, &mut emit),
            (Err(error), Next::Job(job)) => {
                emit(Event::TurnFailed { turn: job.turn, error: error.clone() }).then_some(IsWell(true))
            }
            (Err(_), Next::Nothing) => unreachable!("without an engine there are no turns"),
        };
        match goes_on {
            Some(IsWell(true)) => {}
            // Whatever failed may have left something half done.
            Some(IsWell(false)) => engine = load_engine(load),
            None => break,
        }
    }
    save(&mut engine);
}

fn load_engine(load: &LoadOptions) -> Result<Engine, TurnError> {
    guarded(|| Engine::load(load)).map_err(|(error, _)| error)
}

enum Next {
    Job(Box<Job>),
    /// The turns that are on their way go on.
    Nothing,
}

/// The next job, if there is room for one. While there is nothing to do for a while, what was read is saved.
fn next(jobs: &Receiver<Job>, engine: &mut Result<Engine, TurnError>, n_turns: usize) -> Option<Next> {
    let parallel = engine.as_ref().map_or(1, |engine| engine.info().parallel);
    if n_turns == 0 {
        let job = match jobs.recv_timeout(IDLE) {
            Err(RecvTimeoutError::Timeout) => {
                save(engine);
                jobs.recv().ok()
            }
            job => job.ok(),
        };
        return job.map(|job| Next::Job(Box::new(job)));
    }
    // Turns go on when nobody sends jobs any more: they are cancelled if they should not.
    let job = if n_turns < parallel { jobs.try_recv().ok() } else { None };
    Some(job.map_or(Next::Nothing, |job| Next::Job(Box::new(job))))
}

fn save(engine: &mut Result<Engine, TurnError>) {
    if let Ok(engine) = engine {
        // A panic here must not end the thread: the next turn doesn't need what could not be saved.
        let _ = catch_unwind(AssertUnwindSafe(|| engine.save_states()));
    }
}

/// Whether the engine can be used as it is.
struct IsWell(bool);

/// The turns that are on their way.
#[derive(Default)]
struct Desk {
    turns: Vec<Turn>,
    /// Which they are and how long they waited, in the same order.
    about: Vec<(TurnId, Duration)>,
}

/// Each gives `None` when nobody listens any more.
impl Desk {
    fn begin(
        &mut self,
        engine: &mut Engine,
        job: Box<Job>,
        emit: &mut impl FnMut(Event) -> bool,
    ) -> Option<IsWell> {
        let Job { turn, messages, options, cancel, queue_time } = *job;
        let begun = guarded(|| {
            engine.begin(&messages, &options, cancel, &mut |progress| {
                emit(event(turn, progress));
            })
        });
        match begun {
            Ok(begun) => {
                self.turns.push(begun);
                self.about.push((turn, queue_time));
                self.settle(engine, emit)
            }
            Err((error, is_well)) => self.failed(turn, error, is_well, emit),
        }
    }

    fn work(&mut self, engine: &mut Engine, emit: &mut impl FnMut(Event) -> bool) -> Option<IsWell> {
        let about = &self.about;
        let worked = guarded(|| {
            engine.work(&mut self.turns, &mut |index, progress| {
                emit(event(about[index].0, progress));
            });
            Ok(())
        });
        match worked {
            Ok(()) => self.settle(engine, emit),
            Err((error, _)) => self.fail_all(&error, emit).then_some(IsWell(false)),
        }
    }

    /// Tells of the turns that have ended.
    fn settle(&mut self, engine: &mut Engine, emit: &mut impl FnMut(Event) -> bool) -> Option<IsWell> {
        while let Some(index) = self.turns.iter().position(Turn::has_ended) {
            let (ended, (turn, queue_time)) = (self.turns.remove(index), self.about.remove(index));
            match guarded(|| engine.end(ended)) {
                Ok((ending, stats)) => {
                    let stats = TurnStats { queue_time, ..stats };
                    let last = match ending {
                        Ending::Finished(finish) => Event::TurnFinished { turn, finish, stats },
                        Ending::Cancelled => Event::TurnCancelled { turn, stats },
                    };
                    if !emit(last) {
                        return None;
                    }
                }
                Err((error, is_well)) => {
                    if !self.failed(turn, error, is_well, emit)?.0 {
                        return Some(IsWell(false));
                    }
                }
            }
        }
        Some(IsWell(true))
    }

    /// A turn has failed; with an engine that isn't well all others have, too.
    fn failed(
        &mut self,
        turn: TurnId,
        error: TurnError,
        IsWell(is_well): IsWell,
        emit: &mut impl FnMut(Event) -> bool,
    ) -> Option<IsWell> {
        let goes_on = emit(Event::TurnFailed { turn, error: error.clone() });
        let goes_on = goes_on && (is_well || self.fail_all(&error, emit));
        goes_on.then_some(IsWell(is_well))
    }

    fn fail_all(&mut self, error: &TurnError, emit: &mut impl FnMut(Event) -> bool) -> bool {
        self.turns.clear();
        let mut about = self.about.drain(..);
        about.all(|(turn, _)| emit(Event::TurnFailed { turn, error: error.clone() }))
    }
}

fn event(turn: TurnId, progress: Progress) -> Event {
    match progress {
        Progress::Started { prompt_tokens } => Event::TurnStarted { turn, prompt_tokens },
        Progress::Picture { picture, pictures, done, total } => {
            Event::PictureProgress { turn, picture, pictures, done, total }
        }
        Progress::Prefill { done, total } => Event::PrefillProgress { turn, done, total },
        Progress::Token(token) => Event::Tokens { turn, tokens: vec![token] },
        Progress::Delta { channel, text, stats } => Event::Delta { turn, channel, text, stats },
    }
}

/// Runs `work`; a panic becomes an error like any other. Says whether the engine can be used afterwards.
fn guarded<T>(work: impl FnOnce() -> Result<T, EngineError>) -> Result<T, (TurnError, IsWell)> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let is_well = IsWell(!matches!(error, EngineError::DeviceFailed(_)));
            Err((TurnError { code: error.code(), message: error.to_string() }, is_well))
        }
        Err(panic) => {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown reason");
            let message = format!("the engine failed unexpectedly: {what}; please report this");
            Err((TurnError { code: ErrorCode::Engine, message }, IsWell(false)))
        }
    }
}
