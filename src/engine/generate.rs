//! A loaded model with everything it needs to answer, and what becomes of messages before it reads them.
//!
//! How an answer is made is in `turn.rs` and `decode.rs`.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::Tensor;

use super::built_in;
use super::config::{ConfigError, ModelConfig};
use super::device::{DeviceChoice, DeviceError, open_device};
use super::fit::{Plan, TooBig};
use super::grammar::{GrammarError, Grammars};
use super::model::{Model, Tokens};
use super::model_file::ModelFileError;
use super::prompt::pictures::{self, Layout, Misplaced, Seen, Span};
use super::prompt::{self, ChatTemplate, PromptError};
use super::ram;
use super::sampler::{GenerationConfig, Mode, SamplerError, SamplingParams, ThoughtTokens};
use super::shortlist::{Coverage, Shortlist};
use super::slot::{Slot, common_prefix};
use super::speculate::Speculation;
use super::states::{StateOptions, States};
use super::tokenizer::{Tokenizer, TokenizerError};
use super::turn::{MAX_PARALLEL, SharedPrefix};
use super::vision::eyes::{Eyes, EyesError, LookError, Looked};
use super::weights::quantised::{Bits, Copies, Quant};
use super::weights::{self, WeightsError};
use crate::chat::{Channel, Message};
use crate::msg::{ErrorCode, Finish, ModelInfo, TokenInfo, TurnOptions, TurnStats};

/// Prompt tokens per forward pass: long enough for blocked multiplications, short enough that a cancelled
/// prompt stops within about a second on a slow CPU.
pub const PREFILL_CHUNK: usize = 256;
/// Context unless told otherwise: larger ones cost memory that most conversations never use.
pub const DEFAULT_CONTEXT_TOKENS: usize = 32_768;
/// The dense models up to 2B, whose cards recommend other sampling than those of the larger ones.
const SMALL_HIDDEN_SIZE: usize = 2_048;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    File(#[from] ModelFileError),
    #[error(transparent)]
    Prompt(#[from] PromptError),
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    #[error("the tokenizer has {tokenizer} tokens, the model only {model}; they belong to different models")]
    Vocabulary { tokenizer: usize, model: usize },
    #[error(
        "the prompt has {prompt} tokens, and the context holds {context} including the answer; \
         {}",
        way_out(*context, *limit)
    )]
    TooLong { prompt: usize, context: usize, limit: usize },
    #[error("{name} was not sent: this model doesn't see pictures; choose one that does, or ask without it")]
    CannotSee { name: String },
    #[error(transparent)]
    Look(#[from] LookError),
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
    #[error("the prompt is empty")]
    EmptyPrompt,
    #[error("token id {id} is not below the vocabulary size {vocab_size}")]
    TokenId { id: u32, vocab_size: usize },
    #[error("the model can't be used: {0}")]
    Template(#[source] PromptError),
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    #[error(transparent)]
    TooBig(#[from] Box<TooBig>),
    #[error("the device failed: {0}")]
    DeviceFailed(String),
}

impl From<EyesError> for EngineError {
    fn from(error: EyesError) -> Self {
        match error {
            EyesError::Config(error) => Self::Config(error),
            EyesError::Weights(error) => Self::Weights(error),
        }
    }
}

impl EngineError {
    /// The batch contract's code for this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::TooLong { .. } => ErrorCode::TooLong,
            Self::TooBig(_) => ErrorCode::TooBig,
            Self::Grammar(GrammarError::Unusable { .. }) => ErrorCode::BadRecord,
            Self::Grammar(_) => ErrorCode::SchemaUnsatisfied,
            Self::Look(LookError::File { error, .. }) => error.code(),
            Self::CannotSee { .. } | Self::Look(LookError::Picture { .. }) => ErrorCode::ImageUnreadable,
            Self::Misplaced(_) => ErrorCode::Engine,
            Self::EmptyPrompt | Self::TokenId { .. } => ErrorCode::BadRecord,
            Self::Prompt(PromptError::Raised(_)) => ErrorCode::BadRecord,
            Self::Sampler(SamplerError::Param { .. }) => ErrorCode::BadRecord,
            Self::Config(_)
            | Self::Weights(_)
            | Self::File(_)
            | Self::Vocabulary { .. }
            | Self::Template(_) => ErrorCode::ModelMissing,
            Self::Tokenizer(TokenizerError::Encode { .. }) => ErrorCode::Engine,
            Self::Tokenizer(_) => ErrorCode::ModelMissing,
            Self::Prompt(
                PromptError::File(_) | PromptError::Invalid { .. } | PromptError::Missing { .. },
            ) => ErrorCode::ModelMissing,
            Self::Prompt(_) | Self::Sampler(_) => ErrorCode::Engine,
            Self::Device(_) | Self::DeviceFailed(_) => ErrorCode::Engine,
        }
    }
}

/// What to do about a prompt that is too long.
fn way_out(context: usize, limit: usize) -> String {
    match context < limit {
        true => format!("shorten it, start a new chat, or raise --context (the model allows {limit})"),
        false => "shorten it or start a new chat; the model allows no more".into(),
    }
}

/// Which model to load, and where.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    pub dir: PathBuf,
    /// Nobody named this model; the built-in one then says what it is.
    pub is_default: bool,
    pub device: DeviceChoice,
    /// At most the model's own limit; [`DEFAULT_CONTEXT_TOKENS`] if not given.
    pub context_tokens: Option<usize>,
    /// Load it even if it doesn't fit into memory.
    pub force: bool,
    /// Turns that may be answered at the same time, at least one; fewer where memory is short.
    pub parallel: usize,
    pub quant: Quant,
    /// Where quantised weights are kept for the next start; only in memory if `None`.
    pub quantised: Option<PathBuf>,
    /// Whether caches outlive the program; not if `None`.
    pub states: Option<StateOptions>,
}

impl LoadOptions {
    /// Where this model is to run.
    pub fn device(&self) -> DeviceChoice {
        match self.device {
            // So small a model is done on the CPU before a GPU has compiled its first kernel.
            DeviceChoice::Auto if built_in::is_built_in(&self.dir) => DeviceChoice::Cpu,
            choice => choice,
        }
    }

    /// The context that this model gets.
    pub fn context_of(&self, config: &ModelConfig) -> usize {
        self.context_tokens.unwrap_or(DEFAULT_CONTEXT_TOKENS).min(config.max_position_embeddings)
    }
}

/// What happens while an answer is made.
pub enum Progress {
    Started {
        prompt_tokens: usize,
    },
    /// `done` of `total` steps of encoding the `picture`-th of `pictures`, counted from 1.
    Picture {
        picture: usize,
        pictures: usize,
        done: usize,
        total: usize,
    },
    Prefill {
        done: usize,
        total: usize,
    },
    Delta {
        channel: Channel,
        text: String,
        stats: TurnStats,
    },
    /// The token whose text, if it is complete, comes next.
    Token(TokenInfo),
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Finished(Finish),
    Cancelled,
}

/// A loaded model with everything it needs to answer.
pub struct Engine {
    pub(super) model: Model,
    eyes: Option<Eyes>,
    pub(super) tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    generation_config: GenerationConfig,
    pub(super) stop_ids: Vec<u32>,
    pub(super) info: ModelInfo,
    /// What earlier conversations have left, that of the last one at the end.
    pub(super) slots: Vec<Slot>,
    /// Turns that have begun and not ended, each with a slot of its own.
    pub(super) n_busy: usize,
    pub(super) shared: SharedPrefix,
    pub(super) speculation: Speculation,
    pub(super) coverage: Coverage,
    /// Only to say which weight is at fault when the model computes no number.
    checkpoint: Rc<weights::Checkpoint>,
    pub(super) states: Option<States>,
    /// Made when the first answer is to be held to a form.
    grammars: Option<Grammars>,
}

impl Engine {
    /// Loads a model folder in Hub layout.
    ///
    /// # Errors
    /// [`EngineError`] says which file is at fault, or why the device can't be used.
    pub fn load(options: &LoadOptions) -> Result<Self, EngineError> {
        let started = Instant::now();
        let dir = &options.dir;
        let config = ModelConfig::open(dir)?;
        // Half a second for a vocabulary of 248,077, in which the weights can be loaded.
        let tokenizer = {
            let dir = dir.clone();
            std::thread::spawn(move || Tokenizer::open(&dir))
        };
        let template = ChatTemplate::open(dir)?;
        let generation_config = GenerationConfig::open(dir)?;
        let mut checkpoint = weights::Checkpoint::open(dir)?;
        let device = open_device(options.device())?;
        let context_tokens = options.context_of(&config);
        let available = if device.shares_ram && !options.force { ram::available() } else { None };
        let mut plan =
            Plan::choose(dir, &config, &checkpoint, device.is_gpu, options.quant, context_tokens, available)?;
        if let Some(available) = available {
            plan.check(context_tokens, available).map_err(Box::new)?;
        }
        plan.share(options.parallel.min(MAX_PARALLEL), context_tokens, available);
        let parallel = plan.parallel;
        let bits = plan.bits;
        if let Some(bits) = bits {
            // So small a model is quantised in no time.
            let folder = options.quantised.as_deref().filter(|_| !built_in::is_built_in(dir));
            checkpoint.quantise(bits, folder);
        }
        let model = Model::load(config, &checkpoint, dir, device)?;
        let tokenizer = tokenizer.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        if tokenizer.vocab_size() > model.config.vocab_size {
            return Err(EngineError::Vocabulary {
                tokenizer: tokenizer.vocab_size(),
                model: model.config.vocab_size,
            });
        }
        let eyes = Eyes::open(dir, &model.config, &checkpoint, &tokenizer, &model.device)?;
        let note = note(options, &checkpoint, bits);
        ram::give_back();

        let info = ModelInfo {
            name: display_name(dir),
            commit: commit_of(dir),
            device: model.device.name.clone(),
            note,
            device_note: model.device.note.clone(),
            context_tokens,
            thinks_by_default: prompt::thinks_by_default(&template).map_err(EngineError::Template)?,
            pictures: eyes.as_ref().map(|eyes| eyes.processor.image),
            clips: eyes.as_ref().map(|eyes| eyes.processor.clip),
            can_draft: model.can_draft(),
            parallel,
            load_time: started.elapsed(),
        };
        // Quantised weights make other states of the same tokens.
        let where_and_how = format!("{} {}", model.device.name, bits.map_or("", Bits::name));
        let checkpoint = Rc::new(checkpoint);
        let stop_ids = stop_ids(&generation_config, &model.config, &tokenizer);
        let shortlist = Shortlist::new(stop_ids.iter().min().copied(), tokenizer.vocab_size());
        Ok(Self {
            stop_ids,
            coverage: Coverage::new(shortlist),
            slots: Vec::new(),
            n_busy: 0,
            shared: SharedPrefix::default(),
            speculation: Speculation::default(),
            states: options
                .states
                .clone()
                .map(|options| States::new(options, checkpoint.clone(), &where_and_how)),
            checkpoint,
            grammars: None,
            model,
            eyes,
            tokenizer: Arc::new(tokenizer),
            template,
            generation_config,
            info,
        })
    }

    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The part that sees, if the model has one.
    pub fn eyes(&self) -> Option<&Eyes> {
        self.eyes.as_ref()
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokens that drafts are chosen from, if not from all.
    pub fn shortlist(&self) -> Option<&Shortlist> {
        self.coverage.shortlist()
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// How thinking is closed; `None` of a model that doesn't think.
    pub(super) fn thought_tokens(&self) -> Result<Option<ThoughtTokens>, TokenizerError> {
        let Some(close) = self.tokenizer.token_id("</think>") else { return Ok(None) };
        let closing = self.tokenizer.encode("\n</think>\n\n")?;
        Ok(Some(ThoughtTokens { open: self.tokenizer.token_id("<think>"), close, closing }))
    }

    pub(super) fn grammars(&mut self) -> Result<&Grammars, GrammarError> {
        if self.grammars.is_none() {
            self.grammars = Some(Grammars::new(&self.tokenizer, &self.stop_ids)?);
        }
        Ok(self.grammars.as_ref().expect("they were just made"))
    }

    /// Large matrices are not looked through before they are used: that would read all of them. So it is done once
    /// what they gave is no number.
    pub(super) fn explained(&self, error: EngineError) -> EngineError {
        let EngineError::Sampler(SamplerError::NotANumber { .. }) = &error else { return error };
        match self.checkpoint.first_not_finite() {
            Some(name) => WeightsError::NotFinite { name }.into(),
            None => error,
        }
    }

    /// Everything that is known of a prompt before the model runs.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn prompt(&mut self, messages: &[Message], options: &TurnOptions) -> Result<Prompt, EngineError> {
        let looked = match (&mut self.eyes, messages.iter().flat_map(Message::pictures).next()) {
            (_, None) => Vec::new(),
            (None, Some(picture)) => return Err(EngineError::CannotSee { name: picture.name.clone() }),
            (Some(eyes), Some(_)) => eyes.look_at(messages)?,
        };
        let seen: Vec<Seen> = looked.iter().map(|looked| looked.seen.clone()).collect();
        let protect = |text: &str| self.tokenizer.protect(text).into_owned();
        let (asked, begun) = prompt::split_begun(messages);
        // A begun answer says itself whether it was thought about.
        let thinking = begun.map_or(options.thinking, |begun| Some(begun.reasoning.is_some()));
        let mut input = prompt::chat_input(asked, thinking, protect);
        input.tools = options.tools.as_ref().map(|tools| prompt::protected(tools, &protect));
        let mut text = pictures::expand(&self.template.render(&input)?, &seen)?;
        let mut in_thought = prompt::starts_in_thought(&text);
        let thinks = in_thought;
        if let Some(begun) = begun {
            in_thought = prompt::push_begun(&mut text, begun, protect);
        }
        let ids = self.tokenizer.encode(&text)?;
        self.check_ids(&ids)?;
        let context = self.info.context_tokens;
        if ids.len() >= context {
            let limit = self.model.config.max_position_embeddings;
            return Err(EngineError::TooLong { prompt: ids.len(), context, limit });
        }

        input.add_generation_prompt = false;
        let history = pictures::expand(&self.template.render(&input)?, &seen)?;
        let history = self.tokenizer.encode(&history)?;
        let is_pad = |id| self.eyes.as_ref().is_some_and(|eyes| eyes.is_pad(id));
        let mode = Mode {
            thinking: thinks,
            thinks_by_default: self.info.thinks_by_default,
            is_small: self.model.config.moe.is_none() && self.model.config.hidden_size <= SMALL_HIDDEN_SIZE,
            has_images: !seen.is_empty(),
        };
        Ok(Prompt {
            resume_at: common_prefix(&ids, &history),
            layout: pictures::layout(&ids, &seen, is_pad)?,
            looked,
            ids,
            in_thought,
            params: SamplingParams::resolve(&options.sampling, &self.generation_config, mode)?,
            seed: options.sampling.seed.unwrap_or_else(fresh_seed),
        })
    }

    /// Refuses ids that the model has no row for.
    ///
    /// # Errors
    /// `EmptyPrompt` or `TokenId`.
    pub fn check_ids(&self, ids: &[u32]) -> Result<(), EngineError> {
        let vocab_size = self.model.config.vocab_size;
        match ids.iter().find(|id| **id as usize >= vocab_size) {
            Some(id) => Err(EngineError::TokenId { id: *id, vocab_size }),
            None if ids.is_empty() => Err(EngineError::EmptyPrompt),
            None => Ok(()),
        }
    }

    /// Whether [`Self::save_states`] would write something.
    pub fn is_worth_saving(&self) -> bool {
        self.slots.iter().any(|slot| slot.is_worth_saving(self.states.as_ref()))
    }

    /// Saves what took long to read.
    pub fn save_states(&mut self) {
        for slot in &mut self.slots {
            slot.save(self.states.as_ref());
        }
    }

    /// The features of the pictures in a prompt from token `from` on, by their index; `None` if cancelled.
    ///
    /// # Errors
    /// If a picture's file turns out to be damaged.
    pub fn look_closely(
        &mut self,
        prompt: &Prompt,
        from: usize,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Features>, EngineError> {
        let mut features = Features::new();
        let Some(eyes) = &mut self.eyes else { return Ok(Some(features)) };
        let unread = prompt.layout.spans.iter().filter(|span| span.start + span.len > from);
        let mut new: Vec<usize> = Vec::new();
        for Span { picture, .. } in unread {
            match eyes.remembered(&prompt.looked[*picture]) {
                Some(known) => _ = features.insert(*picture, known),
                None if new.last() != Some(picture) => new.push(*picture),
                None => {}
            }
        }
        for (i, picture) in new.iter().enumerate() {
            let mut step = |done, total| {
                progress(Progress::Picture { picture: i + 1, pictures: new.len(), done, total });
                match cancel.load(Ordering::Relaxed) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            };
            match eyes.encode(&prompt.looked[*picture], &mut step)? {
                Some(encoded) => _ = features.insert(*picture, encoded),
                None => return Ok(None),
            }
        }
        Ok(Some(features))
    }
}

/// A prompt, ready to be read by the model.
pub struct Prompt {
    pub ids: Vec<u32>,
    pub layout: Layout,
    pub looked: Vec<Looked>,
    /// How many of them come before the words that ask for an answer.
    pub(super) resume_at: usize,
    pub(super) in_thought: bool,
    pub(super) params: SamplingParams,
    pub(super) seed: u64,
}

/// Features of whole pictures, by their index in the prompt.
pub type Features = HashMap<usize, Tensor<2>>;

impl Prompt {
    /// A prompt of given tokens, none of them a picture, to be read greedily.
    pub fn of_ids(ids: Vec<u32>) -> Self {
        Self {
            layout: pictures::layout(&ids, &[], |_| false).expect("there are no pictures to misplace"),
            resume_at: ids.len(),
            ids,
            looked: Vec::new(),
            in_thought: false,
            params: SamplingParams::GREEDY,
            seed: 0,
        }
    }

    /// Some of its tokens, for a forward pass.
    pub fn tokens(&self, range: Range<usize>, features: &Features) -> Tokens<'_> {
        let Layout { keys, positions, spans, next_position } = &self.layout;
        let parts = spans.iter().filter_map(|span| {
            let (start, end) = (span.start.max(range.start), (span.start + span.len).min(range.end));
            let n = end.checked_sub(start).filter(|n| *n > 0)?;
            let whole = features.get(&span.picture)?;
            Some((start - range.start, whole.clone().narrow(0, span.feature + start - span.start, n)))
        });
        Tokens {
            ids: &self.ids[range.clone()],
            keys: keys[range.clone()].to_vec(),
            positions: positions.slice(range.clone()),
            features: parts.collect(),
            next_position: positions.0[0].get(range.end).copied().unwrap_or(*next_position),
            is_draft: false,
        }
    }
}

/// What a person who didn't choose this model, or these weights, should know about them. Ends the making of quantised
/// weights.
fn note(options: &LoadOptions, checkpoint: &weights::Checkpoint, bits: Option<Bits>) -> Option<String> {
    let about = match options.is_default {
        true => Some(built_in::NOTE.into()),
        false => checkpoint.description.as_ref().map(|description| format!("{description}.")),
    };
    let copies = checkpoint.copies();
    let quantised = bits.map(|bits| match options.quant {
        _ if copies.is_some_and(Copies::is_empty) => {
            "Its weights are quantised already and stay as they are.".into()
        }
        Quant::Auto => {
            format!("Its weights are quantised to {}: as they are they don't fit into memory.", bits.name())
        }
        Quant::None | Quant::To(_) => format!("Its weights are quantised to {}.", bits.name()),
    });
    let not_saved = copies.and_then(Copies::finish);
    let sentences: Vec<String> = [about, quantised, not_saved].into_iter().flatten().collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// A tensor's values on the host.
///
/// # Errors
/// `DeviceFailed`: GPU errors are asynchronous and surface here.
pub fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, EngineError> {
    let data = tensor.try_into_data().map_err(|e| EngineError::DeviceFailed(format!("{e:?}")))?;
    data.try_to_vec().map_err(|e| EngineError::DeviceFailed(format!("{e:?}")))
}

/// Ids that end an answer: those of generation_config.json, else of config.json and the family's two.
fn stop_ids(generation: &GenerationConfig, config: &ModelConfig, tokenizer: &Tokenizer) -> Vec<u32> {
    if !generation.eos_token_ids().is_empty() {
        return generation.eos_token_ids().to_vec();
    }
    let named = ["<|im_end|>", "<|endoftext|>"].into_iter().filter_map(|name| tokenizer.token_id(name));
    config.eos_token_ids.iter().copied().chain(named).collect()
}

/// The commit that a folder of the Hub's cache is named by, or one that a file lies in.
fn commit_of(dir: &Path) -> Option<String> {
    let mut names = dir.ancestors().filter_map(|part| Some((part.file_name()?.to_str()?, part.parent()?)));
    let (commit, _) = names.find(|(_, parent)| parent.ends_with("snapshots"))?;
    (commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit())).then(|| commit.to_owned())
}

/// A repository's name rather than the hash of its snapshot folder.
pub(super) fn display_name(dir: &Path) -> String {
    if built_in::is_built_in(dir) {
        return built_in::NAME.into();
    }
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let repository = dir.ancestors().find_map(|part| {
        let name = part.file_name()?.to_str()?.strip_prefix("models--")?;
        Some(name.replace("--", "/"))
    });
    repository.unwrap_or_else(|| {
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let parent = dir.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        match (name.as_str(), parent) {
            // A folder called `model` says nothing; the one around it usually does.
            ("model", Some(parent)) => format!("{parent}/model"),
            _ => name,
        }
    })
}

/// A seed that differs from run to run; it is reported with the answer, so that a run can be repeated.
/// Below 2^53, so that every JSON reader keeps it exact.
fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.unwrap_or(Duration::ZERO).as_nanos() as u64;
    nanos.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11
}
