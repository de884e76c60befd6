//! `loquat run`: one prompt, one answer, streamed.

use std::io::{self, IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use super::answer::{Answer, Client, Interrupted};
use super::output::{self, Written};
use super::record::{MAX_RECORD_BYTES, Shape};
use super::{Outcome, tell};
use crate::chat::reference;
use crate::chat::{Channel, Detail, Message, Part, Picture, PictureSource, Role};
use crate::cli::RunArgs;
use crate::msg::{Command, ErrorCode, Finish, Form, ModelInfo, TurnError, TurnOptions, TurnStats};
use crate::sanitize::Filter;
use crate::session::Session;
use crate::settings::Settings;

/// Largest picture on standard input.
const MAX_PICTURE_BYTES: u64 = 256 << 20;

/// The question: pictures, clips, and the prompt behind them.
///
/// # Errors
/// A sentence that says what is wrong with the input.
pub fn read_question(args: &RunArgs, detail: Detail) -> Result<Message, String> {
    let is_stdin = |path: &&PathBuf| path.as_os_str() == "-";
    let from_stdin = match args.pictures.iter().chain(&args.clips).filter(is_stdin).count() {
        0 => None,
        1 => Some(PictureSource::Bytes(stdin_picture(args.prompt.is_some())?.into())),
        _ => return Err("only one picture can come from standard input".into()),
    };
    let picture = |path: &PathBuf| match (&from_stdin, path.to_str()) {
        (Some(source), Some("-")) => {
            Ok(Picture { name: "standard input".into(), source: source.clone(), detail })
        }
        // The same addresses as in a batch: data, files, and a sentence about the network.
        (_, Some(text)) => reference::picture(text).map(|picture| Picture { detail, ..picture }),
        (_, None) => Ok(Picture::file(path.clone(), detail)),
    };
    let images = args.pictures.iter().map(|path| picture(path).map(Part::Image));
    let clips = args.clips.iter().map(|path| picture(path).map(Part::Clip));
    let mut parts = images.chain(clips).collect::<Result<Vec<Part>, String>>()?;
    let prompt = match (&from_stdin, &args.prompt) {
        (Some(_), Some(prompt)) => prompt.clone(),
        _ => read_prompt(args.prompt.clone())?,
    };
    parts.push(Part::Text(prompt));
    Ok(Message { role: Role::User, parts, reasoning: None })
}

fn stdin_picture(has_prompt: bool) -> Result<Vec<u8>, String> {
    if !has_prompt {
        return Err(
            "with `-` for a picture, standard input is the picture; give the prompt as an argument".into()
        );
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err("with `-` for a picture, standard input must be a file or a pipe".into());
    }
    let mut bytes = Vec::new();
    stdin
        .take(MAX_PICTURE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read standard input: {error}"))?;
    match bytes.len() as u64 {
        0 => Err("there is no picture on standard input".into()),
        1..=MAX_PICTURE_BYTES => Ok(bytes),
        _ => Err(format!("the picture on standard input is larger than {} MiB", MAX_PICTURE_BYTES >> 20)),
    }
}

/// A wrong name is told at once, not after a large model has been loaded.
fn missing_picture(question: &Message) -> Option<TurnError> {
    question.pictures().find_map(|picture| match &picture.source {
        // Not `exists`: a link in a circle is there, and reading it says what is wrong.
        PictureSource::File(path) if path.symlink_metadata().is_err() => {
            let message = format!("{} doesn't exist", path.display());
            Some(TurnError { code: ErrorCode::ImageMissing, message })
        }
        PictureSource::Address(address) => {
            let message =
                format!("{address}: pictures are not fetched from the network; save it and give its path");
            Some(TurnError { code: ErrorCode::ImageMissing, message })
        }
        PictureSource::File(_) | PictureSource::Bytes(_) => None,
    })
}

/// The prompt: what is on standard input, a blank line, and the argument.
///
/// # Errors
/// A sentence that says what is wrong with the input.
fn read_prompt(argument: Option<String>) -> Result<String, String> {
    let mut bytes = Vec::new();
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let limit = MAX_RECORD_BYTES as u64 + 1;
        stdin
            .take(limit)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot read standard input: {error}"))?;
        if bytes.len() as u64 == limit {
            return Err(format!("standard input is longer than {} MiB", MAX_RECORD_BYTES >> 20));
        }
    }
    let input = String::from_utf8(bytes).map_err(|error| {
        format!("standard input is not valid UTF-8 (byte {})", error.utf8_error().valid_up_to())
    })?;
    let input = input.trim_start_matches('\u{feff}').trim_end();
    let prompt = match argument {
        Some(argument) if input.is_empty() => argument,
        Some(argument) => format!("{input}\n\n{argument}"),
        None => input.to_owned(),
    };
    match prompt.trim().is_empty() {
        true => Err("there is no prompt; give one as an argument or on standard input".into()),
        false => Ok(prompt),
    }
}

/// Asks `question` and prints the answer.
///
/// # Errors
/// When standard output can't be written; a closed pipe is not an error but an end.
pub async fn run(
    session: Session,
    settings: &Settings,
    args: &RunArgs,
    form: Option<Form>,
    question: Message,
) -> io::Result<Outcome> {
    if let Some(error) = missing_picture(&question) {
        let outcome = Outcome::of_error(&error);
        tell(&error.message);
        if args.json {
            print_json(&Answer::failed(error), "")?;
        }
        return Ok(outcome);
    }
    let mut client = match Client::connect(session).await {
        Ok(client) => client,
        Err(error) => {
            tell(&error.message);
            return Ok(Outcome::of_error(&error));
        }
    };
    let conversation = client.new_conversation();
    if let Some(system) = &settings.system {
        let messages = vec![Message::text(Role::System, system)];
        client.send(Command::Open { conversation, messages }).await;
    }
    let mut printer = Printer::new(args);
    let show = |channel, text: &str| printer.show(channel, text);
    let options = TurnOptions { form, ..settings.turn.clone() };
    let answer = client.ask(conversation, question, options.clone(), show).await;
    let written = printer.finish();
    let answer = match answer {
        Ok(mut answer) => {
            answer.settle(&options);
            answer
        }
        Err(Interrupted(signal)) => return Ok(Outcome::Signal(signal)),
    };
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Outcome::Done),
        other => other?,
    }
    if args.json {
        print_json(&answer, &client.model().name)?;
    }
    match &answer.result {
        Err(error) => {
            tell(&error.message);
            return Ok(Outcome::of_error(error));
        }
        Ok(Finish::Length) if !args.json => {
            let place = if answer.text.is_empty() { " while thinking" } else { "" };
            let why = match answer.stats.context_used() >= client.model().context_tokens {
                true => "the context is full",
                false => "raise --max-tokens for more",
            };
            let or = if answer.text.is_empty() { ", or use --think off" } else { "" };
            tell(&format!("cut off{place}: {why}{or}"));
        }
        Ok(_) => {}
    }
    if args.stats {
        tell(&figures(&answer.stats, client.model()));
    }
    Ok(Outcome::Done)
}

fn print_json(answer: &Answer, model: &str) -> io::Result<()> {
    let written = Written {
        shape: Shape::Own,
        index: 0,
        id: None,
        conversation: None,
        key: "",
        run: "",
        model,
        figures: true,
    };
    writeln!(io::stdout(), "{}", output::json(&written, answer))
}

/// Writes the answer to standard output as it comes, and thinking to standard error if it is wanted.
struct Printer {
    prints_answer: bool,
    prints_thinking: bool,
    /// Cleans what goes to a terminal; a file or a pipe gets the text as it is.
    answer_filter: Option<Filter>,
    thinking_filter: Filter,
    ends_in_newline: bool,
    thinking_ends_in_newline: bool,
    result: io::Result<()>,
}

impl Printer {
    fn new(args: &RunArgs) -> Self {
        Self {
            prints_answer: !args.json,
            prints_thinking: args.show_thinking,
            answer_filter: io::stdout().is_terminal().then(Filter::default),
            thinking_filter: Filter::default(),
            ends_in_newline: true,
            thinking_ends_in_newline: true,
            result: Ok(()),
        }
    }

    fn show(&mut self, channel: Channel, text: &str) -> ControlFlow<()> {
        match channel {
            Channel::Thinking if self.prints_thinking => {
                let mut clean = String::new();
                self.thinking_filter.push(text, &mut clean);
                self.thinking_ends_in_newline = clean.is_empty() || clean.ends_with('\n');
                let _ = write!(io::stderr(), "{clean}");
            }
            Channel::Answer if self.prints_answer => {
                let mut clean = String::new();
                let text = match &mut self.answer_filter {
                    Some(filter) => {
                        filter.push(text, &mut clean);
                        &clean
                    }
                    None => text,
                };
                if !text.is_empty() {
                    self.ends_in_newline = text.ends_with('\n');
                    self.result = write_now(text);
                }
            }
            Channel::Thinking | Channel::Answer => {}
        }
        match self.result {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    /// Ends the last line, also when a signal cut it off.
    fn finish(self) -> io::Result<()> {
        if !self.thinking_ends_in_newline {
            let _ = writeln!(io::stderr());
        }
        self.result?;
        match self.ends_in_newline {
            true => Ok(()),
            false => write_now("\n"),
        }
    }
}

fn write_now(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn figures(stats: &TurnStats, model: &ModelInfo) -> String {
    let speed = stats.tokens_per_second().map_or("-".into(), |speed| format!("{speed:.1}"));
    let first = stats.time_to_first_token.map_or("-".into(), |time| format!("{:.2}", time.as_secs_f64()));
    let prefill = stats.prefill_time.as_secs_f64();
    let read = (stats.prompt_tokens - stats.cached_tokens) as f64;
    let reading = if prefill > 0.0 { format!("{:.1}", read / prefill) } else { "-".into() };
    let pictures = match stats.image_tokens {
        0 => String::new(),
        n => format!(" ({n} of them pictures)"),
    };
    let restored = match stats.restored_tokens {
        0 => String::new(),
        n => format!(" ({n} of them restored)"),
    };
    let drafting = match (stats.tokens_per_step(), stats.drafts.acceptance()) {
        (Some(per_step), Some(share)) => {
            format!("; MTP {per_step:.2} tok/step, {:.0} % of the drafts accepted", share * 100.0)
        }
        _ => String::new(),
    };
    format!(
        "{speed} tok/s, first token {first} s, {} tok{drafting}; prompt {} tok{pictures}{restored} at {reading} tok/s; loaded in {:.2} s; seed {}",
        stats.completion_tokens,
        stats.prompt_tokens,
        model.load_time.as_secs_f64(),
        stats.seed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_name_drafting_where_there_was_any() {
        let model = ModelInfo {
            name: "m".into(),
            commit: None,
            device: "CPU".into(),
            note: None,
            device_note: None,
            context_tokens: 100,
            thinks_by_default: false,
            pictures: None,
            clips: None,
            can_draft: true,
            parallel: 1,
            load_time: std::time::Duration::ZERO,
        };
        let mut stats = TurnStats { completion_tokens: 6, ..TurnStats::default() };
        stats.drafts.note(0, 0);
        assert!(!figures(&stats, &model).contains("MTP"));
        stats.drafts.note(2, 2);
        stats.drafts.note(2, 0);
        let line = figures(&stats, &model);
        assert!(line.contains(" 6 tok; MTP 1.67 tok/step, 50 % of the drafts accepted; prompt "), "{line}");
    }
}
