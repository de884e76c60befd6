//! Keeping the conversations of a session: passes on what a face wants kept, and writes answers down while they
//! grow.

use std::collections::HashMap;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::chat::conversation::{Answered, Ending, Figures, NodeId};
use crate::msg::{ConversationId, Event, Finish, HistoryCommand, HistoryEvent, TurnId};
use crate::store::{Job, Keep, Writer};

use super::Running;

/// From text that isn't kept yet until it is. A program that is killed may lose as much, and what it takes to write.
const EVERY: Duration = Duration::from_millis(300);

pub struct Keeper {
    writer: Writer,
    followed: HashMap<TurnId, Followed>,
    /// When the text of the running turn is to be written.
    due: Option<Instant>,
}

struct Followed {
    conversation: ConversationId,
    node: NodeId,
    answered: Answered,
}

impl Keeper {
    /// Starts the history's thread, which ends when the keeper is dropped; `tell` is called on it.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(
        keep: Keep,
        tell: impl Fn(HistoryEvent) + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (writer, thread) = Writer::start(keep, tell)?;
        Ok((Self { writer, followed: HashMap::new(), due: None }, thread))
    }

    pub fn command(&mut self, command: HistoryCommand) {
        match command {
            HistoryCommand::Follow { turn, conversation, node, answered } => {
                self.followed.insert(turn, Followed { conversation, node, answered });
            }
            other => self.writer.send(Job::Command(other)),
        }
    }

    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Text of this turn came.
    pub fn grew(&mut self, turn: TurnId) {
        if self.due.is_none() && self.followed.contains_key(&turn) {
            self.due = Some(Instant::now() + EVERY);
        }
    }

    pub fn save(&mut self, running: &Running) {
        self.due = None;
        if let Some(followed) = self.followed.get(&running.turn) {
            self.writer.send(grown(followed, running, followed.answered.clone()));
        }
    }

    /// `event` is the final one of the running turn.
    pub fn ended(&mut self, running: &Running, event: &Event) {
        let (ending, stats) = match event {
            Event::TurnFinished { finish: Finish::Stop, stats, .. } => (Ending::Finished, Some(stats)),
            Event::TurnFinished { finish: Finish::Length, stats, .. } => (Ending::Length, Some(stats)),
            Event::TurnCancelled { stats, .. } => (Ending::Stopped, Some(stats)),
            _ => (Ending::Failed, None),
        };
        self.end(running, ending, stats.map(Figures::from));
    }

    /// The session ends while the turn runs.
    pub fn interrupted(&mut self, running: &Running) {
        self.end(running, Ending::Stopped, None);
    }

    fn end(&mut self, running: &Running, ending: Ending, figures: Option<Figures>) {
        self.due = None;
        let Some(followed) = self.followed.remove(&running.turn) else { return };
        let figures = figures.unwrap_or_default();
        let answered = Answered { ending: Some(ending), figures, ..followed.answered.clone() };
        self.writer.send(grown(&followed, running, answered));
    }

    /// The turn was taken back before its time came.
    pub fn never_started(&mut self, turn: TurnId) {
        self.followed.remove(&turn);
    }
}

fn grown(followed: &Followed, running: &Running, answered: Answered) -> Job {
    Job::Grow {
        conversation: followed.conversation,
        node: followed.node,
        text: running.answer.clone(),
        thinking: (!running.thinking.is_empty()).then(|| running.thinking.clone()),
        answered,
    }
}

/// What a session says to questions about a history it doesn't have.
pub fn refusal(command: &HistoryCommand) -> Option<HistoryEvent> {
    let message = "Conversations are not kept in this chat (--no-history)".to_owned();
    command.is_question().then_some(HistoryEvent::Refused { message })
}

pub async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
