//! The session manager: conversations, the running turn (several with a server), and a queue behind it.
//!
//! An async task between a face and the engine thread. It owns the conversations; the face owns what is on
//! the screen, the engine owns the model, the history's thread what is kept. Here `async` ends: those are threads
//! with plain channels.

mod examine;
mod keeping;
mod models;
mod pictures;
mod speed;

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::examine::PromptReader;
use self::keeping::Keeper;
use self::models::Models;
use self::pictures::{Files, Sight};
use crate::chat::{Channel, Message, Part, Role};
use crate::engine::generate::LoadOptions;
use crate::engine::worker::{self, Job};
use crate::msg::{
    Command, ConversationId, ErrorCode, Event, HistoryEvent, ModelEvent, PictureId, TurnError, TurnId,
    TurnOptions, TurnStats,
};
use crate::remote::{self, RemoteOptions};
pub use crate::store::Keep;

/// Messages that wait on their way to or from a face. When it is full, the sender waits.
const CHANNEL_CAPACITY: usize = 64;

/// How long the end of a session waits for the engine: to finish a step of an answer that nobody wants any more,
/// and to save what it has read. A model that is still being loaded is not waited for.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);
const IDLE_PATIENCE: Duration = Duration::from_secs(10);

/// A face's end of the session: commands in, events out. Dropping it stops the engine.
pub struct Session {
    pub commands: mpsc::Sender<Command>,
    pub events: mpsc::Receiver<Event>,
}

/// Starts the engine and the manager on the current tokio runtime. The handle ends when the face is gone
/// and the engine thread has stopped, or has had time enough to.
///
/// # Errors
/// If the engine's thread can't be started.
pub fn start(load: LoadOptions) -> std::io::Result<(Session, JoinHandle<()>)> {
    start_keeping(load, None, None)
}

/// The same with the model of a server, if there is one, in place of one of this machine; and keeps what it is told to.
///
/// # Errors
/// If a thread can't be started.
pub fn start_keeping(
    load: LoadOptions,
    remote: Option<RemoteOptions>,
    history: Option<Keep>,
) -> std::io::Result<(Session, JoinHandle<()>)> {
    let (command_sender, commands) = mpsc::channel(CHANNEL_CAPACITY);
    let (face, events) = mpsc::channel(CHANNEL_CAPACITY);
    let (engine_sender, engine_events) = mpsc::channel(CHANNEL_CAPACITY);
    let (chores, done) = mpsc::unbounded_channel();
    let models = Models::new(load.clone(), chores.clone());
    let engine_weak = engine_sender.downgrade();
    let worker = match remote {
        Some(remote) => {
            let (jobs, thread) = remote::spawn(remote, 0, engine_sender)?;
            // Which finds no model here, and says so.
            let reader = Arc::new(PromptReader::new(load.dir.clone()));
            Worker { number: 0, jobs, reader, thread: Some(thread) }
        }
        None => Worker::start(0, load, engine_sender, None)?,
    };
    let (keeper, history_thread) = match history {
        Some(keep) => {
            let told = chores.clone();
            // Nobody listens any more when the session has ended.
            let tell = move |event| drop(told.send(Done::History(event)));
            let (keeper, thread) = Keeper::start(keep, tell)?;
            (Some(keeper), Some(thread))
        }
        None => (None, None),
    };
    let manager = Manager {
        worker,
        engine_sender: engine_weak,
        models,
        next_model: None,
        conversations: HashMap::new(),
        queue: VecDeque::new(),
        running: Vec::new(),
        parallel: 1,
        outbox: VecDeque::new(),
        eyes: None,
        to_inspect: Vec::new(),
        chores,
        keeper,
    };
    let task = tokio::spawn(async move {
        let (patience, thread) = manager.run(commands, engine_events, done, face).await;
        if let Some(thread) = history_thread {
            let _ =
                tokio::time::timeout(IDLE_PATIENCE, tokio::task::spawn_blocking(move || thread.join())).await;
        }
        // The sender of jobs is gone, so the thread ends with its present step and saves its state.
        let _ = tokio::time::timeout(
            patience,
            tokio::task::spawn_blocking(move || thread.map(std::thread::JoinHandle::join)),
        )
        .await;
    });
    Ok((Session { commands: command_sender, events }, task))
}

/// The engine's thread with one model. What comes from an earlier one is told by its number.
struct Worker {
    number: u64,
    jobs: std::sync::mpsc::Sender<Job>,
    /// Of the same model.
    reader: Arc<PromptReader>,
    /// Always there but in the middle of a change.
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Worker {
    /// Loads the model once the worker before has ended and its memory is free.
    fn start(
        number: u64,
        load: LoadOptions,
        events: mpsc::Sender<(u64, Event)>,
        before: Option<std::thread::JoinHandle<()>>,
    ) -> std::io::Result<Self> {
        let emit = move |event| events.blocking_send((number, event)).is_ok();
        let reader = Arc::new(PromptReader::new(load.dir.clone()));
        let (jobs, thread) = worker::spawn(load, before, emit)?;
        Ok(Self { number, jobs, reader, thread: Some(thread) })
    }

    /// Another model in the place of this one, whose thread ends when it has saved its state.
    fn replace(&mut self, load: LoadOptions, events: mpsc::Sender<(u64, Event)>) -> std::io::Result<()> {
        // Without a sender of jobs the thread ends; this one leads nowhere.
        self.jobs = std::sync::mpsc::channel().0;
        let before = self.thread.take();
        *self = Self::start(self.number + 1, load, events, before)?;
        Ok(())
    }
}

struct Manager {
    worker: Worker,
    /// For the next worker. Weak, because when no worker has it any more the engine is gone.
    engine_sender: mpsc::WeakSender<(u64, Event)>,
    models: Models,
    /// To be loaded when the running turn has ended.
    next_model: Option<LoadOptions>,
    conversations: HashMap<ConversationId, Vec<Message>>,
    queue: VecDeque<Waiting>,
    running: Vec<Running>,
    /// Turns that may run at the same time: one, but of a server.
    parallel: usize,
    /// Events that the face hasn't taken yet; deltas of one channel are merged here.
    outbox: VecDeque<Event>,
    /// Which pictures the model takes, if any; unknown until it is loaded.
    eyes: Option<Option<Sight>>,
    to_inspect: Vec<(PictureId, Part)>,
    /// Where reading that happens beside the manager reports.
    chores: mpsc::UnboundedSender<Done>,
    /// `None` if nothing is kept.
    keeper: Option<Keeper>,
}

/// The end of something that was read beside the manager.
enum Done {
    Inspected(Event),
    Examined(Event),
    Read { turn: TurnId, files: Result<Files, TurnError> },
    Models(ModelEvent),
    ModelFound { asked: u64, name: String, path: Result<PathBuf, String> },
    History(HistoryEvent),
}

struct Waiting {
    turn: TurnId,
    conversation: ConversationId,
    /// `None` to go on with the last answer.
    message: Option<Message>,
    options: TurnOptions,
    since: Instant,
    /// The pictures that it and its conversation name; `None` while they are being read.
    files: Option<Files>,
}

struct Running {
    turn: TurnId,
    conversation: ConversationId,
    cancel: Arc<AtomicBool>,
    /// What is there of the answer, with what was there before.
    thinking: String,
    answer: String,
    continues: bool,
}

impl Manager {
    /// Runs until the face or the engine is gone; says how long the engine may then take to end.
    async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut engine: mpsc::Receiver<(u64, Event)>,
        mut done: mpsc::UnboundedReceiver<Done>,
        face: mpsc::Sender<Event>,
    ) -> (Duration, Option<std::thread::JoinHandle<()>>) {
        loop {
            tokio::select! {
                // Commands first: a cancel must not wait behind the text it is to stop.
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => break,
                },
                permit = face.reserve(), if !self.outbox.is_empty() => match (permit, self.outbox.pop_front()) {
                    (Ok(permit), Some(event)) => permit.send(event),
                    _ => break,
                },
                Some(done) = done.recv() => self.done(done),
                () = keeping::sleep_until(self.keeper.as_ref().and_then(Keeper::due)) => self.keep_text(),
                // A face that doesn't read holds up the engine, not the commands.
                event = engine.recv(), if self.outbox.len() < CHANNEL_CAPACITY => match event {
                    Some((worker, event)) if worker == self.worker.number => self.engine_event(event),
                    // What a model still says that was put aside.
                    Some(_) => {}
                    None => break,
                },
            }
        }
        for running in &self.running {
            if let Some(keeper) = &mut self.keeper {
                keeper.interrupted(running);
            }
            running.cancel.store(true, Ordering::Relaxed);
        }
        let patience = match self.running.is_empty() {
            false => BUSY_PATIENCE,
            true if self.eyes.is_none() => Duration::ZERO,
            true => IDLE_PATIENCE,
        };
        (patience, self.worker.thread)
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Open { conversation, messages } => {
                self.conversations.insert(conversation, messages);
            }
            Command::Close { conversation } => {
                self.conversations.remove(&conversation);
            }
            Command::Submit { turn, conversation, message, options } => {
                self.wait(turn, conversation, Some(message), options);
            }
            Command::Continue { turn, conversation, options } => {
                self.wait(turn, conversation, None, options);
            }
            Command::Cancel { turn } => self.cancel(turn),
            Command::Inspect { picture, what } => {
                self.to_inspect.push((picture, what));
                self.inspect();
            }
            Command::Examine { examination, messages, thinking } => {
                let (chores, reader) = (self.chores.clone(), self.worker.reader.clone());
                tokio::task::spawn_blocking(move || {
                    let prompt = reader.examine(&messages, thinking);
                    let _ = chores.send(Done::Examined(Event::Examined { examination, prompt }));
                });
            }
            Command::Models(command) => self.models.command(command),
            Command::History(command) => match &mut self.keeper {
                Some(keeper) => keeper.command(command),
                None => self.outbox.extend(keeping::refusal(&command).map(Event::History)),
            },
        }
    }

    fn wait(
        &mut self,
        turn: TurnId,
        conversation: ConversationId,
        message: Option<Message>,
        options: TurnOptions,
    ) {
        let files = self.files_of(turn, conversation, message.as_ref());
        let since = Instant::now();
        self.queue.push_back(Waiting { turn, conversation, message, options, since, files });
        self.start_next();
    }

    /// Has the files read that a message and its conversation name; none if they name none.
    fn files_of(
        &self,
        turn: TurnId,
        conversation: ConversationId,
        message: Option<&Message>,
    ) -> Option<Files> {
        let messages = self.conversations.get(&conversation).into_iter().flatten().chain(message);
        if !pictures::names_files(messages.clone()) {
            return Some(Files::new());
        }
        let messages: Vec<Message> = messages.cloned().collect();
        let chores = self.chores.clone();
        tokio::task::spawn_blocking(move || {
            // Nobody listens any more when the session has ended.
            let _ = chores.send(Done::Read { turn, files: pictures::read(&messages) });
        });
        None
    }

    fn inspect(&mut self) {
        let Some(sight) = self.eyes else { return };
        for (picture, what) in self.to_inspect.drain(..) {
            let chores = self.chores.clone();
            tokio::task::spawn_blocking(move || {
                let _ = chores.send(Done::Inspected(pictures::inspect(picture, what, sight)));
            });
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Inspected(event) | Done::Examined(event) => self.post(event),
            Done::Models(event) => self.post(Event::Models(event)),
            Done::ModelFound { asked, name, path } => match path {
                Ok(_) if !self.models.is_latest(asked) => {}
                Ok(dir) => {
                    self.post(Event::Models(ModelEvent::Loading { name }));
                    self.next_model = Some(self.models.load_options(dir));
                    self.start_next();
                }
                Err(why) => self.post(Event::Models(ModelEvent::NotHere { name, why })),
            },
            Done::History(event) => self.post(Event::History(event)),
            Done::Read { turn, files } => {
                // Gone if it was cancelled meanwhile.
                let Some(index) = self.queue.iter().position(|waiting| waiting.turn == turn) else { return };
                match files {
                    Ok(files) => self.queue[index].files = Some(files),
                    Err(error) => {
                        self.queue.remove(index);
                        self.never_started(turn);
                        self.post(Event::TurnFailed { turn, error });
                    }
                }
                self.start_next();
            }
        }
    }

    fn cancel(&mut self, turn: TurnId) {
        if let Some(running) = self.running.iter().find(|running| running.turn == turn) {
            running.cancel.store(true, Ordering::Relaxed);
        } else if let Some(index) = self.queue.iter().position(|waiting| waiting.turn == turn) {
            let waiting = self.queue.remove(index).expect("the position was just found");
            self.never_started(turn);
            let stats = TurnStats { queue_time: waiting.since.elapsed(), ..TurnStats::default() };
            self.outbox.push_back(Event::TurnCancelled { turn, stats });
        }
        // A turn that has already ended: its final event is on its way.
    }

    /// Puts the next model to work, if there is one and nothing is being answered.
    fn change_model(&mut self) {
        if !self.running.is_empty() {
            return;
        }
        let Some(load) = self.next_model.take() else { return };
        // Without one the engine is gone, and the session ends.
        let Some(events) = self.engine_sender.upgrade() else { return };
        self.eyes = None;
        self.parallel = 1;
        if let Err(error) = self.worker.replace(load, events) {
            let message = format!("the engine can't be started: {error}");
            self.post(Event::ModelFailed { error: TurnError { code: ErrorCode::Engine, message } });
        }
    }

    fn start_next(&mut self) {
        self.change_model();
        // A model that is to be changed gets no new turns.
        while self.next_model.is_none() && self.running.len() < self.parallel {
            let is_busy =
                |conversation| self.running.iter().any(|running| running.conversation == conversation);
            let Some(first) = self.queue.iter().position(|waiting| !is_busy(waiting.conversation)) else {
                return;
            };
            if self.queue[first].files.is_none() {
                return;
            }
            let waiting = self.queue.remove(first).expect("the position was just found");
            self.run_turn(waiting);
        }
    }

    fn run_turn(&mut self, waiting: Waiting) {
        let messages = self.conversations.entry(waiting.conversation).or_default();
        let continues = waiting.message.is_none();
        messages.extend(waiting.message);
        pictures::fill(messages, &waiting.files.unwrap_or_default());
        let cancel = Arc::new(AtomicBool::new(false));
        let job = Job {
            turn: waiting.turn,
            messages: messages.clone(),
            options: waiting.options,
            cancel: cancel.clone(),
            queue_time: waiting.since.elapsed(),
        };
        // The worker lives as long as this sender does: it never ends by itself.
        let sent = self.worker.jobs.send(job);
        debug_assert!(sent.is_ok(), "the worker waits for jobs");
        // Back in its place, longer, when the turn has ended.
        let begun = if continues { messages.pop_if(|message| message.role == Role::Assistant) } else { None };
        self.running.push(Running {
            turn: waiting.turn,
            conversation: waiting.conversation,
            cancel,
            answer: begun.as_ref().map(Message::plain_text).unwrap_or_default(),
            thinking: begun.and_then(|message| message.reasoning).unwrap_or_default(),
            continues,
        });
    }

    fn running(&mut self, turn: TurnId) -> Option<&mut Running> {
        self.running.iter_mut().find(|running| running.turn == turn)
    }

    /// The turn, which has ended.
    fn ended(&mut self, turn: TurnId) -> Option<Running> {
        let at = self.running.iter().position(|running| running.turn == turn)?;
        Some(self.running.remove(at))
    }

    fn engine_event(&mut self, event: Event) {
        match &event {
            Event::Delta { turn, channel, text, .. } => {
                if let Some(running) = self.running(*turn) {
                    match channel {
                        Channel::Thinking => running.thinking.push_str(text),
                        Channel::Answer => running.answer.push_str(text),
                    }
                    if let Some(keeper) = &mut self.keeper {
                        keeper.grew(*turn);
                    }
                }
            }
            Event::TurnFinished { turn, .. }
            | Event::TurnCancelled { turn, .. }
            | Event::TurnFailed { turn, .. } => {
                note(&event);
                if let Some(running) = self.ended(*turn) {
                    if let Some(keeper) = &mut self.keeper {
                        keeper.ended(&running, &event);
                    }
                    match &event {
                        Event::TurnFailed { .. } => self.drop_question(running),
                        _ => self.keep_answer(running),
                    }
                }
            }
            Event::ModelLoaded(info) => {
                log::info!(
                    "model {} on {}, context {}, loaded in {:.1} s",
                    info.name,
                    info.device,
                    info.context_tokens,
                    info.load_time.as_secs_f64()
                );
                self.parallel = info.parallel;
                let sight = info.pictures.zip(info.clips);
                self.eyes = Some(sight.map(|(pictures, clips)| Sight { pictures, clips }));
                self.inspect();
            }
            Event::ModelFailed { error } => {
                log::error!("the model can't be used ({}): {}", error.code.as_str(), error.message);
                self.eyes = Some(None);
                self.inspect();
            }
            Event::TurnStarted { .. }
            | Event::PrefillProgress { .. }
            | Event::PictureProgress { .. }
            | Event::Tokens { .. }
            | Event::PictureReady { .. }
            | Event::PictureRefused { .. }
            | Event::Examined { .. }
            | Event::Models(_)
            | Event::History(_) => {}
        }
        self.post(event);
        self.start_next();
    }

    /// Keeps what the answer has come to.
    fn keep_text(&mut self) {
        for running in &self.running {
            if let Some(keeper) = &mut self.keeper {
                keeper.save(running);
            }
        }
    }

    fn never_started(&mut self, turn: TurnId) {
        if let Some(keeper) = &mut self.keeper {
            keeper.never_started(turn);
        }
    }

    /// What was said stays in the conversation, also when it was cut off.
    fn keep_answer(&mut self, running: Running) {
        let Some(messages) = self.conversations.get_mut(&running.conversation) else { return };
        if running.answer.is_empty() && running.thinking.is_empty() {
            return;
        }
        messages.push(Message {
            role: Role::Assistant,
            parts: vec![Part::Text(running.answer)],
            reasoning: (!running.thinking.is_empty()).then_some(running.thinking),
        });
    }

    /// A question that can't be answered (too long, say) would fail every later turn as well.
    fn drop_question(&mut self, running: Running) {
        // What was said before it was to go on is still good.
        if running.continues {
            return self.keep_answer(running);
        }
        if let Some(messages) = self.conversations.get_mut(&running.conversation) {
            messages.pop();
        }
    }

    /// Queues an event for the face; text is joined to text of the same turn and channel that still waits.
    fn post(&mut self, event: Event) {
        if let (
            Some(Event::Delta { turn, channel, text, stats }),
            Event::Delta { turn: new_turn, channel: new_channel, text: more, stats: new_stats },
        ) = (self.outbox.back_mut(), &event)
            && turn == new_turn
            && channel == new_channel
        {
            text.push_str(more);
            *stats = *new_stats;
            return;
        }
        self.outbox.push_back(event);
    }
}

/// Figures of a turn that has ended, for the log; nothing of what was said.
fn note(event: &Event) {
    match event {
        Event::TurnFinished { turn, stats, .. } | Event::TurnCancelled { turn, stats } => log::info!(
            "turn {}: {} tokens read ({} cached), {} written in {:.2} s, first after {:.2} s",
            turn.0,
            stats.prompt_tokens,
            stats.cached_tokens,
            stats.completion_tokens,
            stats.decode_time.as_secs_f64(),
            stats.time_to_first_token.unwrap_or_default().as_secs_f64()
        ),
        Event::TurnFailed { turn, error } => {
            log::warn!("turn {} failed ({}): {}", turn.0, error.code.as_str(), error.message);
        }
        _ => {}
    }
}
