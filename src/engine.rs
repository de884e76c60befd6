//! The engine: model folder in, token stream out. Synchronous; knows nothing of tokio or terminals.

pub mod cache;
pub mod config;
pub mod device;
pub mod generate;
pub mod kernels;
pub mod model;
pub mod model_file;
pub mod prompt;
pub mod sampler;
pub mod tokenizer;
pub mod weights;
pub mod worker;
