//! The engine: model folder in, token stream out. Synchronous; knows nothing of tokio or terminals.

pub mod model_file;
pub mod prompt;
pub mod sampler;
pub mod tokenizer;
