//! Between many requests and one session: each request's events go to it alone, and a queue has an end.

use std::collections::HashMap;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::chat::Message;
use crate::msg::{Command, ConversationId, Event, ModelInfo, TurnError, TurnId, TurnOptions};
use crate::session::Session;

/// Whether questions can be answered.
#[derive(Debug, Clone)]
pub enum Ready {
    Loading,
    Yes(ModelInfo),
    Failed(TurnError),
}

/// Where requests hand in their questions.
#[derive(Debug, Clone)]
pub struct Desk {
    asks: mpsc::UnboundedSender<Ask>,
}

enum Ask {
    Question {
        messages: Vec<Message>,
        options: TurnOptions,
        /// `None` if the queue is full.
        ticket: oneshot::Sender<Option<Ticket>>,
    },
    /// Nobody waits for the answer any more.
    Leave(TurnId),
}

/// A question that was taken: its events, in order. Dropping it takes the question back.
#[derive(Debug)]
pub struct Ticket {
    pub turn: TurnId,
    /// Unbounded, because a slow reader must not hold up the others; an answer's length bounds it.
    pub events: mpsc::UnboundedReceiver<Event>,
    asks: mpsc::UnboundedSender<Ask>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _ = self.asks.send(Ask::Leave(self.turn));
    }
}

impl Desk {
    /// Starts the task that owns the session, until it is aborted. `queue` questions may wait.
    pub fn open(session: Session, queue: usize) -> (Self, JoinHandle<()>, watch::Receiver<Ready>) {
        let (asks, asked) = mpsc::unbounded_channel();
        let (ready_sender, ready) = watch::channel(Ready::Loading);
        let clerk =
            Clerk { session, ready: ready_sender, queue, parallel: 1, next: 1, turns: HashMap::new() };
        let task = tokio::spawn(clerk.run(asked, asks.clone()));
        (Self { asks }, task, ready)
    }

    /// `None` if too many wait already.
    pub async fn ask(&self, messages: Vec<Message>, options: TurnOptions) -> Option<Ticket> {
        let (ticket, taken) = oneshot::channel();
        self.asks.send(Ask::Question { messages, options, ticket }).ok()?;
        taken.await.ok()?
    }
}

struct Clerk {
    session: Session,
    ready: watch::Sender<Ready>,
    queue: usize,
    /// Questions that are answered at the same time.
    parallel: usize,
    next: u64,
    turns: HashMap<TurnId, mpsc::UnboundedSender<Event>>,
}

impl Clerk {
    async fn run(mut self, mut asked: mpsc::UnboundedReceiver<Ask>, asks: mpsc::UnboundedSender<Ask>) {
        loop {
            tokio::select! {
                event = self.session.events.recv() => match event {
                    Some(event) => self.event(event).await,
                    None => return,
                },
                Some(ask) = asked.recv() => self.ask(ask, &asks).await,
            }
        }
    }

    async fn ask(&mut self, ask: Ask, asks: &mpsc::UnboundedSender<Ask>) {
        match ask {
            Ask::Question { ticket, .. } if self.turns.len() >= self.parallel + self.queue => {
                let _ = ticket.send(None);
            }
            Ask::Question { mut messages, options, ticket } => {
                let Some(message) = messages.pop() else { return };
                let (turn, conversation) = (TurnId(self.next), ConversationId(self.next));
                self.next += 1;
                let (sender, events) = mpsc::unbounded_channel();
                self.turns.insert(turn, sender);
                self.send(Command::Open { conversation, messages }).await;
                self.send(Command::Submit { turn, conversation, message, options }).await;
                // A request that has gone takes its ticket back at once.
                let _ = ticket.send(Some(Ticket { turn, events, asks: asks.clone() }));
            }
            Ask::Leave(turn) => {
                if self.turns.contains_key(&turn) {
                    self.send(Command::Cancel { turn }).await;
                }
            }
        }
    }

    async fn send(&self, command: Command) {
        let _ = self.session.commands.send(command).await;
    }

    async fn event(&mut self, event: Event) {
        let (turn, is_last) = match &event {
            Event::ModelLoaded(info) => {
                self.parallel = info.parallel;
                return drop(self.ready.send(Ready::Yes(info.clone())));
            }
            Event::ModelFailed { error } => return drop(self.ready.send(Ready::Failed(error.clone()))),
            Event::TurnStarted { turn, .. }
            | Event::PrefillProgress { turn, .. }
            | Event::PictureProgress { turn, .. }
            | Event::Delta { turn, .. }
            | Event::Tokens { turn, .. } => (*turn, false),
            Event::TurnFinished { turn, .. }
            | Event::TurnCancelled { turn, .. }
            | Event::TurnFailed { turn, .. } => (*turn, true),
            Event::PictureReady { .. }
            | Event::PictureRefused { .. }
            | Event::Examined { .. }
            | Event::Models(_)
            | Event::History(_) => return,
        };
        if let Some(sender) = self.turns.get(&turn) {
            let _ = sender.send(event);
        }
        if is_last {
            self.turns.remove(&turn);
            self.send(Command::Close { conversation: ConversationId(turn.0) }).await;
        }
    }
}
