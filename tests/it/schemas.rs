//! Answers that are held to a JSON Schema, for every schema of the JSON-Schema-Test-Suite
//! (`tests/golden/schemas/collect.py`): whatever a model would like to say, what comes out is valid.

use std::path::Path;
use std::time::{Duration, Instant};

use loquat::engine::grammar::{GrammarError, Grammars, Guide};
use loquat::engine::tokenizer::Tokenizer;
use loquat::msg::Form;
use serde_json::Value;

/// More than any answer that these schemas ask for needs.
const MAX_TOKENS: usize = 2_000;

/// A model that likes to say anything, and now and then to come to an end.
struct Babbler {
    state: u64,
    end: u32,
    /// Tokens that close something.
    closers: Vec<u32>,
    took: Duration,
    slowest: Duration,
    n_tokens: u32,
}

impl Babbler {
    fn new(tokenizer: &Tokenizer, end: u32) -> Self {
        let closes =
            |id: &u32| matches!(tokenizer.bytes_of(*id), b"\"" | b"}" | b"]" | b"\"}" | b"\"]" | b",");
        Self {
            state: 0x9E37_79B9_7F4A_7C15,
            end,
            closers: (0..tokenizer.vocab_size() as u32).filter(closes).collect(),
            took: Duration::ZERO,
            slowest: Duration::ZERO,
            n_tokens: 0,
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % below as u64) as usize
    }

    /// A whole text; `None` if it didn't come to an end.
    fn say(&mut self, guide: &mut Guide, tokenizer: &Tokenizer) -> Result<Option<String>, GrammarError> {
        let mut bytes = Vec::new();
        for _ in 0..MAX_TOKENS {
            let started = Instant::now();
            let allowed = guide.allowed()?.expect("the guide holds from the start").clone();
            let mut took = started.elapsed();
            let closers: Vec<u32> =
                self.closers.iter().copied().filter(|id| allowed.is_allowed(*id)).collect();
            let id = if allowed.is_allowed(self.end) && (self.random(3) == 0 || allowed.num_set() == 1) {
                self.end
            } else if !closers.is_empty() && self.random(2) == 0 {
                closers[self.random(closers.len())]
            } else {
                let n = self.random(allowed.num_set());
                allowed.iter().nth(n).expect("some token may come")
            };
            if id == self.end {
                return Ok(Some(String::from_utf8(bytes).expect("a text")));
            }
            bytes.extend_from_slice(tokenizer.bytes_of(id));
            let started = Instant::now();
            guide.accept(id)?;
            took += started.elapsed();
            self.took += took;
            self.slowest = self.slowest.max(took);
            self.n_tokens += 1;
            if guide.is_complete() {
                return Ok(Some(String::from_utf8(bytes).expect("a text")));
            }
        }
        Ok(None)
    }
}

fn has_long_number(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 15)
}

/// Says something for every schema; gives the number of schemas that were used.
#[expect(clippy::print_stdout, reason = "a measurement, and tests that were skipped, are said")]
fn babble(tokenizer: &Tokenizer, tries: usize) -> usize {
    let end = tokenizer.token_id("<|im_end|>").unwrap();
    let started = Instant::now();
    let grammars = Grammars::new(tokenizer, &[end]).unwrap();
    let setup = started.elapsed();
    let mut babbler = Babbler::new(tokenizer, end);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/schemas/schemas.jsonl");
    let lines = std::fs::read_to_string(path).unwrap();
    let (mut n_used, mut n_refused, mut n_endless, mut wrong) = (0, 0, 0, Vec::new());
    for line in lines.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut schema = case["schema"].clone();
        if case["draft"] == "draft7" && schema.is_object() {
            // The newest draft is what a schema is taken for that doesn't say.
            schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
        }
        let form = Form::Schema(schema);
        let draft = match case["draft"].as_str() {
            Some("draft7") => jsonschema::Draft::Draft7,
            _ => jsonschema::Draft::Draft202012,
        };
        // What a format means differs from library to library; here it is a remark.
        let options = jsonschema::options().with_draft(draft).should_validate_formats(false);
        let mut ended = false;
        for _ in 0..tries {
            let mut guide = match grammars.guide(&form, false) {
                Ok(guide) => guide,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    n_refused += 1;
                    break;
                }
            };
            match babbler.say(&mut guide, tokenizer) {
                Ok(Some(text)) => {
                    ended = true;
                    let value: Value = match serde_json::from_str(&text) {
                        // The validator computes with 64 bits and can't judge longer numbers.
                        Ok(_) if has_long_number(&text) => continue,
                        Ok(value) => value,
                        // Valid JSON, such as 1e999, that this reader has no number for.
                        Err(error) if error.to_string().contains("number out of range") => continue,
                        Err(error) => panic!("{error}: {text}"),
                    };
                    let validator = options.build(&case["schema"]).expect("what can be used is a schema");
                    if !validator.is_valid(&value) {
                        wrong.push(format!("{}: {text}", case["name"]));
                    }
                }
                Ok(None) | Err(GrammarError::Stuck(_)) => n_endless += 1,
                Err(error) => panic!("{}: {error}", case["name"]),
            }
        }
        n_used += usize::from(ended);
    }
    let per_token = babbler.took / babbler.n_tokens.max(1);
    println!(
        "{} tokens in the vocabulary: {n_used} schemas used, {n_refused} refused, {n_endless} texts without an end; \
         set up in {setup:?}; {per_token:?} a token over {} tokens, the slowest {:?}",
        tokenizer.vocab_size(),
        babbler.n_tokens,
        babbler.slowest,
    );
    assert_eq!(wrong, [] as [&str; 0]);
    n_used
}

#[test]
fn whatever_is_said_for_a_schema_is_valid() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dense-a/model");
    let used = babble(&Tokenizer::open(&dir).unwrap(), 4);
    assert!(used >= 200, "only {used} schemas could be used");
}

/// With the real vocabulary, whose masks are as large as they get. Prints what a token costs.
#[expect(clippy::print_stdout, reason = "a measurement, and tests that were skipped, are said")]
#[test]
fn the_same_with_the_real_vocabulary() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/golden/qwen3_6-tokenizer.json");
    if !file.exists() {
        println!("skipped: {} is not there (tests/golden/text/full_tokenizer.py writes it)", file.display());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(&file, dir.path().join("tokenizer.json")).unwrap();
    let used = babble(&Tokenizer::open(dir.path()).unwrap(), 1);
    assert!(used >= 200, "only {used} schemas could be used");
}
