//! Records: one prompt per line, or one JSON object per line.
//!
//! A line that can't be read becomes a [`BadRecord`] in its place; the lines after it are read all the same.

use std::fs::File;
#[cfg(unix)]
use std::fs::Metadata;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::chat::openai::messages_from_json;
use crate::chat::reference;
use crate::chat::{Detail, Message, Part, Role};
use crate::cli::{BatchArgs, InputForm};
use crate::msg::{MAX_DRAFTS, Mtp, SamplingOptions, TurnOptions};

/// Longest record. A longer one is refused, so that a file without line breaks can't fill the memory.
pub const MAX_RECORD_BYTES: usize = 16 << 20;

/// Keys of the contract that later versions will act on. Ignoring one would answer another question than
/// the one that was asked.
const LATER_KEYS: [&str; 3] = ["schema", "vars", "body"];

/// The keys of `params`.
const PARAMS: [&str; 11] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "max_tokens",
    "think",
    "mtp",
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadRecord {
    pub line: usize,
    pub why: String,
    /// The record's id, if that much could be read.
    pub id: Option<Value>,
}

/// Where a record's conversation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversation {
    Own,
    /// Records with the same name go on with each other.
    Named(String),
}

/// One question, with what comes before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// As given, to be given back.
    pub id: Option<Value>,
    pub system: Option<String>,
    pub earlier: Vec<Message>,
    pub question: Message,
    pub conversation: Conversation,
    pub options: TurnOptions,
}

impl Record {
    fn from_line(text: &str) -> Self {
        Self {
            id: None,
            system: None,
            earlier: Vec::new(),
            question: Message::text(Role::User, text),
            conversation: Conversation::Own,
            options: TurnOptions::default(),
        }
    }

    fn from_json(line: &str, number: usize) -> Result<Self, BadRecord> {
        let bad = |id, why: String| BadRecord { line: number, why, id };
        let json: Value = serde_json::from_str(line)
            .map_err(|error| bad(None, format!("not valid JSON (column {})", error.column())))?;
        let Value::Object(object) = json else { return Err(bad(None, "it is not a JSON object".into())) };
        Self::from_object(&object).map_err(|why| bad(object.get("id").cloned(), why))
    }

    fn from_object(object: &Map<String, Value>) -> Result<Self, String> {
        if let Some(key) = LATER_KEYS.into_iter().find(|key| object.contains_key(*key)) {
            return Err(format!("{key:?} is not supported yet"));
        }
        if let Some(key) = ["image", "clip", "clips"].into_iter().find(|key| object.contains_key(*key)) {
            let why = "pictures go into \"images\", clips into the \"messages\" as parts of type \"video\"";
            return Err(format!("{key:?} is not a key of a record; {why}"));
        }
        if let Some(key) = PARAMS.into_iter().find(|key| object.contains_key(*key)) {
            return Err(format!("{key:?} belongs into \"params\""));
        }
        let (earlier, question) = question(object)?;
        let conversation = match object.get("conv") {
            None | Some(Value::Null) => Conversation::Own,
            Some(Value::String(name)) => Conversation::Named(name.clone()),
            Some(other) => Conversation::Named(other.to_string()),
        };
        Ok(Self {
            id: object.get("id").filter(|id| !id.is_null()).cloned(),
            system: text(object, "system")?,
            earlier,
            question,
            conversation,
            options: options(object.get("params"))?,
        })
    }

    /// Relative paths of pictures begin in `folder`.
    pub fn resolve_pictures(&mut self, folder: &Path) {
        self.messages_mut().flat_map(Message::pictures_mut).for_each(|picture| picture.resolve(folder));
    }

    /// For the pictures that don't ask for a detail of their own.
    pub fn set_detail(&mut self, detail: Detail) {
        for picture in self.messages_mut().flat_map(Message::pictures_mut) {
            if picture.detail == Detail::Auto {
                picture.detail = detail;
            }
        }
    }

    fn messages_mut(&mut self) -> impl Iterator<Item = &mut Message> {
        self.earlier.iter_mut().chain([&mut self.question])
    }

    /// The record's settings, and where it has none, those of the command.
    pub fn options(&self, command: &TurnOptions) -> TurnOptions {
        let (own, other) = (&self.options.sampling, &command.sampling);
        TurnOptions {
            sampling: SamplingOptions {
                temperature: own.temperature.or(other.temperature),
                top_k: own.top_k.or(other.top_k),
                top_p: own.top_p.or(other.top_p),
                min_p: own.min_p.or(other.min_p),
                presence_penalty: own.presence_penalty.or(other.presence_penalty),
                frequency_penalty: own.frequency_penalty.or(other.frequency_penalty),
                repetition_penalty: own.repetition_penalty.or(other.repetition_penalty),
                seed: own.seed.or(other.seed),
            },
            max_tokens: self.options.max_tokens.or(command.max_tokens),
            thinking: self.options.thinking.or(command.thinking),
            mtp: self.options.mtp.or(command.mtp),
        }
    }

    /// A seed of this record's own, made from the command's: the same whatever was answered before it.
    pub fn seed(&self, seed: u64, index: usize) -> u64 {
        let name = self.id.as_ref().map_or_else(|| index.to_string(), Value::to_string);
        // FNV-1a, and below 2^53 so that every JSON reader keeps it exact.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash >> 11
    }
}

fn question(object: &Map<String, Value>) -> Result<(Vec<Message>, Message), String> {
    let images = match object.get("images") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(paths)) => paths
            .iter()
            .map(|path| path.as_str().ok_or("images is not a list of file names".into()))
            .map(|path| path.and_then(reference::picture).map(Part::Image))
            .collect::<Result<_, String>>()?,
        Some(_) => return Err("images is not a list of file names".into()),
    };
    if let Some(messages) = object.get("messages") {
        if object.contains_key("prompt") || !images.is_empty() {
            return Err("it has messages and also prompt or images; the messages hold everything".into());
        }
        let mut messages = messages_from_json(messages)?;
        let question = messages.pop().expect("the list is not empty");
        if question.role == Role::Assistant {
            return Err("the last message is the assistant's; it must be a question".into());
        }
        return Ok((messages, question));
    }
    let prompt = text(object, "prompt")?.ok_or("it has neither prompt nor messages")?;
    if prompt.trim().is_empty() && images.is_empty() {
        return Err("the prompt is empty".into());
    }
    let parts = images.into_iter().chain([Part::Text(prompt)]).collect();
    Ok((Vec::new(), Message { role: Role::User, parts, reasoning: None }))
}

fn text(object: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{key} is not text")),
    }
}

fn options(params: Option<&Value>) -> Result<TurnOptions, String> {
    let mut options = TurnOptions::default();
    let params = match params {
        None | Some(Value::Null) => return Ok(options),
        Some(Value::Object(params)) => params,
        Some(_) => return Err("params is not an object".into()),
    };
    for (key, value) in params {
        let wrong = |expected: &str| format!("params.{key} is {value}, expected {expected}");
        let number = || value.as_f64().map(|n| Some(n as f32)).ok_or_else(|| wrong("a number"));
        let whole = || value.as_u64().ok_or_else(|| wrong("a whole number"));
        let sampling = &mut options.sampling;
        match key.as_str() {
            "temperature" => sampling.temperature = number()?,
            "top_p" => sampling.top_p = number()?,
            "min_p" => sampling.min_p = number()?,
            "presence_penalty" => sampling.presence_penalty = number()?,
            "frequency_penalty" => sampling.frequency_penalty = number()?,
            "repetition_penalty" => sampling.repetition_penalty = number()?,
            "top_k" => sampling.top_k = Some(whole()? as usize),
            "seed" => sampling.seed = Some(whole()?),
            "max_tokens" => match whole()? {
                0 => return Err(wrong("at least 1")),
                n => options.max_tokens = Some(n as usize),
            },
            "think" => options.thinking = Some(value.as_bool().ok_or_else(|| wrong("true or false"))?),
            "mtp" => {
                let expected = || format!("\"off\", \"auto\" or a number up to {MAX_DRAFTS}");
                options.mtp = Some(mtp(value).ok_or_else(|| wrong(&expected()))?);
            }
            _ => return Err(format!("params.{key} is unknown")),
        }
    }
    Ok(options)
}

/// Words are text and depths are numbers, as for every other key.
fn mtp(value: &Value) -> Option<Mtp> {
    match value {
        Value::String(word) if word == "off" || word == "auto" => word.parse().ok(),
        Value::Number(depth) => depth.to_string().parse().ok(),
        _ => None,
    }
}

/// One input, and the folder where its relative paths begin: a file's own, or the working folder.
struct Input {
    reader: Box<dyn BufRead + Send>,
    folder: PathBuf,
}

/// Where records come from, opened but not read.
pub struct Source {
    inputs: Vec<Input>,
    form: Option<InputForm>,
}

impl Source {
    /// Opens every file before the first is answered, so that a wrong name doesn't show after an hour.
    ///
    /// # Errors
    /// A sentence for a file that can't be opened.
    pub fn open(args: &BatchArgs) -> Result<Self, String> {
        let mut inputs = Vec::new();
        for path in &args.inputs {
            let file =
                File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
            if file.metadata().is_ok_and(|meta| meta.is_dir()) {
                return Err(format!("cannot read {}: it is a folder", path.display()));
            }
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            inputs.push(Input { reader: Box::new(BufReader::new(file)), folder });
        }
        if inputs.is_empty() {
            let reader = Box::new(BufReader::new(io::stdin()));
            inputs.push(Input { reader, folder: PathBuf::new() });
        }
        Ok(Self { inputs, form: args.input_form })
    }

    /// Reads on a thread of its own, a few records ahead. The thread isn't waited for: it may hang on an
    /// input that never ends.
    pub fn read_in_background(self) -> mpsc::Receiver<Item> {
        let (sender, receiver) = mpsc::channel(4);
        std::thread::spawn(move || {
            for Input { reader, folder } in self.inputs {
                let mut form = self.form;
                let take = |mut item: Item| {
                    if let Ok(record) = &mut item.record {
                        record.resolve_pictures(&folder);
                    }
                    sender.blocking_send(item).is_ok()
                };
                if read_records(reader, &mut form, take).is_none() {
                    return;
                }
            }
        });
        receiver
    }
}

/// Whether `output` is one of the inputs, under whatever name.
pub fn reads_from(inputs: &[PathBuf], output: &Path) -> bool {
    let Ok(output_meta) = output.metadata() else { return false };
    if !output_meta.is_file() {
        return false;
    }
    // By device and file number, which also sees through links and redirections.
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        use std::os::unix::fs::MetadataExt;
        let is_output = |meta: Metadata| (meta.dev(), meta.ino()) == (output_meta.dev(), output_meta.ino());
        let stdin = io::stdin().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
        match inputs {
            [] => stdin.is_ok_and(is_output),
            _ => inputs.iter().any(|input| input.metadata().is_ok_and(is_output)),
        }
    }
    #[cfg(not(unix))]
    inputs.iter().any(|input| match (input.canonicalize(), output.canonicalize()) {
        (Ok(input), Ok(output)) => input == output,
        _ => false,
    })
}

/// What was read for one record.
pub struct Item {
    /// `None` as long as nothing readable told what the form is.
    pub form: Option<InputForm>,
    pub record: Result<Record, BadRecord>,
}

/// Gives every record of `reader` to `take`, until that says no (`None`). The first readable line decides
/// the form if it is not given.
fn read_records(
    mut reader: impl BufRead,
    form: &mut Option<InputForm>,
    mut take: impl FnMut(Item) -> bool,
) -> Option<()> {
    let mut line = 0;
    loop {
        line += 1;
        let bad = |why: String| Err(BadRecord { line, why, id: None });
        let mut take = |form, record| take(Item { form, record }).then_some(());
        let bytes = match next_line(&mut reader) {
            Ok(None) => return Some(()),
            Ok(Some(bytes)) => bytes,
            Err(error) => {
                take(*form, bad(format!("cannot read the input: {error}")))?;
                return Some(());
            }
        };
        if bytes.len() > MAX_RECORD_BYTES {
            take(*form, bad(format!("it is longer than {} MiB", MAX_RECORD_BYTES >> 20)))?;
            continue;
        }
        let Ok(text) = std::str::from_utf8(&bytes) else {
            take(*form, bad("it is not valid UTF-8".into()))?;
            continue;
        };
        let text = if line == 1 { text.trim_start_matches('\u{feff}') } else { text };
        if text.trim().is_empty() {
            continue;
        }
        let record = match form.get_or_insert_with(|| guess(text)) {
            InputForm::Lines => Ok(Record::from_line(text)),
            InputForm::Jsonl => Record::from_json(text, line),
        };
        take(*form, record)?;
    }
}

/// The next line without its end; `None` at the end of the input. Of a line that is too long, one byte more
/// than allowed comes back and the rest is skipped.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let limit = MAX_RECORD_BYTES as u64 + 1;
    if reader.by_ref().take(limit).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    } else if bytes.len() as u64 == limit {
        reader.skip_until(b'\n')?;
        return Ok(Some(bytes));
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    Ok(Some(bytes))
}

fn guess(first_line: &str) -> InputForm {
    match first_line.trim_start().starts_with('{') {
        true => InputForm::Jsonl,
        false => InputForm::Lines,
    }
}

#[cfg(test)]
mod tests;
