//! Conversations to prompts, through the chat template of the model's repository.
//!
//! The template is a program from a stranger. Three official ones are known by their SHA-256 and run
//! here; any other one runs in a child process with little memory and little time (`prompt/child.rs`).
//! Either way the result is what Hugging Face transformers would render, byte for byte: the model was
//! trained on exactly that text, so the layout is never written down in our own code.
//!
//! Knows nothing of token ids; text from people arrives already protected (`Tokenizer::protect`).

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::chat::{Message, Part, Role, ToolCall};
use crate::engine::model_file::{self, ModelFileError};
use crate::engine::tokenizer::TOKENIZER_CONFIG_LIMIT_BYTES;
use crate::units::hex;

pub mod child;
mod jinja;
pub mod pictures;
mod python;

/// The official templates have 8 kB; the largest we know of has 30.
const TEMPLATE_LIMIT_BYTES: u64 = 1 << 20;

/// SHA-256 of the official chat_template.jinja of Qwen3.5 (4B and larger), Qwen3.5 (0.8B, 2B) and Qwen3.6.
const OFFICIAL_SHA256: [&str; 3] = [
    "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",
    "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80",
    "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259",
];

#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    #[error(transparent)]
    File(#[from] ModelFileError),
    #[error("{path} is not valid: {reason}; download the model again")]
    Invalid { path: PathBuf, reason: String },
    #[error(
        "{dir} has no chat template: neither chat_template.jinja nor chat_template.json, and no \
         `chat_template` in tokenizer_config.json; add the one of the model's official repository"
    )]
    Missing { dir: PathBuf },
    /// The template's own objection to this conversation, word for word.
    #[error("{0}")]
    Raised(String),
    #[error("the model's chat template failed: {0}; try the one of the model's official repository")]
    Failed(String),
    #[error("the model's chat template was stopped: {0}; use the one of the model's official repository")]
    Stopped(&'static str),
    #[error("cannot run the template renderer {exe}: {reason}")]
    Renderer { exe: PathBuf, reason: std::io::Error },
}

/// What a template is given; the shapes are those of `apply_chat_template`.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderInput {
    /// An array of messages: `role`, `content` (text, or a list of parts), `reasoning_content` …
    pub messages: Value,
    pub tools: Option<Value>,
    pub add_generation_prompt: bool,
    /// Switches such as `enable_thinking`, `add_vision_id`, `preserve_thinking` and `reasoning_effort`.
    pub extra: Map<String, Value>,
}

/// The chat template of one model folder.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: String,
    is_official: bool,
    /// The program that has `child::main` behind its `__template` argument; `None` is this program.
    renderer: Option<PathBuf>,
}

impl ChatTemplate {
    /// Finds the template of a model folder: chat_template.jinja, else chat_template.json, else the
    /// `chat_template` of tokenizer_config.json. It is not parsed yet; see [`thinks_by_default`].
    ///
    /// # Errors
    /// `Missing` if there is none; `File` and `Invalid` if a file can't be read.
    pub fn open(dir: &Path) -> Result<Self, PromptError> {
        let source = find_template(dir)?;
        let is_official = OFFICIAL_SHA256.contains(&sha256_hex(&source).as_str());
        Ok(Self { source, is_official, renderer: None })
    }

    /// Like [`ChatTemplate::open`], for programs that are not Loquat itself (tests): `renderer` is the
    /// Loquat executable that renders templates which are not official.
    ///
    /// # Errors
    /// As [`ChatTemplate::open`].
    pub fn open_with_renderer(dir: &Path, renderer: &Path) -> Result<Self, PromptError> {
        Ok(Self { renderer: Some(renderer.to_owned()), ..Self::open(dir)? })
    }

    /// The prompt for a conversation.
    ///
    /// # Errors
    /// `Raised` if the template objects to the conversation; `Failed`, `Stopped` and `Renderer` if the
    /// template itself is at fault.
    pub fn render(&self, input: &RenderInput) -> Result<String, PromptError> {
        let context = context(input);
        if self.is_official {
            return Ok(jinja::render(&self.source, &context)?);
        }
        match &self.renderer {
            Some(exe) => child::render(exe, &self.source, &context),
            None => {
                let exe = std::env::current_exe()
                    .map_err(|reason| PromptError::Renderer { exe: PathBuf::from("loquat"), reason })?;
                child::render(&exe, &self.source, &context)
            }
        }
    }
}

impl From<jinja::RenderError> for PromptError {
    fn from(error: jinja::RenderError) -> Self {
        match error {
            jinja::RenderError::Raised(message) => Self::Raised(message),
            jinja::RenderError::Failed(message) => Self::Failed(message),
        }
    }
}

/// transformers always passes `tools` and `documents`, as None where there are none.
fn context(input: &RenderInput) -> Value {
    let mut context = input.extra.clone();
    context.insert("messages".to_owned(), input.messages.clone());
    context.insert("tools".to_owned(), input.tools.clone().unwrap_or(Value::Null));
    context.insert("documents".to_owned(), Value::Null);
    context.insert("add_generation_prompt".to_owned(), input.add_generation_prompt.into());
    Value::Object(context)
}

fn find_template(dir: &Path) -> Result<String, PromptError> {
    let jinja = dir.join("chat_template.jinja");
    if let Some(source) = model_file::read_text_if_present(&jinja, TEMPLATE_LIMIT_BYTES)? {
        return Ok(source);
    }
    for name in ["chat_template.json", "tokenizer_config.json"] {
        let path = dir.join(name);
        let Some(text) = model_file::read_text_if_present(&path, TOKENIZER_CONFIG_LIMIT_BYTES)? else {
            continue;
        };
        let holder: TemplateHolder = serde_json::from_str(&text)
            .map_err(|e| PromptError::Invalid { path: path.clone(), reason: e.to_string() })?;
        let source = match holder.chat_template {
            None => continue,
            Some(TemplateEntry::One(source)) => source,
            Some(TemplateEntry::Named(all)) => match all.into_iter().find(|named| named.name == "default") {
                Some(named) => named.template,
                None => continue,
            },
        };
        if source.len() as u64 > TEMPLATE_LIMIT_BYTES {
            return Err(ModelFileError::TooLarge { path, limit_bytes: TEMPLATE_LIMIT_BYTES }.into());
        }
        return Ok(source);
    }
    Err(PromptError::Missing { dir: dir.to_owned() })
}

#[derive(Deserialize)]
struct TemplateHolder {
    chat_template: Option<TemplateEntry>,
}

/// Older repositories may hold several templates by name.
#[derive(Deserialize)]
#[serde(untagged)]
enum TemplateEntry {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

fn sha256_hex(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// A conversation in the shape templates read, ready for the model's answer.
///
/// `protect` is applied to every text a person or the model wrote. Neighbouring text parts are joined
/// first, because the template would join them: a literal cut in two must not come together there.
pub fn chat_input(
    messages: &[Message],
    thinking: Option<bool>,
    protect: impl Fn(&str) -> String,
) -> RenderInput {
    let messages = messages.iter().map(|message| message_json(message, &protect)).collect();
    let mut extra = Map::new();
    if let Some(thinking) = thinking {
        extra.insert("enable_thinking".to_owned(), thinking.into());
    }
    RenderInput { messages, tools: None, add_generation_prompt: true, extra }
}

fn message_json(message: &Message, protect: &impl Fn(&str) -> String) -> Value {
    let content = match message.pictures().next().is_some() {
        true => Value::Array(parts_json(&message.parts, protect)),
        false => protect(&message.plain_text()).into(),
    };
    let mut json = json!({"role": message.role.as_str(), "content": content});
    if let Some(reasoning) = &message.reasoning {
        json["reasoning_content"] = protect(reasoning).into();
    }
    let calls: Vec<Value> = message.calls().map(|call| call_json(call, protect)).collect();
    if !calls.is_empty() {
        json["tool_calls"] = calls.into();
    }
    json
}

/// Templates write the arguments one by one, so they are an object and not its text.
fn call_json(call: &ToolCall, protect: &impl Fn(&str) -> String) -> Value {
    let arguments = protected(&call.arguments, protect);
    json!({"type": "function", "function": {"name": protect(&call.name), "arguments": arguments}})
}

/// The same value with every text in it protected.
pub fn protected(value: &Value, protect: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => protect(text).into(),
        Value::Array(items) => items.iter().map(|item| protected(item, protect)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (protect(name), protected(value, protect)));
            Value::Object(fields.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn parts_json(parts: &[Part], protect: &impl Fn(&str) -> String) -> Vec<Value> {
    let mut json = Vec::new();
    let mut text = String::new();
    let flush = |text: &mut String, json: &mut Vec<Value>| {
        if !text.is_empty() {
            json.push(json!({"type": "text", "text": protect(text)}));
            text.clear();
        }
    };
    for part in parts {
        match part {
            Part::Text(more) => text.push_str(more),
            Part::Call(_) => {}
            Part::Image(_) => {
                flush(&mut text, &mut json);
                json.push(json!({"type": "image"}));
            }
            Part::Clip(_) => {
                flush(&mut text, &mut json);
                json.push(json!({"type": "video"}));
            }
        }
    }
    flush(&mut text, &mut json);
    json
}

/// Whether the model thinks when nobody says so: renders a short conversation and looks where it ends.
///
/// # Errors
/// As [`ChatTemplate::render`]; this is also the first time that a template is parsed.
pub fn thinks_by_default(template: &ChatTemplate) -> Result<bool, PromptError> {
    let probe = RenderInput {
        messages: json!([{"role": "user", "content": "Hello"}]),
        tools: None,
        add_generation_prompt: true,
        extra: Map::new(),
    };
    Ok(starts_in_thought(&template.render(&probe)?))
}

/// Whether the model's first token continues a thought: the prompt ends with an open `<think>`.
pub fn starts_in_thought(prompt: &str) -> bool {
    prompt.trim_end().ends_with("<think>")
}

/// The messages to be answered, and the answer that was begun, if the last message is one.
pub fn split_begun(messages: &[Message]) -> (&[Message], Option<&Message>) {
    match messages.split_last() {
        Some((last, asked)) if last.role == Role::Assistant => (asked, Some(last)),
        _ => (messages, None),
    }
}

/// Puts a begun answer behind a prompt that asks for one, as the model wrote it; says whether the model is in the
/// middle of a thought then.
pub fn push_begun(prompt: &mut String, begun: &Message, protect: impl Fn(&str) -> String) -> bool {
    let answer = begun.plain_text();
    if starts_in_thought(prompt) {
        let thought = begun.reasoning.as_deref().unwrap_or_default();
        prompt.push_str(&protect(thought));
        if answer.is_empty() {
            return true;
        }
        let newline = if thought.ends_with('\n') { "" } else { "\n" };
        prompt.push_str(newline);
        prompt.push_str("</think>\n\n");
    }
    prompt.push_str(&protect(&answer));
    false
}

#[cfg(test)]
mod tests;
