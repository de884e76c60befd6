//! Renders a chat template as transformers does: Jinja2 with `trim_blocks` and `lstrip_blocks`, plus
//! the Python behaviour that templates lean on (`prompt/python.rs`).

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, ValueKind, from_args};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use serde::{Deserialize, Serialize};

use super::python;

/// About ten million steps, or 640 MB of text made: a second of work. A conversation that fills the
/// whole context takes less than a twentieth.
const FUEL: u64 = 10_000_000;

/// Longest error text that a template gets to say.
const MESSAGE_LIMIT_CHARS: usize = 1000;

/// Also the message of the renderer's child process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum RenderError {
    /// The template called `raise_exception`, or did what Python would object to in known words.
    Raised(String),
    /// The template is broken, or not written for this engine.
    Failed(String),
}

/// # Errors
/// `Raised` with the template's own words, `Failed` with the engine's.
pub(super) fn render(source: &str, context: &serde_json::Value) -> Result<String, RenderError> {
    environment()
        .and_then(|env| {
            env.template_from_named_str("chat_template", source)?.render(Value::from(Serde(context)))
        })
        .map_err(|error| explain(&error))
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.set_formatter(|out, _, value| out.write_str(&python::to_str(value)).map_err(Error::from));
    env.set_unknown_method_callback(call_method);
    env.add_function("raise_exception", raise_exception);
    env.add_filter("tojson", tojson);
    env.add_filter("string", string);
    env.add_filter("items", items);
    env.add_filter("trim", trim);
    Ok(env)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(raise(python::to_str(message).into_owned()))
}

/// Carries the template's words through the engine's own error, which would put a prefix and a line
/// number around them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raise(String);

fn raise(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raise(message))
}

fn explain(error: &Error) -> RenderError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Raise(message)) = error.downcast_ref() {
            return RenderError::Raised(shorten(message));
        }
        cause = error.source();
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return RenderError::Failed("it did not come to an end".to_owned());
    }
    RenderError::Failed(shorten(&error.to_string()))
}

fn shorten(message: &str) -> String {
    message.chars().take(MESSAGE_LIMIT_CHARS).collect()
}

/// `json.dumps` as transformers sets it up; Jinja's own would escape `<`, `>`, `&` and `'` for HTML.
fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "tojson of an undefined value"));
    }
    let style = python::JsonStyle {
        indent: options.get("indent")?,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let json = serde_json::to_value(value).map_err(|e| {
        Error::new(ErrorKind::BadSerialization, "tojson of a value without JSON form").with_source(e)
    })?;
    Ok(style.dumps(&json))
}

/// Jinja2's filter, with its words for what is not a mapping: arguments of a tool call that were left as
/// JSON text are the usual case.
fn items(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::Map => minijinja::filters::items(value),
        _ => Err(raise("Can only get item pairs from a mapping.".to_owned())),
    }
}

fn string(value: &Value) -> String {
    python::to_str(value).into_owned()
}

fn trim(value: &Value, chars: Option<String>) -> String {
    let text = python::to_str(value);
    python::strip(&text, chars.as_deref(), python::Side::Both).to_owned()
}

/// Python's string methods. Stripping is done here for Python's idea of white space.
fn call_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let side = match method {
        "strip" => python::Side::Both,
        "lstrip" => python::Side::Left,
        "rstrip" => python::Side::Right,
        _ => return pycompat::unknown_method_callback(state, value, method, args),
    };
    let Some(text) = value.as_str() else { return Err(Error::from(ErrorKind::UnknownMethod)) };
    let (chars,): (Option<String>,) = from_args(args)?;
    Ok(python::strip(text, chars.as_deref(), side).into())
}
