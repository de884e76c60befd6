//! The bits of Python that a chat template can see: `str()`, `json.dumps` and `str.strip`.

use std::borrow::Cow;
use std::fmt::Write;

use minijinja::Value;
use minijinja::value::ValueKind;

/// `str(value)`: `True`, `None`, `1.0`, `{'a': ['b']}`.
pub(super) fn to_str(value: &Value) -> Cow<'_, str> {
    match value.as_str() {
        Some(text) => Cow::Borrowed(text),
        None if value.is_undefined() => Cow::Borrowed(""),
        None => {
            let mut out = String::new();
            write_repr(value, &mut out);
            Cow::Owned(out)
        }
    }
}

/// `repr(value)`; the same as `str(value)` for everything but text.
fn write_repr(value: &Value, out: &mut String) {
    match value.kind() {
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(number) => out.push_str(&float_repr(number)),
            Err(_) => out.push_str(&value.to_string()),
        },
        ValueKind::Seq => {
            out.push('[');
            for (i, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                write_repr(&item, out);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                write_repr(&key, out);
                out.push_str(": ");
                write_repr(&value.get_item(&key).unwrap_or_default(), out);
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
}

/// Text in quotes, single ones unless only double ones save escaping.
fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() => push_formatted(out, format_args!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// `repr(float)`: the shortest digits that read back the same, with an exponent below 1e-4 and from
/// 1e16 on.
pub(super) fn float_repr(number: f64) -> String {
    if !number.is_finite() {
        let text = if number.is_nan() { "nan" } else { "inf" };
        return if number < 0.0 { format!("-{text}") } else { text.to_owned() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// The options of `json.dumps` that transformers passes on from a template.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JsonStyle {
    pub indent: Option<usize>,
    pub sort_keys: bool,
    pub ensure_ascii: bool,
}

impl JsonStyle {
    /// `json.dumps(value)`: a space after `,` and `:`, keys in the order they came in.
    pub fn dumps(&self, value: &serde_json::Value) -> String {
        let mut out = String::new();
        self.write(value, 0, &mut out);
        out
    }

    fn write(&self, value: &serde_json::Value, depth: usize, out: &mut String) {
        match value {
            serde_json::Value::Number(number) if number.is_f64() => {
                out.push_str(&float_repr(number.as_f64().unwrap_or(f64::NAN)));
            }
            serde_json::Value::String(text) => self.write_text(text, out),
            serde_json::Value::Array(items) => {
                self.write_list('[', ']', items.iter(), depth, out, |item, out| {
                    self.write(item, depth + 1, out)
                });
            }
            serde_json::Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                if self.sort_keys {
                    entries.sort_by_key(|(key, _)| *key);
                }
                self.write_list('{', '}', entries.into_iter(), depth, out, |(key, value), out| {
                    self.write_text(key, out);
                    out.push_str(": ");
                    self.write(value, depth + 1, out);
                });
            }
            other => out.push_str(&other.to_string()),
        }
    }

    fn write_list<T>(
        &self,
        open: char,
        close: char,
        items: impl ExactSizeIterator<Item = T>,
        depth: usize,
        out: &mut String,
        mut write_item: impl FnMut(T, &mut String),
    ) {
        let is_empty = items.len() == 0;
        out.push(open);
        for (i, item) in items.enumerate() {
            match (self.indent, i) {
                (Some(_), 0) | (None, 0) => {}
                (Some(_), _) => out.push(','),
                (None, _) => out.push_str(", "),
            }
            self.new_line(depth + 1, out);
            write_item(item, out);
        }
        if !is_empty {
            self.new_line(depth, out);
        }
        out.push(close);
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent.saturating_mul(depth)));
        }
    }

    fn write_text(&self, text: &str, out: &mut String) {
        let quoted = serde_json::Value::from(text).to_string();
        if !self.ensure_ascii {
            out.push_str(&quoted);
            return;
        }
        for c in quoted.chars() {
            if c.is_ascii() && c != '\u{7f}' {
                out.push(c);
                continue;
            }
            for unit in c.encode_utf16(&mut [0; 2]) {
                push_formatted(out, format_args!("\\u{unit:04x}"));
            }
        }
    }
}

fn push_formatted(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

/// Which end of a text to strip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
    Both,
}

/// `text.strip(chars)`, `lstrip` and `rstrip`.
pub(super) fn strip<'a>(text: &'a str, chars: Option<&str>, side: Side) -> &'a str {
    let goes = |c: char| match chars {
        Some(chars) => chars.contains(c),
        // Python also counts the four ASCII separators as white space.
        None => c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c),
    };
    match side {
        Side::Left => text.trim_start_matches(goes),
        Side::Right => text.trim_end_matches(goes),
        Side::Both => text.trim_matches(goes),
    }
}
