//! Loquat: a terminal assistant that runs Qwen3.5-family models on your own machine.
//!
//! # Bird's-eye view
//!
//! A *face* (the terminal interface, or a script's command) sends [`msg::Command`]s to the session manager and
//! receives [`msg::Event`]s. The manager owns the conversations and hands one turn after the other to the
//! engine's thread, which owns the model. A prompt travels like this:
//!
//! 1. `tui` or `batch` makes a [`msg::Command::Submit`].
//! 2. [`session`] appends the message to its conversation and, when the turn's time has come, sends a job.
//! 3. [`engine::worker`] passes it to [`engine::generate`]: the chat template makes it text
//!    ([`engine::prompt`]), the tokenizer ids, the model reads them in chunks into the [`engine::cache`], and
//!    the decode loop ([`engine::decode`]) samples token after token ([`engine::sampler`]), several in one pass
//!    where the MTP head has guessed them. Pictures are encoded before the prompt is read ([`engine::vision`]).
//! 4. Ids become whole characters, those are split into thinking and answer ([`chat::splitter`]), and go back
//!    as [`msg::Event::Delta`]s. Each turn ends in exactly one final event.
//!
//! # Code map
//!
//! | where | what | may use |
//! |---|---|---|
//! | `main`, `cli`, `settings` | what was typed, what it means, exit codes | everything |
//! | `tui` | the terminal interface: `update(state, msg) -> effects`, a pure `view`, one loop | `session`, `msg`, `chat` |
//! | `batch` | `loquat batch`, `loquat run` and `loquat replay` | `session`, `openai`, `msg`, `chat`, `settings` |
//! | `serve` | `loquat serve`: answers over HTTP | `batch`, `session`, `openai`, `msg`, `chat`, `settings` |
//! | `remote` | a model on a server, in the place of the engine's thread | `engine`, `openai`, `msg`, `chat` |
//! | `openai` | the JSON that such servers and their clients exchange | `msg`, `chat` |
//! | `models` | `loquat models`: finding, fetching and judging models | `catalog`, `engine`, `hub` |
//! | `catalog` | which models there are and whether they would fit; what `--model` names | `engine`, `hub`, `msg` |
//! | `bench`, `dev` | measuring a machine; conformance commands for developers | `engine`, `tui` |
//! | `config` | files of settings: which there are, what they set, `loquat config` | `cli`, and what it names |
//! | `doctor` | `loquat doctor`: what is wrong on this machine | `config`, `engine`, `hub`, `installation`, `settings`, `store`, `themes`, `tui` |
//! | `installation` | `loquat update` and `loquat uninstall` | `cli`, `config`, `hub` |
//! | `logging` | the log file, for bug reports | `private`, `sanitize` |
//! | `manual` | the manual page and completions of shells | `cli` |
//! | `themes` | `loquat theme`: checking colour themes | `tui` |
//! | `history` | `loquat history`: looking at kept conversations | `store`, `msg`, `chat` |
//! | `session` | conversations, the queue, the bridge from async to the engine thread; downloads | `engine`, `catalog`, `hub`, `store`, `msg`, `chat` |
//! | `hub` | models from the Hugging Face Hub: listings, downloads, the cache that all tools share | plain data |
//! | `signals` | what asks a program to end | nothing |
//! | `store` | kept conversations: SQLite, full-text search, pictures | `msg`, `chat` |
//! | `engine` | model folder in, token stream out; synchronous | `msg`, `chat` |
//! | `engine/weights`, `engine/gguf` | a model's files, whatever their format, as a folder in Hub layout | each other |
//! | `engine/model` | the mathematics, once for all devices, in Burn | `engine/kernels` |
//! | `engine/vision` | a picture's file to features that stand among the tokens | `engine/model`, `engine/kernels` |
//! | `engine/kernels` | operations Burn lacks, each with a slow twin that defines it | slices and shapes |
//! | `msg`, `chat`, `sanitize`, `paths`, `private`, `units` | the protocol, conversations, safe text, places of files, quantities; plain data | nothing |
//!
//! `tests/it/layers.rs` holds the program to this table.
//!
//! # Invariants
//!
//! - Nothing of a server is believed: a download has its name only once its content has the listed hash, and no name
//!   from there leaves the cache ([`hub`]). The Hub's token goes to the Hub and nowhere else.
//! - Standard output carries answers and nothing else.
//! - What a user, a file or a model wrote is untrusted: it never becomes a special token of a prompt
//!   (`engine::tokenizer`, `protect`) and never reaches a terminal unfiltered ([`sanitize`]).
//! - A cache is valid as a whole: tokens, keys and values, convolution and recurrent states go forward and
//!   back together ([`engine::cache`]).
//! - What the reference computes in f32 is computed in f32; bf16 is a storage format only.
//! - `unsafe` lives in `engine/kernels`, the memory map of `engine/weights`, giving memory back in `engine/ram`, the
//!   limits of the template child and a few environment variables that `main` sets before any thread starts, and
//!   nowhere else.

pub mod chat;
pub mod msg;
pub mod openai;
pub mod paths;
pub mod private;
pub mod sanitize;
pub mod units;

pub mod engine;
pub mod hub;
pub mod remote;

pub mod catalog;
pub mod session;
pub mod signals;
pub mod store;

pub mod batch;
pub mod bench;
pub mod doctor;
pub mod history;
pub mod installation;
pub mod logging;
pub mod manual;
pub mod models;
pub mod serve;
pub mod themes;
pub mod tui;

pub mod cli;
pub mod config;
pub mod dev;
pub mod settings;
