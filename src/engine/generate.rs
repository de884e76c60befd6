//! One answer: messages -> token ids -> prefill in chunks -> decode loop -> stop.
//!
//! The engine owns a loaded model and the cache of the conversation it last worked on. Where a new prompt
//! begins with what the cache holds, or held at a checkpoint, that part is not read again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::Tensor;

use super::cache::{Cache, Checkpoint};
use super::config::{ConfigError, ModelConfig};
use super::device::{DeviceChoice, DeviceError, open_device};
use super::model::Model;
use super::model_file::ModelFileError;
use super::prompt::{self, ChatTemplate, PromptError};
use super::sampler::{GenerationConfig, Mode, Sampler, SamplerError, SamplingParams};
use super::tokenizer::{Tokenizer, TokenizerError};
use super::weights::{self, WeightsError};
use crate::chat::splitter::Splitter;
use crate::chat::{Channel, Message};
use crate::msg::{ErrorCode, Finish, ModelInfo, TurnOptions, TurnStats};

/// Prompt tokens per forward pass: long enough for blocked multiplications, short enough that a cancelled
/// prompt stops within about a second on a slow CPU.
pub const PREFILL_CHUNK: usize = 256;
/// Context unless told otherwise: larger ones cost memory that most conversations never use.
pub const DEFAULT_CONTEXT_TOKENS: usize = 32_768;
/// Longest answer unless told otherwise. A model that runs in circles stops here, visibly.
pub const DEFAULT_MAX_TOKENS: usize = 8_192;
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
    #[error("pictures are not supported yet: {name} was not sent; ask without it")]
    ImageNotYet { name: String },
    #[error("the prompt is empty")]
    EmptyPrompt,
    #[error("token id {id} is not below the vocabulary size {vocab_size}")]
    TokenId { id: u32, vocab_size: usize },
    #[error("the model can't be used: {0}")]
    Template(#[source] PromptError),
    #[error("the device failed: {0}")]
    DeviceFailed(String),
}

impl EngineError {
    /// The batch contract's code for this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::TooLong { .. } => ErrorCode::TooLong,
            Self::ImageNotYet { .. } => ErrorCode::ImageUnreadable,
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
#[derive(Debug, Clone)]
pub struct LoadOptions {
    pub dir: PathBuf,
    pub device: DeviceChoice,
    /// At most the model's own limit; [`DEFAULT_CONTEXT_TOKENS`] if not given.
    pub context_tokens: Option<usize>,
}

/// What happens while an answer is made.
pub enum Progress {
    Started { prompt_tokens: usize },
    Prefill { done: usize, total: usize },
    Delta { channel: Channel, text: String, stats: TurnStats },
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Finished(Finish),
    Cancelled,
}

/// A loaded model with everything it needs to answer.
pub struct Engine {
    model: Model,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    generation_config: GenerationConfig,
    stop_ids: Vec<u32>,
    info: ModelInfo,
    cache: Cache,
    /// The end of the last prompt before the words that ask for an answer: the place from which the next
    /// turn goes on, because templates rewrite what follows it.
    resume: Option<Checkpoint>,
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
        let tokenizer = Tokenizer::open(dir)?;
        if tokenizer.vocab_size() > config.vocab_size {
            return Err(EngineError::Vocabulary {
                tokenizer: tokenizer.vocab_size(),
                model: config.vocab_size,
            });
        }
        let template = ChatTemplate::open(dir)?;
        let generation_config = GenerationConfig::open(dir)?;
        let checkpoint = weights::Checkpoint::open(dir)?;
        let device = open_device(options.device)?;
        let model = Model::load(config, &checkpoint, dir, device)?;

        let limit = model.config.max_position_embeddings;
        let context_tokens = options.context_tokens.unwrap_or(DEFAULT_CONTEXT_TOKENS).min(limit);
        let info = ModelInfo {
            name: display_name(dir),
            device: model.device.name.clone(),
            device_note: model.device.note.clone(),
            context_tokens,
            thinks_by_default: prompt::thinks_by_default(&template).map_err(EngineError::Template)?,
            pictures: None,
            load_time: started.elapsed(),
        };
        Ok(Self {
            stop_ids: stop_ids(&generation_config, &model.config, &tokenizer),
            cache: model.new_cache(),
            resume: None,
            model,
            tokenizer,
            template,
            generation_config,
            info,
        })
    }

    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// Answers a conversation whose last message is the question.
    ///
    /// `cancel` is looked at before each forward pass. `progress` is called on this thread.
    ///
    /// # Errors
    /// [`EngineError`] if the prompt can't be used or the device fails; the engine can go on with the next.
    pub fn answer(
        &mut self,
        messages: &[Message],
        options: &TurnOptions,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Ending, TurnStats), EngineError> {
        let started = Instant::now();
        let prompt = self.prompt(messages, options)?;
        let mut sampler = Sampler::new(prompt.params, prompt.seed);
        let mut stats =
            TurnStats { prompt_tokens: prompt.ids.len(), seed: prompt.seed, ..TurnStats::default() };
        progress(Progress::Started { prompt_tokens: stats.prompt_tokens });

        stats.cached_tokens = self.reuse_cache(&prompt.ids);
        let hidden = self.prefill(&prompt, cancel, progress)?;
        stats.prefill_time = started.elapsed();
        let Some(mut hidden) = hidden else {
            return Ok((Ending::Cancelled, stats));
        };

        let max_tokens = options.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
        let max_tokens = max_tokens.min(self.info.context_tokens - prompt.ids.len());
        let think = [self.tokenizer.token_id("<think>"), self.tokenizer.token_id("</think>")];
        let n_valid = self.tokenizer.vocab_size();
        let decode_started = Instant::now();
        let mut decoder = self.tokenizer.decoder();
        let mut splitter = Splitter::new(prompt.in_thought);
        let ending = loop {
            let logits = read(self.model.logits(hidden))?;
            let id = sampler.sample(&logits, n_valid)?;
            if self.stop_ids.contains(&id) {
                break Ending::Finished(Finish::Stop);
            }
            sampler.accept(id);
            stats.completion_tokens += 1;
            stats.time_to_first_token.get_or_insert_with(|| started.elapsed());
            stats.decode_time = decode_started.elapsed();
            if splitter.channel() == Channel::Thinking {
                stats.thinking_tokens += 1;
            }
            let pieces = match think {
                [Some(open), _] if id == open => tag(&mut decoder, &mut splitter, Splitter::push_think_open),
                [_, Some(close)] if id == close => {
                    tag(&mut decoder, &mut splitter, Splitter::push_think_close)
                }
                _ => splitter.push_text(&decoder.push(id)),
            };
            for (channel, text) in pieces {
                progress(Progress::Delta { channel, text, stats });
            }
            if cancel.load(Ordering::Relaxed) {
                break Ending::Cancelled;
            }
            if stats.completion_tokens == max_tokens {
                break Ending::Finished(Finish::Length);
            }
            hidden = self.model.forward(&[id], &mut self.cache, None);
        };
        for (channel, text) in splitter.push_text(&decoder.finish()) {
            progress(Progress::Delta { channel, text, stats });
        }
        Ok((ending, stats))
    }

    /// Everything that is known before the model runs.
    fn prompt(&self, messages: &[Message], options: &TurnOptions) -> Result<Prompt, EngineError> {
        if let Some(picture) = messages.iter().flat_map(Message::pictures).next() {
            return Err(EngineError::ImageNotYet { name: picture.name.clone() });
        }
        let protect = |text: &str| self.tokenizer.protect(text).into_owned();
        let mut input = prompt::chat_input(messages, options.thinking, protect);
        let text = self.template.render(&input)?;
        let ids = self.tokenizer.encode(&text)?;
        self.check_ids(&ids)?;
        let context = self.info.context_tokens;
        if ids.len() >= context {
            let limit = self.model.config.max_position_embeddings;
            return Err(EngineError::TooLong { prompt: ids.len(), context, limit });
        }

        input.add_generation_prompt = false;
        let history = self.tokenizer.encode(&self.template.render(&input)?)?;
        let in_thought = prompt::starts_in_thought(&text);
        let mode = Mode {
            thinking: in_thought,
            thinks_by_default: self.info.thinks_by_default,
            is_small: self.model.config.hidden_size <= SMALL_HIDDEN_SIZE,
            has_images: false,
        };
        Ok(Prompt {
            resume_at: common_prefix(&ids, &history),
            ids,
            in_thought,
            params: SamplingParams::resolve(&options.sampling, &self.generation_config, mode)?,
            seed: options.sampling.seed.unwrap_or_else(fresh_seed),
        })
    }

    /// The token ids of a conversation, as [`Self::answer`] reads them.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn prompt_ids(&self, messages: &[Message], options: &TurnOptions) -> Result<Vec<u32>, EngineError> {
        Ok(self.prompt(messages, options)?.ids)
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

    /// Leaves in the cache the longest usable beginning of `ids`, and says how many tokens that is. At
    /// least one token is left to run, because logits come from a forward pass only.
    fn reuse_cache(&mut self, ids: &[u32]) -> usize {
        let is_prefix = |tokens: &[u32]| tokens.len() < ids.len() && ids.starts_with(tokens);
        if is_prefix(self.cache.tokens()) {
            return self.cache.len();
        }
        if let Some(checkpoint) = &self.resume
            && self.cache.tokens().get(..checkpoint.len()).is_some_and(is_prefix)
            && self.cache.rewind(checkpoint).is_ok()
        {
            return self.cache.len();
        }
        self.cache.reset();
        self.resume = None;
        0
    }

    /// Runs the rest of the prompt; gives the hidden state of its last token, or `None` if cancelled.
    fn prefill(
        &mut self,
        prompt: &Prompt,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Tensor<2>>, EngineError> {
        let total = prompt.ids.len();
        let mut hidden = None;
        while self.cache.len() < total {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let done = self.cache.len();
            progress(Progress::Prefill { done, total });
            // A chunk ends where the next turn will go on, so that a checkpoint can be taken there.
            let until = if done < prompt.resume_at { prompt.resume_at } else { total };
            let end = until.min(done + PREFILL_CHUNK);
            let rows = self.model.forward(&prompt.ids[done..end], &mut self.cache, None);
            let last = rows.narrow(0, end - done - 1, 1);
            // Waiting here keeps the progress true and makes a cancel take effect on a GPU as well.
            self.model.device.tensors.sync().map_err(|e| EngineError::DeviceFailed(format!("{e:?}")))?;
            if end == prompt.resume_at {
                self.resume = Some(self.cache.checkpoint());
            }
            hidden = Some(last);
        }
        progress(Progress::Prefill { done: total, total });
        Ok(hidden)
    }
}

struct Prompt {
    ids: Vec<u32>,
    /// How many of them come before the words that ask for an answer.
    resume_at: usize,
    in_thought: bool,
    params: SamplingParams,
    seed: u64,
}

/// Text that was still incomplete before a tag, then the tag.
fn tag(
    decoder: &mut super::tokenizer::Decoder,
    splitter: &mut Splitter,
    push: fn(&mut Splitter) -> Vec<(Channel, String)>,
) -> Vec<(Channel, String)> {
    let mut pieces = splitter.push_text(&decoder.finish());
    pieces.extend(push(splitter));
    pieces
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

fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A repository's name rather than the hash of its snapshot folder.
fn display_name(dir: &Path) -> String {
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
