//! A key with its modifiers: how it is written in files and on the screen, and which keys terminals can send.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A key as it is compared: of letters with Ctrl or Alt only the lower case, because Caps Lock makes some terminals
/// send Ctrl and a capital letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Press {
    modifiers: KeyModifiers,
    code: KeyCode,
}

const MODIFIERS: [(&str, &str, KeyModifiers); 3] = [
    ("ctrl", "Ctrl", KeyModifiers::CONTROL),
    ("alt", "Alt", KeyModifiers::ALT),
    ("shift", "Shift", KeyModifiers::SHIFT),
];

const NAMED: [(&str, &str, KeyCode); 15] = [
    ("enter", "Enter", KeyCode::Enter),
    ("esc", "Esc", KeyCode::Esc),
    ("tab", "Tab", KeyCode::Tab),
    ("space", "Space", KeyCode::Char(' ')),
    ("backspace", "Backspace", KeyCode::Backspace),
    ("delete", "Del", KeyCode::Delete),
    ("insert", "Ins", KeyCode::Insert),
    ("up", "Up", KeyCode::Up),
    ("down", "Down", KeyCode::Down),
    ("left", "Left", KeyCode::Left),
    ("right", "Right", KeyCode::Right),
    ("home", "Home", KeyCode::Home),
    ("end", "End", KeyCode::End),
    ("pgup", "PgUp", KeyCode::PageUp),
    ("pgdn", "PgDn", KeyCode::PageDown),
];

impl From<KeyEvent> for Press {
    fn from(key: KeyEvent) -> Self {
        let mut modifiers = key.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        let mut code = key.code;
        if let KeyCode::Char(c) = code {
            if modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
                code = KeyCode::Char(c.to_ascii_lowercase());
            } else {
                // The character says it.
                modifiers.remove(KeyModifiers::SHIFT);
            }
            if modifiers == KeyModifiers::CONTROL && code == KeyCode::Char('h') {
                return Self { modifiers: KeyModifiers::NONE, code: KeyCode::Backspace };
            }
        }
        if code == KeyCode::BackTab {
            (code, modifiers) = (KeyCode::Tab, modifiers | KeyModifiers::SHIFT);
        }
        Self { modifiers, code }
    }
}

impl Press {
    /// Reads `ctrl+x`, `alt+enter`, `G`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut modifiers = KeyModifiers::NONE;
        let mut rest = text;
        // A + may be the key itself.
        while let Some((word, after)) = rest.split_once('+').filter(|(_, after)| !after.is_empty()) {
            let Some((.., modifier)) = MODIFIERS.iter().find(|(name, ..)| *name == word) else {
                return Err(format!("{word} is none of ctrl, alt and shift"));
            };
            modifiers |= *modifier;
            rest = after;
        }
        let mut chars = rest.chars();
        let code = match (chars.next(), chars.next()) {
            (Some(c), None) => KeyCode::Char(c),
            _ => match NAMED.iter().find(|(name, ..)| *name == rest) {
                Some((.., code)) => *code,
                None => match rest.strip_prefix('f').and_then(|number| number.parse().ok()) {
                    Some(number @ 1..=12) => KeyCode::F(number),
                    _ => return Err(format!("there is no key {rest}")),
                },
            },
        };
        let press = Self { modifiers, code };
        press.check()?;
        Ok(press)
    }

    fn check(self) -> Result<(), String> {
        let KeyCode::Char(c) = self.code else { return Ok(()) };
        let control = self.modifiers.contains(KeyModifiers::CONTROL);
        if control && self.modifiers.contains(KeyModifiers::ALT) {
            return Err("Ctrl+Alt and a letter types a character on some keyboards".into());
        }
        if control && matches!(c, 'i' | 'm' | 'h' | '[') {
            return Err(format!("terminals can't tell Ctrl+{} from another key", c.to_ascii_uppercase()));
        }
        if !self.modifiers.is_empty() && c.is_ascii_uppercase() {
            return Err(format!("write {} in lower case", c));
        }
        Ok(())
    }

    /// It would be typed where one writes.
    pub fn is_typed(self) -> bool {
        matches!(self.code, KeyCode::Char(_)) && self.modifiers.is_empty()
    }

    /// `Ctrl+X`, `Alt+Enter`, `G`.
    pub fn label(self) -> String {
        let mut label = String::new();
        for (_, name, modifier) in MODIFIERS {
            if self.modifiers.contains(modifier) {
                label.push_str(name);
                label.push('+');
            }
        }
        match self.code {
            KeyCode::F(number) => label.push_str(&format!("F{number}")),
            code => match (NAMED.iter().find(|(.., named)| *named == code), code) {
                (Some((_, name, _)), _) => label.push_str(name),
                (None, KeyCode::Char(c)) if label.is_empty() => label.push(c),
                (None, KeyCode::Char(c)) => label.extend(c.to_uppercase()),
                (None, _) => label.push('?'),
            },
        }
        label
    }
}
