//! The terminal interface: one loop around plain data.
//!
//! Everything that happens becomes a [`msg::Msg`]; [`update::update`] changes the [`state::State`] and says
//! what is to be done as [`effect::Effect`]s; [`view::draw`] draws the state. Only this file and its
//! neighbours `terminal` and `input` touch the clock, the terminal and the channels.
//! Knows nothing of the engine: it talks to the session manager through [`Session`].

mod attach;
mod commands;
mod completion;
mod composer;
mod drafts;
mod effect;
pub mod frames;
mod fuzzy;
mod history;
mod inline;
mod input;
pub mod keymap;
mod layout;
mod links;
mod list;
mod markdown;
mod models;
mod msg;
mod notify;
mod page;
mod persona;
mod picker;
mod pictures;
pub mod plain;
pub mod probe;
mod state;
mod terminal;
pub mod theme;
mod transcript;
mod update;
mod view;
mod vim;
mod work;
mod wrap;
mod writing;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::msg::{Command, ErrorCode, HistoryCommand, ModelCommand, StoredId};
use crate::session::Session;

use effect::Effect;
use inline::Inline;
use input::{Input, Inputs};
use links::Links;
use msg::{Done, Msg};
use pictures::clipboard;
use pictures::graphics::{self, Answer, Environment, Graphics};
use pictures::preview::Preview;
use state::State;
use terminal::Screen;
use theme::{Colours, Depth, Theme};

pub use commands::nearest;
pub use drafts::SpecView;
pub use keymap::{Keymap, Preset};
pub use notify::Notify;
pub use persona::Facts;
pub use pictures::graphics::{Environment as TerminalEnvironment, Images, Protocol};
pub use state::{Mode, Overflow, TuiSettings};
pub use writing::edit;

/// Says what a setting is and where from; with an empty name, all of them.
pub type ShowSettings = dyn Fn(&str) -> Result<String, String> + Send + Sync;

/// What the program does for an interface, which knows nothing of files of settings. Errors are sentences.
#[derive(Clone)]
pub struct Program {
    /// Remembers a setting for the next start.
    pub keep: fn(&str, &str) -> Result<(), String>,
    pub settings: Arc<ShowSettings>,
    /// What is wrong on this machine, line by line.
    pub diagnose: Arc<dyn Fn() -> String + Send + Sync>,
}

/// Why the interface ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Quit,
    /// A signal asked for it; the terminal is restored.
    Signal(i32),
    /// The input has ended, and something in it had no answer.
    SomeFailed,
    /// There is no model to answer, and nobody to choose another one.
    Failed(ErrorCode),
}

impl Exit {
    /// The exit code that tells the shell so.
    pub fn code(self) -> u8 {
        match self {
            Self::Quit => 0,
            Self::SomeFailed => 3,
            Self::Failed(_) => 1,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
        }
    }
}

/// What is left when the interface has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub exit: Exit,
    /// The conversation that was on the screen, if it is kept, and its title.
    pub kept: Option<(StoredId, String)>,
}

/// Time between two drawings that no key asked for: 30 a second are smooth, more only cost.
const MIN_FRAME: Duration = Duration::from_millis(33);

/// How long the first drawing waits for the terminal to say what it can.
const TERMINAL_ANSWER: Duration = Duration::from_millis(100);

/// Runs the interface until the person quits or a signal comes. Dropping the session on return ends it.
///
/// # Errors
/// When the terminal can't be taken over or written.
pub async fn run(session: Session, settings: TuiSettings, program: Program) -> io::Result<Ended> {
    let inline = settings.inline.then(Inline::default);
    let mut screen = Screen::enter(inline.is_none())?;
    if settings.mouse {
        screen.capture_mouse(true)?;
    }
    let (images, environment) = (settings.images, Environment::read());
    let mut inputs = Inputs::start(graphics::question(images, environment))?;
    let (width, height) = screen.size()?;
    // The reader asks its question now; drawing at the same time could cut the question in two.
    let first_input = tokio::time::timeout(TERMINAL_ANSWER, inputs.next()).await.ok();
    let mut links = Links::new(session, settings.folder.clone(), program);
    let (resume, notify) = (settings.resume, settings.notify);
    let mut colours = Colours {
        folder: settings.themes_folder.clone(),
        depth: Depth::read(),
        is_light: graphics::is_light_by_environment(),
    };
    if let Some(Input::Terminal(Answer { is_light: Some(is_light), .. })) = &first_input {
        colours.is_light = Some(*is_light);
    }
    let mut state = State::new(settings, width, height);
    let mut themes = vec![theme::AUTO.to_owned()];
    themes.extend(theme::file::names(colours.folder.as_deref()));
    state.themes = themes;
    // What was wrong with it was said before the terminal was taken over.
    let theme =
        colours.theme(&state.theme).or_else(|_| colours.theme(theme::AUTO)).map_err(io::Error::other)?;
    state.graphics = Graphics::unasked(images, environment);
    if state.keeps_chats {
        links.send(Command::History(HistoryCommand::Prompts));
    }
    if state.models.open.is_some() {
        links.send(Command::Models(ModelCommand::List));
    }
    let mut interface = Interface {
        screen,
        links,
        theme,
        colours,
        state,
        images,
        environment,
        pixels_drawn: Vec::new(),
        started: Instant::now(),
        to_write: None,
        notify,
        inline,
        is_away: false,
    };
    if let Some(stored) = resume {
        for effect in update::history::load(&mut interface.state, stored) {
            interface.do_effect(effect)?;
        }
    }
    let exit = match interface.run(&mut inputs, first_input).await {
        // When the terminal goes away, drawing fails before the signal is here.
        Err(error) => match tokio::time::timeout(TERMINAL_ANSWER, inputs.next()).await {
            Ok(input) => interface.ending(&input).ok_or(error),
            Err(_) => Err(error),
        },
        exit => exit,
    }?;
    let width = interface.state.width;
    if let Some(inline) = interface.inline.as_mut().filter(|_| !interface.screen.is_alternate()) {
        inline.clear(width)?;
    }
    let state = &interface.state;
    let kept = state.stored.map(|stored| (stored, state.title().unwrap_or_default()));
    Ok(Ended { exit, kept })
}

struct Interface {
    screen: Screen,
    links: Links,
    theme: Theme,
    colours: Colours,
    state: State,
    images: Images,
    environment: Environment,
    /// Where pictures were drawn that the screen's cells know nothing of.
    pixels_drawn: Vec<(i32, Preview)>,
    started: Instant,
    notify: Notify,
    /// What is finished goes into the scrollback.
    inline: Option<Inline>,
    /// The draft for which an editor is to be started.
    to_write: Option<String>,
    /// An editor has the terminal.
    is_away: bool,
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
                    Input::Terminal(answer) => {
                        if answer.keyboard {
                            self.screen.enhance_keyboard()?;
                        }
                        if answer.is_light.is_some() && answer.is_light != self.colours.is_light {
                            self.colours.is_light = answer.is_light;
                            self.do_effect(Effect::Theme(self.state.theme.clone()))?;
                        }
                        messages.push(Msg::Graphics(self.graphics(answer)));
                        // Only now does the reader hear of new sizes; one that came before it was lost.
                        let (width, height) = self.screen.size()?;
                        messages.push(Msg::Resize { width, height });
                    }
                    // What an editor's screen was is for the editor.
                    Input::Continued if self.is_away => continue,
                    Input::Continued => {
                        self.inline.iter_mut().for_each(Inline::forget);
                        self.screen.resume()?;
                    }
                    _ => {}
                }
                messages.extend(input.into_msg());
                urgent = true;
            }
            self.links.take(&mut messages);
            let is_back = messages.iter().any(|message| matches!(message, Msg::Done(Done::Written(_))));
            if self.is_away && is_back {
                self.is_away = false;
                self.screen.come_back()?;
                inputs.go_on();
                urgent = true;
            }
            if let Some(exit) = self.apply(std::mem::take(&mut messages))? {
                return Ok(exit);
            }
            if let Some(draft) = self.to_write.take() {
                inputs.pause();
                self.leave_inline()?;
                self.screen.leave();
                self.is_away = true;
                // It has the terminal until its result is here.
                self.links.run(move || Done::Written(writing::write(&draft)));
            }

            let may_draw_at = last_drawn.map(|drawn| drawn + MIN_FRAME);
            if self.is_away {
                // Nothing is drawn over the editor.
            } else if self.state.dirty && (urgent || may_draw_at.is_none_or(|at| at <= Instant::now())) {
                self.draw()?;
                last_drawn = Some(Instant::now());
            }
            urgent = false;

            let drawing = may_draw_at.filter(|_| self.state.dirty && !self.is_away);
            let tick = self.state.next_tick().filter(|_| !self.is_away).map(|at| self.started + at);
            let wake = [drawing, tick].into_iter().flatten().min();
            tokio::select! {
                input = inputs.next() => waiting = Some(input),
                () = self.links.wait(&mut messages) => {}
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
            Effect::Send(command) => self.links.send(command),
            Effect::Redraw => self.screen.forget(),
            Effect::Suspend => {
                self.leave_inline()?;
                #[cfg(unix)]
                self.screen.suspend()?;
            }
            Effect::Notify(text) => {
                let variable = |name: &str| std::env::var(name).ok();
                if let Some(sequence) = self.notify.sequence(&text, variable) {
                    self.screen.write(&sequence)?;
                }
            }
            Effect::CaptureMouse(on) => self.screen.capture_mouse(on)?,
            Effect::Theme(name) => match self.colours.theme(&name) {
                Ok(theme) => self.theme = theme,
                Err(problem) => self.links.run(move || Done::ThemeRefused(problem)),
            },
            Effect::Copy(text) => {
                self.screen.copy(&text)?;
                // Terminals that don't know the sequence ignore it.
                tokio::task::spawn_blocking(move || clipboard::write(text));
            }
            Effect::Write(draft) => self.to_write = Some(draft),
            Effect::Work(work) => self.links.start(work),
            Effect::Quit => return Ok(true),
        }
        Ok(false)
    }

    /// How pictures are drawn, after the terminal's answer.
    fn graphics(&self, mut answer: Answer) -> Graphics {
        // Some terminals tell the size of a character only to the system.
        if answer.cell.is_none()
            && let Ok(size) = crossterm::terminal::window_size()
            && let (Some(width), Some(height)) =
                (size.width.checked_div(size.columns), size.height.checked_div(size.rows))
            && width > 0
            && height > 0
        {
            answer.cell = Some((width, height));
        }
        Graphics::new(self.images, self.environment, answer)
    }

    /// Before others get the terminal.
    fn leave_inline(&mut self) -> io::Result<()> {
        match self.inline.as_mut().filter(|_| !self.screen.is_alternate()) {
            Some(inline) => inline.clear(self.state.width),
            None => Ok(()),
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        // The size may have changed before its message is here.
        let (width, height) = self.screen.size()?;
        if (width, height) != (self.state.width, self.state.height) {
            for effect in update::update(&mut self.state, Msg::Resize { width, height }) {
                self.do_effect(effect)?;
            }
        }
        self.state.layout();
        if let Some(inline) = &mut self.inline {
            let is_covered = self.state.has_overlay();
            if is_covered != self.screen.is_alternate() {
                if is_covered {
                    inline.clear(width)?;
                }
                self.screen.alternate(is_covered)?;
            }
            if !is_covered {
                self.state.dirty = false;
                return inline.draw(&mut self.state, self.theme);
            }
        }
        if self.state.graphics.draws_outside_cells() {
            let pixels = view::pixels(&self.state);
            // Pixels stay where they are until something is written over them, which a comparison of cells misses.
            if pixels != self.pixels_drawn {
                self.screen.forget();
                self.pixels_drawn = pixels;
            }
        }
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
