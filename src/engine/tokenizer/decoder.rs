//! Ids to text, one token at a time.
//!
//! Byte-level BPE writes each byte of a token as one printable character (the GPT-2 table); one emoji
//! may be spread over four tokens. So the table from id to bytes is made once, and a stream keeps the
//! bytes of an unfinished character until the rest arrives.

use std::collections::HashMap;
use std::sync::Arc;

/// The bytes of every token in one buffer: 248k small allocations would cost more than the text.
pub(super) struct TokenBytes {
    bytes: Vec<u8>,
    /// Token `id` ends at `ends[id]` and starts where the one before it ends.
    ends: Vec<u32>,
}

impl TokenBytes {
    /// # Errors
    /// A reason in words if the vocabulary is absurdly large or empty.
    pub(super) fn new(tokenizer: &tokenizers::Tokenizer) -> Result<Self, String> {
        /// Four times the largest vocabulary of the family: one absurd id must not cost gigabytes.
        const MOST_TOKENS: u32 = 1 << 20;
        let names = tokenizer.get_vocab(true);
        let added = tokenizer.get_added_vocabulary();
        let highest = names.values().copied().max().ok_or("the vocabulary is empty")?;
        if highest >= MOST_TOKENS {
            return Err(format!("it has a token with the id {highest}"));
        }
        let mut name_of: Vec<&str> = vec![""; highest as usize + 1];
        for (name, &id) in &names {
            if !added.is_special_token(name) {
                name_of[id as usize] = name;
            }
        }
        let byte_of = byte_of_char();
        let mut table = Self { bytes: Vec::new(), ends: Vec::with_capacity(name_of.len()) };
        for name in name_of {
            let start = table.bytes.len();
            for c in name.chars() {
                let Some(&byte) = byte_of.get(&c) else {
                    // Not written in the byte table (an added token with a space, say): its plain text.
                    table.bytes.truncate(start);
                    table.bytes.extend_from_slice(name.as_bytes());
                    break;
                };
                table.bytes.push(byte);
            }
            let end = u32::try_from(table.bytes.len()).map_err(|_| "its tokens are too long")?;
            table.ends.push(end);
        }
        Ok(table)
    }

    /// The bytes of `id`: empty for special tokens, padding and ids beyond the vocabulary.
    pub(super) fn of(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// The GPT-2 table, read backwards: printable Latin-1 stands for itself, the other 68 bytes, in order,
/// for the characters from U+0100 on.
fn byte_of_char() -> HashMap<char, u8> {
    let printable = |b: &u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let stand_ins = ('\u{100}'..).zip((0..=255u8).filter(|b| !printable(b)));
    (0..=255u8).filter(printable).map(|b| (char::from(b), b)).chain(stand_ins).collect()
}

/// Decodes a stream of ids. What `push` and `finish` return, joined, equals the decoding of the whole.
pub struct Decoder {
    token_bytes: Arc<TokenBytes>,
    /// The first bytes of a character whose last ones have not come yet: at most three.
    pending: Vec<u8>,
}

impl Decoder {
    pub(super) fn new(token_bytes: Arc<TokenBytes>) -> Self {
        Self { token_bytes, pending: Vec::new() }
    }

    /// The whole characters that `id` completes; often its text, sometimes nothing.
    pub fn push(&mut self, id: u32) -> String {
        self.pending.extend_from_slice(self.token_bytes.of(id));
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let broken = chunk.invalid();
            if broken.is_empty() || is_unfinished(broken) && done + broken.len() == self.pending.len() {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            done += broken.len();
        }
        self.pending.drain(..done);
        text
    }

    /// What is left at the end of the stream, or before a token that ends one voice: nothing, or
    /// U+FFFD for a character that was never finished. The decoder can be used again afterwards.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

/// Whether more bytes could still make a character of `bytes`.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
}
