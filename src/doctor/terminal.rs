//! The terminal, as far as it is known without asking it.

use std::env;
use std::io::{self, IsTerminal};

use super::Report;
use crate::tui::TerminalEnvironment;

pub fn terminal(report: &mut Report) {
    let text = |name: &str| env::var(name).unwrap_or_default();
    let term = text("TERM");
    let ends = [
        ("input", io::stdin().is_terminal()),
        ("output", io::stdout().is_terminal()),
        ("errors", io::stderr().is_terminal()),
    ];
    let named = |is_terminal: bool| {
        let names = ends.iter().filter(|(_, is)| *is == is_terminal).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    match (named(true), named(false)) {
        (all, none) if none.is_empty() => report.ok("connected", all),
        (some, others) if some.is_empty() => report.ok("connected", format!("none ({others} are not)")),
        (some, others) => report.ok("connected", format!("{some} (not {others})")),
    }
    match term.as_str() {
        "" if cfg!(windows) => {}
        "" => report.warn(
            "TERM",
            "not set",
            "a chat needs it; terminals set it themselves, as to xterm-256color",
        ),
        "dumb" => {
            report.warn("TERM", "dumb", "this window can't show a chat; `loquat run PROMPT` works in it")
        }
        _ => report.ok("TERM", [term.as_str(), &text("TERM_PROGRAM")].join(" ").trim_end()),
    }
    if ends.iter().any(|(_, is)| *is)
        && let Ok((columns, rows)) = crossterm::terminal::size()
    {
        let found = format!("{columns} columns, {rows} rows");
        match columns < 40 || rows < 10 {
            true => report.warn(
                "size",
                found,
                "make the window larger: a chat needs about 40 columns and 10 rows",
            ),
            false => report.ok("size", found),
        }
    }
    colours(report, &term);
    encoding(report);
    let environment = TerminalEnvironment::read();
    let mut inside = Vec::new();
    if environment.in_tmux {
        inside.push("tmux or screen");
    }
    if environment.over_ssh {
        inside.push("ssh");
    }
    if env::var_os("WSL_DISTRO_NAME").is_some() {
        inside.push("WSL");
    }
    if !inside.is_empty() {
        report.ok("inside", inside.join(", "));
    }
    report.ok("pictures", environment.likely_pictures());
}

fn colours(report: &mut Report, term: &str) {
    let direct = env::var("COLORTERM").is_ok_and(|value| value == "truecolor" || value == "24bit");
    let found = if env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        "none, as NO_COLOR asks"
    } else if direct || cfg!(windows) {
        "16 million"
    } else if term.contains("256color") || term.contains("kitty") || term.contains("direct") {
        "256 (COLORTERM=truecolor would say that there are more)"
    } else {
        "16"
    };
    report.ok("colours", found);
}

fn encoding(report: &mut Report) {
    if cfg!(windows) {
        return;
    }
    // The first that is set counts.
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let set = names.iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    match set {
        Some(locale) if locale.to_uppercase().replace('-', "").contains("UTF8") => {
            report.ok("encoding", locale)
        }
        Some(locale) => report.warn(
            "encoding",
            locale,
            "letters may look wrong; LANG=C.UTF-8 says that the terminal knows UTF-8",
        ),
        None => report.warn(
            "encoding",
            "no locale is set",
            "letters may look wrong; LANG=C.UTF-8 says that the terminal knows UTF-8",
        ),
    }
}
