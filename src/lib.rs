//! Loquat, a terminal assistant for local Qwen3.5-family models.
pub mod chat;
pub mod engine;
pub mod msg;
pub mod sanitize;
pub mod session;
pub mod tui;
