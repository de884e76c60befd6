//! The JSON that programs exchange with servers: requests for chat completions, and answers to them.
//!
//! `loquat serve` reads the one and writes the other, a remote engine the other way round, and a batch does both for
//! the lines of OpenAI's batch files. Knows nothing of HTTP.

mod request;
mod response;
mod tools;

pub use request::{ChatRequest, messages_json, request_json};
pub use response::{Completion, call_json, completion, delta, error, finish_reason, logprobs_json, usage};
pub use tools::{ToolCalls, split_calls};
