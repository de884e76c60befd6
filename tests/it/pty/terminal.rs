//! A terminal for tests: a pseudo-terminal with a program in it and an emulator that keeps its screen.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, SlavePty, native_pty_system};
use tempfile::TempDir;

/// Generous: the machine may be building something else, and a missed deadline fails the test.
const DEADLINE: Duration = Duration::from_secs(60);

pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    /// Kept open, so that the terminal's modes can be read after the program has ended.
    _slave: Box<dyn SlavePty + Send>,
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    output: Arc<Output>,
    modes_before: String,
    /// The history of a program that shares none with another.
    _data: Option<TempDir>,
}

struct Output {
    seen: Mutex<Seen>,
    grew: Condvar,
}

struct Seen {
    emulator: vt100::Parser,
    bytes: Vec<u8>,
}

/// What a terminal answers to which question.
pub type Answers = &'static [(&'static str, &'static str)];

/// Programs ask every terminal what it is; the emulator doesn't answer by itself.
pub const USUAL_ANSWERS: Answers = &[("\x1b[c", "\x1b[?62;22c")];

impl Terminal {
    /// Starts `program` in a terminal of this size.
    pub fn start(program: &Path, arguments: &[&str], columns: u16, rows: u16) -> Self {
        Self::start_answering(USUAL_ANSWERS, program, arguments, columns, rows)
    }

    /// The same, in a terminal that answers this.
    pub fn start_answering(
        answers: Answers,
        program: &Path,
        arguments: &[&str],
        columns: u16,
        rows: u16,
    ) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut terminal = Self::start_in(data.path(), answers, program, arguments, columns, rows);
        terminal._data = Some(data);
        terminal
    }

    /// The same, with what is kept in this folder.
    pub fn start_in(
        data: &Path,
        answers: Answers,
        program: &Path,
        arguments: &[&str],
        columns: u16,
        rows: u16,
    ) -> Self {
        // No test looks at the real Hub.
        Self::start_with(data, answers, program, arguments, &[("HF_HUB_OFFLINE", "1")], columns, rows)
    }

    /// The same, with these environment variables.
    pub fn start_with(
        data: &Path,
        answers: Answers,
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
        columns: u16,
        rows: u16,
    ) -> Self {
        let pair = native_pty_system().openpty(size(columns, rows)).unwrap();
        let output = Arc::new(Output {
            seen: Mutex::new(Seen {
                emulator: vt100::Parser::new(cells(rows), cells(columns), 0),
                bytes: Vec::new(),
            }),
            grew: Condvar::new(),
        });
        let mut command = CommandBuilder::new(program);
        command.args(arguments);
        command.env("TERM", "xterm-256color");
        command.env("LOQUAT_SAVED_STATES", "off");
        command.env("LOQUAT_DATA_DIR", data);
        command.env("LOQUAT_CONFIG_DIR", data);
        command.env("LOQUAT_STATE_DIR", data);
        command.env("XDG_CACHE_HOME", data);
        command.env_remove("LOQUAT_HISTORY");
        // What the terminal around the tests is must not matter.
        for name in ["TMUX", "TERM_PROGRAM", "LC_TERMINAL", "SSH_CONNECTION", "SSH_TTY", "LOQUAT_IMAGES"] {
            command.env_remove(name);
        }
        for name in ["COLORTERM", "COLORFGBG", "NO_COLOR", "WT_SESSION", "LOQUAT_THEME", "LOQUAT_MODEL"] {
            command.env_remove(name);
        }
        for (name, value) in environment {
            command.env(name, value);
        }
        command.cwd(env!("CARGO_MANIFEST_DIR"));
        let writer = Arc::new(Mutex::new(pair.master.take_writer().unwrap()));
        let reader = pair.master.try_clone_reader().unwrap();
        let (reader_output, reader_writer) = (Arc::clone(&output), Arc::clone(&writer));
        thread::spawn(move || watch(answers, reader, &reader_output, &reader_writer));
        let modes_before = modes(&*pair.master);
        let child = pair.slave.spawn_command(command).unwrap();
        Self { child, master: pair.master, _slave: pair.slave, writer, output, modes_before, _data: None }
    }

    /// Types bytes as a terminal sends them: `\r` is Enter, `\x1b` Esc, `\x04` Ctrl+D.
    pub fn send(&self, keys: &str) {
        let mut writer = self.writer.lock().unwrap();
        writer.write_all(keys.as_bytes()).unwrap();
        writer.flush().unwrap();
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.seen().emulator.set_size(cells(rows), cells(columns));
        self.master.resize(size(columns, rows)).unwrap();
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.process_id().expect("the program runs").to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    pub fn wait_for_text(&self, text: &str) {
        self.wait_for(text, |screen| screen.contents().contains(text));
    }

    /// Waits until the screen is as wanted; `what` names it when it never is.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
        let wait = self
            .output
            .grew
            .wait_timeout_while(self.seen(), DEADLINE, |seen| !wanted(seen.emulator.screen()));
        let (seen, timeout) = wait.unwrap();
        assert!(!timeout.timed_out(), "no {what} on the screen:\n{}", seen.emulator.screen().contents());
    }

    pub fn wait_for_bytes(&self, wanted: &str) {
        let wait =
            self.output.grew.wait_timeout_while(self.seen(), DEADLINE, |seen| !contains(&seen.bytes, wanted));
        assert!(!wait.unwrap().1.timed_out(), "the program never wrote {wanted:?}");
    }

    pub fn has_written(&self, bytes: &str) -> bool {
        contains(&self.seen().bytes, bytes)
    }

    /// Waits for the end of the program and gives its exit code.
    pub fn wait_for_exit(&mut self) -> u32 {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.exit_code();
            }
            assert!(Instant::now() < end, "the program goes on:\n{}", self.screen());
            // The child's end makes no noise that could be waited for; the output often does.
            drop(self.output.grew.wait_timeout(self.seen(), Duration::from_millis(20)).unwrap());
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn screen(&self) -> String {
        self.seen().emulator.screen().contents()
    }

    /// The program reads keys as they are pressed, unseen.
    pub fn is_raw(&self) -> bool {
        modes(&*self.master) != self.modes_before
    }

    /// Nothing that the program switched on is left on.
    pub fn assert_given_back(&self) {
        for undone in ["\x1b[?1049l", "\x1b[?25h", "\x1b[?2004l"] {
            self.wait_for_bytes(undone);
        }
        self.wait_for("normal screen", |screen| !screen.alternate_screen());
        let seen = self.seen();
        let screen = seen.emulator.screen();
        assert!(!screen.hide_cursor(), "the cursor is hidden");
        assert!(!screen.bracketed_paste(), "bracketed paste is on");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        drop(seen);
        assert_eq!(modes(&*self.master), self.modes_before);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.output.seen.lock().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watch(
    answers: Answers,
    mut reader: Box<dyn Read + Send>,
    output: &Output,
    writer: &Mutex<Box<dyn Write + Send>>,
) {
    let mut buffer = [0; 4096];
    while let Ok(n_bytes @ 1..) = reader.read(&mut buffer) {
        let bytes = &buffer[..n_bytes];
        for (_, answer) in answers.iter().filter(|(question, _)| contains(bytes, question)) {
            let _ = writer.lock().unwrap().write_all(answer.as_bytes());
        }
        // A failed test poisons the lock; its terminal has nothing more to watch.
        let Ok(mut seen) = output.seen.lock() else { return };
        seen.bytes.extend_from_slice(bytes);
        seen.emulator.process(bytes);
        drop(seen);
        output.grew.notify_all();
    }
}

/// What `tcgetattr` says: echo, line mode, signals and the rest, to be compared.
fn modes(master: &dyn MasterPty) -> String {
    format!("{:?}", master.get_termios().expect("a terminal has modes"))
}

fn contains(bytes: &[u8], wanted: &str) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted.as_bytes())
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).expect("a terminal has cells")
}
