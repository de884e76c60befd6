//! The part of the protocol that is about models: which there are, fetching one, and putting it to work.
//!
//! A model goes by the name that `--model` takes.

use crate::units::ByteSize;

/// Face to session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelCommand {
    /// What there is to choose from. Answered by `Listed`, then by `Judged` for one after the other.
    List,
    /// Most tokens that a prompt and its answer may have together, for verdicts and for what is loaded from now on.
    /// There is no answer.
    Context(u32),
    /// Looks on the Hub for names with these words. Answered by `Found`.
    Search(String),
    /// Asks whether a model would fit. Answered by `Judged`.
    Judge(String),
    /// Fetches a model, in the place of a download that goes on. `Downloading` until `Downloaded` or `DownloadFailed`.
    Download(String),
    /// Stops the download; what arrived is kept for the next time. There is no answer.
    StopDownload,
    /// Puts a model that is here in the place of the present one, once that has ended its answer. Answered by `Loading`
    /// and then by [`Event::ModelLoaded`](super::Event) or `ModelFailed`, or by `NotHere`.
    Load(String),
}

/// Session to face.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvent {
    Listed {
        machine: Machine,
        models: Vec<ModelRow>,
    },
    /// An error is a sentence.
    Found {
        words: String,
        found: Result<Vec<ModelRow>, String>,
    },
    Judged {
        name: String,
        judgement: Result<Judgement, String>,
    },
    Downloading {
        name: String,
        progress: DownloadProgress,
    },
    Downloaded {
        name: String,
    },
    DownloadFailed {
        name: String,
        why: String,
    },
    Loading {
        name: String,
    },
    NotHere {
        name: String,
        why: String,
    },
}

/// What this machine has for a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    pub memory_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
    /// How fast the CPU reads its memory, a second.
    pub bandwidth_bytes: Option<u64>,
    /// Where models are kept.
    pub folder: Option<String>,
    pub offline: bool,
}

/// A model to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRow {
    pub name: String,
    /// Of its files; unknown of what a search found.
    pub bytes: Option<u64>,
    /// Whose store it is in, if it is here.
    pub store: Option<String>,
    /// A few words: what it takes in, its licence.
    pub about: String,
}

/// Whether a model would fit into this machine's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub download_bytes: u64,
    pub needs_bytes: u64,
    pub context_tokens: usize,
    /// What it takes, by part.
    pub terms: Vec<(&'static str, u64)>,
    /// Fewer bits than the files have, by their name, if it is to be loaded so.
    pub quant: Option<&'static str>,
    /// A guess at the speed of writing; unknown on a device with memory of its own.
    pub tokens_per_second: Option<u32>,
    pub verdict: Verdict,
}

impl Judgement {
    /// The verdict in a few words.
    pub fn words(&self) -> String {
        let quant = self.quant.map(|name| format!(" as {name}")).unwrap_or_default();
        match self.verdict {
            Verdict::Fits { spare_bytes } => format!("fits{quant}, {} to spare", ByteSize(spare_bytes)),
            Verdict::FitsAt { context_tokens } => format!("fits{quant} with --context {context_tokens}"),
            Verdict::TooBig => "too big".into(),
            Verdict::Unknown => "can't be told: the GPU doesn't say how much memory it has".into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Fits {
        spare_bytes: u64,
    },
    /// With a shorter context.
    FitsAt {
        context_tokens: usize,
    },
    TooBig,
    /// The device doesn't say how much memory it has.
    Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DownloadProgress {
    pub done_bytes: u64,
    /// 0 until it is known.
    pub total_bytes: u64,
    pub bytes_per_second: u64,
    pub seconds_left: Option<u64>,
    /// What it waits for, if it does.
    pub note: Option<String>,
}
