//! What the update wants done, as data; the loop does it.

use crate::msg::Command;

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send this to the session manager.
    Send(Command),
    /// Draw every cell again: something else wrote on the screen.
    Redraw,
    /// Give the terminal back and stop the process, as the shell's Ctrl+Z does.
    Suspend,
    /// Ask the terminal for wheel events, or leave the mouse to it.
    CaptureMouse(bool),
    Quit,
}
