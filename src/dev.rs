//! Conformance commands: they show what the engine computes, for comparison with other implementations.
//! Hidden from `--help`, kept working. They take the same path through the engine as a chat does.
//!
//! `loquat dev forward --model DIR [--device D] [--quant none] --cases FILE.jsonl --out FILE.safetensors`
//!     One case a line: `{"name": …, "ids": […]}` or `{"name": …, "messages": […]}`; optional `"greedy": N`,
//!     `"split": [lengths of the pieces in which the prompt is read]`, `"hidden": true`. Writes, per case,
//!     `<name>.input_ids [L]` i64, `<name>.logits [L, V]` f32, `<name>.greedy [N]` i64 (stop tokens are
//!     ordinary here) and `<name>.hidden.<i> [L, H]` f32 (0 enters the first layer, i leaves layer i - 1; the
//!     last one is before the final norm). A case that fails is named on standard error; the others are
//!     written, and the exit code is 3. Pictures, MTP and quantisation are not there yet and say so.
//!
//! `loquat dev render --model DIR`
//!     JSONL on standard input, `{"messages": …, "tools": …, "add_generation_prompt": …, …}`, to JSONL
//!     `{"text": …, "ids": …}` or `{"error": …}`. Other keys (`enable_thinking` …) go to the template. Nothing
//!     is protected here: special tokens inside messages are special tokens. A chat differs only there.
//!
//! `loquat dev tokenize --model DIR`
//!     JSONL `{"text": …}` to JSONL `{"ids": …, "decoded": …}`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use safetensors::{Dtype, View};
use serde_json::{Map, Value, json};

use crate::batch::input::reads_from;
use crate::batch::{Outcome, tell};
use crate::chat::openai::messages_from_json;
use crate::engine::generate::{Engine, EngineError, LoadOptions, PREFILL_CHUNK, read};
use crate::engine::prompt::{ChatTemplate, RenderInput};
use crate::engine::sampler::{Sampler, SamplingParams};
use crate::engine::tokenizer::Tokenizer;

/// `dev forward`.
///
/// # Errors
/// A sentence, with the outcome that it means.
pub fn forward(
    load: &LoadOptions,
    quant: &str,
    cases: &Path,
    out: &Path,
) -> Result<Outcome, (Outcome, String)> {
    if !["none", "auto"].contains(&quant) {
        return Err((Outcome::Usage, format!("--quant {quant} is not there yet; use none")));
    }
    let file = File::open(cases)
        .map_err(|error| (Outcome::Usage, format!("cannot open {}: {error}", cases.display())))?;
    if reads_from(&[cases.to_owned()], out) {
        return Err((Outcome::Usage, format!("{} is both cases and output", out.display())));
    }
    let mut engine = Engine::load(load).map_err(|error| (Outcome::NoModel, error.to_string()))?;
    let mut tensors = BTreeMap::new();
    let mut outcome = Outcome::Done;
    for (i, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|error| (Outcome::Usage, format!("cannot read the cases: {error}")))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        match Case::from_json(&line, &engine).and_then(|case| case.run(&mut engine, &mut tensors)) {
            Ok(()) => {}
            Err(why) => {
                tell(&format!("case on line {}: {why}", i + 1));
                outcome = Outcome::SomeFailed;
            }
        }
    }
    // Not `serialize_to_file`: it puts a new file in the place of whatever is there, also of a device.
    let bytes = safetensors::serialize(tensors, None).map_err(|error| (Outcome::Usage, error.to_string()))?;
    std::fs::write(out, bytes)
        .map_err(|error| (Outcome::Usage, format!("cannot write {}: {error}", out.display())))?;
    Ok(outcome)
}

struct Case {
    name: String,
    ids: Vec<u32>,
    split: Vec<usize>,
    greedy: usize,
    hidden: bool,
}

impl Case {
    fn from_json(line: &[u8], engine: &Engine) -> Result<Self, String> {
        let json: Value = serde_json::from_slice(line).map_err(|error| format!("not valid JSON: {error}"))?;
        for key in ["images", "mtp"] {
            if json.get(key).is_some_and(|value| !value.is_null()) {
                return Err(format!("{key:?} is not supported yet"));
            }
        }
        let whole = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        let name = json.get("name").and_then(Value::as_str).ok_or("it has no name")?;
        let ids = match (json.get("ids"), json.get("messages")) {
            (Some(ids), None) => {
                let ids: Option<Vec<u32>> =
                    ids.as_array().and_then(|ids| ids.iter().map(|id| whole(id)?.try_into().ok()).collect());
                ids.ok_or("ids is not a list of token ids")?
            }
            (None, Some(messages)) => {
                let options = Default::default();
                engine.prompt_ids(&messages_from_json(messages)?, &options).map_err(|e| e.to_string())?
            }
            _ => return Err("it needs either ids or messages".into()),
        };
        engine.check_ids(&ids).map_err(|error| error.to_string())?;
        let split = match json.get("split") {
            None | Some(Value::Null) => ids.chunks(PREFILL_CHUNK).map(<[u32]>::len).collect(),
            Some(split) => {
                let lengths: Option<Vec<usize>> =
                    split.as_array().and_then(|lengths| lengths.iter().map(whole).collect());
                lengths
                    .filter(|lengths| {
                        let sum = lengths.iter().try_fold(0usize, |sum, length| sum.checked_add(*length));
                        sum == Some(ids.len()) && !lengths.contains(&0)
                    })
                    .ok_or_else(|| format!("split is not a list of lengths that make {}", ids.len()))?
            }
        };
        Ok(Self {
            name: name.to_owned(),
            ids,
            split,
            greedy: json.get("greedy").and_then(whole).unwrap_or(0),
            hidden: json.get("hidden").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    fn run(&self, engine: &mut Engine, tensors: &mut BTreeMap<String, Array>) -> Result<(), String> {
        self.compute(engine, tensors).map_err(|error| error.to_string())
    }

    fn compute(&self, engine: &mut Engine, tensors: &mut BTreeMap<String, Array>) -> Result<(), EngineError> {
        let model = engine.model();
        let (width, vocab_size) = (model.config.hidden_size, model.config.vocab_size);
        let mut cache = model.new_cache();
        let mut logits = Vec::with_capacity(self.ids.len() * vocab_size);
        let mut hidden: Vec<Vec<f32>> = Vec::new();
        let mut start = 0;
        for length in &self.split {
            let mut taps = Vec::new();
            let piece = &self.ids[start..start + length];
            let rows = model.forward(piece, &mut cache, self.hidden.then_some(&mut taps));
            logits.extend(read(model.logits(rows))?);
            hidden.resize_with(taps.len(), Vec::new);
            for (all, tap) in hidden.iter_mut().zip(taps) {
                all.extend(read(tap)?);
            }
            start += length;
        }

        let mut sampler = Sampler::new(SamplingParams::GREEDY, 0);
        let n_valid = engine.tokenizer().vocab_size();
        let mut greedy = Vec::with_capacity(self.greedy);
        let mut last = logits[logits.len() - vocab_size..].to_vec();
        while greedy.len() < self.greedy {
            let id = sampler.sample(&last, n_valid)?;
            greedy.push(id);
            if greedy.len() < self.greedy {
                last = read(model.logits(model.forward(&[id], &mut cache, None)))?;
            }
        }

        let mut put = |what: &str, array| tensors.insert(format!("{}.{what}", self.name), array);
        put("input_ids", Array::ids(&self.ids));
        put("logits", Array::floats(&logits, vocab_size));
        for (i, rows) in hidden.iter().enumerate() {
            put(&format!("hidden.{i}"), Array::floats(rows, width));
        }
        if self.greedy > 0 {
            put("greedy", Array::ids(&greedy));
        }
        Ok(())
    }
}

/// A tensor to write.
struct Array {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Array {
    fn ids(ids: &[u32]) -> Self {
        let bytes = ids.iter().flat_map(|id| i64::from(*id).to_le_bytes()).collect();
        Self { dtype: Dtype::I64, shape: vec![ids.len()], bytes }
    }

    fn floats(values: &[f32], width: usize) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape: vec![values.len() / width, width], bytes }
    }
}

impl View for Array {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        self.bytes.as_slice().into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// `dev render`.
///
/// # Errors
/// A sentence, with the outcome that it means.
pub fn render(dir: &Path) -> Result<Outcome, (Outcome, String)> {
    let tokenizer = Tokenizer::open(dir).map_err(|error| (Outcome::NoModel, error.to_string()))?;
    let template = ChatTemplate::open(dir).map_err(|error| (Outcome::NoModel, error.to_string()))?;
    each_line(|json| {
        let Value::Object(mut extra) = json else { return Err("it is not a JSON object".into()) };
        let messages = extra.remove("messages").ok_or("it has no messages")?;
        let input = RenderInput {
            messages,
            tools: extra.remove("tools").filter(|tools| !tools.is_null()),
            add_generation_prompt: match extra.remove("add_generation_prompt") {
                None | Some(Value::Null) => true,
                Some(value) => value.as_bool().ok_or("add_generation_prompt is not true or false")?,
            },
            extra,
        };
        let text = template.render(&input).map_err(|error| error.to_string())?;
        let ids = tokenizer.encode(&text).map_err(|error| error.to_string())?;
        Ok(json!({"text": text, "ids": ids}))
    })
}

/// `dev tokenize`.
///
/// # Errors
/// A sentence, with the outcome that it means.
pub fn tokenize(dir: &Path) -> Result<Outcome, (Outcome, String)> {
    let tokenizer = Tokenizer::open(dir).map_err(|error| (Outcome::NoModel, error.to_string()))?;
    each_line(|json| {
        let text = json.get("text").and_then(Value::as_str).ok_or("it has no text")?;
        let ids = tokenizer.encode(text).map_err(|error| error.to_string())?;
        let decoded = tokenizer.decode(&ids);
        Ok(json!({"ids": ids, "decoded": decoded}))
    })
}

/// One line out for each line in.
fn each_line(answer: impl Fn(Value) -> Result<Value, String>) -> Result<Outcome, (Outcome, String)> {
    let mut stdout = io::stdout().lock();
    for line in io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| (Outcome::Usage, format!("cannot read standard input: {error}")))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let parsed = serde_json::from_slice(&line).map_err(|error| format!("not valid JSON: {error}"));
        let answer = parsed
            .and_then(&answer)
            .unwrap_or_else(|error| Value::Object(Map::from_iter([("error".to_owned(), error.into())])));
        match writeln!(stdout, "{answer}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Outcome::Done),
            Err(error) => return Err((Outcome::Usage, format!("cannot write standard output: {error}"))),
            Ok(()) => {}
        }
    }
    Ok(Outcome::Done)
}
