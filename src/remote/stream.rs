//! A server's stream of events as ours.

use std::time::Instant;

use futures_util::StreamExt;
use reqwest::Response;
use serde_json::{Value, json};

use super::Events;
use crate::chat::Channel;
use crate::chat::splitter::Splitter;
use crate::msg::{Event, Finish, TurnId, TurnStats};

/// Longest line; one that never ends must not fill the memory.
const MAX_LINE_BYTES: usize = 16 << 20;

pub struct Reader {
    started: Instant,
    /// Bytes of a line that isn't complete.
    pending: Vec<u8>,
    /// Servers that don't part thoughts from answers leave the tags in the text.
    splitter: Splitter,
    calls: Vec<Call>,
    finish: Option<Finish>,
    has_usage: bool,
}

/// A tool call, whose parts come one by one.
#[derive(Default)]
struct Call {
    name: String,
    arguments: String,
}

impl Reader {
    pub fn new(started: Instant) -> Self {
        Self {
            started,
            pending: Vec::new(),
            splitter: Splitter::new(false),
            calls: Vec::new(),
            finish: None,
            has_usage: false,
        }
    }

    /// Passes on everything; says why the answer ended.
    ///
    /// # Errors
    /// A few words, if it broke off.
    pub async fn read(
        &mut self,
        response: Response,
        turn: TurnId,
        number: u64,
        events: &Events,
        stats: &mut TurnStats,
    ) -> Result<Finish, String> {
        let mut bytes = response.bytes_stream();
        while let Some(chunk) = bytes.next().await {
            let chunk = chunk.map_err(|_| "the connection was lost".to_owned())?;
            self.pending.extend_from_slice(&chunk);
            while let Some(at) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=at).collect();
                for (channel, text) in self.line(&String::from_utf8_lossy(&line), stats)? {
                    let delta = Event::Delta { turn, channel, text, stats: *stats };
                    // Nobody listens any more when the session has ended.
                    let _ = events.send((number, delta)).await;
                }
            }
            if self.pending.len() > MAX_LINE_BYTES {
                return Err("it sent a line without an end".into());
            }
        }
        let finish = self.finish.ok_or("it ended without saying why")?;
        let calls = self.calls();
        if !calls.is_empty() {
            let delta = Event::Delta { turn, channel: Channel::Answer, text: calls, stats: *stats };
            let _ = events.send((number, delta)).await;
        }
        Ok(finish)
    }

    fn line(&mut self, line: &str, stats: &mut TurnStats) -> Result<Vec<(Channel, String)>, String> {
        let Some(data) = line.trim().strip_prefix("data:") else { return Ok(Vec::new()) };
        let data = data.trim();
        if data == "[DONE]" {
            return Ok(Vec::new());
        }
        let chunk: Value =
            serde_json::from_str(data).map_err(|_| "it sent something else than JSON".to_owned())?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(error["message"]
                .as_str()
                .unwrap_or("an error without words")
                .chars()
                .take(500)
                .collect());
        }
        self.usage(&chunk["usage"], stats);
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        let mut pieces = Vec::new();
        let text = |key: &str| delta[key].as_str().filter(|text| !text.is_empty());
        if let Some(thought) = text("reasoning_content").or_else(|| text("reasoning")) {
            pieces.push((Channel::Thinking, thought.to_owned()));
        }
        if let Some(said) = text("content") {
            pieces.extend(self.splitter.push_text(said));
        }
        pieces.retain(|(_, text)| !text.is_empty());
        if !pieces.is_empty() {
            let elapsed = self.started.elapsed();
            let first = *stats.time_to_first_token.get_or_insert(elapsed);
            stats.prefill_time = first;
            stats.decode_time = elapsed.saturating_sub(first);
            // Nearly: a chunk is mostly a token. The server's own count comes last.
            if !self.has_usage {
                stats.completion_tokens += 1;
                stats.thinking_tokens += usize::from(pieces[0].0 == Channel::Thinking);
            }
        }
        for part in delta["tool_calls"].as_array().into_iter().flatten() {
            let at = part["index"].as_u64().unwrap_or(0) as usize;
            if at > self.calls.len() {
                return Err("its tool calls are out of order".into());
            }
            if at == self.calls.len() {
                self.calls.push(Call::default());
            }
            self.calls[at].name.push_str(part["function"]["name"].as_str().unwrap_or_default());
            self.calls[at].arguments.push_str(part["function"]["arguments"].as_str().unwrap_or_default());
        }
        match choice["finish_reason"].as_str() {
            None => {}
            Some("length") => self.finish = Some(Finish::Length),
            Some(_) => self.finish = Some(Finish::Stop),
        }
        Ok(pieces)
    }

    fn usage(&mut self, usage: &Value, stats: &mut TurnStats) {
        let count = |value: &Value| value.as_u64().map(|n| n as usize);
        let Some(completion) = count(&usage["completion_tokens"]) else { return };
        self.has_usage = true;
        stats.completion_tokens = completion;
        stats.prompt_tokens = count(&usage["prompt_tokens"]).unwrap_or(stats.prompt_tokens);
        let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
        stats.cached_tokens = cached.unwrap_or_default().min(stats.prompt_tokens);
        if let Some(thinking) = count(&usage["completion_tokens_details"]["reasoning_tokens"]) {
            stats.thinking_tokens = thinking;
        }
    }

    /// As a model of the family writes them, so that they are read in one way.
    fn calls(&self) -> String {
        let calls = self.calls.iter().map(|call| {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            format!("\n<tool_call>\n{}\n</tool_call>", json!({"name": call.name, "arguments": arguments}))
        });
        calls.collect()
    }
}
