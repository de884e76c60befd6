//! Requests: what a client asks for, as messages and settings of ours, and the same for another server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::chat::openai::messages_from_json;
use crate::chat::{Message, Part, Picture, PictureSource, Role};
use crate::msg::{Form, Think, TurnOptions};

/// Alternatives at each token that a client may ask for.
const MAX_TOP_LOGPROBS: u64 = 20;
const MAX_STOPS: usize = 16;

/// Keys that change nothing here, whatever they say.
const WITHOUT_EFFECT: [&str; 6] =
    ["user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier"];

/// A request for one answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    pub model: Option<String>,
    /// At least one; the last is a question.
    pub messages: Vec<Message>,
    pub options: TurnOptions,
    pub stream: bool,
    /// A stream ends with the figures.
    pub includes_usage: bool,
    /// Keys that nothing is known of.
    pub unknown: Vec<String>,
}

impl ChatRequest {
    /// # Errors
    /// A sentence about the first thing that can't be done.
    pub fn from_json(body: &Value) -> Result<Self, String> {
        let Value::Object(body) = body else { return Err("the request is not a JSON object".into()) };
        let messages = body.get("messages").ok_or("messages is missing")?;
        let messages = messages_from_json(messages)?;
        if messages.last().is_some_and(|message| message.role == Role::Assistant) {
            return Err("the last message is the assistant's; it must be a question".into());
        }
        let mut request = Self {
            model: None,
            messages,
            options: TurnOptions::default(),
            stream: false,
            includes_usage: false,
            unknown: Vec::new(),
        };
        let mut top_logprobs = None;
        let mut is_without_tools = false;
        let mut budget = None;
        for (key, value) in body {
            if value.is_null() {
                continue;
            }
            let wrong = |expected: &str| format!("{key} is {value}, expected {expected}");
            let number = || value.as_f64().map(|n| Some(n as f32)).ok_or_else(|| wrong("a number"));
            let whole = || value.as_u64().ok_or_else(|| wrong("a whole number"));
            let switch = || value.as_bool().ok_or_else(|| wrong("true or false"));
            let options = &mut request.options;
            let sampling = &mut options.sampling;
            match key.as_str() {
                "messages" => {}
                "model" => request.model = Some(value.as_str().ok_or_else(|| wrong("a name"))?.to_owned()),
                "temperature" => sampling.temperature = number()?,
                "top_p" => sampling.top_p = number()?,
                "min_p" => sampling.min_p = number()?,
                "top_k" => sampling.top_k = Some(whole()? as usize),
                "presence_penalty" => sampling.presence_penalty = number()?,
                "frequency_penalty" => sampling.frequency_penalty = number()?,
                "repetition_penalty" => sampling.repetition_penalty = number()?,
                "seed" => {
                    let seed = value.as_i64().map(|seed| seed as u64).or_else(|| value.as_u64());
                    sampling.seed = Some(seed.ok_or_else(|| wrong("a whole number"))?);
                }
                "max_tokens" | "max_completion_tokens" => match whole()? {
                    0 => return Err(wrong("at least 1")),
                    n => options.max_tokens = Some(n as usize),
                },
                "stop" => options.stop = stops(value).ok_or_else(|| wrong("a text or at most 16 texts"))?,
                "n" => match whole()? {
                    1 => {}
                    _ => return Err("n is more than 1; ask once for each answer".into()),
                },
                "stream" => request.stream = switch()?,
                "stream_options" => request.includes_usage = value["include_usage"] == true,
                "logprobs" => options.logprobs = switch()?.then_some(0),
                "top_logprobs" => match whole()? {
                    n @ 0..=MAX_TOP_LOGPROBS => top_logprobs = Some(n as usize),
                    _ => return Err(wrong("at most 20")),
                },
                "response_format" => options.form = form(value)?,
                "guided_regex" => {
                    options.form = Some(Form::Regex(value.as_str().ok_or_else(|| wrong("a text"))?.into()))
                }
                "tools" => options.tools = tools(value)?,
                "tool_choice" => match value.as_str() {
                    Some("auto") => {}
                    Some("none") => is_without_tools = true,
                    _ => return Err("tool_choice can be \"auto\" or \"none\"".into()),
                },
                "enable_thinking" => options.thinking = Some(switch()?),
                "chat_template_kwargs" => {
                    if let Some(thinking) = value["enable_thinking"].as_bool() {
                        options.thinking = Some(thinking);
                    }
                }
                "reasoning_effort" => match value.as_str() {
                    Some("none") => Think::Off.apply(options),
                    Some("minimal" | "low") => Think::LOW.apply(options),
                    _ => Think::On.apply(options),
                },
                "thinking_token_budget" | "thinking_budget" => budget = Some(whole()? as usize),
                known if WITHOUT_EFFECT.contains(&known) => {}
                _ => request.unknown.push(key.clone()),
            }
        }
        let options = &mut request.options;
        if let Some(top) = top_logprobs {
            match &mut options.logprobs {
                Some(logprobs) => *logprobs = top,
                None => return Err("top_logprobs needs \"logprobs\": true".into()),
            }
        }
        if let Some(most) = budget.filter(|_| options.thinking != Some(false)) {
            Think::Tokens(most).apply(options);
        }
        if is_without_tools {
            options.tools = None;
        }
        Ok(request)
    }
}

fn stops(value: &Value) -> Option<Vec<String>> {
    let stops = match value {
        Value::String(stop) => vec![stop.clone()],
        Value::Array(stops) => {
            stops.iter().map(|stop| stop.as_str().map(str::to_owned)).collect::<Option<_>>()?
        }
        _ => return None,
    };
    (stops.len() <= MAX_STOPS && stops.iter().all(|stop| !stop.is_empty())).then_some(stops)
}

fn form(format: &Value) -> Result<Option<Form>, String> {
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(Form::Schema(json!({"type": "object"})))),
        Some("json_schema") => match &format["json_schema"]["schema"] {
            schema @ (Value::Object(_) | Value::Bool(_)) => Ok(Some(Form::Schema(schema.clone()))),
            _ => Err("response_format.json_schema.schema is not a JSON Schema".into()),
        },
        _ => Err("response_format.type can be \"text\", \"json_object\" or \"json_schema\"".into()),
    }
}

fn tools(value: &Value) -> Result<Option<Value>, String> {
    let list = value.as_array().ok_or("tools is not a list")?;
    for tool in list {
        let is_function = tool["type"].as_str().is_none_or(|kind| kind == "function");
        if !is_function || tool["function"]["name"].as_str().is_none() {
            return Err("each of the tools must be a function with a name".into());
        }
    }
    Ok((!list.is_empty()).then(|| value.clone()))
}

/// What to ask another server.
pub fn request_json(model: &str, messages: &[Message], options: &TurnOptions) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), model.into());
    body.insert("messages".into(), messages_json(messages).into());
    body.insert("stream".into(), true.into());
    body.insert("stream_options".into(), json!({"include_usage": true}));
    let sampling = &options.sampling;
    // Decimals as a person wrote them: 0.7 and not 0.699999988079071.
    let number = |number: f32| number.to_string().parse::<f64>().ok().map(Value::from);
    let optional = [
        ("temperature", sampling.temperature.and_then(number)),
        ("top_p", sampling.top_p.and_then(number)),
        ("min_p", sampling.min_p.and_then(number)),
        ("presence_penalty", sampling.presence_penalty.and_then(number)),
        ("frequency_penalty", sampling.frequency_penalty.and_then(number)),
        ("repetition_penalty", sampling.repetition_penalty.and_then(number)),
        ("top_k", sampling.top_k.map(Value::from)),
        ("seed", sampling.seed.map(Value::from)),
        ("max_tokens", options.max_tokens.map(Value::from)),
        ("stop", (!options.stop.is_empty()).then(|| options.stop.clone().into())),
        ("tools", options.tools.clone()),
        // vLLM, SGLang and llama-server pass these to the template.
        ("chat_template_kwargs", options.thinking.map(|thinking| json!({"enable_thinking": thinking}))),
        // By the name that vLLM and that llama-server has for it.
        ("thinking_token_budget", options.max_thinking.map(Value::from)),
        ("thinking_budget_tokens", options.max_thinking.map(Value::from)),
    ];
    body.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    match &options.form {
        None => {}
        Some(Form::Schema(schema)) => {
            let schema = json!({"name": "answer", "schema": schema, "strict": true});
            body.insert("response_format".into(), json!({"type": "json_schema", "json_schema": schema}));
        }
        Some(Form::Regex(regex)) => {
            body.insert("guided_regex".into(), regex.as_str().into());
        }
    }
    Value::Object(body)
}

/// Messages in the shape that programs exchange. Pictures whose content isn't here keep their path.
pub fn messages_json(messages: &[Message]) -> Vec<Value> {
    // Results of tools name the call that they belong to: the calls' order is theirs.
    let mut open_calls: Vec<&str> = Vec::new();
    let mut json = Vec::with_capacity(messages.len());
    for message in messages {
        let mut object = json!({"role": message.role.as_str(), "content": content(message)});
        let calls: Vec<Value> = message
            .calls()
            .map(|call| {
                let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
                json!({"id": call.id, "type": "function", "function": function})
            })
            .collect();
        if !calls.is_empty() {
            open_calls = message.calls().map(|call| call.id.as_str()).collect();
            object["tool_calls"] = calls.into();
        }
        if message.role == Role::Tool && !open_calls.is_empty() {
            object["tool_call_id"] = open_calls.remove(0).into();
        }
        if let Some(reasoning) = &message.reasoning {
            object["reasoning_content"] = reasoning.as_str().into();
        }
        json.push(object);
    }
    json
}

fn content(message: &Message) -> Value {
    if message.pictures().next().is_none() {
        return message.plain_text().into();
    }
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(json!({"type": "text", "text": text})),
        Part::Image(picture) => Some(json!({"type": "image_url", "image_url": address(picture, "image")})),
        Part::Clip(picture) => Some(json!({"type": "video_url", "video_url": address(picture, "video")})),
        Part::Call(_) => None,
    });
    parts.collect()
}

fn address(picture: &Picture, kind: &str) -> Value {
    let url = match &picture.source {
        PictureSource::File(path) => path.to_string_lossy().into_owned(),
        PictureSource::Address(address) => address.clone(),
        PictureSource::Bytes(bytes) => {
            format!("data:{};base64,{}", media_type(bytes, kind), STANDARD.encode(bytes))
        }
    };
    json!({"url": url})
}

/// By the first bytes, as browsers do.
fn media_type(bytes: &[u8], kind: &str) -> String {
    let subtype = match bytes {
        [0x89, b'P', b'N', b'G', ..] => "png",
        [0xff, 0xd8, ..] => "jpeg",
        [b'G', b'I', b'F', b'8', ..] => return "image/gif".into(),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "webp",
        [b'B', b'M', ..] => "bmp",
        _ => return format!("{kind}/unknown"),
    };
    format!("image/{subtype}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut body: Value) -> Result<ChatRequest, String> {
        if body.get("messages").is_none() {
            body["messages"] = json!([{"role": "user", "content": "q"}]);
        }
        ChatRequest::from_json(&body)
    }

    #[test]
    fn settings_of_requests_become_ours() {
        let request = read(json!({
            "model": "m", "temperature": 0.5, "max_completion_tokens": 7, "seed": -1, "stop": "\n", "stream": true,
            "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 3, "user": "u", "n": 1,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}},
            "chat_template_kwargs": {"enable_thinking": false}, "colour": "red", "top_p": null,
        }))
        .unwrap();
        let options = &request.options;
        assert_eq!(request.model.as_deref(), Some("m"));
        assert_eq!((options.sampling.temperature, options.max_tokens), (Some(0.5), Some(7)));
        assert_eq!((options.sampling.seed, options.logprobs), (Some(u64::MAX), Some(3)));
        assert_eq!((options.stop.clone(), options.thinking), (vec!["\n".to_owned()], Some(false)));
        assert_eq!(options.form, Some(Form::Schema(json!({"type": "integer"}))));
        assert!(request.stream && request.includes_usage);
        assert_eq!(request.unknown, ["colour"]);
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_a_sentence() {
        for (body, says) in [
            (json!({"n": 2}), "ask once for each"),
            (json!({"temperature": "hot"}), "expected a number"),
            (json!({"max_tokens": 0}), "at least 1"),
            (json!({"top_logprobs": 2}), "needs \"logprobs\""),
            (json!({"stop": [""]}), "expected a text"),
            (json!({"tools": [{"type": "web_search"}]}), "must be a function"),
            (json!({"tool_choice": "required"}), "\"auto\" or \"none\""),
            (json!({"response_format": {"type": "json_schema"}}), "not a JSON Schema"),
            (json!({"messages": [{"role": "assistant", "content": "a"}]}), "must be a question"),
        ] {
            let error = read(body.clone()).unwrap_err();
            assert!(error.contains(says), "{body}: {error}");
        }
        assert!(ChatRequest::from_json(&json!([])).is_err());
        assert!(ChatRequest::from_json(&json!({})).unwrap_err().contains("messages is missing"));
    }

    #[test]
    fn a_request_for_another_server_reads_back_as_what_it_was() {
        let messages = messages_from_json(&json!([
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}]},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ]))
        .unwrap();
        let mut options =
            read(json!({"temperature": 0.7, "seed": 3, "stop": ["x"], "max_tokens": 5})).unwrap().options;
        options.form = Some(Form::Schema(json!({"type": "object"})));
        options.thinking = Some(true);
        let body = request_json("m", &messages, &options);
        assert_eq!(body["temperature"], json!(0.7));
        assert_eq!(body["messages"][1]["content"][1]["image_url"]["url"], "data:image/png;base64,iVBORw==");
        assert_eq!(body["messages"][3]["tool_call_id"], "c1");
        let back = ChatRequest::from_json(&body).unwrap();
        assert_eq!((back.messages, back.options), (messages, options));
    }
}
