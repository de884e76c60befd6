//! The batch at work: records in, up to `jobs` of them being answered, answers out.
//!
//! Records of one conversation wait for each other. Nothing is read ahead further than needed, so an endless input
//! costs no more memory than a few records.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::answer::{Answer, Client, Interrupted, engine_gone};
use super::input::Item;
use super::manifest::Manifest;
use super::output::{Output, Written};
use super::plan::Plan;
use super::progress::{Counts, Progress};
use super::record::{Record, Shape, key_of};
use super::resume::{Earlier, Kept};
use crate::chat::{Channel, Message, Part, Role};
use crate::cli::{BatchArgs, BatchOverflow, InputForm, OnError, OutputForm};
use crate::msg::{Command, ConversationId, ErrorCode, Event, Finish, TurnError, TurnId, TurnOptions};
use crate::signals::SIGINT;

/// Answers that may wait for a slow one before them.
const MAX_DONE: usize = 1024;
/// Records that may wait for their conversation, for each that is being answered.
const HELD_PER_JOB: usize = 16;
/// Between two looks at the progress and at the disk.
const TICK: Duration = Duration::from_secs(1);

pub enum Stop {
    Output(io::Error),
    Interrupted(Interrupted),
    EngineGone,
    /// `--on-error stop`.
    AtError,
    /// `--max-errors`.
    TooManyErrors,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

pub struct Pool<'a> {
    pub client: &'a mut Client,
    pub plan: &'a Plan,
    pub args: &'a BatchArgs,
    pub output: &'a mut Output,
    pub manifest: Option<&'a mut Manifest>,
    pub earlier: Earlier,
    pub progress: Progress,
    pub counts: Counts,
    /// Of the settings.
    pub run: String,
    pub jobs: usize,
    pub state: State,
}

/// What the pool itself has to remember.
#[derive(Default)]
pub struct State {
    /// Of the next record.
    index: usize,
    form: Option<OutputForm>,
    input_ended: bool,
    threads: HashMap<String, Thread>,
    /// Records whose conversation is still being answered.
    held: VecDeque<Waiting>,
    flights: HashMap<TurnId, Flight>,
    /// Unknown keys that were told.
    told: HashSet<String>,
    /// Why it ends when the records that are being answered are done.
    stop: Option<Stop>,
}

/// A conversation that several records share.
#[derive(Default)]
struct Thread {
    messages: Vec<Message>,
    /// Of all its records so far.
    key: String,
    is_begun: bool,
    is_busy: bool,
    has_failed: bool,
}

struct Waiting {
    index: usize,
    key: String,
    record: Record,
}

/// A record that is being answered.
struct Flight {
    about: About,
    conversation: ConversationId,
    messages: Vec<Message>,
    options: TurnOptions,
    answer: Answer,
    started: Instant,
    deadline: Option<Instant>,
    is_late: bool,
}

/// What an answer needs to know of its record.
struct About {
    shape: Shape,
    index: usize,
    id: Option<serde_json::Value>,
    conversation: Option<String>,
    key: String,
}

impl Pool<'_> {
    /// Runs until everything is answered.
    ///
    /// # Errors
    /// [`Stop`] says why it ended before.
    pub async fn run(&mut self, mut items: mpsc::Receiver<Item>) -> Result<(), Stop> {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            self.start_held().await?;
            let n_flights = self.state.flights.len();
            let is_stopping = self.client.stopping();
            if n_flights == 0 {
                if let Some(stop) = self.state.stop.take() {
                    return Err(stop);
                }
                if let Some(signal) = is_stopping {
                    return Err(Stop::Interrupted(Interrupted(signal)));
                }
                if self.state.input_ended && self.state.held.is_empty() {
                    return Ok(());
                }
            }
            let may_read = !self.state.input_ended
                && self.may_start()
                && self.state.held.len() < HELD_PER_JOB * self.jobs
                && self.output.n_waiting() < MAX_DONE;
            let deadline =
                self.state.flights.values().filter(|f| !f.is_late).filter_map(|f| f.deadline).min();
            tokio::select! {
                event = self.client.session.events.recv() => match event {
                    Some(event) => self.event(event).await?,
                    None => self.engine_has_gone().await?,
                },
                Some(signal) = self.client.signals.recv() => self.signal(signal).await?,
                item = items.recv(), if may_read => match item {
                    Some(item) => self.item(item).await?,
                    None => self.state.input_ended = true,
                },
                () = sleep_until(deadline) => self.time_out().await,
                _ = ticks.tick() => {
                    self.output.sync(false)?;
                    if self.state.index > 0 {
                        self.progress.show(&self.counts, n_flights);
                    }
                }
            }
        }
    }

    /// Whether another record may be answered now.
    fn may_start(&self) -> bool {
        self.state.flights.len() < self.jobs && self.client.stopping().is_none() && self.state.stop.is_none()
    }

    async fn signal(&mut self, signal: i32) -> Result<(), Stop> {
        if signal == SIGINT && self.client.stopping.is_none() && !self.state.flights.is_empty() {
            self.client.stopping = Some(signal);
            self.progress.clear();
            super::tell(match self.state.flights.len() {
                1 => "finishing the record that is being answered; Ctrl+C again stops at once",
                _ => "finishing the records that are being answered; Ctrl+C again stops at once",
            });
            return Ok(());
        }
        for turn in self.state.flights.keys().copied().collect::<Vec<_>>() {
            self.client.send(Command::Cancel { turn }).await;
        }
        Err(Stop::Interrupted(Interrupted(signal)))
    }

    async fn item(&mut self, item: Item) -> Result<(), Stop> {
        let index = self.state.index;
        self.state.index += 1;
        if self.args.limit.is_some_and(|limit| self.state.index >= limit) {
            self.state.input_ended = true;
        }
        self.set_form(item.form);
        let mut record = match item.record {
            Ok(record) => record,
            Err(bad) => {
                let about =
                    About { shape: Shape::Own, index, id: bad.id.clone(), conversation: None, key: item.key };
                if self.was_answered(&about, None)? {
                    return Ok(());
                }
                let error = TurnError { code: bad.code, message: bad.to_string() };
                return self.finish(about, &[], &TurnOptions::default(), &Answer::failed(error));
            }
        };
        self.counts.n_read += 1;
        for key in std::mem::take(&mut record.unknown) {
            if self.state.told.insert(key.clone()) {
                self.progress.clear();
                super::tell(&format!(
                    "{key:?} is not a key of a record and means nothing here (record {})",
                    index + 1
                ));
            }
        }
        let mut key = item.key;
        if let Some(name) = &record.conversation {
            let thread = self.state.threads.entry(name.clone()).or_default();
            // An answer depends on everything that was said before it.
            thread.key = key_of(&[thread.key.as_bytes(), key.as_bytes()]);
            key = thread.key.clone();
            let is_waited_for =
                self.state.held.iter().any(|held| held.record.conversation.as_ref() == Some(name));
            if thread.is_busy || is_waited_for {
                self.state.held.push_back(Waiting { index, key, record });
                return Ok(());
            }
        }
        self.start(Waiting { index, key, record }).await
    }

    /// The first record decides what is written, and says what its form was taken for.
    fn set_form(&mut self, input: Option<InputForm>) {
        if self.state.form.is_some() {
            return;
        }
        let form = self.args.write.output_form.unwrap_or(match input {
            Some(InputForm::Jsonl) => OutputForm::Jsonl,
            _ => OutputForm::Text,
        });
        self.state.form = Some(form);
        self.output.set_form(form);
        let is_guessed = self.args.read.input_form.is_none() && !self.args.read.null;
        match input {
            Some(InputForm::Lines) if is_guessed => {
                super::tell("reading one prompt per line (--in jsonl for JSON)")
            }
            Some(InputForm::Jsonl) if is_guessed => super::tell("reading JSONL (--in lines for plain text)"),
            _ => {}
        }
    }

    /// Starts what waited for a conversation that is free now.
    async fn start_held(&mut self) -> Result<(), Stop> {
        while self.may_start() {
            let is_free = |waiting: &Waiting| {
                let name = waiting.record.conversation.as_ref().expect("only these wait");
                !self.state.threads[name].is_busy
            };
            // In order: the first of each conversation comes before its others.
            let Some(at) = self.state.held.iter().position(is_free) else { return Ok(()) };
            let waiting = self.state.held.remove(at).expect("it was just found");
            self.start(waiting).await?;
        }
        Ok(())
    }

    async fn start(&mut self, waiting: Waiting) -> Result<(), Stop> {
        let Waiting { index, key, mut record } = waiting;
        let about = About {
            shape: record.shape,
            index,
            id: record.id.clone(),
            conversation: record.conversation.clone(),
            key,
        };
        let prepared = self.plan.prepare(&mut record, index);
        let messages = self.messages(&record);
        if self.was_answered(&about, messages.as_deref().ok())? {
            return Ok(());
        }
        let prepared = prepared.map_err(bad_record).and_then(|options| Ok((options, messages?)));
        let (options, messages) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return self.finish(about, &[], &TurnOptions::default(), &Answer::failed(error)),
        };
        if let Some(thread) = about.conversation.as_ref().and_then(|name| self.state.threads.get_mut(name)) {
            thread.is_busy = true;
        }
        let flight = Flight {
            about,
            conversation: self.client.new_conversation(),
            messages,
            options,
            answer: Answer::failed(engine_gone()),
            started: Instant::now(),
            deadline: None,
            is_late: false,
        };
        self.submit(flight).await;
        Ok(())
    }

    /// A record's conversation, up to its question.
    fn messages(&self, record: &Record) -> Result<Vec<Message>, TurnError> {
        let thread = record.conversation.as_ref().and_then(|name| self.state.threads.get(name));
        if thread.is_some_and(|thread| thread.has_failed) {
            let message = "an earlier record of this conversation failed".to_owned();
            return Err(TurnError { code: ErrorCode::Cancelled, message });
        }
        let begun = thread.filter(|thread| thread.is_begun);
        if begun.is_some() && record.system.is_some() {
            return Err(bad_record("system belongs in the first record of a conversation".into()));
        }
        let mut messages = begun.map(|thread| thread.messages.clone()).unwrap_or_default();
        let has_system = record.earlier.first().is_some_and(|message| message.role == Role::System);
        if let Some(system) = record.system.as_ref().or(self.plan.system.as_ref())
            && begun.is_none()
            && !has_system
        {
            messages.push(Message::text(Role::System, system));
        }
        messages.extend_from_slice(&record.earlier);
        messages.push(record.question.clone());
        Ok(messages)
    }

    /// Whether an earlier run has answered the record; its conversation then goes on from there.
    fn was_answered(&mut self, about: &About, messages: Option<&[Message]>) -> Result<bool, Stop> {
        let Some(Kept { is_failed, said }) = self.earlier.take(&about.key) else { return Ok(false) };
        self.counts.n_kept += 1;
        self.counts.n_failed += usize::from(is_failed);
        let thread = about.conversation.as_ref().and_then(|name| self.state.threads.get_mut(name));
        if let Some(thread) = thread {
            thread.has_failed |= is_failed;
            if let (Some(messages), Some((text, thinking)), false) = (messages, said, is_failed) {
                thread.go_on(messages.to_vec(), text, thinking);
            }
        }
        self.output.pass(about.index)?;
        Ok(true)
    }

    async fn submit(&mut self, flight: Flight) {
        let turn = TurnId(self.client.new_conversation().0);
        let conversation = flight.conversation;
        let (question, before) = flight.messages.split_last().expect("there is a question");
        self.client.send(Command::Open { conversation, messages: before.to_vec() }).await;
        let (message, options) = (question.clone(), flight.options.clone());
        self.state.flights.insert(turn, flight);
        self.client.send(Command::Submit { turn, conversation, message, options }).await;
    }

    async fn event(&mut self, event: Event) -> Result<(), Stop> {
        match event {
            Event::TurnStarted { turn, .. } => {
                if let (Some(flight), Some(timeout)) = (self.state.flights.get_mut(&turn), self.args.timeout)
                {
                    flight.deadline = Some(Instant::now() + timeout);
                }
            }
            Event::Delta { turn, channel, text, .. } => {
                if let Some(flight) = self.state.flights.get_mut(&turn) {
                    match channel {
                        Channel::Thinking => flight.answer.thinking.push_str(&text),
                        Channel::Answer => flight.answer.text.push_str(&text),
                    }
                }
            }
            Event::Tokens { turn, tokens } => {
                if let Some(flight) = self.state.flights.get_mut(&turn) {
                    flight.answer.tokens.extend(tokens);
                }
            }
            Event::TurnFinished { turn, finish, stats } => {
                if let Some(mut flight) = self.state.flights.remove(&turn) {
                    flight.answer.stats = stats;
                    flight.answer.result = Ok(finish);
                    self.land(flight).await?;
                }
            }
            Event::TurnCancelled { turn, .. } => {
                if let Some(mut flight) = self.state.flights.remove(&turn) {
                    let timeout = self.args.timeout.unwrap_or_default().as_secs_f64();
                    let message = format!("it took longer than {timeout} s");
                    flight.answer.result = Err(TurnError { code: ErrorCode::Timeout, message });
                    self.land(flight).await?;
                }
            }
            Event::TurnFailed { turn, error } => {
                if let Some(mut flight) = self.state.flights.remove(&turn) {
                    if error.code == ErrorCode::TooLong && self.shorten(&mut flight.messages) {
                        self.submit(flight).await;
                        return Ok(());
                    }
                    flight.answer.result = Err(error);
                    self.land(flight).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// `--overflow drop-oldest`: leaves out the oldest question with its answer; says whether there was one.
    fn shorten(&self, messages: &mut Vec<Message>) -> bool {
        let first = usize::from(messages.first().is_some_and(|message| message.role == Role::System));
        let is_question = |message: &Message| message.role == Role::User;
        let next = messages.iter().skip(first + 1).position(is_question).map(|at| first + 1 + at);
        match (self.plan.overflow, next) {
            (BatchOverflow::DropOldest, Some(next)) => {
                messages.drain(first..next);
                true
            }
            _ => false,
        }
    }

    /// A turn has ended.
    async fn land(&mut self, flight: Flight) -> Result<(), Stop> {
        let Flight { about, conversation, messages, options, mut answer, started, .. } = flight;
        self.client.send(Command::Close { conversation }).await;
        answer.total_time = started.elapsed();
        answer.settle(&options);
        if let Some(thread) = about.conversation.as_ref().and_then(|name| self.state.threads.get_mut(name)) {
            thread.is_busy = false;
            if answer.result.is_ok() {
                let thinking = (!answer.thinking.is_empty()).then(|| answer.thinking.clone());
                thread.go_on(messages.clone(), answer.text.clone(), thinking);
            }
        }
        self.finish(about, &messages, &options, &answer)
    }

    fn finish(
        &mut self,
        about: About,
        messages: &[Message],
        options: &TurnOptions,
        answer: &Answer,
    ) -> Result<(), Stop> {
        let written = Written {
            shape: about.shape,
            index: about.index,
            id: about.id.as_ref(),
            conversation: about.conversation.as_deref(),
            key: &about.key,
            run: &self.run,
            model: &self.client.model().name,
            figures: !self.plan.is_deterministic,
        };
        self.progress.clear();
        if let Some(manifest) = self.manifest.as_deref_mut() {
            manifest.note(&written, messages, options, answer);
        }
        self.output.write(&written, answer)?;
        let failed = answer.result.is_err();
        self.counts.n_answered += usize::from(!failed);
        self.counts.n_failed += usize::from(failed);
        self.counts.n_tokens += answer.stats.completion_tokens;
        if !failed {
            return Ok(());
        }
        if let Some(thread) = about.conversation.and_then(|name| self.state.threads.get_mut(&name)) {
            thread.has_failed = true;
        }
        let is_enough = |most: usize| self.counts.n_failed >= most;
        let stop = match self.args.on_error {
            OnError::Stop => Some(Stop::AtError),
            OnError::Continue if self.args.max_errors.is_some_and(is_enough) => Some(Stop::TooManyErrors),
            OnError::Continue => None,
        };
        self.state.stop = self.state.stop.take().or(stop);
        Ok(())
    }

    async fn time_out(&mut self) {
        let now = Instant::now();
        let mut late = Vec::new();
        for (turn, flight) in &mut self.state.flights {
            if !flight.is_late && flight.deadline.is_some_and(|deadline| deadline <= now) {
                flight.is_late = true;
                late.push(*turn);
            }
        }
        for turn in late {
            self.client.send(Command::Cancel { turn }).await;
        }
    }

    /// Without an engine nothing more is answered.
    async fn engine_has_gone(&mut self) -> Result<(), Stop> {
        let flights: Vec<Flight> = self.state.flights.drain().map(|(_, flight)| flight).collect();
        for flight in flights {
            self.land(flight).await?;
        }
        super::tell(&engine_gone().message);
        Err(Stop::EngineGone)
    }
}

impl Thread {
    fn go_on(&mut self, mut messages: Vec<Message>, text: String, thinking: Option<String>) {
        messages.push(Message { role: Role::Assistant, parts: vec![Part::Text(text)], reasoning: thinking });
        self.messages = messages;
        self.is_begun = true;
    }
}

fn bad_record(message: String) -> TurnError {
    TurnError { code: ErrorCode::BadRecord, message }
}

/// Never, if there is no time.
async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

impl Answer {
    /// An answer that was to have a form and was cut off hasn't got it.
    pub fn settle(&mut self, options: &TurnOptions) {
        if options.form.is_some() && self.result == Ok(Finish::Length) {
            let why = "the answer reached its token limit before it was complete; raise max_tokens, or ask for less";
            self.result = Err(TurnError { code: ErrorCode::SchemaUnsatisfied, message: why.into() });
        }
    }
}
