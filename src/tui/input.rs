//! What comes from outside the program: keys, pastes, sizes, signals. Two threads feed one channel.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossterm::event::{Event, KeyEvent, MouseEventKind};
use crossterm::terminal::supports_keyboard_enhancement;
use tokio::sync::mpsc;

use super::msg::Msg;

#[derive(Debug)]
pub enum Input {
    Key(KeyEvent),
    Paste(String),
    Resize {
        width: u16,
        height: u16,
    },
    Wheel(isize),
    /// The answer to the one question asked at the start.
    KeyboardCanBeEnhanced(bool),
    /// A request to end.
    Signal(i32),
    /// The process was stopped and continues.
    Continued,
    /// The terminal is gone.
    HungUp,
}

/// When it is full, the threads wait, and the terminal keeps what is typed.
const CAPACITY: usize = 256;

/// How long a reader may go on after the interface has ended.
const POLL: Duration = Duration::from_millis(100);

const ROWS_PER_WHEEL_STEP: isize = 3;

pub struct Inputs {
    receiver: mpsc::Receiver<Input>,
    ended: Arc<AtomicBool>,
}

impl Inputs {
    /// Starts reading. The terminal must be in raw mode already: the reader asks it what its keyboard can.
    ///
    /// # Errors
    /// When a thread or a signal handler can't be had.
    pub fn start() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let ended = Arc::new(AtomicBool::new(false));
        #[cfg(unix)]
        watch_signals(sender.clone())?;
        let reader_ended = Arc::clone(&ended);
        thread::Builder::new()
            .name("terminal-input".to_owned())
            .spawn(move || read(&sender, &reader_ended))?;
        Ok(Self { receiver, ended })
    }

    pub async fn next(&mut self) -> Input {
        self.receiver.recv().await.unwrap_or(Input::HungUp)
    }

    /// The next one, if it is here already.
    pub fn waiting(&mut self) -> Option<Input> {
        self.receiver.try_recv().ok()
    }
}

impl Drop for Inputs {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

impl Input {
    /// What the state hears of it; the rest is for the loop.
    pub fn into_msg(self) -> Option<Msg> {
        Some(match self {
            Self::Key(key) => Msg::Key(key),
            Self::Paste(text) => Msg::Paste(text),
            Self::Resize { width, height } => Msg::Resize { width, height },
            Self::Wheel(rows) => Msg::Wheel(rows),
            Self::Continued => Msg::Resumed,
            Self::KeyboardCanBeEnhanced(_) | Self::Signal(_) | Self::HungUp => return None,
        })
    }
}

fn read(sender: &mpsc::Sender<Input>, ended: &AtomicBool) {
    // A terminal that doesn't answer makes this wait for two seconds; keys typed meanwhile are kept.
    let can = supports_keyboard_enhancement().unwrap_or(false);
    if sender.blocking_send(Input::KeyboardCanBeEnhanced(can)).is_err() {
        return;
    }
    while !ended.load(Ordering::SeqCst) {
        let input = match crossterm::event::poll(POLL) {
            Ok(false) => continue,
            Ok(true) => match crossterm::event::read() {
                Ok(event) => input(event),
                Err(_) => Some(Input::HungUp),
            },
            Err(_) => Some(Input::HungUp),
        };
        let Some(input) = input else { continue };
        let is_last = matches!(input, Input::HungUp);
        if sender.blocking_send(input).is_err() || is_last {
            return;
        }
    }
}

fn input(event: Event) -> Option<Input> {
    match event {
        Event::Key(key) => Some(Input::Key(key)),
        Event::Paste(text) => Some(Input::Paste(text)),
        Event::Resize(width, height) => Some(Input::Resize { width, height }),
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::ScrollUp => Some(Input::Wheel(-ROWS_PER_WHEEL_STEP)),
            MouseEventKind::ScrollDown => Some(Input::Wheel(ROWS_PER_WHEEL_STEP)),
            _ => None,
        },
        Event::FocusGained | Event::FocusLost => None,
    }
}

#[cfg(unix)]
fn watch_signals(sender: mpsc::Sender<Input>) -> io::Result<()> {
    use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGHUP, SIGINT, SIGCONT])?;
    // This thread lives as long as the process: without it, a signal after the interface has ended
    // (while the model is being freed, say) would be swallowed by the handlers that remain.
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut asked_to_end = false;
        for signal in signals.forever() {
            if signal == SIGCONT {
                let _ = sender.blocking_send(Input::Continued);
            } else if asked_to_end || sender.blocking_send(Input::Signal(signal)).is_err() {
                super::terminal::restore();
                std::process::exit(128 + signal);
            } else {
                asked_to_end = true;
            }
        }
    })?;
    Ok(())
}
