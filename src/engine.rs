//! The engine: model folder in, token stream out. Synchronous; knows nothing of tokio or terminals.

pub mod built_in;
pub mod cache;
pub mod checkpoints;
pub mod config;
pub mod decode;
pub mod device;
pub mod fit;
pub mod generate;
pub mod gguf;
#[cfg(test)]
mod golden;
pub mod grammar;
pub mod inspect;
pub mod kernels;
mod logprobs;
pub mod model;
pub mod model_file;
#[cfg(test)]
mod noise;
pub mod prompt;
pub mod ram;
pub mod sampler;
pub mod shortlist;
pub mod slot;
pub mod speculate;
pub mod states;
pub mod tokenizer;
pub mod turn;
mod unfinished;
pub mod vision;
pub mod weights;
pub mod worker;
