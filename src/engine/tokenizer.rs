//! Text to token ids and back: byte-level BPE from `tokenizer.json`.
//!
//! Encoding follows Hugging Face `tokenizers` step by step: added tokens (`<|im_start|>`, `<think>` …)
//! are cut out of the raw text, the rest is normalised (NFC), split by the repository's own pattern and
//! merged. One step is ours: text that came from a person can be marked by [`Tokenizer::protect`], and
//! then a typed `<|im_end|>` is read as seven harmless pieces and not as the end of the turn.
//!
//! Ids are looked up by name everywhere: the same token has other ids in other sizes.
//! Knows nothing of chat layout; see `prompt.rs`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use tokenizers::tokenizer::{Model, NormalizedString, Normalizer, OffsetType, PreTokenizer};
use tokenizers::{AddedToken, DecoderWrapper, NormalizerWrapper};

use crate::engine::model_file::{self, ModelFileError};

mod decoder;

pub use decoder::Decoder;
use decoder::TokenBytes;

/// Five times the size of the real 248k tokenizer (12.8 MB).
const TOKENIZER_JSON_LIMIT_BYTES: u64 = 64 << 20;
/// The real file has 17 kB, a chat template included.
pub(crate) const TOKENIZER_CONFIG_LIMIT_BYTES: u64 = 16 << 20;

/// Stands inside a literal that must not become a token. A Unicode noncharacter: it means nothing in
/// any text, has no upper case or composition, and survives trimming, JSON and string methods of a
/// template. `encode` takes it out after the added tokens were cut.
pub const SENTINEL: char = '\u{FDD0}';

#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    #[error(transparent)]
    File(#[from] ModelFileError),
    #[error("{path} is not a valid tokenizer: {reason}; download it again")]
    Invalid { path: PathBuf, reason: String },
    #[error(
        "{path} describes a tokenizer that is not byte-level BPE; only Qwen3.5-family models are supported"
    )]
    NotByteLevel { path: PathBuf },
    #[error(
        "tokenizer_config.json gives {content} the id {expected}, tokenizer.json leaves it {got}; \
         the two files belong to different models, download the model again"
    )]
    AddedToken { content: String, expected: u32, got: u32 },
    #[error("cannot split this text into tokens: {reason}")]
    Encode { reason: String },
}

/// A loaded tokenizer. Never changes after `open`, so it can be shared between threads.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    token_bytes: Arc<TokenBytes>,
    /// The texts of all added tokens, and the characters they begin with.
    literals: Vec<String>,
    literal_starts: Vec<char>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads `tokenizer.json` and, where present, `tokenizer_config.json` of a model folder.
    ///
    /// # Errors
    /// `File` when a file is missing, unreadable or far too large; `Invalid`, `NotByteLevel` and
    /// `AddedToken` when the files are not what a Qwen3.5-family model has.
    pub fn open(dir: &Path) -> Result<Self, TokenizerError> {
        let path = dir.join("tokenizer.json");
        let text = model_file::read_text(&path, TOKENIZER_JSON_LIMIT_BYTES)?;
        let invalid = |reason: String| TokenizerError::Invalid { path: path.clone(), reason };
        let mut inner: tokenizers::Tokenizer = text.parse().map_err(|e| invalid(format!("{e}")))?;
        if !matches!(inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            return Err(TokenizerError::NotByteLevel { path });
        }
        // The family's only normalizer. Others could turn a short prompt into one without end.
        if !matches!(inner.get_normalizer(), None | Some(NormalizerWrapper::NFC(_))) {
            return Err(TokenizerError::NotByteLevel { path });
        }

        let config_path = dir.join("tokenizer_config.json");
        if let Some(text) = model_file::read_text_if_present(&config_path, TOKENIZER_CONFIG_LIMIT_BYTES)? {
            let config: TokenizerConfig = serde_json::from_str(&text)
                .map_err(|e| TokenizerError::Invalid { path: config_path, reason: e.to_string() })?;
            add_missing_tokens(&mut inner, config)?;
        }

        let literals: Vec<String> = inner.get_added_vocabulary().get_vocab().keys().cloned().collect();
        let mut literal_starts: Vec<char> =
            literals.iter().filter_map(|literal| literal.chars().next()).collect();
        literal_starts.sort_unstable();
        literal_starts.dedup();
        let token_bytes = Arc::new(TokenBytes::new(&inner).map_err(invalid)?);
        Ok(Self { inner, token_bytes, literals, literal_starts })
    }

    /// The ids of `text`. The text of an added token becomes that token, unless it was protected.
    ///
    /// # Errors
    /// `Encode` if the repository's split pattern fails on this text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.try_encode(text).map_err(|e| TokenizerError::Encode { reason: e.to_string() })
    }

    fn try_encode(&self, text: &str) -> tokenizers::Result<Vec<u32>> {
        let normalizer = self.inner.get_normalizer();
        let mut pieces = self.inner.get_added_vocabulary().extract_and_normalize(normalizer, text);
        if text.contains(SENTINEL) {
            // Pieces that became tokens are passed over by `split`. Normalising again is needed
            // because a sentinel keeps a combining mark apart from its letter.
            pieces.split(|_, piece| {
                if !piece.get().contains(SENTINEL) {
                    return Ok([piece]);
                }
                let mut clean = NormalizedString::from(piece.get().replace(SENTINEL, ""));
                if let Some(normalizer) = normalizer {
                    normalizer.normalize(&mut clean)?;
                }
                Ok([clean])
            })?;
        }
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        self.inner.get_model().tokenize_in_pretokenized(&mut pieces, None)?;
        Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
    }

    /// Marks `text` so that nothing in it can become an added token: not `<|im_end|>`, and not
    /// `<think>` or `<tool_call>` either, which are not "special" but steer templates and readers.
    ///
    /// Sentinels already in the text go first: left in, they would hide a literal from this function
    /// that `encode` sees. A literal that only begins at the end of the text is marked too, because a
    /// template may put the next part right behind it. Added tokens of a single character cannot be
    /// protected; this family has none.
    pub fn protect<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let clean: Cow<str> = match text.contains(SENTINEL) {
            true => Cow::Owned(text.replace(SENTINEL, "")),
            false => Cow::Borrowed(text),
        };
        let cuts: Vec<usize> = clean
            .char_indices()
            .filter(|&(at, first)| self.literal_starts.contains(&first) && self.starts_literal(&clean[at..]))
            .map(|(at, first)| at + first.len_utf8())
            .collect();
        if cuts.is_empty() {
            return clean;
        }
        let mut marked = String::with_capacity(clean.len() + cuts.len() * SENTINEL.len_utf8());
        let mut done = 0;
        for cut in cuts {
            marked.push_str(&clean[done..cut]);
            marked.push(SENTINEL);
            done = cut;
        }
        marked.push_str(&clean[done..]);
        Cow::Owned(marked)
    }

    fn starts_literal(&self, rest: &str) -> bool {
        self.literals.iter().any(|literal| rest.starts_with(literal.as_str()) || literal.starts_with(rest))
    }

    /// The text of `ids`; special tokens are left out, `<think>` and its like are kept. Bytes that are
    /// not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(self.token_bytes.of(id));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Decodes a stream of ids, whole characters at a time.
    pub fn decoder(&self) -> Decoder {
        Decoder::new(self.token_bytes.clone())
    }

    /// The bytes that `id` stands for; none if it is special.
    pub fn bytes_of(&self, id: u32) -> &[u8] {
        self.token_bytes.of(id)
    }

    /// Whether it was added to the vocabulary, such as `<|im_end|>` and `<think>`.
    pub fn is_added(&self, id: u32) -> bool {
        self.inner.get_added_vocabulary().simple_id_to_token(id).is_some()
    }

    /// The id of a token by its name, such as `<|im_end|>`.
    pub fn token_id(&self, name: &str) -> Option<u32> {
        self.inner.token_to_id(name)
    }

    /// The highest id plus one. The model's matrix has more rows; those are padding, never trained, and
    /// must not be sampled.
    pub fn vocab_size(&self) -> usize {
        self.token_bytes.len()
    }
}

/// What we read of `tokenizer_config.json`.
#[derive(Deserialize)]
struct TokenizerConfig {
    #[serde(default)]
    added_tokens_decoder: HashMap<String, AddedTokenEntry>,
}

#[derive(Deserialize)]
struct AddedTokenEntry {
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    special: bool,
    normalized: Option<bool>,
}

impl AddedTokenEntry {
    fn into_token(self) -> AddedToken {
        AddedToken {
            content: self.content,
            single_word: self.single_word,
            lstrip: self.lstrip,
            rstrip: self.rstrip,
            normalized: self.normalized.unwrap_or(!self.special),
            special: self.special,
        }
    }
}

/// Some repositories list 26 added tokens in `tokenizer.json` and the last 7 only here.
fn add_missing_tokens(
    inner: &mut tokenizers::Tokenizer,
    config: TokenizerConfig,
) -> Result<(), TokenizerError> {
    let mut entries: Vec<(u32, AddedTokenEntry)> = config
        .added_tokens_decoder
        .into_iter()
        .filter_map(|(id, entry)| Some((id.parse().ok()?, entry)))
        .collect();
    entries.sort_unstable_by_key(|(id, _)| *id);
    for (expected, entry) in entries {
        let content = entry.content.clone();
        if inner.get_added_vocabulary().get_vocab().get(&content) == Some(&expected) {
            continue;
        }
        // New tokens get the next free id, so one that belongs elsewhere shows up as a wrong id.
        inner
            .add_tokens([entry.into_token()])
            .map_err(|e| TokenizerError::Encode { reason: e.to_string() })?;
        match inner.token_to_id(&content) {
            Some(got) if got != expected => {
                return Err(TokenizerError::AddedToken { content, expected, got });
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
