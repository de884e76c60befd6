//! `loquat keys`: which keys do what, and with `--probe` what this terminal sends for each and which action that is.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crossterm::event::{
    self, DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange, Event, KeyCode,
    KeyEvent, KeyEventKind, KeyModifiers, KeyboardEnhancementFlags, PopKeyboardEnhancementFlags,
    PushKeyboardEnhancementFlags,
};
use crossterm::execute;
use crossterm::terminal::{disable_raw_mode, enable_raw_mode, supports_keyboard_enhancement};

use crate::sanitize::one_line;

use super::keymap::{Keymap, When, sections};

/// All keys with what they do, a line each.
pub fn list(keymap: &Keymap) -> String {
    let mut out = String::new();
    for section in sections() {
        out.push_str(&format!("{}{}\n", if out.is_empty() { "" } else { "\n" }, section.title));
        for (idx, binding) in section.bindings() {
            out.push_str(&format!("  {:<30} {:<22} {}\n", keymap.label(idx, 4), binding.name, binding.help));
        }
    }
    out
}

/// Shows each key until Ctrl+C comes twice, or nothing can be read any more.
///
/// # Errors
/// A sentence, where there is no terminal.
pub fn probe(keymap: &Keymap) -> Result<(), String> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err("keys can be tried out in a terminal only".into());
    }
    let failed = |error: io::Error| format!("the terminal can't be used: {error}");
    let mut taken = Taken::take().map_err(failed)?;
    let enhanced = match taken.is_enhanced {
        true => "tells all keys apart (kitty's protocol)",
        false => "sends the classic codes: Shift+Enter is Enter, Ctrl+I is Tab",
    };
    say(&format!("This terminal {enhanced}.\r\nPress keys; Ctrl+C twice ends.\r\n")).map_err(failed)?;
    let mut interrupted: Option<Instant> = None;
    loop {
        match event::read().map_err(failed)? {
            Event::Key(key) if is_interrupt(key) => {
                if interrupted.is_some_and(|at| at.elapsed() < Duration::from_secs(2)) {
                    break;
                }
                interrupted = Some(Instant::now());
                say(&shown(keymap, key)).map_err(failed)?;
            }
            Event::Key(key) => say(&shown(keymap, key)).map_err(failed)?,
            Event::Paste(text) => {
                let n = text.chars().count();
                say(&format!("  a paste of {n} characters")).map_err(failed)?;
            }
            Event::FocusGained => say("  the window has the keyboard").map_err(failed)?,
            Event::FocusLost => say("  the window lost the keyboard").map_err(failed)?,
            Event::Resize(width, height) => say(&format!("  now {width} x {height}")).map_err(failed)?,
            Event::Mouse(_) => {}
        }
    }
    taken.give_back();
    Ok(())
}

fn is_interrupt(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers == KeyModifiers::CONTROL
}

/// What came, and what it is to the chat.
fn shown(keymap: &Keymap, key: KeyEvent) -> String {
    let modifiers = match key.modifiers.is_empty() {
        true => String::new(),
        false => format!(" with {}", one_line(&key.modifiers.to_string())),
    };
    let kind = match key.kind {
        KeyEventKind::Press => "",
        KeyEventKind::Repeat => " (repeated)",
        KeyEventKind::Release => " (released)",
    };
    let meanings: Vec<String> = keymap
        .meanings(key)
        .map(|binding| match binding.when {
            When::Transcript => format!("{} (in the transcript)", binding.name),
            _ => format!("{}: {}", binding.name, binding.help),
        })
        .collect();
    let meaning = match (meanings.is_empty(), key.code) {
        (false, _) => meanings.join("; "),
        (true, KeyCode::Char(_)) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
            "typed".into()
        }
        (true, _) => "nothing".into(),
    };
    let name = one_line(&key.code.to_string());
    format!("  {:<26} {meaning}", format!("{name}{modifiers}{kind}"))
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{line}\r\n")?;
    out.flush()
}

/// The terminal in the modes that a chat has; dropping it gives it back.
struct Taken {
    is_enhanced: bool,
}

impl Taken {
    fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        let mut taken = Self { is_enhanced: false };
        execute!(io::stdout(), EnableBracketedPaste, EnableFocusChange)?;
        if supports_keyboard_enhancement().unwrap_or(false) {
            let flags = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES;
            execute!(io::stdout(), PushKeyboardEnhancementFlags(flags))?;
            taken.is_enhanced = true;
        }
        Ok(taken)
    }

    fn give_back(&mut self) {
        // Errors have nowhere to go: the terminal may be what failed.
        if std::mem::take(&mut self.is_enhanced) {
            let _ = execute!(io::stdout(), PopKeyboardEnhancementFlags);
        }
        let _ = execute!(io::stdout(), DisableFocusChange, DisableBracketedPaste);
        let _ = disable_raw_mode();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.give_back();
    }
}
