//! `loquat doctor`: what this machine, its terminal and the person's files are like, and what is wrong with them.
//!
//! It works where nothing else does: every check says what it found, none of them needs another one, and no model is
//! loaded. [`examine`] gives the report; the chat shows the same lines.

mod files;
mod machine;
mod terminal;

use std::env;
use std::path::Path;

use serde_json::{Value, json};

use crate::engine::device::DeviceChoice;
use crate::sanitize::one_line;

/// The form of `--json`; a number that programs can hold to.
const VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Ok,
    /// It works, but not as well as it could.
    Warn,
    Bad,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub area: &'static str,
    pub name: &'static str,
    pub state: State,
    pub found: String,
    /// What to do about it.
    pub advice: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Report {
    pub checks: Vec<Check>,
    area: &'static str,
}

/// Looks at everything, in a few seconds at most. `explicit` is the file of `--config`, `device` that of `--device`.
pub fn examine(explicit: Option<&Path>, device: Option<DeviceChoice>) -> Report {
    let mut report = Report::default();
    let settings = files::read_settings(explicit);
    report.area = "Program";
    files::program(&mut report);
    report.area = "Device";
    machine::device(&mut report, device.or(settings.device));
    report.area = "Machine";
    machine::machine(&mut report);
    report.area = "Terminal";
    terminal::terminal(&mut report);
    report.area = "Folders";
    let cache = settings.cache.as_deref();
    files::folders(&mut report, cache);
    report.area = "Settings";
    report.checks.extend(settings.checks);
    report.area = "Models";
    files::models(&mut report, cache);
    report.area = "History";
    files::history(&mut report);
    report
}

impl Report {
    fn ok(&mut self, name: &'static str, found: impl Into<String>) {
        self.add(name, State::Ok, found, None);
    }

    fn warn(&mut self, name: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(name, State::Warn, found, Some(advice.into()));
    }

    fn bad(&mut self, name: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(name, State::Bad, found, Some(advice.into()));
    }

    fn add(&mut self, name: &'static str, state: State, found: impl Into<String>, advice: Option<String>) {
        let (found, advice) = (one_line(&found.into()), advice.map(|advice| one_line(&advice)));
        self.checks.push(Check { area: self.area, name, state, found, advice });
    }

    fn count(&self, state: State) -> usize {
        self.checks.iter().filter(|check| check.state == state).count()
    }

    pub fn is_well(&self) -> bool {
        self.count(State::Bad) == 0
    }

    /// For people, without line breaks.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut area = "";
        for check in &self.checks {
            if check.area != area {
                area = check.area;
                lines.push(area.to_owned());
            }
            lines.push(format!("  {:<5}{:<16}{}", check.state.name(), check.name, check.found));
            lines.extend(check.advice.iter().map(|advice| format!("       {:<16}-> {advice}", "")));
        }
        lines.push(String::new());
        lines.push(match (self.count(State::Bad), self.count(State::Warn)) {
            (0, 0) => "All is well.".into(),
            (0, n) => format!("Nothing is wrong; {n} could be better (warn)."),
            (n, _) => format!("{n} {} wrong (bad).", if n == 1 { "thing is" } else { "things are" }),
        });
        lines
    }

    pub fn json(&self) -> Value {
        let checks = self.checks.iter().map(|check| {
            json!({
                "area": check.area.to_lowercase(), "name": check.name, "state": check.state.name(),
                "found": check.found, "advice": check.advice,
            })
        });
        json!({
            "version": VERSION,
            "loquat": env!("CARGO_PKG_VERSION"),
            "well": self.is_well(),
            "checks": checks.collect::<Vec<_>>(),
        })
    }
}

/// A path as reports show it: they are pasted into public places, so without the name of its owner.
fn shown(path: &Path) -> String {
    let below = env::home_dir().filter(|home| home.parent().is_some());
    match below.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".into(),
        Some(rest) => Path::new("~").join(rest).display().to_string(),
        None => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bad_is_said_with_what_to_do_and_control_sequences_are_not() {
        let mut report = Report { area: "Terminal", ..Report::default() };
        report.ok("TERM", "xterm\x1b[31m");
        assert!(report.is_well());
        report.warn("colours", "few", "set COLORTERM");
        assert_eq!(report.lines().last().unwrap(), "Nothing is wrong; 1 could be better (warn).");
        report.bad("size", "1x1", "make it larger");
        assert!(!report.is_well());
        let text = report.lines().join("\n");
        assert!(text.starts_with("Terminal\n  ok   TERM            xterm"), "{text}");
        assert!(text.contains("  bad  size            1x1\n"), "{text}");
        assert!(text.contains("-> make it larger") && text.ends_with("1 thing is wrong (bad)."), "{text}");
        assert!(!text.contains('\x1b'));
        let json = report.json();
        assert_eq!((&json["version"], &json["well"]), (&json!(1), &json!(false)));
        assert_eq!(json["checks"][2]["advice"], "make it larger");
    }
}
