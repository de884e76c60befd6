//! Everything that can happen to the interface, as data.

use std::time::Duration;

use crossterm::event::KeyEvent;

use crate::msg::Event;

#[derive(Debug, Clone, PartialEq)]
pub enum Msg {
    Key(KeyEvent),
    Paste(String),
    /// Lines scrolled by the mouse wheel, negative towards the beginning.
    Wheel(isize),
    Resize {
        width: u16,
        height: u16,
    },
    /// Time since the start. Comes before each batch of other messages, and when [`next_tick`] asks for it.
    ///
    /// [`next_tick`]: super::state::State::next_tick
    Tick(Duration),
    Session(Event),
    /// The session manager is gone.
    SessionClosed,
    /// The process was stopped and runs again: nothing on the screen can be relied on.
    Resumed,
}
