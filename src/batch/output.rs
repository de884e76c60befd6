//! Answers as text, JSON or a table: one flushed write per record, in the order of the records or as they are done.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::answer::Answer;
use super::input;
use super::record::Shape;
use crate::cli::{BatchArgs, Order, OutputForm};
use crate::msg::{ErrorCode, Finish, TurnStats};
use crate::openai::{self, Completion};
use crate::sanitize;

/// Version of the JSON shape.
const VERSION: u32 = 1;
/// A file is made safe against a power cut so often.
const SYNC_RECORDS: usize = 64;
const SYNC_EVERY: Duration = Duration::from_secs(5);

/// What an answer is written with.
pub struct Written<'a> {
    pub shape: Shape,
    pub index: usize,
    pub id: Option<&'a Value>,
    pub conversation: Option<&'a str>,
    /// Of the record and of the settings; for a later `--resume`.
    pub key: &'a str,
    pub run: &'a str,
    pub model: &'a str,
    /// Whether to tell what differs from run to run.
    pub figures: bool,
}

pub struct Output {
    writer: Box<dyn Write>,
    /// To be synchronised.
    file: Option<File>,
    n_unsynced: usize,
    synced: Instant,
    form: OutputForm,
    has_header: bool,
    one_line: bool,
    end: u8,
    /// What the model says must not command a terminal; in a file or a pipe it stays as it is.
    is_terminal: bool,
    order: Order,
    /// The record whose answer is written next, and what is done already after it.
    next: usize,
    done: BTreeMap<usize, Option<Vec<u8>>>,
}

impl Output {
    /// To standard output.
    pub fn stdout(args: &BatchArgs) -> Self {
        Self::new(args, Box::new(io::stdout()), None, io::stdout().is_terminal())
    }

    /// To a file, at its end.
    ///
    /// # Errors
    /// If the system gives no second handle of it.
    pub fn file(args: &BatchArgs, file: File) -> io::Result<Self> {
        let writer = file.try_clone()?;
        Ok(Self::new(args, Box::new(writer), Some(file), false))
    }

    fn new(args: &BatchArgs, writer: Box<dyn Write>, file: Option<File>, is_terminal: bool) -> Self {
        Self {
            writer,
            file,
            n_unsynced: 0,
            synced: Instant::now(),
            form: OutputForm::Jsonl,
            has_header: false,
            one_line: args.write.one_line,
            end: if args.read.null { 0 } else { b'\n' },
            is_terminal,
            order: args.write.order,
            next: 0,
            done: BTreeMap::new(),
        }
    }

    pub fn set_form(&mut self, form: OutputForm) {
        self.form = form;
    }

    /// Answers that wait for one before them.
    pub fn n_waiting(&self) -> usize {
        self.done.len()
    }

    /// Writes one record, once those before it are written. In text form a failed one is an empty line, and standard
    /// error says why: the n-th answer stays that of the n-th record.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn write(&mut self, written: &Written, answer: &Answer) -> io::Result<()> {
        let index = written.index;
        if self.form == OutputForm::Text {
            match &answer.result {
                Err(error) => super::tell(&format!("record {}: {}", index + 1, error.message)),
                Ok(Finish::Length) => {
                    super::tell(&format!("record {}: cut off at the token limit", index + 1))
                }
                Ok(Finish::Stop) => {}
            }
        }
        let line = match (self.form, written.shape) {
            (OutputForm::Jsonl, Shape::Own) => json(written, answer).to_string(),
            (OutputForm::Jsonl, Shape::OpenAi) => openai_json(written, answer).to_string(),
            (OutputForm::Csv, _) => row(written, answer),
            (OutputForm::Text, _) if answer.result.is_err() => String::new(),
            (OutputForm::Text, _) if self.one_line => {
                answer.text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
            }
            (OutputForm::Text, _) => answer.text.clone(),
        };
        let line = if self.is_terminal { sanitize::clean(&line) } else { line };
        let mut bytes = line.into_bytes();
        bytes.push(if self.form == OutputForm::Text { self.end } else { b'\n' });
        self.done(index, Some(bytes))
    }

    /// An earlier run has written this one.
    ///
    /// # Errors
    /// When those that waited for it can't be written.
    pub fn pass(&mut self, index: usize) -> io::Result<()> {
        self.done(index, None)
    }

    fn done(&mut self, index: usize, bytes: Option<Vec<u8>>) -> io::Result<()> {
        if self.order == Order::Done {
            return bytes.map_or(Ok(()), |bytes| self.write_now(&bytes));
        }
        self.done.insert(index, bytes);
        while let Some(bytes) = self.done.remove(&self.next) {
            self.next += 1;
            if let Some(bytes) = bytes {
                self.write_now(&bytes)?;
            }
        }
        Ok(())
    }

    fn write_now(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.form == OutputForm::Csv && !self.has_header {
            self.has_header = true;
            self.writer.write_all(format!("{}\n", COLUMNS.join(",")).as_bytes())?;
        }
        self.writer.write_all(bytes)?;
        self.writer.flush()?;
        self.n_unsynced += 1;
        self.sync(false)
    }

    /// Makes safe what was written, now or if it is time.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(&mut self, now: bool) -> io::Result<()> {
        let is_due = now || self.n_unsynced >= SYNC_RECORDS || self.synced.elapsed() >= SYNC_EVERY;
        if let Some(file) = &self.file
            && self.n_unsynced > 0
            && is_due
        {
            file.sync_data()?;
            self.n_unsynced = 0;
            self.synced = Instant::now();
        }
        Ok(())
    }
}

/// A new file for answers.
///
/// # Errors
/// A sentence when it can't be made, is one of the inputs, or holds something already.
pub fn create(args: &BatchArgs, path: &Path) -> Result<File, String> {
    refuse_input(args, path)?;
    // Hours of work may be in there.
    if path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0) {
        let name = path.display();
        return Err(format!("{name} holds something already; --resume goes on with it, or remove it"));
    }
    File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// # Errors
/// A sentence, for an output that is one of the inputs.
pub fn refuse_input(args: &BatchArgs, path: &Path) -> Result<(), String> {
    match input::reads_from(&args.inputs, path) {
        true => Err(format!("{} is both input and output; write to another file", path.display())),
        false => Ok(()),
    }
}

/// One record of the batch contract.
pub fn json(written: &Written, answer: &Answer) -> Value {
    let mut record = json!({"v": VERSION, "id": written.id, "index": written.index});
    if let Some(conversation) = written.conversation {
        record["conv"] = conversation.into();
    }
    match &answer.result {
        Ok(finish) => {
            record["status"] = super::status(*finish).into();
            record["text"] = answer.text.as_str().into();
            if !answer.thinking.is_empty() {
                record["thinking"] = answer.thinking.as_str().into();
            }
            record["finish"] = super::finish_reason(*finish).into();
            figures(&mut record, written, answer);
        }
        Err(error) => {
            let is_skipped = error.code == ErrorCode::Cancelled;
            record["status"] = if is_skipped { "skipped" } else { "error" }.into();
            record["error"] = json!({
                "code": error.code.as_str(), "message": error.message, "retryable": error.code.is_retryable(),
            });
        }
    }
    if !written.key.is_empty() {
        record["key"] = written.key.into();
        record["run"] = written.run.into();
    }
    record
}

fn figures(record: &mut Value, written: &Written, answer: &Answer) {
    let stats = &answer.stats;
    record["usage"] = json!({"prompt": stats.prompt_tokens});
    let usage = &mut record["usage"];
    if written.figures {
        usage["cached"] = stats.cached_tokens.into();
        usage["restored"] = stats.restored_tokens.into();
    }
    usage["image"] = stats.image_tokens.into();
    usage["completion"] = stats.completion_tokens.into();
    usage["thinking"] = stats.thinking_tokens.into();
    if written.figures {
        let ms = |time: Duration| time.as_millis() as u64;
        record["time"] = json!({
            "queue_ms": ms(stats.queue_time), "prefill_ms": ms(stats.prefill_time),
            "ttft_ms": stats.time_to_first_token.map(ms), "total_ms": ms(answer.total_time),
            // One decimal is what a measurement of one answer is good for.
            "tok_s": stats.tokens_per_second().map(|speed| (speed * 10.0).round() / 10.0),
        });
        record["spec"] = drafting(stats);
    }
    record["seed"] = stats.seed.into();
    record["model"] = written.model.into();
}

/// The shape of OpenAI's batch output files.
fn openai_json(written: &Written, answer: &Answer) -> Value {
    let id = format!("batch_req_{}", written.index);
    let (response, error) = match &answer.result {
        Ok(finish) => {
            let (text, calls) = openai::split_calls(&answer.text, &Value::Null);
            let body = openai::completion(&Completion {
                id: &format!("chatcmpl-{}", written.index),
                created: 0,
                model: written.model,
                text: &text,
                thinking: &answer.thinking,
                calls: &calls,
                tokens: (!answer.tokens.is_empty()).then_some(&answer.tokens),
                finish: *finish,
                stats: &answer.stats,
            });
            (json!({"status_code": 200, "request_id": id, "body": body}), Value::Null)
        }
        Err(error) => (Value::Null, json!({"code": error.code.as_str(), "message": error.message})),
    };
    json!({
        "id": id, "custom_id": written.id, "response": response, "error": error,
        "key": written.key, "run": written.run,
    })
}

const COLUMNS: [&str; 9] = [
    "index",
    "id",
    "status",
    "text",
    "error_code",
    "error_message",
    "prompt_tokens",
    "completion_tokens",
    "seed",
];

fn row(written: &Written, answer: &Answer) -> String {
    let id = match written.id {
        None => String::new(),
        Some(Value::String(id)) => id.clone(),
        Some(other) => other.to_string(),
    };
    let (status, code, message) = match &answer.result {
        Ok(finish) => (super::status(*finish), "", ""),
        Err(error) => ("error", error.code.as_str(), error.message.as_str()),
    };
    let stats = &answer.stats;
    let number = |n: usize| if answer.result.is_ok() { n.to_string() } else { String::new() };
    let seed = if answer.result.is_ok() { stats.seed.to_string() } else { String::new() };
    let text = if answer.result.is_ok() { answer.text.as_str() } else { "" };
    let mut writer = csv::Writer::from_writer(Vec::new());
    let cells: [&str; 9] = [
        &written.index.to_string(),
        &id,
        status,
        text,
        code,
        message,
        &number(stats.prompt_tokens),
        &number(stats.completion_tokens),
        &seed,
    ];
    let written = writer.write_record(cells);
    debug_assert!(written.is_ok(), "memory doesn't refuse");
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned()
}

/// What drafting did; null if nothing was drafted.
fn drafting(stats: &TurnStats) -> Value {
    let Some(per_step) = stats.tokens_per_step() else { return Value::Null };
    let rounded = |share: f64| (share * 1000.0).round() / 1000.0;
    let drafts = &stats.drafts;
    json!({
        "kind": "mtp", "steps": drafts.steps, "drafted": drafts.n_drafted(), "accepted": drafts.n_accepted(),
        "by_pos": drafts.by_position().map(rounded).collect::<Vec<_>>(), "tokens_per_step": rounded(per_step),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(figures: bool) -> Written<'static> {
        Written {
            shape: Shape::Own,
            index: 0,
            id: None,
            conversation: None,
            key: "",
            run: "",
            model: "m",
            figures,
        }
    }

    #[test]
    fn a_row_quotes_what_a_table_would_misread() {
        let mut answer = Answer::failed(super::super::answer::engine_gone());
        assert_eq!(row(&written(true), &answer), "0,,error,,engine,the engine stopped unexpectedly,,,");
        answer.result = Ok(Finish::Stop);
        answer.text = "a \"b\",\nc".into();
        assert_eq!(row(&written(true), &answer), "0,,ok,\"a \"\"b\"\",\nc\",,,0,0,0");
    }

    fn answer(stats: TurnStats) -> Value {
        let answer = Answer {
            text: "The Loire.".into(),
            thinking: String::new(),
            result: Ok(Finish::Stop),
            stats,
            total_time: std::time::Duration::ZERO,
            tokens: Vec::new(),
        };
        json(&written(true), &answer)
    }

    #[test]
    fn what_drafting_did_is_told() {
        let mut stats = TurnStats { completion_tokens: 8, ..TurnStats::default() };
        stats.drafts.note(3, 3);
        stats.drafts.note(0, 0);
        stats.drafts.note(3, 1);
        let expected = json!({
            "kind": "mtp", "steps": 3, "drafted": 6, "accepted": 4, "by_pos": [1.0, 0.5, 0.5],
            // One of the 8 came out of the prompt.
            "tokens_per_step": 2.333,
        });
        assert_eq!(answer(stats)["spec"], expected);
    }

    #[test]
    fn without_drafts_there_is_nothing_to_tell() {
        let mut stats = TurnStats { completion_tokens: 2, ..TurnStats::default() };
        assert_eq!(answer(stats)["spec"], Value::Null);
        stats.drafts.note(0, 0);
        assert_eq!(answer(stats)["spec"], Value::Null);
    }

    #[test]
    fn tokens_per_step_count_finished_steps_and_kept_tokens() {
        let mut stats = TurnStats::default();
        assert_eq!(stats.tokens_per_step(), None);
        stats.drafts.note(2, 2);
        // The first token, the three of the step, and one of a step that isn't over yet.
        stats.completion_tokens = 5;
        assert_eq!(stats.tokens_per_step(), Some(3.0));
        // The model stopped behind the drafts: the last step gave nothing else.
        stats.completion_tokens = 3;
        assert_eq!(stats.tokens_per_step(), Some(2.0));
        stats.completion_tokens = 0;
        assert_eq!(stats.tokens_per_step(), Some(0.0));
    }
}
