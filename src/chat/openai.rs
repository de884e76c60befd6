//! Messages in the JSON shape that programs exchange: `role`, and `content` as text or as a list of parts.

use serde_json::Value;

use super::{Message, Part, Picture, Role, ToolCall, reference};

/// Reads a list of messages. Pictures and videos are taken by path, also as `file://` and `data:`
/// addresses, under the names that programs use.
///
/// # Errors
/// A sentence that says which message is wrong, and how.
pub fn messages_from_json(json: &Value) -> Result<Vec<Message>, String> {
    let list = json.as_array().ok_or("messages is not a list")?;
    if list.is_empty() {
        return Err("messages is empty".into());
    }
    let numbered = list.iter().enumerate();
    numbered.map(|(i, json)| message(json).map_err(|why| format!("message {}: {why}", i + 1))).collect()
}

fn message(json: &Value) -> Result<Message, String> {
    let role = match json.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        Some(other) => return Err(format!("the role {other:?} is not system, user, assistant or tool")),
        None => return Err("it has no role".into()),
    };
    let mut parts = match json.get("content") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![Part::Text(text.clone())],
        Some(Value::Array(parts)) => parts.iter().map(part).collect::<Result<_, _>>()?,
        Some(_) => return Err("its content is neither text nor a list of parts".into()),
    };
    if let Some(calls) = json.get("tool_calls").filter(|calls| !calls.is_null()) {
        let calls = calls.as_array().ok_or("tool_calls is not a list")?;
        parts.extend(calls.iter().map(call).collect::<Result<Vec<_>, _>>()?);
    }
    let reasoning = json.get("reasoning_content").and_then(Value::as_str).map(str::to_owned);
    Ok(Message { role, parts, reasoning })
}

/// Programs send the arguments as the text of an object.
fn call(json: &Value) -> Result<Part, String> {
    let name = json["function"]["name"].as_str().ok_or("a tool call names no function")?;
    let arguments = match &json["function"]["arguments"] {
        Value::String(text) if text.trim().is_empty() => Value::Object(serde_json::Map::new()),
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    };
    if !arguments.is_object() {
        return Err(format!("the arguments of the call of {name:?} are not a JSON object"));
    }
    let id = json["id"].as_str().unwrap_or_default().to_owned();
    Ok(Part::Call(ToolCall { id, name: name.to_owned(), arguments }))
}

fn part(json: &Value) -> Result<Part, String> {
    let kind = json.get("type").and_then(Value::as_str).unwrap_or("text");
    match kind {
        "text" => match json.get("text").and_then(Value::as_str) {
            Some(text) => Ok(Part::Text(text.to_owned())),
            None => Err("a text part has no text".into()),
        },
        "image" | "image_url" => picture(json, ["path", "image", "image_url"]).map(Part::Image),
        "video" | "video_url" => picture(json, ["path", "video", "video_url"]).map(Part::Clip),
        other => Err(format!("parts of type {other:?} are not supported")),
    }
}

/// `"image_url": "a.png"` or `"image_url": {"url": "a.png", "detail": "low"}`.
fn picture(json: &Value, keys: [&str; 3]) -> Result<Picture, String> {
    let value = keys.iter().find_map(|key| json.get(*key)).ok_or("a picture part names no file")?;
    let named =
        value.as_str().or_else(|| value.get("url")?.as_str()).ok_or("a picture part names no file")?;
    let mut picture = reference::picture(named)?;
    match value.get("detail") {
        None | Some(Value::Null) => {}
        Some(Value::String(detail)) => {
            picture.detail = detail.parse().map_err(|why| format!("detail: {why}"))?
        }
        Some(_) => return Err("a picture's detail is not text".into()),
    }
    Ok(picture)
}

#[cfg(test)]
mod tests {
    use super::super::Detail;
    use super::*;
    use serde_json::json;

    #[test]
    fn text_and_parts_are_read() {
        let messages = messages_from_json(&json!([
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "what is "},
                                         {"type": "image_url", "image_url": {"url": "file:///a.png", "detail": "low"}},
                                         {"type": "video", "video": "b.gif"}]},
            {"role": "assistant", "content": "a cat", "reasoning_content": "whiskers"},
        ]))
        .unwrap();
        assert_eq!(messages[0], Message::text(Role::System, "be brief"));
        assert_eq!(
            messages[1].parts,
            [
                Part::Text("what is ".into()),
                Part::Image(Picture::file("/a.png".into(), Detail::Low)),
                Part::Clip(Picture::file("b.gif".into(), Detail::Auto)),
            ]
        );
        assert_eq!(messages[2].reasoning.as_deref(), Some("whiskers"));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_message_number() {
        for (json, says) in [
            (json!({}), "not a list"),
            (json!([]), "empty"),
            (json!([{"content": "x"}]), "message 1: it has no role"),
            (json!([{"role": "narrator"}]), "\"narrator\""),
            (json!([{"role": "user", "content": 3}]), "neither text nor a list"),
            (json!([{"role": "user", "content": [{"type": "audio"}]}]), "\"audio\""),
            (json!([{"role": "user", "content": [{"type": "image"}]}]), "names no file"),
            (json!([{"role": "assistant", "tool_calls": [{}]}]), "names no function"),
            (
                json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "["}}]}]),
                "not a JSON object",
            ),
        ] {
            let error = messages_from_json(&json).unwrap_err();
            assert!(error.contains(says), "{json}: {error}");
        }
    }
}
