//! Answers in the shape that clients of such servers read.

use serde_json::{Value, json};

use crate::chat::{Channel, ToolCall};
use crate::msg::{Finish, TokenInfo, TurnStats};

/// One whole answer.
pub struct Completion<'a> {
    pub id: &'a str,
    /// Seconds since 1970.
    pub created: u64,
    pub model: &'a str,
    pub text: &'a str,
    pub thinking: &'a str,
    pub calls: &'a [ToolCall],
    pub tokens: Option<&'a [TokenInfo]>,
    pub finish: Finish,
    pub stats: &'a TurnStats,
}

pub fn completion(answer: &Completion) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if !answer.thinking.is_empty() {
        message["reasoning_content"] = answer.thinking.into();
    }
    if !answer.calls.is_empty() {
        if answer.text.is_empty() {
            message["content"] = Value::Null;
        }
        message["tool_calls"] = answer.calls.iter().map(call_json).collect();
    }
    json!({
        "id": answer.id, "object": "chat.completion", "created": answer.created, "model": answer.model,
        "choices": [{
            "index": 0, "message": message, "logprobs": answer.tokens.map(logprobs_json),
            "finish_reason": finish_reason(answer.finish, answer.calls),
        }],
        "usage": usage(answer.stats),
    })
}

/// One event of a stream: what is new in the message, or the reason why it has ended.
pub fn delta(id: &str, created: u64, model: &str, delta: Value, finish: Option<&str>) -> Value {
    json!({
        "id": id, "object": "chat.completion.chunk", "created": created, "model": model,
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
    })
}

pub fn finish_reason(finish: Finish, calls: &[ToolCall]) -> &'static str {
    match finish {
        Finish::Stop if !calls.is_empty() => "tool_calls",
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}

pub fn call_json(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
    json!({"id": call.id, "type": "function", "function": function})
}

pub fn usage(stats: &TurnStats) -> Value {
    json!({
        "prompt_tokens": stats.prompt_tokens, "completion_tokens": stats.completion_tokens,
        "total_tokens": stats.prompt_tokens + stats.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": stats.thinking_tokens},
    })
}

/// Of the answer's tokens; thinking has none in this shape.
pub fn logprobs_json(tokens: &[TokenInfo]) -> Value {
    let one = |bytes: &[u8], logprob: f32| json!({"token": String::from_utf8_lossy(bytes), "logprob": logprob, "bytes": bytes});
    let said = tokens.iter().filter(|token| token.channel == Channel::Answer);
    let content: Vec<Value> = said
        .map(|token| {
            let mut json = one(&token.bytes, token.logprob);
            json["top_logprobs"] = token.top.iter().map(|(_, bytes, logprob)| one(bytes, *logprob)).collect();
            json
        })
        .collect();
    json!({"content": content})
}

/// What a client gets in the place of an answer.
pub fn error(kind: &str, code: &str, message: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}
