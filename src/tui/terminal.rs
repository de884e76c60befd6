//! The terminal while it is ours: raw mode, alternate screen, bracketed paste, and their undoing.
//!
//! Whatever ends the program (return, error, panic, signal) gives the terminal back through [`restore`],
//! once. What is on is kept in statics, because a panic hook and a signal thread have nothing else to ask.

use std::io::{self, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste, EnableFocusChange,
    EnableMouseCapture, KeyboardEnhancementFlags, PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal};

/// Otherwise the wheel is sent as arrow keys, which walk through old prompts.
const NO_ALTERNATE_SCROLL: &str = "\x1b[?1007l";

static ENTERED: AtomicBool = AtomicBool::new(false);
static KEYBOARD_ENHANCED: AtomicBool = AtomicBool::new(false);
/// The alternate screen is ours, or is to be.
static ALTERNATE: AtomicBool = AtomicBool::new(true);
static MOUSE_CAPTURED: AtomicBool = AtomicBool::new(false);

/// The terminal, taken over. Dropping it gives it back.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    keyboard_can_be_enhanced: bool,
    /// The mouse was ours when the terminal was left.
    left_mouse: bool,
    /// What is on the screen can't be relied on.
    forgotten: bool,
}

impl Screen {
    /// # Errors
    /// When the terminal can't be switched, for example because there is none.
    pub fn enter(alternate: bool) -> io::Result<Self> {
        install_panic_hook();
        ALTERNATE.store(alternate, Ordering::SeqCst);
        take_over()?;
        match Terminal::new(CrosstermBackend::new(io::stdout())) {
            Ok(terminal) => {
                Ok(Self { terminal, keyboard_can_be_enhanced: false, left_mouse: false, forgotten: false })
            }
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Columns and rows, as the terminal has them now.
    ///
    /// # Errors
    /// When the terminal can't be asked.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// # Errors
    /// When the terminal can't be written.
    pub fn draw(&mut self, view: impl FnOnce(&mut Frame)) -> io::Result<()> {
        // Terminals that know this mode show the frame at once; others ignore it.
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        if std::mem::take(&mut self.forgotten) {
            // Not `clear`, which asks the terminal for the cursor and waits: the answer goes to the input thread.
            let size = self.terminal.size()?;
            self.terminal.resize(Rect { x: 0, y: 0, width: size.width, height: size.height })?;
        }
        self.terminal.draw(view)?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    pub fn is_alternate(&self) -> bool {
        ALTERNATE.load(Ordering::SeqCst)
    }

    /// Goes to the screen that keeps nothing, or back to the other.
    ///
    /// # Errors
    /// When the terminal can't be written.
    pub fn alternate(&mut self, on: bool) -> io::Result<()> {
        ALTERNATE.store(on, Ordering::SeqCst);
        self.forget();
        match on {
            true => execute!(io::stdout(), EnterAlternateScreen, Print(NO_ALTERNATE_SCROLL)),
            false => execute!(io::stdout(), LeaveAlternateScreen),
        }
    }

    /// Forgets what is on the screen, so that the next drawing draws every cell.
    pub fn forget(&mut self) {
        self.forgotten = true;
    }

    /// Makes the terminal tell Shift+Enter from Enter. Only for terminals that said that they can.
    ///
    /// # Errors
    /// When the terminal can't be written.
    pub fn enhance_keyboard(&mut self) -> io::Result<()> {
        self.keyboard_can_be_enhanced = true;
        if !KEYBOARD_ENHANCED.swap(true, Ordering::SeqCst) {
            let flags = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES;
            execute!(io::stdout(), PushKeyboardEnhancementFlags(flags))?;
        }
        Ok(())
    }

    /// # Errors
    /// When the terminal can't be written.
    pub fn capture_mouse(&mut self, on: bool) -> io::Result<()> {
        MOUSE_CAPTURED.store(on, Ordering::SeqCst);
        if on {
            execute!(io::stdout(), EnableMouseCapture)
        } else {
            execute!(io::stdout(), DisableMouseCapture)
        }
    }

    /// Writes a control sequence that shows nothing.
    ///
    /// # Errors
    /// When the terminal can't be written.
    pub fn write(&mut self, sequence: &str) -> io::Result<()> {
        let mut out = io::stdout();
        out.write_all(sequence.as_bytes())?;
        out.flush()
    }

    /// Asks the terminal to put a text into its clipboard, also that of another machine over SSH.
    ///
    /// # Errors
    /// When the terminal can't be written.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        self.write(&format!("\x1b]52;c;{}\x07", BASE64_STANDARD.encode(text)))
    }

    /// Gives the terminal back and stops the process, until the shell continues it.
    ///
    /// # Errors
    /// When the terminal can't be taken over again.
    #[cfg(unix)]
    pub fn suspend(&mut self) -> io::Result<()> {
        self.leave();
        // The default action, not our own handler: where no shell could continue us, the system ignores it.
        signal_hook::low_level::raise(signal_hook::consts::SIGTSTP)?;
        self.come_back()
    }

    /// Gives the terminal back for a while, until [`Self::come_back`].
    pub fn leave(&mut self) {
        self.left_mouse = MOUSE_CAPTURED.load(Ordering::SeqCst);
        restore();
    }

    /// # Errors
    /// When the terminal can't be taken over again.
    pub fn come_back(&mut self) -> io::Result<()> {
        self.take_over_again(self.left_mouse)
    }

    /// Sets every mode anew: while the process was stopped, others had the terminal.
    ///
    /// # Errors
    /// When the terminal can't be taken over again.
    pub fn resume(&mut self) -> io::Result<()> {
        self.leave();
        self.come_back()
    }

    fn take_over_again(&mut self, mouse: bool) -> io::Result<()> {
        take_over()?;
        if self.keyboard_can_be_enhanced {
            self.enhance_keyboard()?;
        }
        if mouse {
            self.capture_mouse(true)?;
        }
        self.forget();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn take_over() -> io::Result<()> {
    enable_raw_mode()?;
    ENTERED.store(true, Ordering::SeqCst);
    #[cfg(unix)]
    stderr::hush();
    let alternate = match ALTERNATE.load(Ordering::SeqCst) {
        true => execute!(io::stdout(), EnterAlternateScreen, Print(NO_ALTERNATE_SCROLL)),
        false => Ok(()),
    };
    alternate
        .and_then(|()| execute!(io::stdout(), EnableBracketedPaste, EnableFocusChange))
        .inspect_err(|_| restore())
}

/// Puts the terminal back as it was; does nothing the second time. Errors have nowhere to go: the
/// terminal may be what failed.
pub fn restore() {
    if !ENTERED.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    let _ = queue!(out, EndSynchronizedUpdate);
    // Before leaving the alternate screen, because terminals keep this state for each screen.
    if KEYBOARD_ENHANCED.swap(false, Ordering::SeqCst) {
        let _ = queue!(out, PopKeyboardEnhancementFlags);
    }
    if MOUSE_CAPTURED.swap(false, Ordering::SeqCst) {
        let _ = queue!(out, DisableMouseCapture);
    }
    let _ = queue!(out, DisableFocusChange, DisableBracketedPaste);
    if ALTERNATE.load(Ordering::SeqCst) {
        let _ = queue!(out, LeaveAlternateScreen);
    }
    let _ = queue!(out, cursor::Show);
    let _ = out.flush();
    let _ = disable_raw_mode();
    #[cfg(unix)]
    stderr::speak();
}

/// Graphics drivers and other libraries write to standard error when they like, in the middle of our screen.
/// While the terminal is ours, that goes nowhere.
#[cfg(unix)]
mod stderr {
    use std::fs::OpenOptions;
    use std::io::{self, IsTerminal};
    use std::os::fd::OwnedFd;
    use std::sync::{Mutex, PoisonError};

    static REAL: Mutex<Option<OwnedFd>> = Mutex::new(None);

    pub fn hush() {
        let mut real = REAL.lock().unwrap_or_else(PoisonError::into_inner);
        // What goes to a file doesn't disturb the screen, and somebody wants it.
        if real.is_some() || !io::stderr().is_terminal() {
            return;
        }
        let null = OpenOptions::new().write(true).open("/dev/null");
        if let (Ok(copy), Ok(null)) = (rustix::io::dup(io::stderr()), null)
            && rustix::stdio::dup2_stderr(&null).is_ok()
        {
            *real = Some(copy);
        }
    }

    pub fn speak() {
        if let Some(real) = REAL.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = rustix::stdio::dup2_stderr(&real);
        }
    }
}

/// A panic message written on the alternate screen in raw mode would be lost. Only a panic of the
/// interface's own thread ends it: the engine catches its own, and they become errors of a turn.
fn install_panic_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let interface = std::thread::current().id();
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().id() == interface {
                restore();
            }
            previous(info);
        }));
    });
}
