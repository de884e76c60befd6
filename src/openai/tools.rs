//! Tool calls in an answer's text, as the family's templates have the model write them:
//! `<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>`, or a JSON object
//! with `name` and `arguments` between the outer tags.

use serde_json::{Map, Value};

use crate::chat::ToolCall;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// Separates what a stream says from the calls at its end, piece by piece.
#[derive(Debug, Default)]
pub struct ToolCalls {
    /// Text that may be the beginning of a call, or is one.
    held: String,
    in_call: bool,
}

impl ToolCalls {
    /// The part of the text so far that is certainly no call.
    pub fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        if self.in_call {
            return String::new();
        }
        let keep_from = match self.held.find(OPEN) {
            Some(at) => {
                self.in_call = true;
                at
            }
            None => (0..self.held.len())
                .filter(|at| self.held.is_char_boundary(*at))
                .find(|at| OPEN.starts_with(&self.held[*at..]))
                .unwrap_or(self.held.len()),
        };
        let rest = self.held.split_off(keep_from);
        std::mem::replace(&mut self.held, rest)
    }

    /// The calls, and text that looked like one and wasn't.
    pub fn finish(self, tools: &Value) -> (String, Vec<ToolCall>) {
        split_calls(&self.held, tools)
    }
}

/// The text of an answer without its calls, and the calls. What can't be read as a call stays text.
pub fn split_calls(text: &str, tools: &Value) -> (String, Vec<ToolCall>) {
    let mut said = String::new();
    let mut calls = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(OPEN) {
        let after = &rest[at + OPEN.len()..];
        // The end of the text closes a call too.
        let (inside, next) = after.split_once(CLOSE).unwrap_or((after, ""));
        match call(inside, tools, calls.len()) {
            Some(call) => {
                said.push_str(&rest[..at]);
                calls.push(call);
            }
            None => said.push_str(&rest[..rest.len() - next.len()]),
        }
        rest = next;
    }
    said.push_str(rest);
    match calls.is_empty() {
        true => (said, calls),
        false => (said.trim_end().to_owned(), calls),
    }
}

fn call(inside: &str, tools: &Value, number: usize) -> Option<ToolCall> {
    let inside = inside.trim();
    let (name, arguments) = match serde_json::from_str::<Value>(inside) {
        Ok(json) => (json["name"].as_str()?.to_owned(), json["arguments"].clone()),
        Err(_) => {
            let (name, body) = inside.strip_prefix("<function=")?.split_once('>')?;
            (name.trim().to_owned(), Value::Object(parameters(body, schema_of(tools, name.trim()))))
        }
    };
    let is_usable = !name.is_empty() && arguments.is_object();
    is_usable.then(|| ToolCall { id: format!("call_{number}"), name, arguments })
}

fn parameters(body: &str, schema: &Value) -> Map<String, Value> {
    let mut found = Map::new();
    let mut rest = body;
    while let Some((_, after)) = rest.split_once("<parameter=") {
        let Some((key, after)) = after.split_once('>') else { break };
        let ends = [after.find("</parameter>"), after.find("<parameter="), after.find("</function>")];
        let end = ends.into_iter().flatten().min().unwrap_or(after.len());
        let text = after[..end].strip_prefix('\n').unwrap_or(&after[..end]);
        let text = text.strip_suffix('\n').unwrap_or(text);
        found.insert(key.trim().to_owned(), value(text, &schema["properties"][key.trim()]));
        rest = &after[end..];
    }
    found
}

fn schema_of<'a>(tools: &'a Value, name: &str) -> &'a Value {
    let tool = tools.as_array().into_iter().flatten().find(|tool| tool["function"]["name"] == name);
    tool.map_or(&Value::Null, |tool| &tool["function"]["parameters"])
}

/// Text stays text where the tool wants text; everything else is JSON, or one of Python's words for it.
fn value(text: &str, schema: &Value) -> Value {
    if schema["type"] == "string" {
        return text.into();
    }
    match text.trim() {
        "True" => true.into(),
        "False" => false.into(),
        "None" => Value::Null,
        trimmed => serde_json::from_str(trimmed).unwrap_or_else(|_| text.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn tools() -> Value {
        let properties =
            json!({"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}});
        json!([{"type": "function", "function": {"name": "weather", "parameters": {"properties": properties}}}])
    }

    const CALL: &str = "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n\
                        </parameter>\n<parameter=exact>\nTrue\n</parameter>\n</function>\n</tool_call>";

    #[test]
    fn calls_are_read_by_the_tools_own_types() {
        let (said, calls) = split_calls(&format!("Let me see.\n\n{CALL}\n{CALL}"), &tools());
        assert_eq!(said, "Let me see.");
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[1].arguments, json!({"city": "12", "days": 3, "exact": true}));
        assert_ne!(calls[0].id, calls[1].id);
        let json = r#"<tool_call>{"name": "f", "arguments": {"a": [1]}}</tool_call>"#;
        assert_eq!(split_calls(json, &Value::Null).1[0].arguments, json!({"a": [1]}));
        let cut = CALL.strip_suffix("\n</parameter>\n</function>\n</tool_call>").unwrap();
        assert_eq!(split_calls(cut, &tools()).1[0].arguments["exact"], true);
    }

    #[test]
    fn what_is_no_call_stays_text() {
        for text in
            ["<tool_call>", "a <tool_call>nothing</tool_call> b", "<tool_cal", "<tool_call>\n<function=>"]
        {
            assert_eq!(split_calls(text, &tools()), (text.to_owned(), Vec::new()));
        }
    }

    proptest! {
        #[test]
        fn a_stream_says_the_same_however_it_is_cut(cuts in proptest::collection::vec(0usize..200, 0..6)) {
            let text = format!("é < <tool_ no {CALL} {CALL}");
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|at| text.is_char_boundary(*at)).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let mut stream = ToolCalls::default();
            let (mut said, mut from) = (String::new(), 0);
            for cut in cuts {
                said.push_str(&stream.push(&text[from..cut]));
                from = cut;
            }
            let (rest, calls) = stream.finish(&tools());
            said.push_str(&rest);
            let (whole, whole_calls) = split_calls(&text, &tools());
            prop_assert_eq!(said.trim_end(), whole);
            prop_assert_eq!(calls, whole_calls);
        }
    }
}
