//! Scripted use: `loquat batch` answers many prompts, `loquat run` one. Answers go to standard output and
//! nothing else does; everything said about them goes to standard error.
//!
//! Records are read as they come and answered in order, so an endless input needs no more memory than one
//! record. Talks to the session like any face: the same commands and events as the terminal interface.

pub mod answer;
pub mod input;
pub mod output;
pub mod run;

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::ControlFlow;

use tokio::sync::mpsc;

use self::answer::{Answer, Client, Interrupted};
use self::input::{Conversation, Item, Record, Source};
use self::output::Output;
use crate::chat::{Message, Role};
use crate::cli::{BatchArgs, InputForm, OnError, OutputForm};
use crate::msg::{Command, ConversationId, ErrorCode, Finish, TurnError};
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
    let source = match Source::open(args) {
        Ok(source) => source,
        Err(why) => {
            tell(&why);
            return Ok(Outcome::Usage);
        }
    };
    let mut output = match Output::open(args) {
        Ok(output) => output,
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
    let records = source.read_in_background();
    let mut batch = Batch { conversations: HashMap::new(), settings, n_failed: 0, n_read: 0, n_answered: 0 };
    match batch.run(&mut client, records, &mut output, args).await {
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Outcome::Done),
        Err(Stop::Output(error)) => Err(error),
        Err(Stop::Interrupted(Interrupted(signal))) => {
            let n = batch.n_answered;
            tell(&format!("stopped; {n} {} answered", if n == 1 { "record was" } else { "records were" }));
            Ok(Outcome::Signal(signal))
        }
        Ok(()) => Ok(match (batch.n_failed, batch.n_read) {
            (0, _) => Outcome::Done,
            (_, 0) => Outcome::NothingReadable,
            _ => Outcome::SomeFailed,
        }),
    }
}

struct Batch<'a> {
    /// Conversations that several records share, by the name they give it.
    conversations: HashMap<String, ConversationId>,
    settings: &'a Settings,
    n_failed: usize,
    /// Records that could be read, whether or not they could be answered.
    n_read: usize,
    n_answered: usize,
}

enum Stop {
    Output(io::Error),
    Interrupted(Interrupted),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Interrupted> for Stop {
    fn from(signal: Interrupted) -> Self {
        Self::Interrupted(signal)
    }
}

impl Batch<'_> {
    async fn run(
        &mut self,
        client: &mut Client,
        mut items: mpsc::Receiver<Item>,
        output: &mut Output,
        args: &BatchArgs,
    ) -> Result<(), Stop> {
        let mut index = 0;
        let mut form = args.output_form;
        while args.limit.is_none_or(|limit| index < limit) {
            let Some(item) = client.unless_interrupted(items.recv()).await? else { break };
            if index == 0
                && args.input_form.is_none()
                && let Some(input_form) = item.form
            {
                tell(match input_form {
                    InputForm::Lines => "reading one prompt per line (--in jsonl for JSON)",
                    InputForm::Jsonl => "reading JSONL (--in lines for plain text)",
                });
            }
            let form = *form.get_or_insert(match item.form {
                Some(InputForm::Jsonl) => OutputForm::Jsonl,
                Some(InputForm::Lines) | None => OutputForm::Text,
            });
            let (id, answer) = match item.record {
                Ok(mut record) => {
                    self.n_read += 1;
                    record.set_detail(self.settings.detail);
                    let answer = self.answer(client, index, &record).await?;
                    (record.id, answer)
                }
                Err(bad) => {
                    let error = TurnError { code: ErrorCode::BadRecord, message: bad.to_string() };
                    (bad.id, Answer::failed(error))
                }
            };
            output.write(form, index, id.as_ref(), &answer, &client.model().name)?;
            let failed = answer.result.is_err();
            self.n_answered += usize::from(!failed);
            self.n_failed += usize::from(failed);
            if let Some(signal) = client.stopping() {
                return Err(Interrupted(signal).into());
            }
            if failed && args.on_error == OnError::Stop {
                break;
            }
            index += 1;
        }
        Ok(())
    }

    async fn answer(
        &mut self,
        client: &mut Client,
        index: usize,
        record: &Record,
    ) -> Result<Answer, Interrupted> {
        let (conversation, is_new) = match &record.conversation {
            Conversation::Own => (client.new_conversation(), true),
            Conversation::Named(name) => match self.conversations.get(name) {
                Some(conversation) => (*conversation, false),
                None => {
                    let conversation = client.new_conversation();
                    self.conversations.insert(name.clone(), conversation);
                    (conversation, true)
                }
            },
        };
        if !is_new && record.system.is_some() {
            let message = "system belongs in the first record of a conversation".to_owned();
            return Ok(Answer::failed(TurnError { code: ErrorCode::BadRecord, message }));
        }
        if is_new {
            let mut messages = record.earlier.clone();
            let has_system = messages.first().is_some_and(|message| message.role == Role::System);
            if let Some(system) = record.system.as_ref().or(self.settings.system.as_ref())
                && !has_system
            {
                messages.insert(0, Message::text(Role::System, system));
            }
            client.send(Command::Open { conversation, messages }).await;
        }
        let mut options = record.options(&self.settings.turn);
        if record.options.sampling.seed.is_none() {
            options.sampling.seed = self.settings.turn.sampling.seed.map(|seed| record.seed(seed, index));
        }
        let answer = client
            .ask(conversation, record.question.clone(), options, |_, _| ControlFlow::Continue(()))
            .await?;
        if record.conversation == Conversation::Own {
            client.send(Command::Close { conversation }).await;
        }
        Ok(answer)
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
