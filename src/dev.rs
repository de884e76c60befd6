//! Conformance commands: they show what the engine computes, for comparison with other implementations.
//! Hidden from `--help`, kept working. They take the same path through the engine as a chat does.
//!
//! `loquat dev forward --model DIR [--device D] [--quant none|q8|q4] --cases FILE.jsonl --out FILE.safetensors`
//!     One case a line: `{"name": …, "ids": […]}` or `{"name": …, "messages": […]}`; optional `"greedy": N`,
//!     `"split": [lengths of the pieces in which the prompt is read]`, `"hidden": true`, `"detail": "high"`,
//!     `"enable_thinking": false`,
//!     `"mtp": D` to draft D tokens in each step of the greedy continuation; then also
//!     `<name>.drafted [steps, D]` and `<name>.accepted [steps]` i64.
//!     `"images": [paths]` are for the picture parts of the messages that name no file, in order; where there
//!     are more of them, the last message begins with the rest. A part of type "video" names a GIF by "path".
//!     Writes, per case,
//!     `<name>.input_ids [L]` i64, `<name>.logits [L, V]` f32, `<name>.greedy [N]` i64 (stop tokens are
//!     ordinary here) and `<name>.hidden.<i> [L, H]` f32 (0 enters the first layer, i leaves layer i - 1; the
//!     last one is before the final norm). With pictures also `<name>.pixel_values [patches, values]` f32,
//!     `<name>.image_grid_thw [pictures, 3]` i64 (clips among the pictures, in their order) and
//!     `<name>.position_ids [3, L]` i64. A case that fails is named on standard error; the others are written,
//!     and the exit code is 3. Quantisation is not there yet and says so.
//!
//! `loquat dev render --model DIR`
//!     JSONL on standard input, `{"messages": …, "tools": …, "add_generation_prompt": …, …}`, to JSONL
//!     `{"text": …, "ids": …}` or `{"error": …}`. Other keys (`enable_thinking` …) go to the template. Nothing
//!     is protected here: special tokens inside messages are special tokens. A chat differs only there.
//!
//! `loquat dev frames [--rows N] [--size WIDTHxHEIGHT]`
//!     How long the chat takes for what it does most: drawing a long conversation while it scrolls, while an answer is
//!     written and while a person types. In memory: what the terminal takes to show it is not in it.
//!
//! `loquat dev tokenize --model DIR`
//!     JSONL `{"text": …}` to JSONL `{"ids": …, "decoded": …}`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use safetensors::{Dtype, View};
use serde_json::{Map, Value, json};

use crate::batch::input::reads_from;
use crate::batch::{Outcome, tell};
use crate::chat::openai::messages_from_json;
use crate::chat::{Detail, Message, Part, Picture, PictureSource};
use crate::engine::cache::Cache;
use crate::engine::generate::{Engine, EngineError, LoadOptions, PREFILL_CHUNK, Prompt, read};
use crate::engine::model::{Guess, Model};
use crate::engine::prompt::{ChatTemplate, RenderInput};
use crate::engine::sampler::{Sampler, SamplingParams};
use crate::engine::tokenizer::Tokenizer;
use crate::msg::{MAX_DRAFTS, TurnOptions};

/// `dev forward`.
///
/// # Errors
/// A sentence, with the outcome that it means.
pub fn forward(load: &LoadOptions, cases: &Path, out: &Path) -> Result<Outcome, (Outcome, String)> {
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
        match Case::from_json(&line, &mut engine, cases).and_then(|case| case.run(&mut engine, &mut tensors))
        {
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
    prompt: Prompt,
    split: Vec<usize>,
    greedy: usize,
    mtp: Option<usize>,
    hidden: bool,
}

impl Case {
    fn from_json(line: &[u8], engine: &mut Engine, cases: &Path) -> Result<Self, String> {
        let json: Value = serde_json::from_slice(line).map_err(|error| format!("not valid JSON: {error}"))?;
        let whole = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        let name = json.get("name").and_then(Value::as_str).ok_or("it has no name")?;
        let prompt = match (json.get("ids"), json.get("messages")) {
            (Some(ids), None) => {
                let ids: Option<Vec<u32>> =
                    ids.as_array().and_then(|ids| ids.iter().map(|id| whole(id)?.try_into().ok()).collect());
                let ids = ids.ok_or("ids is not a list of token ids")?;
                engine.check_ids(&ids).map_err(|error| error.to_string())?;
                Prompt::of_ids(ids)
            }
            (None, Some(messages)) => {
                let messages = with_pictures(messages, &json, cases)?;
                // Off, as in the reference's cases.
                let thinking = json.get("enable_thinking").and_then(Value::as_bool).unwrap_or(false);
                let options = TurnOptions { thinking: Some(thinking), ..TurnOptions::default() };
                engine.prompt(&messages, &options).map_err(|error| error.to_string())?
            }
            _ => return Err("it needs either ids or messages".into()),
        };
        let ids = &prompt.ids;
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
        let greedy = json.get("greedy").and_then(whole).unwrap_or(0);
        let mtp = match json.get("mtp").filter(|depth| !depth.is_null()) {
            None => None,
            Some(_) if !engine.model().can_draft() => return Err("the model has no MTP head".into()),
            Some(depth) => Some(
                whole(depth)
                    .filter(|depth| (1..=MAX_DRAFTS).contains(depth))
                    .ok_or_else(|| format!("mtp is {depth}, expected 1 to {MAX_DRAFTS}"))?,
            ),
        };
        Ok(Self {
            name: name.to_owned(),
            prompt,
            split,
            greedy,
            mtp,
            hidden: json.get("hidden").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    fn run(&self, engine: &mut Engine, tensors: &mut BTreeMap<String, Array>) -> Result<(), String> {
        self.compute(engine, tensors).map_err(|error| error.to_string())
    }

    fn compute(&self, engine: &mut Engine, tensors: &mut BTreeMap<String, Array>) -> Result<(), EngineError> {
        let never = AtomicBool::new(false);
        let features = engine.look_closely(&self.prompt, 0, &never, &mut |_| {})?;
        let features = features.expect("nobody cancels it");
        let model = engine.model();
        let (width, vocab_size) = (model.config.hidden_size, model.config.vocab_size);
        let mut cache = match self.mtp {
            None => model.new_cache(),
            Some(_) => model.new_drafting_cache(),
        };
        let ids = &self.prompt.ids;
        let mut logits = Vec::with_capacity(ids.len() * vocab_size);
        let mut hidden: Vec<Vec<f32>> = Vec::new();
        let mut start = 0;
        for length in &self.split {
            let mut taps = Vec::new();
            let piece = self.prompt.tokens(start..start + length, &features);
            let rows = model.forward_tokens(piece, &mut cache, self.hidden.then_some(&mut taps));
            model.catch_up(&mut cache);
            logits.extend(read(model.logits(rows))?);
            hidden.resize_with(taps.len(), Vec::new);
            for (all, tap) in hidden.iter_mut().zip(taps) {
                all.extend(read(tap)?);
            }
            start += length;
        }

        let last = logits[logits.len() - vocab_size..].to_vec();
        let greedy = Greedy { model, n_valid: engine.tokenizer().vocab_size(), wanted: self.greedy };
        let Drafted { ids: greedy, drafted, accepted } = match self.mtp {
            None => greedy.one_by_one(last, &mut cache)?,
            Some(depth) => greedy.drafted(last, depth, &mut cache)?,
        };

        let mut put = |what: &str, array| tensors.insert(format!("{}.{what}", self.name), array);
        put("input_ids", Array::ids(ids));
        put("logits", Array::floats(&logits, vocab_size));
        for (i, rows) in hidden.iter().enumerate() {
            put(&format!("hidden.{i}"), Array::floats(rows, width));
        }
        if self.greedy > 0 {
            put("greedy", Array::ids(&greedy));
        }
        if let Some(depth) = self.mtp {
            put("drafted", Array::integers(drafted, vec![accepted.len(), depth]));
            put("accepted", Array::integers(accepted.clone(), vec![accepted.len()]));
        }
        if let Some(eyes) = engine.eyes().filter(|_| !self.prompt.looked.is_empty()) {
            let layout = &eyes.encoder.layout;
            let (mut grids, mut patches) = (Vec::new(), Vec::new());
            for looked in &self.prompt.looked {
                let pixels = eyes.pixels(looked)?;
                let [slots, rows, columns] = layout.grid(&pixels);
                grids.extend([slots, rows, columns].map(|n| n as i64));
                patches.extend((0..slots).flat_map(|slot| layout.patches(&pixels, slot, 0..rows * columns)));
            }
            put("pixel_values", Array::floats(&patches, layout.patch_values()));
            put("image_grid_thw", Array::integers(grids, vec![self.prompt.looked.len(), 3]));
            let positions = self.prompt.layout.positions.0.concat();
            put("position_ids", Array::integers(positions, vec![3, ids.len()]));
        }
        Ok(())
    }
}

/// Greedy continuation of a prompt that is in a cache.
struct Greedy<'a> {
    model: &'a Model,
    n_valid: usize,
    wanted: usize,
}

/// Tokens, and what was drafted and accepted on the way to them.
#[derive(Default)]
struct Drafted {
    ids: Vec<u32>,
    /// `[rounds, depth]`, flat.
    drafted: Vec<i64>,
    accepted: Vec<i64>,
}

impl Greedy<'_> {
    fn choose(&self, logits: &[f32]) -> Result<u32, EngineError> {
        Ok(Sampler::new(SamplingParams::GREEDY, 0).sample(logits, self.n_valid)?)
    }

    fn one_by_one(&self, mut last: Vec<f32>, cache: &mut Cache) -> Result<Drafted, EngineError> {
        let mut out = Drafted::default();
        while out.ids.len() < self.wanted {
            let id = self.choose(&last)?;
            out.ids.push(id);
            if out.ids.len() < self.wanted {
                last = read(self.model.logits(self.model.forward(&[id], cache, None)))?;
            }
        }
        Ok(out)
    }

    fn drafted(&self, last: Vec<f32>, depth: usize, cache: &mut Cache) -> Result<Drafted, EngineError> {
        let mut out = Drafted::default();
        if self.wanted == 0 {
            return Ok(out);
        }
        let mut next = self.choose(&last)?;
        out.ids.push(next);
        while out.ids.len() < self.wanted {
            let choose = |guess: Guess| Ok::<_, EngineError>(Some(self.choose(&read(guess.logits)?)?));
            let drafts = self.model.draft(next, depth, cache, None, choose)?;
            let logits = read(self.model.logits(self.model.judge(next, &drafts, cache)))?;
            let mut accepted = 0;
            for (i, row) in logits.chunks_exact(self.model.config.vocab_size).enumerate() {
                next = self.choose(row)?;
                if out.ids.len() < self.wanted {
                    out.ids.push(next);
                }
                if drafts.get(i) != Some(&next) {
                    break;
                }
                accepted += 1;
            }
            cache.keep(1 + accepted, 1 + drafts.len());
            out.drafted.extend(drafts.into_iter().map(i64::from));
            out.accepted.push(accepted as i64);
        }
        Ok(out)
    }
}

/// The messages of a case, its pictures in their places.
fn with_pictures(messages: &Value, case: &Value, cases: &Path) -> Result<Vec<Message>, String> {
    let list = match case.get("images") {
        None | Some(Value::Null) => &Vec::new(),
        Some(images) => images.as_array().ok_or("images is not a list of paths")?,
    };
    let paths: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
    let mut paths = paths.ok_or("images is not a list of paths")?.into_iter();
    let detail = match case.get("detail") {
        None | Some(Value::Null) => Detail::High,
        Some(detail) => detail.as_str().ok_or("detail is not text")?.parse()?,
    };
    let mut messages = messages.clone();
    let parts = messages.as_array_mut().into_iter().flatten();
    for part in parts.filter_map(|message| message.get_mut("content")?.as_array_mut()).flatten() {
        let Some(part) = part.as_object_mut() else { continue };
        let is_picture = part.get("type").is_some_and(|kind| kind == "image" || kind == "image_url");
        if is_picture && part.len() == 1 {
            let path = paths.next().ok_or("the messages have more pictures than images")?;
            part.insert("path".to_owned(), path.into());
        }
    }
    let mut messages = messages_from_json(&messages)?;
    let last = messages.last_mut().expect("the list is not empty");
    let rest = paths.map(|path| Part::Image(Picture::file(path.into(), detail)));
    last.parts.splice(0..0, rest);
    for picture in messages.iter_mut().flat_map(Message::pictures_mut) {
        picture.detail = detail;
        // Relative to the working folder, or to the cases that name it.
        if let PictureSource::File(path) = &mut picture.source
            && !path.exists()
            && let Some(dir) = cases.parent()
        {
            *path = dir.join(&path);
        }
    }
    Ok(messages)
}

/// A tensor to write.
struct Array {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Array {
    fn ids(ids: &[u32]) -> Self {
        Self::integers(ids.iter().copied().map(i64::from).collect(), vec![ids.len()])
    }

    fn integers(values: Vec<i64>, shape: Vec<usize>) -> Self {
        Self { dtype: Dtype::I64, shape, bytes: values.into_iter().flat_map(i64::to_le_bytes).collect() }
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

/// `dev frames`.
///
/// # Errors
/// A sentence, with the outcome that it means.
pub fn frames(rows: usize, size: &str) -> Result<Outcome, (Outcome, String)> {
    let sides =
        size.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    let Some((width @ 20..=1000, height @ 6..=500)) = sides else {
        return Err((Outcome::Usage, format!("--size can't be {size}: expected something like 120x40")));
    };
    let mut text = String::new();
    for line in crate::tui::frames::measure(rows, width, height) {
        text.push_str(&line);
        text.push('\n');
    }
    let written = io::stdout().write_all(text.as_bytes());
    written.map_err(|error| (Outcome::EngineFailed, format!("cannot write: {error}")))?;
    Ok(Outcome::Done)
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
