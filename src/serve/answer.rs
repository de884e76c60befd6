//! One answer: the events of its turn as one JSON object, or as a stream of them.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::desk::{Desk, Ticket};
use super::{json_response, refusal};
use crate::chat::{Channel, ToolCall};
use crate::msg::{ErrorCode, Event, Finish, ModelInfo, TokenInfo, TurnError, TurnStats};
use crate::openai::{self, ChatRequest, Completion, ToolCalls};

/// What an answer is written with.
struct Head {
    id: String,
    created: u64,
    model: String,
    tools: Option<Value>,
    has_logprobs: bool,
    includes_usage: bool,
}

pub async fn answer(desk: &Desk, request: ChatRequest, model: &ModelInfo) -> Response {
    let ChatRequest { messages, options, stream, includes_usage, .. } = request;
    let (tools, has_logprobs) = (options.tools.clone(), options.logprobs.is_some());
    let Some(mut ticket) = desk.ask(messages, options).await else {
        return refusal(
            StatusCode::TOO_MANY_REQUESTS,
            "queue_full",
            "too many questions wait already; ask again later",
        );
    };
    let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let created = created.map_or(0, |time| time.as_secs());
    let id = format!("chatcmpl-{created}-{}", ticket.turn.0);
    let head = Head { id, created, model: model.name.clone(), tools, has_logprobs, includes_usage };
    // What is wrong with a question shows before the model reads it; then a status can still say so.
    let first = loop {
        match ticket.events.recv().await {
            Some(Event::TurnStarted { .. }) => {}
            other => break other,
        }
    };
    match first {
        Some(Event::TurnFailed { error, .. }) => failed(&error),
        None => failed(&gone()),
        Some(first) if stream => stream_of(head, ticket, first),
        Some(first) => whole(head, ticket, first).await,
    }
}

fn gone() -> TurnError {
    TurnError { code: ErrorCode::Engine, message: "the server is shutting down".into() }
}

fn failed(error: &TurnError) -> Response {
    let status = match error.code {
        ErrorCode::BadRecord
        | ErrorCode::ImageMissing
        | ErrorCode::ImageUnreadable
        | ErrorCode::TooLong
        | ErrorCode::SchemaUnsatisfied => StatusCode::BAD_REQUEST,
        ErrorCode::TooBig | ErrorCode::ModelMissing | ErrorCode::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::Engine => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refusal(status, code(error), &error.message)
}

/// Clients know this one by another name.
fn code(error: &TurnError) -> &'static str {
    if error.code == ErrorCode::TooLong { "context_length_exceeded" } else { error.code.as_str() }
}

async fn whole(head: Head, mut ticket: Ticket, first: Event) -> Response {
    let (mut text, mut thinking, mut tokens) = (String::new(), String::new(), Vec::new());
    let mut next = Some(first);
    let (finish, stats) = loop {
        match next {
            Some(Event::Delta { channel: Channel::Answer, text: more, .. }) => text.push_str(&more),
            Some(Event::Delta { channel: Channel::Thinking, text: more, .. }) => thinking.push_str(&more),
            Some(Event::Tokens { tokens: more, .. }) => tokens.extend(more),
            Some(Event::TurnFinished { finish, stats, .. }) => break (finish, stats),
            Some(Event::TurnCancelled { stats, .. }) => break (Finish::Length, stats),
            Some(Event::TurnFailed { error, .. }) => return failed(&error),
            Some(_) => {}
            None => return failed(&gone()),
        }
        next = ticket.events.recv().await;
    };
    let (text, calls) = match &head.tools {
        Some(tools) => openai::split_calls(&text, tools),
        None => (text, Vec::new()),
    };
    let completion = openai::completion(&Completion {
        id: &head.id,
        created: head.created,
        model: &head.model,
        text: &text,
        thinking: &thinking,
        calls: &head.named(calls),
        tokens: head.has_logprobs.then_some(&tokens),
        finish,
        stats: &stats,
    });
    json_response(StatusCode::OK, &completion)
}

impl Head {
    /// Calls of different answers must not have the same name.
    fn named(&self, mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
        for call in &mut calls {
            call.id = format!("{}-{}", call.id, self.id.trim_start_matches("chatcmpl-"));
        }
        calls
    }
}

fn stream_of(head: Head, ticket: Ticket, first: Event) -> Response {
    let begin = head.chunk(json!({"role": "assistant", "content": ""}), None);
    let writer = Writer { calls: head.tools.is_some().then(ToolCalls::default), head, tokens: Vec::new() };
    let state = Some((writer, ticket, Some(first), begin));
    let stream = futures_util::stream::unfold(state, |state| async {
        let (mut writer, mut ticket, first, mut lines) = state?;
        let event = match first {
            Some(event) => Some(event),
            None => ticket.events.recv().await,
        };
        let is_last = writer.event(event, &mut lines);
        let rest = (!is_last).then_some((writer, ticket, None, String::new()));
        Some((Ok::<_, Infallible>(lines), rest))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

impl Head {
    fn chunk(&self, delta: Value, finish: Option<&str>) -> String {
        line(&openai::delta(&self.id, self.created, &self.model, delta, finish))
    }
}

fn line(json: &Value) -> String {
    format!("data: {json}\n\n")
}

struct Writer {
    head: Head,
    /// If there are tools: what looks like a call is held back until it is known to be one.
    calls: Option<ToolCalls>,
    /// Told with the text that they belong to.
    tokens: Vec<TokenInfo>,
}

impl Writer {
    /// Says whether it was the last one.
    fn event(&mut self, event: Option<Event>, lines: &mut String) -> bool {
        match event {
            Some(Event::Delta { channel: Channel::Thinking, text, .. }) => {
                lines.push_str(&self.head.chunk(json!({"reasoning_content": text}), None));
            }
            Some(Event::Delta { channel: Channel::Answer, text, .. }) => {
                let text = self.calls.as_mut().map_or_else(|| text.clone(), |calls| calls.push(&text));
                self.say(&text, lines);
            }
            Some(Event::Tokens { tokens, .. }) => self.tokens.extend(tokens),
            // A comment, so that nobody takes a long prompt for a dead server.
            Some(Event::PrefillProgress { done, total, .. }) => {
                lines.push_str(&format!(": read {done} of {total}\n\n"))
            }
            Some(Event::PictureProgress { picture, pictures, .. }) => {
                lines.push_str(&format!(": picture {picture} of {pictures}\n\n"));
            }
            Some(Event::TurnFinished { finish, stats, .. }) => return self.end(finish, &stats, lines),
            Some(Event::TurnCancelled { stats, .. }) => return self.end(Finish::Length, &stats, lines),
            Some(Event::TurnFailed { error, .. }) => return fail(&error, lines),
            Some(_) => {}
            None => return fail(&gone(), lines),
        }
        false
    }

    fn say(&mut self, text: &str, lines: &mut String) {
        if text.is_empty() {
            return;
        }
        let head = &self.head;
        let mut chunk = openai::delta(&head.id, head.created, &head.model, json!({"content": text}), None);
        if head.has_logprobs {
            chunk["choices"][0]["logprobs"] = openai::logprobs_json(&std::mem::take(&mut self.tokens));
        }
        lines.push_str(&line(&chunk));
    }

    fn end(&mut self, finish: Finish, stats: &TurnStats, lines: &mut String) -> bool {
        let tools = self.head.tools.clone().unwrap_or_default();
        let (rest, calls) = self.calls.take().map(|calls| calls.finish(&tools)).unwrap_or_default();
        self.say(&rest, lines);
        let calls = self.head.named(calls);
        for (i, call) in calls.iter().enumerate() {
            let mut json = openai::call_json(call);
            json["index"] = i.into();
            lines.push_str(&self.head.chunk(json!({"tool_calls": [json]}), None));
        }
        lines.push_str(&self.head.chunk(json!({}), Some(openai::finish_reason(finish, &calls))));
        if self.head.includes_usage {
            let mut last = openai::delta(&self.head.id, self.head.created, &self.head.model, json!({}), None);
            last["choices"] = json!([]);
            last["usage"] = openai::usage(stats);
            lines.push_str(&line(&last));
        }
        lines.push_str("data: [DONE]\n\n");
        true
    }
}

fn fail(error: &TurnError, lines: &mut String) -> bool {
    lines.push_str(&line(&openai::error("server_error", code(error), &error.message)));
    true
}
