//! Loquat, a terminal assistant for local Qwen3.5-family models.
pub mod batch;
pub mod chat;
pub mod cli;
pub mod dev;
pub mod engine;
pub mod msg;
pub mod sanitize;
pub mod session;
pub mod settings;
pub mod tui;
