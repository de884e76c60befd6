//! Slash commands: one table for parsing, completion and help, and the settings that `/set` knows.

use std::str::FromStr;

use crate::chat::Detail;
use crate::chat::export::Format;
use crate::msg::{Mtp, SamplingOptions, StoredId, Think, TurnOptions};

use super::drafts::SpecView;

/// A command with its arguments understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Slash {
    Help,
    Keys,
    /// Part of a name; with nothing, all models.
    Model(String),
    New,
    Quit,
    Stats,
    /// Paths as typed; with nothing, they are picked.
    Image(String),
    Clip(String),
    Paste,
    ClearAttachments,
    /// With nothing: say what holds.
    Detail(Option<Detail>),
    /// With nothing: say what holds.
    Think(Option<Think>),
    /// With nothing: say what holds.
    Mtp(Option<Mtp>),
    /// With nothing: say what holds.
    Spec(Option<SpecView>),
    /// With nothing: list the settings.
    Set(Option<Setting>),
    System(Option<SystemChange>),
    /// Answer the last message again, with this seed if one is given.
    Regenerate(Option<u64>),
    Continue,
    /// The message with this number, or the last one.
    Edit(Option<usize>),
    Undo,
    Branch,
    /// Words to look for.
    History(String),
    Resume(Option<StoredId>),
    Rename(String),
    Copy(Copied),
    /// The file as typed; with nothing, the name is made up.
    Export(Format, String),
    /// With nothing, it is chosen from a list.
    Theme(Option<String>),
    /// The answer with this number, or the last one.
    Compare(Option<usize>),
    Context,
    Prompt,
    Drop(usize),
    /// Off has everything read again.
    Compact(Option<bool>),
    /// The file as typed, or off; with nothing, say what holds.
    Schema(Option<String>),
    /// A setting, and what it is to be; with nothing, all of them.
    Config(Option<(String, Option<String>)>),
    Doctor,
    /// With nothing, it is chosen from a list.
    Persona(Option<String>),
    /// With nothing, it is chosen from a list.
    Preset(Option<String>),
    /// Of the picture with this number in the draft, this part; all of it again.
    Crop(usize, Option<Region>),
    /// Paths as typed.
    File(String),
    /// With nothing: the other way round.
    Mouse(Option<bool>),
    Raw,
}

/// A part of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    Left,
    Right,
    Top,
    Bottom,
    Middle,
    /// In pixels.
    Area {
        x: u32,
        y: u32,
        width: u32,
        height: u32,
    },
}

impl FromStr for Region {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let area = || {
            let (corner, size) = text.rsplit_once(',')?;
            let (x, y) = corner.split_once(',')?;
            let (width, height) = size.split_once('x')?;
            let number = |text: &str| text.trim().parse().ok();
            let (width, height) = (number(width)?, number(height)?);
            Some(Self::Area { x: number(x)?, y: number(y)?, width, height })
                .filter(|_| width > 0 && height > 0)
        };
        Ok(match text {
            "left" => Self::Left,
            "right" => Self::Right,
            "top" => Self::Top,
            "bottom" => Self::Bottom,
            "middle" => Self::Middle,
            _ => area().ok_or("expected left, right, top, bottom, middle, off or X,Y,WIDTHxHEIGHT")?,
        })
    }
}

/// What `/copy` copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    LastAnswer,
    Message(usize),
    Code(usize),
}

#[derive(Debug, Clone, PartialEq)]
pub enum SystemChange {
    Remove,
    Replace(String),
}

/// One setting, checked; `None` is the model's own recommendation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Setting {
    Temperature(Option<f32>),
    TopK(Option<usize>),
    TopP(Option<f32>),
    MinP(Option<f32>),
    PresencePenalty(Option<f32>),
    FrequencyPenalty(Option<f32>),
    RepetitionPenalty(Option<f32>),
    Seed(Option<u64>),
    MaxTokens(Option<usize>),
}

/// What a line typed by a person means.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    Message(String),
    Command(Slash),
}

pub struct Spec {
    pub name: &'static str,
    pub arguments: &'static str,
    pub help: &'static str,
}

const fn spec(name: &'static str, arguments: &'static str, help: &'static str) -> Spec {
    Spec { name, arguments, help }
}

pub const COMMANDS: &[Spec] = &[
    spec("help", "", "keys and commands"),
    spec("keys", "", "all keys"),
    spec("model", "[NAME]", "choose, download and change models"),
    spec("new", "", "start a new chat"),
    spec("history", "[WORDS]", "earlier conversations; with words, those that have them"),
    spec("resume", "[NUMBER]", "go on with an earlier conversation"),
    spec("rename", "TITLE", "name this conversation"),
    spec("branch", "", "branches of this conversation (Ctrl+B)"),
    spec("edit", "[N]", "change message [N], or your last one, in a new branch"),
    spec("regen", "[SEED]", "another answer; the one before stays as a branch"),
    spec("continue", "", "go on with an answer that was cut off"),
    spec("undo", "", "take back the last message, change of branch or deletion"),
    spec("compare", "[N]", "answer [N], or the last one, beside another one to the same question"),
    spec("copy", "[N|cN]", "copy the last answer, message [N] or code block N"),
    spec("export", "md|json|html [FILE]", "write this conversation to a new file"),
    spec("file", "PATH…", "put text files into the draft, folded"),
    spec("image", "[PATH…]", "attach pictures; alone, pick one (Ctrl+O)"),
    spec("clip", "PATH", "attach a GIF as a moving picture"),
    spec("paste", "", "attach the clipboard's picture, paste its text"),
    spec("crop", "N left|right|top|bottom|middle|X,Y,WxH|off", "only a part of picture N of the draft"),
    spec("detail", "low|auto|high|PIXELS", "how much the model sees of pictures"),
    spec("clear-attachments", "", "take all pictures back"),
    spec("think", "on|off|low|high|TOKENS", "let the model think before it answers, for so long"),
    spec("mtp", "off|auto|N", "how many tokens the model guesses ahead"),
    spec("spec", "off|lane|tint", "those guesses as a line or as a tint of the answer (Ctrl+E)"),
    spec("system", "[TEXT]", "show or set the system prompt; off removes it"),
    spec("persona", "[NAME [KEY=VALUE…]]", "a system prompt of the settings; off removes it"),
    spec("preset", "[NAME]", "sampling as the settings call it"),
    spec("set", "[KEY VALUE]", "sampling settings; the value default undoes one"),
    spec("context", "", "what fills the context, message by message"),
    spec("prompt", "", "what the model reads, word for word"),
    spec("drop", "N", "leave message [N] and its answer out of what the model reads; again: back in"),
    spec("compact", "[off]", "the model sums up all but the last question and reads that in its place"),
    spec("schema", "[FILE|off]", "answers are JSON that this JSON Schema allows"),
    spec("config", "[NAME [VALUE]]", "settings with where they are from; with a value, from the next start"),
    spec("doctor", "", "look for what is wrong here: device, memory, terminal, folders, settings"),
    spec("theme", "[NAME]", "colours; alone, try them out"),
    spec("raw", "", "answers as they were written, without Markdown; again: with"),
    spec("mouse", "[on|off]", "the mouse here, or left to the terminal (F2)"),
    spec("stats", "", "figures of the last answer"),
    spec("quit", "", "leave"),
];

pub const SETTINGS: &[(&str, &str)] = &[
    ("temperature", "0 to 5; 0 always takes the likeliest token"),
    ("top_k", "a whole number; 0 is off"),
    ("top_p", "above 0, up to 1"),
    ("min_p", "0 to 1"),
    ("presence_penalty", "-2 to 2"),
    ("frequency_penalty", "-2 to 2"),
    ("repetition_penalty", "above 0, up to 10; 1 is off"),
    ("seed", "a whole number"),
    ("max_tokens", "a whole number, at least 1"),
];

/// Reads a line: `/name …` is a command, `//…` a message that begins with a slash.
///
/// # Errors
/// A sentence for the person, when the command or its arguments aren't known.
pub fn parse(line: &str) -> Result<Line, String> {
    let Some(rest) = line.strip_prefix('/') else { return Ok(Line::Message(line.to_owned())) };
    if rest.starts_with('/') {
        return Ok(Line::Message(rest.to_owned()));
    }
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let arguments = arguments.trim();
    let command = match name {
        "help" => Slash::Help,
        "keys" => Slash::Keys,
        "model" => Slash::Model(arguments.to_owned()),
        "new" => Slash::New,
        "quit" => Slash::Quit,
        "stats" => Slash::Stats,
        "image" => Slash::Image(arguments.to_owned()),
        "clip" => Slash::Clip(arguments.to_owned()),
        "paste" => Slash::Paste,
        "clear-attachments" => Slash::ClearAttachments,
        "detail" => Slash::Detail(parse_value(name, arguments)?),
        "think" => Slash::Think(parse_value(name, arguments)?),
        "mtp" => Slash::Mtp(parse_value(name, arguments)?),
        "spec" => Slash::Spec(parse_value(name, arguments)?),
        "set" => Slash::Set(parse_set(arguments)?),
        "system" => Slash::System(parse_system(arguments)),
        "regen" => Slash::Regenerate(parse_seed(arguments)?),
        "continue" => Slash::Continue,
        "edit" => Slash::Edit(parse_number(name, arguments)?),
        "undo" => Slash::Undo,
        "branch" => Slash::Branch,
        "history" => Slash::History(arguments.to_owned()),
        "resume" => Slash::Resume(parse_number(name, arguments)?.map(StoredId)),
        "rename" if arguments.is_empty() => {
            return Err("/rename needs a title, such as /rename Holiday".into());
        }
        "rename" => Slash::Rename(arguments.to_owned()),
        "copy" => Slash::Copy(parse_copied(arguments)?),
        "export" => parse_export(arguments)?,
        "theme" => Slash::Theme(named(arguments)),
        "persona" => Slash::Persona(named(arguments)),
        "preset" => Slash::Preset(named(arguments)),
        "compare" => Slash::Compare(parse_number(name, arguments)?),
        "context" => Slash::Context,
        "prompt" => Slash::Prompt,
        "drop" => Slash::Drop(parse_number(name, arguments)?.ok_or("/drop needs the number of a message")?),
        "compact" => Slash::Compact(parse_switch(name, arguments)?),
        "schema" => Slash::Schema(named(arguments)),
        "config" => {
            Slash::Config(named(arguments).map(|arguments| match arguments.split_once(char::is_whitespace) {
                Some((name, value)) => (name.to_owned(), Some(value.trim().to_owned())),
                None => (arguments, None),
            }))
        }
        "doctor" => Slash::Doctor,
        "crop" => parse_crop(arguments)?,
        "file" if arguments.is_empty() => return Err("/file needs the path of a text file".into()),
        "file" => Slash::File(arguments.to_owned()),
        "mouse" => Slash::Mouse(parse_switch(name, arguments)?),
        "raw" => Slash::Raw,
        _ => return Err(unknown("command", "/", name, COMMANDS.iter().map(|spec| spec.name))),
    };
    let takes_none = COMMANDS.iter().any(|spec| spec.name == name && spec.arguments.is_empty());
    if takes_none && !arguments.is_empty() {
        return Err(format!("/{name} takes no arguments"));
    }
    Ok(Line::Command(command))
}

/// Puts a setting into the options.
pub fn apply(setting: Setting, options: &mut TurnOptions) {
    let sampling = &mut options.sampling;
    match setting {
        Setting::Temperature(value) => sampling.temperature = value,
        Setting::TopK(value) => sampling.top_k = value,
        Setting::TopP(value) => sampling.top_p = value,
        Setting::MinP(value) => sampling.min_p = value,
        Setting::PresencePenalty(value) => sampling.presence_penalty = value,
        Setting::FrequencyPenalty(value) => sampling.frequency_penalty = value,
        Setting::RepetitionPenalty(value) => sampling.repetition_penalty = value,
        Setting::Seed(value) => sampling.seed = value,
        Setting::MaxTokens(value) => options.max_tokens = value,
    }
}

/// The settings in force, by name, in the order of [`SETTINGS`]; `None` for the model's own.
pub fn values(options: &TurnOptions) -> Vec<(&'static str, Option<String>)> {
    fn shown<T: ToString>(value: Option<T>) -> Option<String> {
        value.map(|value| value.to_string())
    }
    let s = &options.sampling;
    let values = [
        shown(s.temperature),
        shown(s.top_k),
        shown(s.top_p),
        shown(s.min_p),
        shown(s.presence_penalty),
        shown(s.frequency_penalty),
        shown(s.repetition_penalty),
        shown(s.seed),
        shown(options.max_tokens),
    ];
    SETTINGS.iter().map(|(name, _)| *name).zip(values).collect()
}

/// The settings of a preset in one line.
pub fn sampling_text(sampling: &SamplingOptions) -> String {
    let options = TurnOptions { sampling: sampling.clone(), ..TurnOptions::default() };
    let set = values(&options).into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    let set: Vec<String> = set.collect();
    if set.is_empty() { "as the model's makers recommend".to_owned() } else { set.join(" · ") }
}

fn named(arguments: &str) -> Option<String> {
    (!arguments.is_empty()).then(|| arguments.to_owned())
}

/// One word, or nothing.
fn parse_value<T: FromStr<Err = String>>(name: &str, arguments: &str) -> Result<Option<T>, String> {
    if arguments.is_empty() {
        return Ok(None);
    }
    arguments.parse().map(Some).map_err(|expected| format!("/{name} can't be {arguments}: {expected}"))
}

fn parse_switch(name: &str, arguments: &str) -> Result<Option<bool>, String> {
    match arguments {
        "" => Ok(None),
        "on" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        other => Err(format!("/{name} takes on or off, not {other}")),
    }
}

fn parse_crop(arguments: &str) -> Result<Slash, String> {
    let (number, part) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
    let number =
        parse_number("crop", number)?.ok_or("/crop needs the number of a picture and a part of it")?;
    let part = match part.trim() {
        "off" => None,
        part => Some(part.parse().map_err(|expected| format!("/crop can't be {part}: {expected}"))?),
    };
    Ok(Slash::Crop(number, part))
}

fn parse_seed(arguments: &str) -> Result<Option<u64>, String> {
    if arguments.is_empty() {
        return Ok(None);
    }
    arguments.parse().map(Some).map_err(|_| format!("/regen takes a seed, a whole number, not {arguments}"))
}

fn parse_number<T: std::str::FromStr>(name: &str, arguments: &str) -> Result<Option<T>, String> {
    if arguments.is_empty() {
        return Ok(None);
    }
    // As it stands on the screen, too.
    let number = arguments.trim_start_matches('[').trim_end_matches(']');
    number.parse().map(Some).map_err(|_| format!("/{name} takes a number, not {arguments}"))
}

fn parse_copied(arguments: &str) -> Result<Copied, String> {
    match arguments.strip_prefix('c') {
        Some(number) => number.parse().map(Copied::Code).map_err(|_| ()),
        None => parse_number("copy", arguments)
            .map(|number| number.map_or(Copied::LastAnswer, Copied::Message))
            .map_err(|_| ()),
    }
    .map_err(|()| {
        format!("/copy takes the number of a message or c and that of a code block, not {arguments}")
    })
}

fn parse_export(arguments: &str) -> Result<Slash, String> {
    let (format, file) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
    let format = if format.is_empty() { "md" } else { format };
    let format = format.parse().map_err(|expected| format!("/export can't be {format}: {expected}"))?;
    Ok(Slash::Export(format, file.trim().to_owned()))
}

fn parse_system(arguments: &str) -> Option<SystemChange> {
    match arguments {
        "" => None,
        "off" => Some(SystemChange::Remove),
        text => Some(SystemChange::Replace(text.to_owned())),
    }
}

fn parse_set(arguments: &str) -> Result<Option<Setting>, String> {
    if arguments.is_empty() {
        return Ok(None);
    }
    let (key, value) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
    let Some((_, accepts)) = SETTINGS.iter().find(|(name, _)| *name == key) else {
        return Err(unknown("setting", "", key, SETTINGS.iter().map(|(name, _)| *name)));
    };
    let value = value.trim();
    let value = (value != "default").then_some(value);
    setting(key, value).map(Some).ok_or_else(|| match value {
        Some("") | None => format!("/set {key} needs a value: {accepts}"),
        Some(value) => format!("{key} can't be {value}: {accepts}"),
    })
}

/// `value` of `None` is the default; the result is `None` when the value isn't accepted.
fn setting(key: &str, value: Option<&str>) -> Option<Setting> {
    fn whole<T: std::str::FromStr>(value: Option<&str>) -> Option<Option<T>> {
        value.map(|value| value.parse().ok()).map_or(Some(None), |value| value.map(Some))
    }
    let number = |accepted: fn(f32) -> bool| match value {
        None => Some(None),
        Some(value) => value.parse().ok().filter(|value| accepted(*value)).map(Some),
    };
    let penalty = |value: f32| (-2.0..=2.0).contains(&value);
    let setting = match key {
        "temperature" => Setting::Temperature(number(|value| (0.0..=5.0).contains(&value))?),
        "top_k" => Setting::TopK(whole(value)?),
        "top_p" => Setting::TopP(number(|value| value > 0.0 && value <= 1.0)?),
        "min_p" => Setting::MinP(number(|value| (0.0..=1.0).contains(&value))?),
        "presence_penalty" => Setting::PresencePenalty(number(penalty)?),
        "frequency_penalty" => Setting::FrequencyPenalty(number(penalty)?),
        "repetition_penalty" => Setting::RepetitionPenalty(number(|value| value > 0.0 && value <= 10.0)?),
        "seed" => Setting::Seed(whole(value)?),
        "max_tokens" => Setting::MaxTokens(whole(value)?),
        _ => return None,
    };
    Some(setting).filter(|setting| !matches!(setting, Setting::MaxTokens(Some(0))))
}

fn unknown(what: &str, prefix: &str, given: &str, known: impl Iterator<Item = &'static str>) -> String {
    let hint = match nearest(given, known) {
        Some(name) => format!("did you mean {prefix}{name}"),
        None => "F1 lists them".to_owned(),
    };
    let given: String = given.chars().take(40).collect();
    let literal = if prefix.is_empty() { "" } else { "; // sends it as text" };
    format!("No {what} {prefix}{given}: {hint}{literal}")
}

/// The name that was most likely meant, if one is near.
pub fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|name| {
            (if !given.is_empty() && name.starts_with(given) { 0 } else { distance(given, name) }, name)
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, name)| *distance * 2 <= name.len())
        .map(|(_, name)| name)
}

/// Edit distance by characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    // A pasted path can be long; what is this much longer than any name isn't near any.
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> String {
        parse(line).unwrap_err()
    }

    #[test]
    fn every_listed_command_parses() {
        for spec in COMMANDS {
            let needed = match spec.name {
                "rename" | "file" => " x",
                "drop" => " 3",
                "crop" => " 1 left",
                _ => "",
            };
            let line = format!("/{}{needed}", spec.name);
            assert!(matches!(parse(&line), Ok(Line::Command(_))), "{}", spec.name);
        }
    }

    #[test]
    fn a_double_slash_sends_a_slash() {
        assert_eq!(parse("//etc/passwd?"), Ok(Line::Message("/etc/passwd?".into())));
        assert_eq!(parse("no / here"), Ok(Line::Message("no / here".into())));
    }

    #[test]
    fn unknown_names_are_errors_with_the_nearest_name() {
        assert!(error("/hlep").starts_with("No command /hlep: did you mean /help;"));
        assert!(error("/usr/bin/env").starts_with("No command /usr/bin/env: F1 lists them;"));
        assert!(error("/set temprature 1").starts_with("No setting temprature: did you mean temperature"));
        assert!(error("/").starts_with("No command /: F1"));
    }

    #[test]
    fn settings_are_checked() {
        assert_eq!(parse("/set top_p 0.9"), Ok(Line::Command(Slash::Set(Some(Setting::TopP(Some(0.9)))))));
        assert_eq!(parse("/set seed default"), Ok(Line::Command(Slash::Set(Some(Setting::Seed(None))))));
        for bad in
            ["temperature -1", "temperature nan", "top_k 1.5", "top_p 0", "max_tokens 0", "seed", "min_p x"]
        {
            assert!(parse(&format!("/set {bad}")).is_err(), "{bad}");
        }
        for (key, _) in SETTINGS {
            assert!(parse(&format!("/set {key} 1")).is_ok(), "{key}");
        }
    }

    #[test]
    fn arguments_where_there_are_none_are_errors() {
        assert_eq!(error("/quit now"), "/quit takes no arguments");
        assert_eq!(
            error("/think maybe"),
            "/think can't be maybe: expected on, off, low, high or a number of tokens"
        );
    }

    #[test]
    fn drafting_is_off_auto_or_a_number() {
        let modes = [("off", Mtp::Off), ("auto", Mtp::Auto), ("0", Mtp::Off), ("8", Mtp::Depth(8))];
        for (given, mtp) in modes {
            assert_eq!(parse(&format!("/mtp {given}")), Ok(Line::Command(Slash::Mtp(Some(mtp)))));
        }
        for bad in ["9", "on", "-1", "1.5", "2 3"] {
            let expected = format!("/mtp can't be {bad}: expected off, auto or a number up to 8");
            assert_eq!(error(&format!("/mtp {bad}")), expected);
        }
        assert_eq!(parse("/spec lane"), Ok(Line::Command(Slash::Spec(Some(SpecView::Lane)))));
        assert_eq!(error("/spec on"), "/spec can't be on: expected off, lane or tint");
    }

    #[test]
    fn a_part_of_a_picture_has_a_name_or_its_pixels() {
        let area = Region::Area { x: 10, y: 20, width: 300, height: 400 };
        assert_eq!(parse("/crop 2 10,20,300x400"), Ok(Line::Command(Slash::Crop(2, Some(area)))));
        assert_eq!(parse("/crop 1 off"), Ok(Line::Command(Slash::Crop(1, None))));
        for bad in ["/crop", "/crop x left", "/crop 1", "/crop 1 10,20", "/crop 1 1,1,0x5", "/crop 1 1,1,9x"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
