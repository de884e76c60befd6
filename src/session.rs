//! The session manager's handle, as the faces see it.

use tokio::sync::mpsc;

use crate::msg::{Command, Event};

/// A face's end of the session: commands in, events out.
pub struct Session {
    pub commands: mpsc::Sender<Command>,
    pub events: mpsc::Receiver<Event>,
}
