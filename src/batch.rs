//! Scripted use: `loquat batch` answers many prompts, `loquat run` one. Answers go to standard output and
//! nothing else does; everything said about them goes to standard error.
//!
//! Records are read as they come and answered in order, so an endless input needs no more memory than a few
//! records. Talks to the session like any face: the same commands and events as the terminal interface.

pub mod answer;
mod dry;
mod fetch;
pub mod input;
mod manifest;
pub mod output;
mod plan;
mod pool;
mod progress;
pub mod record;
pub mod replay;
mod resume;
pub mod run;

use std::fs::{self, File};
use std::io::{self, Write};

use serde_json::Value;

use self::answer::{Client, Interrupted};
use self::input::Source;
use self::manifest::Manifest;
use self::output::Output;
use self::plan::Plan;
use self::pool::{Pool, State, Stop};
use self::progress::{Counts, Progress};
use self::resume::Earlier;
use crate::cli::{BatchArgs, FormArgs, OutputForm, Resume};
use crate::msg::{ErrorCode, Finish, Form, ModelInfo, TurnError};
use crate::session::Session;
use crate::settings::Settings;

/// How a command ended, as its exit code says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Wrong usage or input.
    Usage,
    SomeFailed,
    NothingReadable,
    NoModel,
    TooBig,
    EngineFailed,
    /// Stopped by this signal.
    Signal(i32),
}

impl Outcome {
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Usage => 2,
            Self::SomeFailed => 3,
            Self::NothingReadable => 4,
            Self::NoModel => 5,
            Self::TooBig => 6,
            Self::EngineFailed => 7,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
        }
    }

    /// For a failure that ends the whole command.
    fn of_error(error: &TurnError) -> Self {
        Self::of_code(error.code)
    }

    pub fn of_code(code: ErrorCode) -> Self {
        match code {
            ErrorCode::ModelMissing => Self::NoModel,
            ErrorCode::TooBig => Self::TooBig,
            ErrorCode::Engine => Self::EngineFailed,
            ErrorCode::BadRecord
            | ErrorCode::ImageMissing
            | ErrorCode::ImageUnreadable
            | ErrorCode::TooLong => Self::Usage,
            ErrorCode::SchemaUnsatisfied | ErrorCode::Timeout | ErrorCode::Cancelled => Self::SomeFailed,
        }
    }
}

/// Longest message on standard error; what a model's files say can be longer.
const MAX_MESSAGE_CHARS: usize = 1_000;

/// Writes one line to standard error. If nobody reads it, there is nobody to tell.
pub fn tell(message: &str) {
    let line: Vec<&str> = message.split_whitespace().collect();
    let line: String = crate::sanitize::clean(&line.join(" ")).chars().take(MAX_MESSAGE_CHARS).collect();
    let _ = writeln!(io::stderr(), "loquat: {line}");
}

/// `loquat batch`.
///
/// # Errors
/// When the output can't be written; a closed pipe is not an error but an end.
pub async fn batch(session: Session, settings: &Settings, args: &BatchArgs) -> io::Result<Outcome> {
    let opened = Opened::open(settings, args);
    let Opened { plan, source, mut output, earlier, manifest } = match opened {
        Ok(opened) => opened,
        Err(why) => {
            tell(&why);
            return Ok(Outcome::Usage);
        }
    };
    let mut client = match Client::connect(session).await {
        Ok(client) => client.patient(),
        Err(error) => {
            tell(&error.message);
            return Ok(Outcome::of_error(&error));
        }
    };
    if args.dry_run {
        return dry::run(&mut client, &plan, source).await;
    }
    let now = plan.settings(client.model());
    let run = plan.run(client.model());
    let (earlier, mut manifest) = match begin(args, settings, earlier, manifest, now, &run, client.model()) {
        Ok((earlier, file, manifest)) => {
            if let Some(file) = file {
                output = Output::file(args, file)?;
            }
            (earlier, manifest)
        }
        Err(why) => {
            tell(&why);
            return Ok(Outcome::Usage);
        }
    };
    let jobs = args.jobs.unwrap_or(client.model().parallel);
    let mut pool = Pool {
        client: &mut client,
        plan: &plan,
        args,
        output: &mut output,
        manifest: manifest.as_mut(),
        earlier,
        progress: Progress::new(args.progress),
        counts: Counts::default(),
        run,
        jobs,
        state: State::default(),
    };
    let ended = pool.run(source.read_in_background()).await;
    pool.progress.show(&pool.counts, 0);
    let (counts, n_left) = (pool.counts, pool.earlier.n_left());
    pool.progress.end();
    let synced = output.sync(true);
    if let Some(Err(why)) = manifest.map(|manifest| manifest.end(ended.is_ok())) {
        tell(&why);
    }
    let outcome = match ended {
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Outcome::Done),
        Err(Stop::Output(error)) => return Err(error),
        Err(Stop::Interrupted(Interrupted(signal))) => {
            let n = counts.n_answered;
            let how =
                if args.write.output.is_some() { "; the same command with --resume goes on" } else { "" };
            let lost = match output.n_waiting() {
                0 => String::new(),
                n => format!(", {n} of them not written because an earlier one was not done"),
            };
            tell(&format!(
                "stopped; {n} {} answered{lost}{how}",
                if n == 1 { "record was" } else { "records were" }
            ));
            Outcome::Signal(signal)
        }
        Err(Stop::EngineGone) => Outcome::EngineFailed,
        Err(Stop::AtError) => Outcome::SomeFailed,
        Err(Stop::TooManyErrors) => {
            tell(&format!("stopped after {} failed records (--max-errors)", counts.n_failed));
            Outcome::NothingReadable
        }
        Ok(()) if n_left > 0 => {
            let n = if n_left == 1 { "1 answer".into() } else { format!("{n_left} answers") };
            tell(&format!("{n} of the output file belong to no record of this input"));
            counts.outcome()
        }
        Ok(()) => counts.outcome(),
    };
    synced?;
    Ok(outcome)
}

/// Everything that can be wrong before a model is loaded.
struct Opened {
    plan: Plan,
    source: Source,
    output: Output,
    earlier: Option<Earlier>,
    /// Of an earlier run.
    manifest: Option<Value>,
}

impl Opened {
    fn open(settings: &Settings, args: &BatchArgs) -> Result<Self, String> {
        let plan = Plan::new(settings, args)?;
        let source = Source::open(args)?;
        let (mut earlier, mut output) = (None, Output::stdout(args));
        match (&args.write.output, args.write.resume) {
            (Some(path), Some(_)) => {
                if matches!(args.write.output_form, Some(OutputForm::Text | OutputForm::Csv)) {
                    return Err(
                        "--resume needs --out jsonl: other forms don't say which records they answer".into(),
                    );
                }
                output::refuse_input(args, path)?;
                earlier = Some(Earlier::read(path)?);
            }
            (Some(path), None) if !args.dry_run => {
                let file = output::create(args, path)?;
                output = Output::file(args, file)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            }
            _ => {}
        }
        let manifest = match (&args.manifest, args.write.resume) {
            (Some(path), Some(_)) => manifest::read(path)?,
            _ => None,
        };
        Ok(Self { plan, source, output, earlier, manifest })
    }
}

/// Goes on with an earlier run, if there is one to go on with.
fn begin(
    args: &BatchArgs,
    settings: &Settings,
    earlier: Option<Earlier>,
    manifest: Option<Value>,
    now: Value,
    run: &str,
    model: &ModelInfo,
) -> Result<(Earlier, Option<File>, Option<Manifest>), String> {
    let is_resumed = earlier.is_some();
    let mut earlier = earlier.unwrap_or_default();
    if args.write.resume == Some(Resume::Same) && !earlier.is_of(run) {
        let before = manifest.as_ref().map(|manifest| &manifest["settings"]);
        let what = before.map(|before| resume::differences(before, &now).join(", ")).unwrap_or_default();
        let what = if what.is_empty() { "settings or model".to_owned() } else { what };
        return Err(format!(
            "the output file was made otherwise ({what}); --resume=force goes on all the same"
        ));
    }
    let file = match is_resumed {
        true => Some(earlier.go_on(args.write.retry_errors)?),
        false => None,
    };
    let manifest = match &args.manifest {
        Some(path) => Some(Manifest::begin(path, manifest.as_ref(), settings, now, model)?),
        None => None,
    };
    Ok((earlier, file, manifest))
}

impl Counts {
    fn outcome(&self) -> Outcome {
        match (self.n_failed, self.n_read) {
            (0, _) => Outcome::Done,
            (_, 0) => Outcome::NothingReadable,
            _ => Outcome::SomeFailed,
        }
    }
}

/// What a command's flags hold its answers to.
///
/// # Errors
/// A sentence about a file that is no JSON Schema.
pub fn form(args: &FormArgs) -> Result<Option<Form>, String> {
    let Some(path) = &args.schema else { return Ok(args.regex.clone().map(Form::Regex)) };
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    match serde_json::from_str(&text) {
        Ok(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(Some(Form::Schema(schema))),
        Ok(_) => Err(format!("{name} is not a JSON Schema")),
        Err(error) => Err(format!("{name} is not valid JSON: {error}")),
    }
}

/// How a finished answer is called in JSON.
fn status(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "ok",
        Finish::Length => "length",
    }
}

/// Why it finished, in JSON.
fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}
