//! One question to the session and everything that comes back, with the signals that may end it.

use std::future::Future;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::chat::{Channel, Message};
use crate::msg::{
    Command, ConversationId, ErrorCode, Event, Finish, ModelInfo, TokenInfo, TurnError, TurnId, TurnOptions,
    TurnStats,
};
use crate::session::Session;
use crate::signals::{self, SIGINT};

/// A signal asked the program to stop.
#[derive(Debug, Clone, Copy)]
pub struct Interrupted(pub i32);

/// What the model said to one question.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub text: String,
    pub thinking: String,
    pub result: Result<Finish, TurnError>,
    pub stats: TurnStats,
    pub total_time: Duration,
    /// If they were asked for.
    pub tokens: Vec<TokenInfo>,
}

impl Answer {
    pub fn failed(error: TurnError) -> Self {
        Self {
            text: String::new(),
            thinking: String::new(),
            result: Err(error),
            stats: TurnStats::default(),
            total_time: Duration::ZERO,
            tokens: Vec::new(),
        }
    }
}

/// A face without a screen: sends commands, waits for events, hears signals.
pub struct Client {
    pub(super) session: Session,
    pub(super) signals: mpsc::Receiver<i32>,
    /// A first Ctrl+C lets the running question be answered; then this says that it came.
    pub(super) stopping: Option<i32>,
    is_patient: bool,
    model: ModelInfo,
    next_id: u64,
}

impl Client {
    /// Waits until the model is loaded. What is worth knowing about the device goes to standard error.
    ///
    /// # Errors
    /// The reason why the model can't be used.
    pub async fn connect(mut session: Session) -> Result<Self, TurnError> {
        let signals = signals::listen();
        match session.events.recv().await {
            Some(Event::ModelLoaded(info)) => {
                for note in info.note.iter().chain(&info.device_note) {
                    super::tell(note);
                }
                Ok(Self { session, signals, stopping: None, is_patient: false, model: info, next_id: 1 })
            }
            Some(Event::ModelFailed { error }) => Err(error),
            _ => Err(engine_gone()),
        }
    }

    /// Makes the first Ctrl+C wait for the answer that is being written; the second one stops it.
    pub fn patient(self) -> Self {
        Self { is_patient: true, ..self }
    }

    /// The signal after which no further question should be asked.
    pub fn stopping(&self) -> Option<i32> {
        self.stopping
    }

    pub fn model(&self) -> &ModelInfo {
        &self.model
    }

    pub fn new_conversation(&mut self) -> ConversationId {
        self.next_id += 1;
        ConversationId(self.next_id)
    }

    /// A session that is gone shows at the next event.
    pub async fn send(&self, command: Command) {
        let _ = self.session.commands.send(command).await;
    }

    /// Waits for `work`, or for a signal.
    pub async fn unless_interrupted<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Interrupted> {
        tokio::select! {
            value = work => Ok(value),
            Some(signal) = self.signals.recv() => Err(Interrupted(signal)),
        }
    }

    /// Asks and collects the answer. `show` sees each piece as it comes, and may stop the turn.
    ///
    /// # Errors
    /// [`Interrupted`] after a signal; the turn is then cancelled.
    pub async fn ask(
        &mut self,
        conversation: ConversationId,
        message: Message,
        options: TurnOptions,
        mut show: impl FnMut(Channel, &str) -> ControlFlow<()>,
    ) -> Result<Answer, Interrupted> {
        self.next_id += 1;
        let turn = TurnId(self.next_id);
        let started = Instant::now();
        self.send(Command::Submit { turn, conversation, message, options }).await;
        let mut answer = Answer::failed(engine_gone());
        let mut stopped = false;
        loop {
            let event = tokio::select! {
                event = self.session.events.recv() => event,
                Some(signal) = self.signals.recv() => {
                    if self.is_patient && signal == SIGINT && self.stopping.is_none() {
                        self.stopping = Some(signal);
                        super::tell("finishing this record; Ctrl+C again stops at once");
                        continue;
                    }
                    self.send(Command::Cancel { turn }).await;
                    return Err(Interrupted(signal));
                }
            };
            match event {
                Some(Event::Delta { channel, text, .. }) => {
                    if !stopped && show(channel, &text).is_break() {
                        stopped = true;
                        self.send(Command::Cancel { turn }).await;
                    }
                    match channel {
                        Channel::Thinking => answer.thinking.push_str(&text),
                        Channel::Answer => answer.text.push_str(&text),
                    }
                }
                Some(Event::Tokens { tokens, .. }) => answer.tokens.extend(tokens),
                Some(Event::TurnFinished { finish, stats, .. }) => {
                    answer.result = Ok(finish);
                    answer.stats = stats;
                    break;
                }
                Some(Event::TurnCancelled { stats, .. }) => {
                    answer.result = Ok(Finish::Length);
                    answer.stats = stats;
                    break;
                }
                Some(Event::TurnFailed { error, .. }) => {
                    answer.result = Err(error);
                    break;
                }
                Some(_) => {}
                None => break,
            }
        }
        answer.total_time = started.elapsed();
        Ok(answer)
    }
}

pub(super) fn engine_gone() -> TurnError {
    TurnError { code: ErrorCode::Engine, message: "the engine stopped unexpectedly".into() }
}
