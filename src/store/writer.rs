//! The thread that owns a session's history: commands in, events out, in order.
//!
//! It knows conversations and messages by the numbers of the face and keeps the rows they have. When something
//! can't be written it says so once, and the chat goes on unsaved: later messages would hang in the air.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::chat::conversation::{Answered, Node, NodeId};
use crate::msg::{ConversationId, HistoryCommand, HistoryEvent, StoredId};

use super::conversations::NewMessage;
use super::{Store, StoreError};

/// Where conversations are kept, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    pub folder: PathBuf,
    /// From their last change on; `None` is for ever.
    pub days: Option<u32>,
}

impl From<PathBuf> for Keep {
    fn from(folder: PathBuf) -> Self {
        Self { folder, days: None }
    }
}

#[derive(Debug)]
pub enum Job {
    Command(HistoryCommand),
    /// What an answer has come to.
    Grow {
        conversation: ConversationId,
        node: NodeId,
        text: String,
        thinking: Option<String>,
        answered: Answered,
    },
}

/// Dropping it ends the thread after the jobs that were sent.
pub struct Writer {
    jobs: Sender<Job>,
}

impl Writer {
    /// Starts the thread; `emit` is called on it.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(
        keep: Keep,
        emit: impl Fn(HistoryEvent) + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (sender, jobs) = channel();
        let thread =
            std::thread::Builder::new().name("history".into()).spawn(move || run(&keep, &jobs, emit))?;
        Ok((Self { jobs: sender }, thread))
    }

    pub fn send(&self, job: Job) {
        // The thread lives as long as this sender does.
        let sent = self.jobs.send(job);
        debug_assert!(sent.is_ok(), "the history's thread waits for jobs");
    }
}

fn run(keep: &Keep, jobs: &Receiver<Job>, emit: impl Fn(HistoryEvent)) {
    let store = Store::open(&keep.folder).and_then(|store| store.purge(keep.days).map(|()| store));
    let mut history = match store {
        Ok(store) => History { store, open: HashMap::new(), is_off: false },
        Err(error) => {
            emit(HistoryEvent::Off { message: error.to_string() });
            refuse_all(jobs, &error, emit);
            return;
        }
    };
    for job in jobs {
        match history.do_job(job) {
            Ok(Some(event)) => emit(event),
            Ok(None) => {}
            Err(Failure::Asking(error)) => emit(HistoryEvent::Refused { message: error.to_string() }),
            Err(Failure::Keeping(error)) => {
                history.is_off = true;
                emit(HistoryEvent::Off { message: error.to_string() });
            }
        }
    }
}

/// Without a history questions about it are answered, and nothing is kept.
fn refuse_all(jobs: &Receiver<Job>, error: &StoreError, emit: impl Fn(HistoryEvent)) {
    for job in jobs {
        if matches!(job, Job::Command(command) if command.is_question()) {
            emit(HistoryEvent::Refused { message: error.to_string() });
        }
    }
}

struct History {
    store: Store,
    open: HashMap<ConversationId, Open>,
    /// Something couldn't be written.
    is_off: bool,
}

struct Open {
    stored: StoredId,
    /// The row of each message, by its number.
    rows: Vec<i64>,
}

enum Failure {
    /// Of something a person asked for and can ask for again.
    Asking(StoreError),
    Keeping(StoreError),
}

impl History {
    fn do_job(&mut self, job: Job) -> Result<Option<HistoryEvent>, Failure> {
        match job {
            Job::Command(command) => self.do_command(command),
            _ if self.is_off => Ok(None),
            Job::Grow { conversation, node, text, thinking, answered } => self
                .row(conversation, node)
                .and_then(|row| self.store.grow(row, &text, thinking.as_deref(), &answered))
                .map(|()| None)
                .map_err(Failure::Keeping),
        }
    }

    fn do_command(&mut self, command: HistoryCommand) -> Result<Option<HistoryEvent>, Failure> {
        let event = match command {
            HistoryCommand::Add { .. }
            | HistoryCommand::SetHead { .. }
            | HistoryCommand::SetSystem { .. }
            | HistoryCommand::SetReading { .. }
                if self.is_off =>
            {
                return Ok(None);
            }
            HistoryCommand::Add { conversation, node, what, system } => {
                return self.add(conversation, node, &what, system.as_deref()).map_err(Failure::Keeping);
            }
            // That is the session's own.
            HistoryCommand::Follow { .. } => return Ok(None),
            HistoryCommand::SetHead { conversation, head } => {
                let Some(open) = self.open.get(&conversation) else { return Ok(None) };
                let head = head.and_then(|head| open.rows.get(head.0 as usize)).copied();
                self.store.set_head(open.stored, head).map_err(Failure::Keeping)?;
                return Ok(None);
            }
            HistoryCommand::SetSystem { conversation, system } => {
                let Some(open) = self.open.get(&conversation) else { return Ok(None) };
                self.store.set_system(open.stored, system.as_deref()).map_err(Failure::Keeping)?;
                return Ok(None);
            }
            HistoryCommand::SetReading { conversation, left_out, summary } => {
                let Some(open) = self.open.get(&conversation) else { return Ok(None) };
                let row = |node: NodeId| open.rows.get(node.0 as usize).copied();
                let left_out: Vec<i64> = left_out.into_iter().filter_map(row).collect();
                let summary = summary.and_then(|summary| Some((row(summary.until)?, summary.text)));
                self.store.set_reading(open.stored, &left_out, summary).map_err(Failure::Keeping)?;
                return Ok(None);
            }
            HistoryCommand::Title { conversation, title } => match self.open.get(&conversation) {
                Some(open) => self.store.rename(open.stored, &title).map(|()| renamed(open.stored, title)),
                None => Err(StoreError::Empty),
            },
            HistoryCommand::Find { query } => {
                self.store.find(&query).map(|found| HistoryEvent::Found { query, found })
            }
            HistoryCommand::Prompts => self.store.prompts().map(HistoryEvent::Prompts),
            HistoryCommand::Load { conversation, stored } => self.load(conversation, stored),
            HistoryCommand::Rename { stored, title } => {
                self.store.rename(stored, &title).map(|()| renamed(stored, title))
            }
            HistoryCommand::Delete { stored } => {
                self.store.delete(stored).map(|title| HistoryEvent::Deleted { stored, title })
            }
            HistoryCommand::Undelete { stored } => {
                self.store.undelete(stored).map(|title| HistoryEvent::Undeleted { stored, title })
            }
        };
        event.map(Some).map_err(Failure::Asking)
    }

    fn add(
        &mut self,
        conversation: ConversationId,
        node: NodeId,
        what: &Node,
        system: Option<&str>,
    ) -> Result<Option<HistoryEvent>, StoreError> {
        let mut event = None;
        if !self.open.contains_key(&conversation) {
            let stored = self.store.begin(&what.message, system)?;
            self.open.insert(conversation, Open { stored, rows: Vec::new() });
            event = Some(HistoryEvent::Kept { conversation, stored });
        }
        let parent = what.parent.map(|parent| self.row(conversation, parent)).transpose()?;
        let open = self.open.get_mut(&conversation).expect("it was just put there");
        if node.0 as usize != open.rows.len() {
            return Err(StoreError::Stray);
        }
        let new = NewMessage { parent, message: &what.message, answered: what.answered.as_ref() };
        let row = self.store.add(open.stored, &new)?;
        open.rows.push(row);
        Ok(event)
    }

    fn load(
        &mut self,
        conversation: ConversationId,
        stored: Option<StoredId>,
    ) -> Result<HistoryEvent, StoreError> {
        let stored = stored.map_or_else(|| self.store.latest(), Ok)?;
        let kept = self.store.load(stored)?;
        self.open.insert(conversation, Open { stored, rows: kept.rows });
        Ok(HistoryEvent::Loaded { conversation, stored, loaded: Box::new(kept.conversation) })
    }

    fn row(&self, conversation: ConversationId, node: NodeId) -> Result<i64, StoreError> {
        let rows = self.open.get(&conversation).map(|open| &open.rows);
        rows.and_then(|rows| rows.get(node.0 as usize)).copied().ok_or(StoreError::Stray)
    }
}

fn renamed(stored: StoredId, title: String) -> HistoryEvent {
    HistoryEvent::Renamed { stored, title }
}
