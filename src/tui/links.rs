//! What an interface is connected with: the session manager, and work that is done on other threads.

use std::collections::VecDeque;
use std::path::PathBuf;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};

use crate::msg::Command;
use crate::session::Session;

use super::Program;
use super::effect::Work;
use super::msg::{Done, Msg};
use super::work;

/// Messages taken in at a time; more than any burst, but not endless.
const MAX_BATCH: usize = 4096;

/// Results that wait for the loop; when it is full, the threads that have more wait.
const DONE_CAPACITY: usize = 16;

pub struct Links {
    session: Session,
    session_is_open: bool,
    /// Commands that the session manager has had no room for yet.
    outbox: VecDeque<Command>,
    done_sender: mpsc::Sender<Done>,
    /// Results of work done beside the loop.
    done: mpsc::Receiver<Done>,
    /// Work that isn't done yet.
    n_working: usize,
    /// Where relative paths begin.
    folder: PathBuf,
    program: Program,
}

impl Links {
    pub fn new(session: Session, folder: PathBuf, program: Program) -> Self {
        let (done_sender, done) = mpsc::channel(DONE_CAPACITY);
        Self {
            session,
            session_is_open: true,
            outbox: VecDeque::new(),
            done_sender,
            done,
            n_working: 0,
            folder,
            program,
        }
    }

    /// Sends a command, now or as soon as there is room.
    pub fn send(&mut self, command: Command) {
        // Order holds only if nothing overtakes what waits already.
        if !self.outbox.is_empty() {
            return self.outbox.push_back(command);
        }
        match self.session.commands.try_send(command) {
            Err(TrySendError::Full(command)) => self.outbox.push_back(command),
            // A closed session says so on its other channel.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
        }
    }

    /// Starts work on a thread of its own. The loop's end doesn't wait for it.
    pub fn start(&mut self, work: Work) {
        let (folder, program) = (self.folder.clone(), self.program.clone());
        self.run(move || match work {
            Work::Keep { setting, value } => Done::Kept((program.keep)(setting, &value)),
            Work::Configure { setting, value } => {
                Done::Configured((program.keep)(&setting, &value).map(|()| setting))
            }
            Work::ShowSettings(name) => Done::Report((program.settings)(&name)),
            Work::Diagnose => Done::Report(Ok((program.diagnose)())),
            work => work::work(work, &folder),
        });
    }

    /// The same for anything that ends with a message.
    pub fn run(&mut self, work: impl FnOnce() -> Done + Send + 'static) {
        self.n_working += 1;
        let sender = self.done_sender.clone();
        tokio::task::spawn_blocking(move || {
            // Without a receiver the interface has ended.
            let _ = sender.blocking_send(work());
        });
    }

    /// Whether something was started that isn't done.
    pub fn is_working(&self) -> bool {
        self.n_working > 0 || !self.outbox.is_empty()
    }

    /// Takes in what is there.
    pub fn take(&mut self, messages: &mut Vec<Msg>) {
        while self.session_is_open && messages.len() < MAX_BATCH {
            match self.session.events.try_recv() {
                Ok(event) => messages.push(Msg::Session(event)),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.session_is_open = false;
                    messages.push(Msg::SessionClosed);
                }
            }
        }
        while let Ok(done) = self.done.try_recv() {
            self.n_working -= 1;
            messages.push(Msg::Done(done));
        }
    }

    /// Waits until something is there, and takes in the first of it.
    pub async fn wait(&mut self, messages: &mut Vec<Msg>) {
        tokio::select! {
            event = self.session.events.recv(), if self.session_is_open => {
                // A closed channel is found again by the next `take`.
                messages.extend(event.map(Msg::Session));
            }
            Some(done) = self.done.recv() => {
                self.n_working -= 1;
                messages.push(Msg::Done(done));
            }
            permit = self.session.commands.reserve(), if !self.outbox.is_empty() => match permit {
                Ok(permit) => if let Some(command) = self.outbox.pop_front() { permit.send(command) },
                Err(_) => self.outbox.clear(),
            },
        }
    }
}
