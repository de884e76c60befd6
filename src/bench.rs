//! `loquat bench`: what this machine does with this model. Medians, with the spread, of repeated steps that take
//! turns, so that a busy neighbour disturbs all of them alike.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::cli::BenchArgs;
use crate::engine::cache::Cache;
use crate::engine::generate::{Engine, EngineError, LoadOptions, PREFILL_CHUNK, read};
use crate::engine::kernels::profile::{self, Spent};
use crate::engine::model::{Model, Tokens};
use crate::engine::ram;
use crate::engine::vision::preprocess::Pixels;
use crate::msg::MAX_DRAFTS;
use crate::units::ByteSize;

/// Answers that are written at the same time.
const COMPANY: [usize; 3] = [2, 4, 8];

/// One line of the result.
struct Row {
    name: String,
    /// Of what `times` measure: tokens of a prompt, of a step, of a picture.
    tokens: usize,
    times: Vec<Duration>,
}

impl Row {
    fn new(name: impl Into<String>, tokens: usize) -> Self {
        Self { name: name.into(), tokens, times: Vec::new() }
    }

    /// Least, median and most, in seconds.
    fn spread(&self) -> [f64; 3] {
        let mut seconds: Vec<f64> = self.times.iter().map(Duration::as_secs_f64).collect();
        seconds.sort_by(f64::total_cmp);
        [seconds[0], seconds[seconds.len() / 2], seconds[seconds.len() - 1]]
    }
}

/// Measures and prints.
///
/// # Errors
/// If the model can't be loaded or the device fails; a closed output is an end.
pub fn bench(load: &LoadOptions, args: &BenchArgs) -> Result<(), EngineError> {
    let mut engine = Engine::load(load)?;
    let mut rows = vec![prefill(&engine, args)?];
    let steps = steps(&engine, args)?;
    let plain = steps[0].spread()[1];
    rows.extend(steps);
    rows.extend(together(&engine, args)?);
    for side in &args.picture {
        rows.extend(picture(&mut engine, *side, args)?);
    }
    let token = match engine.model().device.is_gpu {
        true => None,
        false => Some(token(&engine, args)?),
    };
    let text = match args.json {
        true => format!("{}\n", to_json(&engine, &rows, plain, token.as_ref())),
        false => to_text(&engine, &rows, plain, token.as_ref().map(|token| (token, args.profile))),
    };
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Token ids of no meaning: speed doesn't depend on them.
fn ids(model: &Model, n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761) % model.config.vocab_size as u32).collect()
}

fn read_prompt(model: &Model, ids: &[u32], cache: &mut Cache) -> Result<(), EngineError> {
    for chunk in ids.chunks(PREFILL_CHUNK) {
        let hidden = model.forward(chunk, cache, None);
        model.catch_up(cache);
        read(hidden.narrow(0, chunk.len() - 1, 1))?;
    }
    Ok(())
}

fn prefill(engine: &Engine, args: &BenchArgs) -> Result<Row, EngineError> {
    let model = engine.model();
    let prompt = ids(model, args.prompt);
    let mut row = Row::new("read a prompt", prompt.len());
    let mut cache = model.new_cache();
    // A prompt is long enough to be measured fewer times than a step.
    for _ in 0..args.repeat.div_ceil(4) {
        cache.reset();
        let started = Instant::now();
        read_prompt(model, &prompt, &mut cache)?;
        row.times.push(started.elapsed());
    }
    Ok(row)
}

/// Steps over one token, and over a token with drafts behind it; making a draft.
fn steps(engine: &Engine, args: &BenchArgs) -> Result<Vec<Row>, EngineError> {
    let model = engine.model();
    let mut cache = model.new_drafting_cache();
    read_prompt(model, &ids(model, args.prompt), &mut cache)?;
    let mut rows = vec![Row::new("write a token", 1)];
    rows.extend((1..=MAX_DRAFTS).map(|n| Row::new(format!("judge {n} drafts"), n + 1)));
    let mut draft = Row::new("make a draft", 1);
    let tokens = ids(model, MAX_DRAFTS + 1);
    for _ in 0..args.repeat {
        for row in &mut rows {
            let ids = &tokens[..row.tokens];
            let started = Instant::now();
            read(model.logits(model.judge(ids[0], &ids[1..], &mut cache)))?;
            row.times.push(started.elapsed());
            cache.keep(0, ids.len());
        }
        if model.can_draft() {
            // A token that stays, so that the head has a state to start from.
            model.forward(&tokens[..1], &mut cache, None);
            model.catch_up(&mut cache);
            let started = Instant::now();
            model.draft(tokens[1], 1, &mut cache, engine.shortlist(), |guess| {
                read(guess.logits)?;
                Ok::<_, EngineError>(None)
            })?;
            draft.times.push(started.elapsed());
        }
    }
    if model.can_draft() {
        rows.push(draft);
    }
    Ok(rows)
}

/// A token for each of several answers in one pass.
fn together(engine: &Engine, args: &BenchArgs) -> Result<Vec<Row>, EngineError> {
    let model = engine.model();
    let mut cache = model.new_cache();
    read_prompt(model, &ids(model, args.prompt), &mut cache)?;
    let mut caches = vec![cache; COMPANY[COMPANY.len() - 1]];
    let mut rows: Vec<Row> = COMPANY.iter().map(|n| Row::new(format!("write for {n}"), *n)).collect();
    for _ in 0..args.repeat {
        for row in &mut rows {
            let started = Instant::now();
            let sequences = caches[..row.tokens]
                .iter_mut()
                .map(|cache| (Tokens::text(&[0], cache.next_position()), cache));
            read(model.logits(model.forward_together(sequences.collect(), None)))?;
            row.times.push(started.elapsed());
        }
    }
    Ok(rows)
}

/// Encoding a square picture at full size.
fn picture(engine: &mut Engine, side: u32, args: &BenchArgs) -> Result<Option<Row>, EngineError> {
    let Some(eyes) = engine.eyes() else { return Ok(None) };
    let side = side.next_multiple_of(eyes.processor.image.factor);
    let image = image::RgbImage::from_fn(side, side, |x, y| image::Rgb([x as u8, y as u8, (x ^ y) as u8]));
    let pixels = Pixels { frames: vec![image] };
    let tokens = (side / eyes.processor.image.factor).pow(2) as usize;
    let mut row = Row::new(format!("look at {side}x{side}"), tokens);
    for _ in 0..args.repeat.div_ceil(4) {
        let started = Instant::now();
        let features = eyes.encoder.encode(&pixels, &mut || std::ops::ControlFlow::Continue(()), None);
        read(features.expect("nobody stops it"))?;
        row.times.push(started.elapsed());
    }
    Ok(Some(row))
}

/// What a token takes on the CPU.
struct Token {
    total: Duration,
    kernels: BTreeMap<&'static str, Spent>,
    /// How fast the memory is, in bytes a second.
    bandwidth: u64,
}

impl Token {
    fn weight_bytes(&self) -> usize {
        self.kernels.values().map(|spent| spent.weight_bytes).sum()
    }

    /// Tokens a second, if nothing but reading the weights took time.
    fn ceiling(&self) -> f64 {
        self.bandwidth as f64 / self.weight_bytes().max(1) as f64
    }
}

/// Has some tokens written under observation; all figures are of one of them.
fn token(engine: &Engine, args: &BenchArgs) -> Result<Token, EngineError> {
    let model = engine.model();
    let mut cache = model.new_cache();
    read_prompt(model, &ids(model, args.prompt), &mut cache)?;
    let n = args.repeat as u32;
    let started = Instant::now();
    let (result, mut kernels) = profile::of(|| {
        (0..n).try_for_each(|id| read(model.logits(model.forward(&[id], &mut cache, None))).map(drop))
    });
    let total = started.elapsed() / n;
    result?;
    for spent in kernels.values_mut() {
        spent.calls /= args.repeat;
        spent.time /= n;
        spent.weight_bytes /= args.repeat;
    }
    Ok(Token { total, kernels, bandwidth: ram::bandwidth() })
}

fn to_text(engine: &Engine, rows: &[Row], plain: f64, token: Option<(&Token, bool)>) -> String {
    let info = engine.info();
    let mut text = format!("{} on {}\n", crate::sanitize::clean(&info.name), info.device);
    text += &format!(
        "{:<18} {:>9} {:>9} {:>9} {:>9}  {:>6}\n",
        "", "median ms", "least", "most", "tok/s", "steps"
    );
    for row in rows {
        let [least, median, most] = row.spread();
        text += &format!(
            "{:<18} {:>9.1} {:>9.1} {:>9.1} {:>9.1}  {:>6.2}\n",
            row.name,
            median * 1e3,
            least * 1e3,
            most * 1e3,
            row.tokens as f64 / median,
            median / plain
        );
    }
    if let Some((token, is_wanted)) = token {
        text += &format!(
            "A token reads {} of weights; memory gives {}/s: at most {:.1} tok/s.\n",
            ByteSize(token.weight_bytes() as u64),
            ByteSize(token.bandwidth),
            token.ceiling()
        );
        if is_wanted {
            text += &profile_text(token);
        }
    }
    if let Some(peak) = ram::peak() {
        text += &format!(
            "Loaded in {:.2} s; at most {} of memory.\n",
            info.load_time.as_secs_f64(),
            ByteSize(peak)
        );
    }
    text
}

fn profile_text(token: &Token) -> String {
    let mut text = format!("\n{:<18} {:>9} {:>9} {:>7}\n", "a token", "ms", "calls", "share");
    let mut line = |name: &str, time: Duration, calls: String| {
        let share = time.as_secs_f64() / token.total.as_secs_f64() * 100.0;
        text += &format!("{name:<18} {:>9.2} {calls:>9} {share:>5.0} %\n", time.as_secs_f64() * 1e3);
    };
    for (name, spent) in &token.kernels {
        line(name, spent.time, spent.calls.to_string());
    }
    let kernels: Duration = token.kernels.values().map(|spent| spent.time).sum();
    line("the rest", token.total.saturating_sub(kernels), String::new());
    line("all", token.total, String::new());
    text + "\n"
}

fn to_json(engine: &Engine, rows: &[Row], plain: f64, token: Option<&Token>) -> Value {
    let row = |row: &Row| {
        let [least, median, most] = row.spread();
        json!({"name": row.name, "tokens": row.tokens, "median_s": median, "least_s": least, "most_s": most,
               "steps": median / plain})
    };
    let mut object = Map::new();
    object.insert("model".into(), engine.info().name.clone().into());
    object.insert("device".into(), engine.info().device.clone().into());
    object.insert("load_s".into(), engine.info().load_time.as_secs_f64().into());
    object.insert("rows".into(), rows.iter().map(row).collect());
    if let Some(token) = token {
        let kernel = |(name, spent): (&&str, &Spent)| {
            json!({"name": name, "calls": spent.calls, "s": spent.time.as_secs_f64(),
                   "weight_bytes": spent.weight_bytes})
        };
        object.insert(
            "token".into(),
            json!({"s": token.total.as_secs_f64(), "weight_bytes": token.weight_bytes(),
                   "memory_bytes_per_s": token.bandwidth, "ceiling_tokens_per_s": token.ceiling(),
                   "kernels": token.kernels.iter().map(kernel).collect::<Vec<_>>()}),
        );
    }
    object.insert("peak_memory_bytes".into(), ram::peak().into());
    Value::Object(object)
}
