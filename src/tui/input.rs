//! What comes from outside the program: keys, pastes, sizes, signals. Two threads feed one channel.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossterm::event::{Event, KeyEvent, MouseButton, MouseEventKind};
#[cfg(unix)]
use crossterm::event::{KeyCode, KeyModifiers};
use tokio::sync::mpsc;

use super::msg::Msg;
use super::pictures::graphics::Answer;

#[derive(Debug)]
pub enum Input {
    Key(KeyEvent),
    Paste(String),
    Resize {
        width: u16,
        height: u16,
    },
    Wheel(isize),
    /// The terminal's window got or lost the keyboard.
    Focus(bool),
    Click {
        column: u16,
        row: u16,
    },
    /// The answers to the questions asked at the start.
    Terminal(Answer),
    /// A request to end.
    Signal(i32),
    /// The process was stopped and continues.
    Continued,
    /// The terminal is gone.
    HungUp,
}

/// When it is full, the threads wait, and the terminal keeps what is typed.
const CAPACITY: usize = 256;

/// How long a reader that nobody wakes doesn't look up. Each look costs most of a millisecond.
const POLL: Duration = Duration::from_secs(1);

/// Makes the reader look up: to it, a new size of the terminal is an input like any other.
fn wake_reader() {
    #[cfg(unix)]
    let _ = signal_hook::low_level::raise(signal_hook::consts::SIGWINCH);
}

const ROWS_PER_WHEEL_STEP: isize = 3;

pub struct Inputs {
    receiver: mpsc::Receiver<Input>,
    ended: Arc<AtomicBool>,
    gate: Arc<Gate>,
}

/// Keeps the reader from the terminal while another program has it.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum GateState {
    #[default]
    Open,
    /// The reader is to stop at the gate.
    Closing,
    /// It has.
    Closed,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, to: GateState) -> MutexGuard<'_, GateState> {
        let mut state = self.lock();
        *state = to;
        self.changed.notify_all();
        state
    }

    /// Waits here while the gate is closed.
    fn pass(&self) {
        if *self.lock() == GateState::Closing {
            drop(self.changed.wait_while(self.change(GateState::Closed), |state| *state != GateState::Open));
        }
    }

    /// Closes it behind the reader. One that hangs elsewhere, or has ended, is not waited for.
    fn close(&self) {
        let closing = self.change(GateState::Closing);
        wake_reader();
        drop(self.changed.wait_timeout_while(closing, POLL * 3 / 2, |state| *state == GateState::Closing));
    }
}

impl Inputs {
    /// Starts reading. The terminal must be in raw mode already: the reader asks it a question first, which it
    /// answers as if it typed.
    ///
    /// # Errors
    /// When a thread or a signal handler can't be had.
    pub fn start(question: String) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let ended = Arc::new(AtomicBool::new(false));
        #[cfg(unix)]
        watch_signals(sender.clone())?;
        let gate = Arc::new(Gate::default());
        let (reader_ended, reader_gate) = (Arc::clone(&ended), Arc::clone(&gate));
        thread::Builder::new()
            .name("terminal-input".to_owned())
            .spawn(move || read(&sender, &reader_ended, &reader_gate, &question))?;
        Ok(Self { receiver, ended, gate })
    }

    /// Leaves the terminal's input to others, from when this returns. What was typed before is still here.
    pub fn pause(&self) {
        self.gate.close();
    }

    pub fn go_on(&self) {
        drop(self.gate.change(GateState::Open));
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
        wake_reader();
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
            Self::Focus(on) => Msg::Focus(on),
            Self::Click { column, row } => Msg::Click { column, row },
            Self::Continued => Msg::Resumed,
            Self::Terminal(_) | Self::Signal(_) | Self::HungUp => return None,
        })
    }
}

fn read(sender: &mpsc::Sender<Input>, ended: &AtomicBool, gate: &Gate, question: &str) {
    // Before crossterm reads: it takes what it doesn't know for keys.
    let answer = ask(question, |input| sender.blocking_send(input).is_ok());
    if sender.blocking_send(Input::Terminal(answer)).is_err() {
        return;
    }
    while !ended.load(Ordering::SeqCst) {
        gate.pass();
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

/// Asks the terminal and waits for its last answer, at most two seconds. What is typed meanwhile goes to `take`.
#[cfg(unix)]
fn ask(question: &str, mut take: impl FnMut(Input) -> bool) -> Answer {
    use std::io::Write;
    use std::time::Instant;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::pictures::graphics::{Piece, next_piece};

    const PATIENCE: Duration = Duration::from_secs(2);
    let mut answer = Answer::default();
    let mut stdout = io::stdout().lock();
    if stdout.write_all(question.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        return answer;
    }
    drop(stdout);
    let (stdin, until) = (io::stdin(), Instant::now() + PATIENCE);
    let (mut bytes, mut buffer) = (Vec::new(), [0; 256]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => break,
            Ok(_) => {}
            // A signal, such as that of a new size.
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
        }
        // Past the buffer of `Stdin`, where the bytes would be lost for crossterm.
        match rustix::io::read(&stdin, &mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(n_bytes) => bytes.extend_from_slice(&buffer[..n_bytes]),
        }
        // What came behind the last answer was typed too.
        let mut ended = false;
        while let Some(piece) = next_piece(&mut bytes, &mut answer) {
            ended |= match piece {
                Piece::Typed(c) => !take(Input::Key(typed(c))),
                Piece::Pasted(text) => !take(Input::Paste(text)),
                Piece::End => true,
            };
        }
        if ended {
            return answer;
        }
    }
    if bytes == [0x1b] {
        take(Input::Key(KeyCode::Esc.into()));
    }
    answer
}

/// Elsewhere the console is asked by its own functions, and pictures by `--images`.
#[cfg(not(unix))]
fn ask(_question: &str, _take: impl FnMut(Input) -> bool) -> Answer {
    let keyboard = crossterm::terminal::supports_keyboard_enhancement().unwrap_or(false);
    Answer { keyboard, ..Answer::default() }
}

/// The key whose byte this is.
#[cfg(unix)]
fn typed(c: char) -> KeyEvent {
    match c {
        '\r' => KeyCode::Enter.into(),
        '\t' => KeyCode::Tab.into(),
        '\u{7f}' => KeyCode::Backspace.into(),
        '\u{1}'..='\u{1a}' => {
            let letter = char::from(b'a' - 1 + c as u8);
            KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)
        }
        c => KeyCode::Char(c).into(),
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
            MouseEventKind::Down(MouseButton::Left) => {
                Some(Input::Click { column: mouse.column, row: mouse.row })
            }
            _ => None,
        },
        Event::FocusGained => Some(Input::Focus(true)),
        Event::FocusLost => Some(Input::Focus(false)),
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
