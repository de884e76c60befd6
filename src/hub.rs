//! Models from the Hugging Face Hub, in the cache that all of its tools share.
//!
//! A model is named as `OWNER/NAME[:QUANT][@REVISION]`. Its listing ([`api`]) says which files there are and what they
//! must hash to; [`select`] takes those that are needed; [`download`] fetches what is missing; [`cache`] puts it where
//! other tools find it. Everything after the listing is pinned to one commit.
//!
//! Everything that comes from a server is untrusted: names ([`names`]), lengths, and content until its hash is right.
//! Dropping a future stops what it does and loses nothing that was fetched.
//! Knows nothing of the engine, terminals or conversations.

pub mod api;
pub mod cache;
pub mod headers;
pub mod names;
pub mod options;
pub mod pull;
pub mod select;
pub mod space;
pub mod stores;
pub mod table;
pub mod verify;

mod download;
mod http;
mod lock;
mod part;

pub use http::USER_AGENT;

use std::io;
use std::path::PathBuf;

use self::http::Http;
use self::options::HubOptions;
use crate::units::ByteSize;

/// Where people make access tokens.
const TOKENS_PAGE: &str = "https://huggingface.co/settings/tokens";

#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("{what} needs a connection, and Loquat is offline (--offline or HF_HUB_OFFLINE)")]
    Offline { what: String },
    #[error("HF_ENDPOINT is not an address such as https://huggingface.co")]
    Endpoint,
    #[error("there is no folder for models: set HF_HOME or HF_HUB_CACHE")]
    NoCache,
    #[error("{0:?} is not the name of a model on the Hub, such as Qwen/Qwen3.5-0.8B")]
    Name(String),
    #[error(
        "there is no model {id} on the Hub{}", if *signed_in { "" } else { ", or it is private: set HF_TOKEN to an access token" }
    )]
    NoRepo { id: String, signed_in: bool },
    #[error("{id} has no revision {revision}")]
    NoRevision { id: String, revision: String },
    #[error(
        "{id} asks you to accept its terms first: https://huggingface.co/{id}{}",
        if *signed_in { String::new() } else { format!(", then set HF_TOKEN to an access token ({TOKENS_PAGE})") }
    )]
    Gated { id: String, signed_in: bool },
    #[error(
        "the Hub wants an access token for {id}: {}",
        if *signed_in { "yours was refused; make a new one".into() } else { format!("set HF_TOKEN to one ({TOKENS_PAGE})") }
    )]
    Unauthorized { id: String, signed_in: bool },
    #[error("the Hub refuses {id}{}", colon(why))]
    Forbidden { id: String, why: String },
    #[error("{host} answered with status {status}{}", colon(message))]
    Status { host: String, status: u16, message: String },
    #[error("no connection to {host}: {why}")]
    Connection { host: String, why: String },
    #[error("the connection could not be set up: {why}")]
    Client { why: String },
    #[error("{host} gave an answer that makes no sense: {what}")]
    Answer { host: String, what: String },
    #[error("{id} lists a file whose name is not safe to write: {name:?}")]
    UnsafeName { id: String, name: String },
    #[error("{id} lists no file {name:?}, which its weights need; the repository is incomplete")]
    Missing { id: String, name: String },
    #[error("{id} has no files that Loquat can run (safetensors with a config.json, or GGUF)")]
    NothingUsable { id: String },
    #[error(
        "{id} is not a model of the Qwen3.5 family, so Loquat can't run it; `loquat models rm {id}` removes it"
    )]
    OtherFamily { id: String },
    #[error("{id} has several GGUF files; name one, as in {id}:{} ({})", names[0], names.join(", "))]
    Several { id: String, names: Vec<String> },
    #[error("{id} has no GGUF file {quant}; it has {}", names.join(", "))]
    NoQuant { id: String, quant: String, names: Vec<String> },
    #[error(
        "not enough room in {folder}: {} are needed and {} are free", ByteSize(*needed), ByteSize(*free)
    )]
    NoSpace { folder: PathBuf, needed: u64, free: u64 },
    #[error(
        "{name} arrived damaged twice: its content is not what the Hub lists; try again later, or report it to its owner"
    )]
    Damaged { name: String },
    #[error("{doing} {path}: {source}")]
    File { doing: &'static str, path: PathBuf, source: io::Error },
}

fn colon(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

/// The Hub, as its options say.
pub struct Hub {
    pub options: HubOptions,
    http: Http,
}

impl Hub {
    /// Makes no connection yet.
    ///
    /// # Errors
    /// `Client` if there can be none.
    pub fn new(options: HubOptions) -> Result<Self, HubError> {
        Ok(Self { http: Http::new(&options)?, options })
    }

    /// The folder of models.
    ///
    /// # Errors
    /// `NoCache` for a user without a home.
    pub fn cache(&self) -> Result<cache::Cache, HubError> {
        self.options.cache.clone().map(cache::Cache::new).ok_or(HubError::NoCache)
    }

    fn online(&self, what: impl Into<String>) -> Result<(), HubError> {
        match self.options.offline {
            true => Err(HubError::Offline { what: what.into() }),
            false => Ok(()),
        }
    }
}
