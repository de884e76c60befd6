//! The protocol between a face (terminal interface, batch mode) and the session manager: plain data,
//! the whole of it in this file and, about models and kept conversations, in `msg/models.rs` and `msg/history.rs`.
//!
//! A face sends [`Command`]s and receives [`Event`]s. The sender chooses the ids; they must be unique
//! within one session. Each submitted turn ends in exactly one of `TurnFinished`, `TurnCancelled`
//! and `TurnFailed`, whatever happens.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::chat::{Channel, Message, Part, Picture};

mod history;
mod models;
mod think;

pub use history::{Found, HistoryCommand, HistoryEvent, StoredId};
pub use models::{DownloadProgress, Judgement, Machine, ModelCommand, ModelEvent, ModelRow, Verdict};
pub use think::Think;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConversationId(pub u64);

/// A picture that a face is about to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PictureId(pub u64);

/// A question about a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExaminationId(pub u64);

/// Face to session.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Starts (or replaces) a conversation with these earlier messages.
    Open {
        conversation: ConversationId,
        messages: Vec<Message>,
    },
    /// Appends `message` to the conversation and asks the model for an answer. Turns queue up in the
    /// order in which they are submitted.
    Submit {
        turn: TurnId,
        conversation: ConversationId,
        message: Message,
        options: TurnOptions,
    },
    /// Asks the model to go on with the conversation's last message, an answer that was cut off. The turn's text
    /// is what comes after it.
    Continue {
        turn: TurnId,
        conversation: ConversationId,
        options: TurnOptions,
    },
    /// Stops a turn, running or queued. What was said so far stays in the conversation.
    Cancel {
        turn: TurnId,
    },
    /// Forgets a conversation.
    Close {
        conversation: ConversationId,
    },
    /// Reads a picture's file and header, to show what sending it would cost. Answered by `PictureReady` or
    /// `PictureRefused`, once the model is loaded.
    /// `what` is an image or a clip.
    Inspect {
        picture: PictureId,
        what: Part,
    },
    /// What a prompt of these messages is made of. Answered by `Examined`; nothing is computed by the model.
    Examine {
        examination: ExaminationId,
        messages: Vec<Message>,
        thinking: Option<bool>,
    },
    /// About the choice of models.
    Models(ModelCommand),
    History(HistoryCommand),
}

/// Session to face.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    ModelLoaded(ModelInfo),
    /// The model can't be used; every turn submitted from now on fails with the same message.
    ModelFailed {
        error: TurnError,
    },
    /// The prompt was rendered and counted; the model starts to read it.
    TurnStarted {
        turn: TurnId,
        prompt_tokens: usize,
    },
    PrefillProgress {
        turn: TurnId,
        done: usize,
        total: usize,
    },
    /// New text, whole characters only. Deltas may be merged on the way, never dropped.
    Delta {
        turn: TurnId,
        channel: Channel,
        text: String,
        stats: TurnStats,
    },
    /// Tokens of the text that comes next, if they were asked for.
    Tokens {
        turn: TurnId,
        tokens: Vec<TokenInfo>,
    },
    TurnFinished {
        turn: TurnId,
        finish: Finish,
        stats: TurnStats,
    },
    TurnCancelled {
        turn: TurnId,
        stats: TurnStats,
    },
    TurnFailed {
        turn: TurnId,
        error: TurnError,
    },
    /// The model looks at a picture before it reads the prompt: `done` of `total` steps of the `picture`-th of
    /// `pictures`, counted from 1.
    PictureProgress {
        turn: TurnId,
        picture: usize,
        pictures: usize,
        done: usize,
        total: usize,
    },
    /// `what` holds the content of the file now.
    PictureReady {
        picture: PictureId,
        what: Picture,
        facts: PictureFacts,
    },
    PictureRefused {
        picture: PictureId,
        error: TurnError,
    },
    /// An error is a sentence.
    Examined {
        examination: ExaminationId,
        prompt: Result<Vec<PromptPiece>, String>,
    },
    /// About the choice of models.
    Models(ModelEvent),
    History(HistoryEvent),
}

/// What one message becomes in a prompt; the last piece is the beginning of the answer. A picture is one token here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptPiece {
    pub text: String,
    pub tokens: usize,
}

/// What a face shows about a picture before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureFacts {
    /// In pixels, turned as the picture's orientation says.
    pub width: u32,
    pub height: u32,
    /// What the model sees.
    pub model_width: u32,
    pub model_height: u32,
    /// Frames that the model sees; 1 of a picture.
    pub frames: usize,
    pub tokens: usize,
    /// What it would cost with `Detail::High`.
    pub full_tokens: usize,
}

/// Sizes of pictures that a model takes, from its processor configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureLimits {
    /// Width and height are multiples of this; a square of that side is one token.
    pub factor: u32,
    pub min_pixels: u64,
    pub max_pixels: u64,
}

/// The same for moving pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClipLimits {
    /// Of all frames together.
    pub pixels: PictureLimits,
    /// Frames that share their tokens.
    pub frames_per_slot: usize,
    /// Tokens that tell the time of each such group.
    pub time_tokens: usize,
}

/// What a face shows about the model that answers.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Folder or repository name, for people.
    pub name: String,
    /// Of a model from the Hub: the commit that it is, for good.
    pub commit: Option<String>,
    /// What a person who didn't choose this model should know about it.
    pub note: Option<String>,
    /// Such as `CPU` or `GPU (llvmpipe)`.
    pub device: String,
    /// Why the device is not the one that was hoped for; one sentence.
    pub device_note: Option<String>,
    /// Most tokens a prompt and its answer may have together.
    pub context_tokens: usize,
    /// Whether the model thinks before it answers unless told otherwise.
    pub thinks_by_default: bool,
    /// `None` if the model doesn't see.
    pub pictures: Option<PictureLimits>,
    pub clips: Option<ClipLimits>,
    /// Whether it has an MTP head.
    pub can_draft: bool,
    /// Turns that it is best given at the same time.
    pub parallel: usize,
    pub load_time: Duration,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model said it is done.
    Stop,
    /// It reached `max_tokens` or the end of the context.
    Length,
}

/// Settings of one turn. `None` means: the model's own recommendation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurnOptions {
    pub sampling: SamplingOptions,
    pub max_tokens: Option<usize>,
    pub thinking: Option<bool>,
    /// Thinking is closed after so many tokens; [`Think`] sets both.
    pub max_thinking: Option<usize>,
    pub mtp: Option<Mtp>,
    /// What the answer must be; thinking comes before it and is free.
    pub form: Option<Form>,
    /// The answer ends before the first of these.
    pub stop: Vec<String>,
    /// Descriptions of tools that the model may call, in the shape that programs exchange.
    pub tools: Option<serde_json::Value>,
    /// Also tell every token, with its probability and so many of the likeliest ones' (`Event::Tokens`).
    pub logprobs: Option<usize>,
    /// Use nothing that was read before: the answer's bytes then depend on nothing but its own conversation.
    pub is_fresh: bool,
    /// Count the prompt and answer nothing.
    pub only_count: bool,
}

/// What an answer is held to, token by token.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// A value that this JSON Schema allows.
    Schema(serde_json::Value),
    /// A text that this regular expression matches as a whole.
    Regex(String),
}

/// A token of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenInfo {
    pub id: u32,
    /// Often a whole word; a character may be spread over several tokens.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability before any sampling setting.
    pub logprob: f32,
    /// The likeliest tokens here, the best first.
    pub top: Vec<(u32, Vec<u8>, f32)>,
    pub channel: Channel,
}

/// Longest draft.
pub const MAX_DRAFTS: usize = 8;

/// Whether the model's own draft head guesses tokens ahead. Guesses are checked, so they change the speed and
/// nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mtp {
    Off,
    /// As many as give the most tokens per second here, possibly none.
    #[default]
    Auto,
    /// This many tokens, at most [`MAX_DRAFTS`].
    Depth(u8),
}

impl FromStr for Mtp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            _ => match text.parse() {
                Ok(0) => Ok(Self::Off),
                Ok(depth) if usize::from(depth) <= MAX_DRAFTS => Ok(Self::Depth(depth)),
                _ => Err(format!("expected off, auto or a number up to {MAX_DRAFTS}")),
            },
        }
    }
}

impl fmt::Display for Mtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Depth(depth) => depth.fmt(f),
        }
    }
}

/// Sampling settings as given by a person; the engine fills the gaps from the model's files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SamplingOptions {
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub seed: Option<u64>,
}

impl SamplingOptions {
    /// These, and where one is not given, the other's.
    pub fn or(&self, other: &Self) -> Self {
        Self {
            temperature: self.temperature.or(other.temperature),
            top_k: self.top_k.or(other.top_k),
            top_p: self.top_p.or(other.top_p),
            min_p: self.min_p.or(other.min_p),
            presence_penalty: self.presence_penalty.or(other.presence_penalty),
            frequency_penalty: self.frequency_penalty.or(other.frequency_penalty),
            repetition_penalty: self.repetition_penalty.or(other.repetition_penalty),
            seed: self.seed.or(other.seed),
        }
    }
}

/// The figures of one turn, true at the moment of the event that carries them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TurnStats {
    pub prompt_tokens: usize,
    /// Prompt tokens that did not have to be read again.
    pub cached_tokens: usize,
    /// Those of them that came from a saved state.
    pub restored_tokens: usize,
    /// Prompt tokens that stand for pictures.
    pub image_tokens: usize,
    /// Generated tokens, thinking included, stop token excluded.
    pub completion_tokens: usize,
    pub thinking_tokens: usize,
    /// The thinking was closed because its budget was spent.
    pub thinking_was_cut: bool,
    pub queue_time: Duration,
    pub prefill_time: Duration,
    /// From the start of the turn to the first generated token.
    pub time_to_first_token: Option<Duration>,
    pub decode_time: Duration,
    /// The seed that was used; the same seed gives the same text on the same device.
    pub seed: u64,
    pub drafts: DraftStats,
}

/// What drafting did in one turn. Of the generated tokens the first comes out of the prompt; each step then gives
/// the drafts that were right and, unless the answer ended with one of them, one token more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftStats {
    /// Passes of the model after the prompt, with or without a draft.
    pub steps: u32,
    /// Drafts made, and those that became part of the answer, by position.
    pub drafted: [u32; MAX_DRAFTS],
    pub accepted: [u32; MAX_DRAFTS],
    /// Drafts made and accepted in the latest steps, the newest last.
    pub recent: [(u8, u8); RECENT_STEPS],
}

/// Steps that [`DraftStats::recent`] shows.
pub const RECENT_STEPS: usize = 16;

impl DraftStats {
    /// Notes one more step.
    pub fn note(&mut self, drafted: usize, accepted: usize) {
        self.steps += 1;
        self.drafted[..drafted].iter_mut().for_each(|n| *n += 1);
        self.accepted[..accepted].iter_mut().for_each(|n| *n += 1);
        self.recent.rotate_left(1);
        self.recent[RECENT_STEPS - 1] = (drafted as u8, accepted as u8);
    }

    pub fn n_drafted(&self) -> u32 {
        self.drafted.iter().sum()
    }

    pub fn n_accepted(&self) -> u32 {
        self.accepted.iter().sum()
    }

    /// The share of the drafts that were right; `None` if there were none.
    pub fn acceptance(&self) -> Option<f64> {
        let drafted = self.n_drafted();
        (drafted > 0).then(|| f64::from(self.n_accepted()) / f64::from(drafted))
    }

    /// How often a draft at each position was right, as far as there were any.
    pub fn by_position(&self) -> impl Iterator<Item = f64> {
        let judged = self.drafted.iter().zip(&self.accepted).filter(|(drafted, _)| **drafted > 0);
        judged.map(|(drafted, accepted)| f64::from(*accepted) / f64::from(*drafted))
    }
}

impl TurnStats {
    /// Decode speed; `None` until two tokens were generated, because the first one comes out of the prefill.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let seconds = self.decode_time.as_secs_f64();
        (self.completion_tokens > 1 && seconds > 0.0).then(|| (self.completion_tokens - 1) as f64 / seconds)
    }

    /// What a pass of the model gave on average; `None` if nothing was drafted.
    pub fn tokens_per_step(&self) -> Option<f64> {
        let drafts = &self.drafts;
        // While a step's tokens come one by one there are more tokens than the noted steps gave; when an answer ends
        // with a draft there is one fewer. The first token comes out of the prompt.
        let of_steps = (drafts.steps + drafts.n_accepted()) as usize;
        let tokens = self.completion_tokens.saturating_sub(1).min(of_steps);
        (drafts.n_drafted() > 0 && drafts.steps > 0).then(|| tokens as f64 / f64::from(drafts.steps))
    }

    /// How much of the context this turn fills so far.
    pub fn context_used(&self) -> usize {
        self.prompt_tokens + self.completion_tokens
    }
}

/// Why a turn failed: a code for programs and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnError {
    pub code: ErrorCode,
    pub message: String,
}

/// The error codes of the batch contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    BadRecord,
    ImageMissing,
    ImageUnreadable,
    TooLong,
    /// Nothing that was asked for can be said, or the answer ended before it was complete.
    SchemaUnsatisfied,
    Timeout,
    Cancelled,
    /// The model doesn't fit into memory.
    TooBig,
    Engine,
    ModelMissing,
}

impl ErrorCode {
    /// Whether the same record may succeed another time.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Timeout | Self::Cancelled | Self::Engine)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRecord => "bad_record",
            Self::ImageMissing => "image_missing",
            Self::ImageUnreadable => "image_unreadable",
            Self::TooLong => "too_long",
            Self::SchemaUnsatisfied => "schema_unsatisfied",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::TooBig => "too_big",
            Self::Engine => "engine",
            Self::ModelMissing => "model_missing",
        }
    }
}
