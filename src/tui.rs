//! The terminal interface: one loop around plain data.
//!
//! Everything that happens becomes a [`msg::Msg`]; [`update::update`] changes the [`state::State`] and says
//! what is to be done as [`effect::Effect`]s; [`view::draw`] draws the state. Only this file and its
//! neighbours `terminal` and `input` touch the clock, the terminal and the channels.
//! Knows nothing of the engine: it talks to the session manager through [`Session`].

mod commands;
mod composer;
mod effect;
mod history;
mod input;
mod keymap;
mod layout;
mod msg;
mod state;
mod terminal;
mod theme;
mod transcript;
mod update;
mod view;
mod wrap;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::msg::Command;
use crate::session::Session;

use effect::Effect;
use input::{Input, Inputs};
use msg::Msg;
use state::State;
use terminal::Screen;
use theme::Theme;

pub use state::TuiSettings;

/// Why the interface ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Quit,
    /// A signal asked for it; the terminal is restored.
    Signal(i32),
}

impl Exit {
    /// The exit code that tells the shell so.
    pub fn code(self) -> u8 {
        match self {
            Self::Quit => 0,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
        }
    }
}

/// Time between two drawings that no key asked for: 30 a second are smooth, more only cost.
const MIN_FRAME: Duration = Duration::from_millis(33);

/// Messages taken in before a drawing; more than any burst, but not endless.
const MAX_BATCH: usize = 4096;

/// How long the first drawing waits for the terminal to say what its keyboard can.
const KEYBOARD_ANSWER: Duration = Duration::from_millis(100);

/// Runs the interface until the person quits or a signal comes. Dropping the session on return ends it.
///
/// # Errors
/// When the terminal can't be taken over or written.
pub async fn run(session: Session, settings: TuiSettings) -> io::Result<Exit> {
    let screen = Screen::enter()?;
    let mut inputs = Inputs::start()?;
    let (width, height) = screen.size()?;
    // The reader asks its question now; drawing at the same time could cut the question in two.
    let first_input = tokio::time::timeout(KEYBOARD_ANSWER, inputs.next()).await.ok();
    let mut interface = Interface {
        screen,
        session,
        theme: Theme::new(colours_wanted()),
        state: State::new(settings, width, height),
        started: Instant::now(),
        outbox: VecDeque::new(),
        session_is_open: true,
    };
    match interface.run(&mut inputs, first_input).await {
        // When the terminal goes away, drawing fails before the signal is here.
        Err(error) => match tokio::time::timeout(KEYBOARD_ANSWER, inputs.next()).await {
            Ok(input) => interface.ending(&input).ok_or(error),
            Err(_) => Err(error),
        },
        exit => exit,
    }
}

/// <https://no-color.org>: set and not empty.
fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

struct Interface {
    screen: Screen,
    session: Session,
    theme: Theme,
    state: State,
    started: Instant,
    /// Commands that the session manager has had no room for yet.
    outbox: VecDeque<Command>,
    session_is_open: bool,
}

impl Interface {
    async fn run(&mut self, inputs: &mut Inputs, first_input: Option<Input>) -> io::Result<Exit> {
        let mut waiting = first_input;
        let mut messages = Vec::new();
        let mut last_drawn: Option<Instant> = None;
        // A key is answered at once; the model's text waits for its turn.
        let mut urgent = true;
        loop {
            while let Some(input) = waiting.take().or_else(|| inputs.waiting()) {
                if let Some(exit) = self.ending(&input) {
                    return Ok(exit);
                }
                match input {
                    Input::KeyboardCanBeEnhanced(can) => {
                        if can {
                            self.screen.enhance_keyboard()?;
                        }
                        // Only now does the reader hear of new sizes; one that came before it was lost.
                        let (width, height) = self.screen.size()?;
                        messages.push(Msg::Resize { width, height });
                    }
                    Input::Continued => self.screen.resume()?,
                    _ => {}
                }
                messages.extend(input.into_msg());
                urgent = true;
            }
            while self.session_is_open && messages.len() < MAX_BATCH {
                match self.session.events.try_recv() {
                    Ok(event) => messages.push(Msg::Session(event)),
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => messages.push(self.close_session()),
                }
            }
            if let Some(exit) = self.apply(std::mem::take(&mut messages))? {
                return Ok(exit);
            }

            let may_draw_at = last_drawn.map(|drawn| drawn + MIN_FRAME);
            if self.state.dirty && (urgent || may_draw_at.is_none_or(|at| at <= Instant::now())) {
                self.draw()?;
                last_drawn = Some(Instant::now());
            }
            urgent = false;

            let drawing = may_draw_at.filter(|_| self.state.dirty);
            let tick = self.state.next_tick().map(|at| self.started + at);
            let wake = [drawing, tick].into_iter().flatten().min();
            tokio::select! {
                input = inputs.next() => waiting = Some(input),
                event = self.session.events.recv(), if self.session_is_open => {
                    // A closed channel is found again by the next `try_recv`.
                    messages.extend(event.map(Msg::Session));
                }
                permit = self.session.commands.reserve(), if !self.outbox.is_empty() => match permit {
                    Ok(permit) => if let Some(command) = self.outbox.pop_front() { permit.send(command) },
                    Err(_) => self.outbox.clear(),
                },
                () = sleep_until(wake) => {}
            }
        }
    }

    /// How an input ends the interface, if it does.
    fn ending(&self, input: &Input) -> Option<Exit> {
        match input {
            Input::Signal(signal) => Some(Exit::Signal(*signal)),
            // What the hang-up signal would have said.
            Input::HungUp => Some(Exit::Signal(1)),
            _ => None,
        }
    }

    fn close_session(&mut self) -> Msg {
        self.session_is_open = false;
        Msg::SessionClosed
    }

    fn apply(&mut self, messages: Vec<Msg>) -> io::Result<Option<Exit>> {
        let now = Msg::Tick(self.started.elapsed());
        for message in std::iter::once(now).chain(messages) {
            for effect in update::update(&mut self.state, message) {
                if self.do_effect(effect)? {
                    return Ok(Some(Exit::Quit));
                }
            }
        }
        Ok(None)
    }

    /// Does it; true when it was to quit.
    fn do_effect(&mut self, effect: Effect) -> io::Result<bool> {
        match effect {
            Effect::Send(command) => {
                // Order holds only if nothing overtakes what waits already.
                if self.outbox.is_empty() {
                    match self.session.commands.try_send(command) {
                        Err(mpsc::error::TrySendError::Full(command)) => self.outbox.push_back(command),
                        // A closed session says so on its other channel.
                        Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
                    }
                } else {
                    self.outbox.push_back(command);
                }
            }
            Effect::Redraw => self.screen.forget(),
            Effect::Suspend => {
                #[cfg(unix)]
                self.screen.suspend()?;
            }
            Effect::CaptureMouse(on) => self.screen.capture_mouse(on)?,
            Effect::Quit => return Ok(true),
        }
        Ok(false)
    }

    fn draw(&mut self) -> io::Result<()> {
        // The size may have changed before its message is here.
        let (width, height) = self.screen.size()?;
        if (width, height) != (self.state.width, self.state.height) {
            update::update(&mut self.state, Msg::Resize { width, height });
        }
        self.state.layout();
        self.screen.draw(|frame| view::draw(frame, &self.state, self.theme))?;
        self.state.dirty = false;
        Ok(())
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake.into()).await,
        None => std::future::pending().await,
    }
}
