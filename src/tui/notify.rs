//! Telling a person who looks elsewhere that an answer is there: by the terminal's bell or its notifications.

use std::str::FromStr;
use std::time::Duration;

use crate::sanitize::one_line;

/// A shorter answer isn't worth a word: whoever asked is still about.
pub const WORTH: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Notify {
    /// By a notification where the terminal is known to show them, else by the bell.
    #[default]
    Auto,
    Bell,
    /// By a notification, OSC 9 or 777.
    Osc,
    Off,
}

impl FromStr for Notify {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "bell" => Ok(Self::Bell),
            "osc" => Ok(Self::Osc),
            "off" => Ok(Self::Off),
            _ => Err("expected auto, bell, osc or off".into()),
        }
    }
}

const BELL: &str = "\x07";

impl Notify {
    /// What is written to the terminal; `variable` reads the environment.
    pub fn sequence(self, text: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
        let is = |name: &str, known: &[&str]| variable(name).is_some_and(|it| known.contains(&it.as_str()));
        let has = |name: &str| variable(name).is_some_and(|it| !it.is_empty());
        let shows_9 = is("TERM_PROGRAM", &["iTerm.app", "WezTerm", "ghostty"]) || has("KITTY_WINDOW_ID");
        let shows_777 = is("TERM", &["foot", "rxvt-unicode", "rxvt-unicode-256color"]) || has("VTE_VERSION");
        // tmux passes on the bell and nothing else.
        let is_inside = has("TMUX") || has("STY");
        let text = one_line(text).replace(';', ",");
        let osc_9 = || format!("\x1b]9;{text}\x07");
        let osc_777 = || format!("\x1b]777;notify;loquat;{text}\x07");
        match self {
            Self::Off => None,
            Self::Bell => Some(BELL.to_owned()),
            Self::Osc if shows_777 => Some(osc_777()),
            Self::Osc => Some(osc_9()),
            Self::Auto if is_inside => Some(BELL.to_owned()),
            Self::Auto if shows_9 => Some(osc_9()),
            Self::Auto if shows_777 => Some(osc_777()),
            Self::Auto => Some(BELL.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(notify: Notify, environment: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        notify.sequence("done; \x1b[1mreally", variable)
    }

    #[test]
    fn each_terminal_is_told_in_its_own_way_and_the_text_is_harmless() {
        assert_eq!(told(Notify::Off, &[]), None);
        assert_eq!(told(Notify::Auto, &[]).as_deref(), Some("\x07"));
        assert_eq!(told(Notify::Osc, &[]).as_deref(), Some("\x1b]9;done, really\x07"));
        let kitty = [("KITTY_WINDOW_ID", "1")];
        assert_eq!(told(Notify::Auto, &kitty).as_deref(), Some("\x1b]9;done, really\x07"));
        let foot = [("TERM", "foot")];
        assert_eq!(told(Notify::Auto, &foot).as_deref(), Some("\x1b]777;notify;loquat;done, really\x07"));
        let tmux = [("KITTY_WINDOW_ID", "1"), ("TMUX", "/tmp/tmux")];
        assert_eq!(told(Notify::Auto, &tmux).as_deref(), Some("\x07"));
    }
}
