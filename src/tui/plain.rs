//! A chat line by line, for screen readers, dumb terminals and scripts: the same state and the same commands as on the
//! screen, but what is new is printed below what was there. Nothing moves the cursor or takes a line back.
//!
//! Where standard output is no terminal it gets the answers and nothing else; all the rest goes to standard error.

mod printer;

use std::io::{self, BufRead, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tokio::sync::mpsc;

use crate::msg::{Command, ErrorCode, Event, HistoryCommand};
use crate::session::Session;
use crate::signals::{self, SIGINT};

use super::effect::Effect;
use super::links::Links;
use super::msg::Msg;
use super::pictures::clipboard;
use super::state::{Model, State, TuiSettings};
use super::update;
use super::{Ended, Exit, Program};
use printer::{Printer, Said};

/// Only for lines that are made to be looked at, such as tables.
const WIDTH: u16 = 80;
const HEIGHT: u16 = 24;

/// How often long work is reported.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Time for a second Ctrl+C.
const QUIT_WITHIN: Duration = Duration::from_secs(2);

/// Runs until the input ends, the person quits or a signal comes.
///
/// # Errors
/// When standard output can't be written.
pub async fn run(session: Session, settings: TuiSettings, program: Program) -> io::Result<Ended> {
    let mut links = Links::new(session, settings.folder.clone(), program);
    let resume = settings.resume;
    // Nobody waits for a choice that wasn't asked for.
    let state = State::new(TuiSettings { offers_models: false, ..settings }, WIDTH, HEIGHT);
    if state.keeps_chats {
        links.send(Command::History(HistoryCommand::Prompts));
    }
    let is_terminal = io::stdout().is_terminal();
    let mut plain = Plain {
        state,
        links,
        out: Out { is_terminal, is_inside_a_line: false },
        printer: Printer::new(!is_terminal),
        is_asked: io::stdin().is_terminal() && is_terminal,
        started: Instant::now(),
        failure: None,
        n_failed: 0,
        quit_until: None,
    };
    if let Some(stored) = resume {
        let effects = update::history::load(&mut plain.state, stored);
        plain.apply_effects(effects)?;
    }
    let exit = match plain.run().await {
        // Whoever reads has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Quit,
        exit => exit?,
    };
    let state = &plain.state;
    let kept = state.stored.map(|stored| (stored, state.title().unwrap_or_default()));
    Ok(Ended { exit, kept })
}

struct Plain {
    state: State,
    links: Links,
    out: Out,
    printer: Printer,
    /// A person is asked for each line.
    is_asked: bool,
    started: Instant,
    /// Why the model can't be used.
    failure: Option<ErrorCode>,
    /// Turns without an answer.
    n_failed: usize,
    /// Until then another Ctrl+C quits.
    quit_until: Option<Instant>,
}

impl Plain {
    async fn run(&mut self) -> io::Result<Exit> {
        let mut signals = signals::listen();
        let mut lines = Lines::start()?;
        let mut messages = Vec::new();
        let mut is_reading = false;
        loop {
            self.links.take(&mut messages);
            if let Some(exit) = self.apply(std::mem::take(&mut messages))? {
                return Ok(exit);
            }
            if let (Some(code), false) = (self.failure, self.is_asked) {
                return Ok(Exit::Failed(code));
            }
            if !is_reading && self.is_settled() {
                self.ask()?;
                lines.ask();
                is_reading = true;
            }
            let report = tokio::time::sleep(REPORT_EVERY);
            tokio::select! {
                line = lines.next(), if is_reading => {
                    is_reading = false;
                    self.out.is_inside_a_line = false;
                    match line {
                        Some(line) => if let Some(exit) = self.line(&line)? {
                            return Ok(exit);
                        },
                        None => {
                            self.out.end_line()?;
                            return Ok(if self.n_failed > 0 { Exit::SomeFailed } else { Exit::Quit });
                        }
                    }
                }
                () = self.links.wait(&mut messages) => {}
                Some(signal) = signals.recv() => if let Some(exit) = self.signal(signal)? {
                    return Ok(exit);
                },
                () = report, if !is_reading => self.report()?,
            }
        }
    }

    /// Nothing is on its way: the next line may be read.
    fn is_settled(&self) -> bool {
        let state = &self.state;
        let looks_for_items = state.list.as_ref().is_some_and(|list| list.items.is_none());
        let looks_for_models = state.models.open.is_some() && state.models.machine.is_none();
        !self.links.is_working()
            && state.model != Model::Loading
            && state.active.is_none()
            && state.queue.is_empty()
            && state.examining.is_none()
            && state.loading.is_none()
            && state.attached.iter().all(|attached| attached.facts.is_some())
            && !looks_for_items
            && !looks_for_models
    }

    fn ask(&mut self) -> io::Result<()> {
        match self.is_asked {
            true => self.out.label(&format!("User [{}]: ", self.state.transcript.n_messages() + 1)),
            false => Ok(()),
        }
    }

    /// A line of the person: a choice, a command or a message.
    fn line(&mut self, line: &str) -> io::Result<Option<Exit>> {
        self.quit_until = None;
        if self.state.list.is_some() || self.state.models.open.is_some() {
            let number = line.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            let key = match number {
                Some(idx) if self.choose(idx) => KeyCode::Enter,
                Some(_) => {
                    self.out.say("There is no such number.")?;
                    return Ok(None);
                }
                None => KeyCode::Esc,
            };
            let exit = self.apply(vec![Msg::Key(KeyEvent::new(key, KeyModifiers::NONE))])?;
            if exit.is_some() || number.is_some() || line.trim().is_empty() {
                return Ok(exit);
            }
        }
        self.printer.typed(line);
        let effects = update::typed(&mut self.state, line);
        let exit = self.apply_effects(effects)?;
        self.print()?;
        Ok(exit)
    }

    /// Puts the cursor on a line of what is open; false if there is no such line.
    fn choose(&mut self, idx: usize) -> bool {
        if let Some(list) = &mut self.state.list {
            list.selected = idx;
            return idx < list.shown().len();
        }
        let name = self.state.models.lines().get(idx).map(|line| line.name().to_owned());
        let exists = name.is_some();
        if let Some(list) = &mut self.state.models.open {
            list.selected = name;
        }
        exists
    }

    fn apply(&mut self, messages: Vec<Msg>) -> io::Result<Option<Exit>> {
        let now = Msg::Tick(self.started.elapsed());
        for message in std::iter::once(now).chain(messages) {
            match &message {
                Msg::Session(Event::ModelFailed { error }) => self.failure = Some(error.code),
                Msg::Session(Event::ModelLoaded(_)) => self.failure = None,
                Msg::Session(Event::TurnFailed { .. }) => self.n_failed += 1,
                _ => {}
            }
            let effects = update::update(&mut self.state, message);
            if let Some(exit) = self.apply_effects(effects)? {
                return Ok(Some(exit));
            }
        }
        self.print()?;
        Ok(None)
    }

    fn apply_effects(&mut self, effects: Vec<Effect>) -> io::Result<Option<Exit>> {
        for effect in effects {
            match effect {
                Effect::Send(command) => self.links.send(command),
                Effect::Work(work) => self.links.start(work),
                Effect::Copy(text) => {
                    drop(tokio::task::spawn_blocking(move || clipboard::write(text)));
                }
                Effect::Notify(_) if self.is_asked => self.out.bell()?,
                Effect::Quit => return Ok(Some(Exit::Quit)),
                // There is no screen, and there are no keys.
                Effect::Redraw
                | Effect::Suspend
                | Effect::CaptureMouse(_)
                | Effect::Theme(_)
                | Effect::Notify(_)
                | Effect::Write(_) => {}
            }
        }
        Ok(None)
    }

    /// Prints what is new.
    fn print(&mut self) -> io::Result<()> {
        for said in self.printer.news(&self.state) {
            self.out.print(said)?;
        }
        self.state.page = None;
        // What is to be changed was printed; the next line takes its place.
        self.state.composer.clear();
        Ok(())
    }

    fn report(&mut self) -> io::Result<()> {
        match printer::report(&self.state) {
            Some(report) => self.out.say(&report),
            None => Ok(()),
        }
    }

    fn signal(&mut self, signal: i32) -> io::Result<Option<Exit>> {
        if signal != SIGINT || !self.is_asked {
            self.out.end_line()?;
            return Ok(Some(Exit::Signal(signal)));
        }
        if self.state.active.is_some() {
            self.apply(vec![Msg::Key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE))])?;
            return Ok(None);
        }
        if self.quit_until.is_some_and(|until| Instant::now() < until) {
            self.out.end_line()?;
            return Ok(Some(Exit::Quit));
        }
        self.quit_until = Some(Instant::now() + QUIT_WITHIN);
        self.out.say("Ctrl+C again quits, and so does Ctrl+D.")?;
        self.ask()?;
        Ok(None)
    }
}

/// Where text goes.
struct Out {
    is_terminal: bool,
    is_inside_a_line: bool,
}

impl Out {
    fn print(&mut self, said: Said) -> io::Result<()> {
        match said {
            Said::Label(label) => self.label(&label),
            Said::Answer(text) => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(text.as_bytes())?;
                stdout.flush()?;
                self.is_inside_a_line = !text.ends_with('\n');
                Ok(())
            }
            Said::AnswerEnd => self.end_line(),
            Said::Note(text) => self.say(&text),
        }
    }

    /// Who speaks, before the words of this line.
    fn label(&mut self, label: &str) -> io::Result<()> {
        if !self.is_terminal {
            return Ok(());
        }
        self.end_line()?;
        let mut stdout = io::stdout().lock();
        write!(stdout, "{label}")?;
        self.is_inside_a_line = true;
        stdout.flush()
    }

    fn end_line(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.is_inside_a_line) {
            true => writeln!(io::stdout()),
            false => Ok(()),
        }
    }

    /// Lines of their own, of the program.
    fn say(&mut self, text: &str) -> io::Result<()> {
        if self.is_terminal {
            self.end_line()?;
            return writeln!(io::stdout(), "{text}");
        }
        // Nobody may be there to read it.
        let _ = writeln!(io::stderr(), "{text}");
        Ok(())
    }

    fn bell(&mut self) -> io::Result<()> {
        write!(io::stdout(), "\x07")?;
        io::stdout().flush()
    }
}

/// Lines of standard input, each read when it is asked for: what comes later stays with the terminal.
struct Lines {
    asks: std::sync::mpsc::Sender<()>,
    lines: mpsc::Receiver<String>,
}

impl Lines {
    fn start() -> io::Result<Self> {
        let (asks, asked) = std::sync::mpsc::channel::<()>();
        let (sender, lines) = mpsc::channel(1);
        thread::Builder::new().name("lines".to_owned()).spawn(move || {
            while asked.recv().is_ok() {
                let Some(line) = read_line() else { return };
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { asks, lines })
    }

    fn ask(&self) {
        // A reader that has ended has closed the other channel, too.
        let _ = self.asks.send(());
    }

    async fn next(&mut self) -> Option<String> {
        self.lines.recv().await
    }
}

/// A line, and the next one if it ends in a backslash; `None` at the end of the input.
fn read_line() -> Option<String> {
    let mut text = String::new();
    loop {
        let mut bytes = Vec::new();
        let n_bytes = io::stdin().lock().read_until(b'\n', &mut bytes).ok()?;
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']);
        match line.strip_suffix('\\') {
            Some(begun) if n_bytes > 0 => {
                text.push_str(begun);
                text.push('\n');
            }
            _ if n_bytes == 0 && text.is_empty() => return None,
            _ => return Some(text + line),
        }
    }
}
