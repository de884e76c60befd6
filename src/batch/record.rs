//! Records: one prompt, or one JSON object that says more, and what each of them asks for.

use std::path::Path;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::chat::openai::messages_from_json;
use crate::chat::reference;
use crate::chat::{Detail, Message, Part, Role};
use crate::msg::{ErrorCode, Form, MAX_DRAFTS, Mtp, Think, TurnOptions};
use crate::openai::ChatRequest;
use crate::units::hex;

/// Longest record. A longer one is refused, so that a file without line breaks can't fill the memory.
pub const MAX_RECORD_BYTES: usize = 16 << 20;

/// The keys of a record.
const KEYS: [&str; 10] =
    ["id", "prompt", "images", "messages", "system", "params", "schema", "regex", "vars", "conv"];

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
    pub code: ErrorCode,
    /// The record's id, if that much could be read.
    pub id: Option<Value>,
}

impl BadRecord {
    pub fn new(line: usize, why: String) -> Self {
        Self { line, why, code: ErrorCode::BadRecord, id: None }
    }
}

/// In which shape a record was given, and is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Own,
    /// A line of an OpenAI batch file: `custom_id`, `url`, `body`.
    OpenAi,
}

/// One question, with what comes before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub shape: Shape,
    /// As given, to be given back.
    pub id: Option<Value>,
    pub system: Option<String>,
    pub earlier: Vec<Message>,
    pub question: Message,
    /// Records with the same name go on with each other.
    pub conversation: Option<String>,
    pub options: TurnOptions,
    /// For templates.
    pub vars: Map<String, Value>,
    /// Keys that mean nothing here.
    pub unknown: Vec<String>,
}

impl Record {
    pub fn from_line(text: &str) -> Self {
        Self::new(Message::text(Role::User, text))
    }

    fn new(question: Message) -> Self {
        Self {
            shape: Shape::Own,
            id: None,
            system: None,
            earlier: Vec::new(),
            question,
            conversation: None,
            options: TurnOptions::default(),
            vars: Map::new(),
            unknown: Vec::new(),
        }
    }

    /// A picture without words, as `--as image` reads them.
    ///
    /// # Errors
    /// If it is no picture.
    pub fn from_picture(path: &str) -> Result<Self, String> {
        let parts = vec![Part::Image(reference::picture(path)?)];
        Ok(Self::new(Message { role: Role::User, parts, reasoning: None }))
    }

    pub fn from_json(line: &str, number: usize) -> Result<Self, BadRecord> {
        let bad = |id, why: String| BadRecord { id, ..BadRecord::new(number, why) };
        let json: Value = serde_json::from_str(line)
            .map_err(|error| bad(None, format!("not valid JSON (column {})", error.column())))?;
        let Value::Object(object) = json else { return Err(bad(None, "it is not a JSON object".into())) };
        match object.contains_key("body") {
            true => Self::from_openai(&object).map_err(|why| bad(object.get("custom_id").cloned(), why)),
            false => Self::from_object(&object).map_err(|why| bad(object.get("id").cloned(), why)),
        }
    }

    fn from_object(object: &Map<String, Value>) -> Result<Self, String> {
        if let Some(key) = ["image", "clip", "clips"].into_iter().find(|key| object.contains_key(*key)) {
            let why = "pictures go into \"images\", clips into the \"messages\" as parts of type \"video\"";
            return Err(format!("{key:?} is not a key of a record; {why}"));
        }
        if let Some(key) = PARAMS.into_iter().find(|key| object.contains_key(*key)) {
            return Err(format!("{key:?} belongs into \"params\""));
        }
        let unknown: Vec<String> =
            object.keys().filter(|key| !KEYS.contains(&key.as_str())).cloned().collect();
        // What looks like a slip would be another question if it were passed over.
        let slips = unknown.iter().filter_map(|key| Some((key, nearest(key)?)));
        if let Some((key, meant)) = slips.into_iter().next() {
            return Err(format!("{key:?} is not a key of a record; did you mean {meant:?}?"));
        }
        let (earlier, question) = question(object)?;
        let conversation = match object.get("conv") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(other) => Some(other.to_string()),
        };
        let mut options = options(object.get("params"))?;
        options.form = form(object)?;
        Ok(Self {
            id: object.get("id").filter(|id| !id.is_null()).cloned(),
            system: text(object, "system")?,
            earlier,
            conversation,
            options,
            vars: match object.get("vars") {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(vars)) => vars.clone(),
                Some(_) => return Err("vars is not an object".into()),
            },
            unknown,
            ..Self::new(question)
        })
    }

    fn from_openai(object: &Map<String, Value>) -> Result<Self, String> {
        if let Some(url) = text(object, "url")?
            && !url.ends_with("/chat/completions")
        {
            return Err(format!("url is {url:?}; only /v1/chat/completions is answered"));
        }
        let ChatRequest { mut messages, options, unknown, stream, .. } =
            ChatRequest::from_json(&object["body"])?;
        if stream {
            return Err("a batch doesn't stream; leave \"stream\" out".into());
        }
        let question = messages.pop().expect("a request has messages");
        Ok(Self {
            shape: Shape::OpenAi,
            id: object.get("custom_id").filter(|id| !id.is_null()).cloned(),
            earlier: messages,
            options,
            unknown,
            ..Self::new(question)
        })
    }

    /// One row of a table: every column is a variable, and some are what they are called.
    ///
    /// # Errors
    /// A sentence about a column that can't be used.
    pub fn from_row(header: &csv::StringRecord, row: &csv::StringRecord) -> Result<Self, String> {
        let column = |name: &str| {
            let at = header.iter().position(|column| column.trim() == name)?;
            row.get(at).filter(|value| !value.trim().is_empty())
        };
        let mut parts = Vec::new();
        for name in ["image", "images"] {
            // Several pictures in one cell stand on lines of their own.
            for path in column(name).into_iter().flat_map(str::lines) {
                parts.push(Part::Image(reference::picture(path.trim())?));
            }
        }
        parts.extend(column("prompt").map(|prompt| Part::Text(prompt.to_owned())));
        let named = header.iter().zip(row).map(|(name, value)| (name.trim().to_owned(), value.into()));
        Ok(Self {
            id: column("id").map(Value::from),
            system: column("system").map(str::to_owned),
            conversation: column("conv").map(str::to_owned),
            vars: named.collect(),
            ..Self::new(Message { role: Role::User, parts, reasoning: None })
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

    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut Message> {
        self.earlier.iter_mut().chain([&mut self.question])
    }

    /// The record's settings, and where it has none, those of the command.
    pub fn options(&self, command: &TurnOptions) -> TurnOptions {
        TurnOptions {
            sampling: self.options.sampling.or(&command.sampling),
            max_tokens: self.options.max_tokens.or(command.max_tokens),
            thinking: self.options.thinking.or(command.thinking),
            max_thinking: if self.options.thinking.is_some() { &self.options } else { command }.max_thinking,
            mtp: self.options.mtp.or(command.mtp),
            form: self.options.form.clone().or_else(|| command.form.clone()),
            stop: self.options.stop.clone(),
            tools: self.options.tools.clone(),
            logprobs: self.options.logprobs.or(command.logprobs),
            is_fresh: command.is_fresh,
            only_count: command.only_count,
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

    /// The text of the question is this instead; its pictures stay.
    pub fn set_prompt(&mut self, text: String) {
        self.question.parts.retain(|part| !matches!(part, Part::Text(_)));
        self.question.parts.push(Part::Text(text));
    }
}

/// Tells records apart by what they hold: the same text, the same key.
pub fn key_of(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // With its length, so that two parts can't pass for two others.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..8])
}

/// The key that was probably meant.
fn nearest(given: &str) -> Option<&'static str> {
    // A short word is near to everything.
    KEYS.into_iter().find(|key| key.len() > 3 && is_slip(given, key))
}

/// Whether one letter is wrong, missing, too much or in its neighbour's place.
fn is_slip(given: &str, key: &str) -> bool {
    let (a, b) = (given.to_lowercase().into_bytes(), key.as_bytes());
    let prefix = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[prefix..], &b[prefix..]);
    let suffix = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - suffix], &b[..b.len() - suffix]);
    match (a, b) {
        (a, b) if a.len() + b.len() <= 1 => true,
        ([_], [_]) => true,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    }
}

/// What the answer is held to.
fn form(object: &Map<String, Value>) -> Result<Option<Form>, String> {
    let regex = text(object, "regex")?.map(Form::Regex);
    match (object.get("schema"), regex) {
        (None | Some(Value::Null), regex) => Ok(regex),
        (Some(_), Some(_)) => Err("it has a schema and a regex; an answer is held to one of them".into()),
        (Some(schema @ (Value::Object(_) | Value::Bool(_))), None) => Ok(Some(Form::Schema(schema.clone()))),
        (Some(_), None) => Err("schema is not a JSON Schema".into()),
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
    let prompt = text(object, "prompt")?;
    // Without a prompt, the command or its template may have one.
    if prompt.as_ref().is_some_and(|prompt| prompt.trim().is_empty()) && images.is_empty() {
        return Err("the prompt is empty".into());
    }
    let parts = images.into_iter().chain(prompt.map(Part::Text)).collect();
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
            "think" => {
                let expected = || wrong("true, false, \"low\", \"high\" or a number of tokens");
                think(value).ok_or_else(expected)?.apply(&mut options);
            }
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

/// The same.
fn think(value: &Value) -> Option<Think> {
    match value {
        Value::Bool(on) => Some(if *on { Think::On } else { Think::Off }),
        Value::String(word) if word == "low" || word == "high" => word.parse().ok(),
        Value::Number(tokens) => tokens.to_string().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
