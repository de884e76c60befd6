//! A GGUF file as the model folder it was made from: its keys as config.json, tokenizer.json and their like.
//!
//! So everything that reads a model folder reads a GGUF file too, with the same checks. The second file that a model
//! with eyes has (`mmproj`) is found beside the first.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{Gguf, GgufError};

/// Of a file split into shards; the most that is sensible.
const MAX_SHARDS: u64 = 1_000;
/// More than any model has; `config.rs` refuses them.
const MAX_LAYERS: u64 = 1 << 11;
/// Frames of a patch, which no key tells: the converter refuses other numbers.
const TEMPORAL_PATCH_SIZE: usize = 2;

/// The pattern that splits text before merging, by the name of the pre-tokenizer.
const PATTERNS: [(&str, &str); 2] = [
    (
        "qwen35",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

const MODEL_TYPES: [(&str, &str); 3] =
    [("qwen35", "qwen3_5"), ("qwen35moe", "qwen3_5_moe"), ("qwen3next", "qwen3_next")];

/// The files of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The first shard, if there are several.
    model: PathBuf,
    /// Files that may be the vision tower, in the order in which to try them.
    towers: Vec<PathBuf>,
}

/// Whether this is such a file: by its name, or by its content.
pub fn is_gguf(path: &Path) -> bool {
    path.is_file() && (is_named_gguf(path) || begins_like_gguf(path))
}

fn is_named_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// Ollama's store names files by their hashes alone.
fn begins_like_gguf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"GGUF"
}

/// The GGUF files that a model path stands for: a file, or a folder that holds one and no config.json.
///
/// # Errors
/// `Several` if it isn't clear which one is meant.
pub fn find(path: &Path) -> Result<Option<Files>, GgufError> {
    if is_gguf(path) {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (_, towers) = list(dir);
        return Ok(Some(Files { model: path.to_owned(), towers }));
    }
    if !path.is_dir() || path.join("config.json").exists() {
        return Ok(None);
    }
    let (mut models, towers) = list(path);
    match models.len() {
        0 => Ok(None),
        1 => Ok(Some(Files { model: models.remove(0), towers })),
        _ => Err(GgufError::Several {
            dir: path.to_owned(),
            names: models.iter().map(|path| name(path)).collect(),
        }),
    }
}

/// Models and vision towers of a folder, each sorted; of shards only the first.
fn list(dir: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = dir.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| is_named_gguf(path) && path.is_file()).collect();
    files.sort_unstable();
    files.retain(|path| shard_of(&name(path)).is_none_or(|(_, number, _)| number == 1));
    files.into_iter().partition(|path| !name(path).to_lowercase().contains("mmproj"))
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// `model-00001-of-00003.gguf` as `model`, 1 and 3.
fn shard_of(name: &str) -> Option<(&str, u64, u64)> {
    let stem = name.get(..name.len().checked_sub(".gguf".len())?)?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (base, number) = rest.rsplit_once('-')?;
    let five_digits = |text: &str| (text.len() == 5).then(|| text.parse().ok()).flatten();
    Some((base, five_digits(number)?, five_digits(count)?))
}

impl Files {
    /// All files, the model's first one first and the vision tower last.
    ///
    /// # Errors
    /// [`GgufError`] names the file and what is wrong with it.
    pub fn open(&self) -> Result<Vec<Gguf>, GgufError> {
        let first = Gguf::open(&self.model)?;
        let damaged = |why: String| GgufError::Damaged { path: self.model.clone(), why };
        let count = first.whole("split.count").unwrap_or(1).max(1);
        if first.whole("split.no").is_some_and(|number| number > 0) {
            return Err(damaged(format!("it is a part of a model; name the first one, of {count}")));
        }
        let tower = self.tower(&first)?;
        let mut files = vec![first];
        if count > 1 {
            let name = name(&self.model);
            let (base, _, named) = shard_of(&name)
                .ok_or_else(|| damaged("it is a part of a model, but isn't named like one".into()))?;
            if named != count || count > MAX_SHARDS {
                return Err(damaged(format!("it says that it is one of {count} files")));
            }
            for number in 2..=count {
                let path = self.model.with_file_name(format!("{base}-{number:05}-of-{count:05}.gguf"));
                let shard = Gguf::open(&path)?;
                if shard.whole("split.no") != Some(number - 1) {
                    let why = format!("it is not number {number} of its model's files");
                    return Err(GgufError::Damaged { path, why });
                }
                files.push(shard);
            }
        }
        files.extend(tower);
        Ok(files)
    }

    /// The first vision tower that fits the model. A folder may hold those of others.
    fn tower(&self, model: &Gguf) -> Result<Option<Gguf>, GgufError> {
        let width = architecture(model)?.whole("embedding_length");
        for path in &self.towers {
            let file = Gguf::open(path)?;
            if width.is_some() && file.whole("clip.vision.projection_dim") == width {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// The text of one of the files of the model folder, if this model has it.
    ///
    /// # Errors
    /// [`GgufError`] names the file and what is wrong with it.
    pub fn text(&self, name: &str) -> Result<Option<String>, GgufError> {
        let model = Gguf::open(&self.model)?;
        let not_usable = |why: String| GgufError::Damaged { path: self.model.clone(), why };
        Ok(match name {
            "config.json" => {
                let tower = self.tower(&model)?;
                Some(config(architecture(&model)?, tower.as_ref()).map_err(not_usable)?.to_string())
            }
            "tokenizer.json" => Some(tokenizer(&model).map_err(not_usable)?.to_string()),
            "chat_template.jinja" => model.text("tokenizer.chat_template").map(str::to_owned),
            "generation_config.json" => Some(generation_config(&model).to_string()),
            "preprocessor_config.json" => {
                self.tower(&model)?.map(|tower| preprocessor_config(&tower).to_string())
            }
            _ => None,
        })
    }
}

/// One line for people: what was found. `files` are those of [`Files::open`].
pub fn describe(files: &[Gguf]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for tensor in files.iter().flat_map(|file| &file.tensors).filter(|tensor| tensor.shape.len() > 1) {
        match counts.iter_mut().find(|(name, _)| *name == tensor.kind.name) {
            Some((_, bytes)) => *bytes += tensor.data.len(),
            None => counts.push((tensor.kind.name, tensor.data.len())),
        }
    }
    counts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let types: Vec<&str> = counts.into_iter().map(|(name, _)| name).collect();
    let tower = files.last().filter(|file| is_tower(file));
    let tower = tower.map(|file| format!("; pictures by {}", name(&file.path)));
    format!("{}: GGUF, weights in {}{}", name(&files[0].path), types.join(", "), tower.unwrap_or_default())
}

fn is_tower(file: &Gguf) -> bool {
    file.text("general.architecture") == Some("clip")
}

/// A file's keys under the prefix that its architecture gives them.
#[derive(Clone, Copy)]
struct Architecture<'a> {
    file: &'a Gguf,
    name: &'a str,
    model_type: &'static str,
}

fn architecture(file: &Gguf) -> Result<Architecture<'_>, GgufError> {
    let name = file.text("general.architecture").unwrap_or("without a name");
    match MODEL_TYPES.iter().find(|(architecture, _)| *architecture == name) {
        Some((_, model_type)) => Ok(Architecture { file, name, model_type }),
        None => {
            let what = match name {
                "clip" => "a vision tower (mmproj) by itself; name the model's own file".into(),
                _ => format!("the architecture {name:?}"),
            };
            Err(GgufError::NotSupported { path: file.path.clone(), what })
        }
    }
}

impl Architecture<'_> {
    fn whole(self, key: &str) -> Option<u64> {
        self.file.whole(&format!("{}.{key}", self.name))
    }

    fn float(self, key: &str) -> Option<f64> {
        self.file.float(&format!("{}.{key}", self.name))
    }

    fn numbers(self, key: &str) -> Option<Vec<f64>> {
        self.file.numbers(&format!("{}.{key}", self.name))
    }

    fn needed(self, key: &str) -> Result<u64, String> {
        self.whole(key).ok_or_else(|| format!("{}.{key} is missing or not a number", self.name))
    }

    /// A count that may be given for each layer; linear layers then have none.
    fn most(self, key: &str) -> Result<u64, String> {
        let counts = self.numbers(key).unwrap_or_default();
        let most = counts.into_iter().fold(0.0, f64::max);
        if most >= 1.0 {
            Ok(most as u64)
        } else {
            Err(format!("{}.{key} is missing or not a number", self.name))
        }
    }
}

/// `config.json`, in the flat form of text-only models.
fn config(model: Architecture, tower: Option<&Gguf>) -> Result<Value, String> {
    let blocks = model.needed("block_count")?;
    let layers = blocks
        .checked_sub(model.whole("nextn_predict_layers").unwrap_or_default())
        .ok_or("nextn_predict_layers is more than block_count")?;
    let file = model.file;
    let embedding = file.tensor("token_embd.weight").ok_or("the tensor token_embd.weight is missing")?;
    let value_heads = model.needed("ssm.time_step_rank")?;
    let head_dim = model.needed("attention.key_length")?;
    let width = model.needed("ssm.inner_size")?;
    let value_head_dim = width
        .checked_div(value_heads)
        .filter(|dim| dim.checked_mul(value_heads) == Some(width))
        .ok_or("ssm.inner_size is not a multiple of ssm.time_step_rank")?;

    let mut rope = Map::new();
    rope.insert("rope_theta".into(), model.float("rope.freq_base").into());
    let rotary_dim = model.float("rope.dimension_count");
    rope.insert("partial_rotary_factor".into(), rotary_dim.map(|dim| dim / head_dim as f64).into());
    if let Some(sections) = model.numbers("rope.dimension_sections") {
        let sections: Vec<u64> = sections.iter().take(3).map(|n| *n as u64).collect();
        rope.insert("mrope_section".into(), sections.into());
    }

    let mut config = json!({
        "model_type": model.model_type,
        "vocab_size": embedding.shape[0],
        "hidden_size": model.needed("embedding_length")?,
        "num_hidden_layers": layers,
        "num_attention_heads": model.most("attention.head_count")?,
        "num_key_value_heads": model.most("attention.head_count_kv")?,
        "head_dim": head_dim,
        "linear_num_key_heads": model.needed("ssm.group_count")?,
        "linear_num_value_heads": value_heads,
        "linear_key_head_dim": model.needed("ssm.state_size")?,
        "linear_value_head_dim": value_head_dim,
        "linear_conv_kernel_dim": model.needed("ssm.conv_kernel")?,
        "rms_norm_eps": model.float("attention.layer_norm_rms_epsilon"),
        "rope_parameters": rope,
        "max_position_embeddings": model.whole("context_length"),
        "tie_word_embeddings": file.tensor("output.weight").is_none(),
        "full_attention_interval": model.whole("full_attention_interval"),
        "eos_token_id": file.whole("tokenizer.ggml.eos_token_id"),
    });
    let optional = [
        ("intermediate_size", "feed_forward_length"),
        ("num_experts", "expert_count"),
        ("num_experts_per_tok", "expert_used_count"),
        ("moe_intermediate_size", "expert_feed_forward_length"),
        ("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    ];
    for (name, key) in optional {
        if let Ok(n) = model.most(key) {
            config[name] = n.into();
        }
    }
    if model.whole("expert_count").is_some() && config.get("shared_expert_intermediate_size").is_none() {
        config["shared_expert_intermediate_size"] = 0.into();
    }
    let is_dense = |i: &u64| file.tensor(&format!("blk.{i}.ffn_gate.weight")).is_some();
    if model.model_type == "qwen3_next" {
        config["mlp_only_layers"] = (0..layers.min(MAX_LAYERS)).filter(is_dense).collect();
    }
    if let Some(recurrent) = model.numbers("attention.recurrent_layers") {
        let names = recurrent.iter().take(usize::try_from(layers).unwrap_or(usize::MAX));
        config["layer_types"] =
            names.map(|r| if *r == 0.0 { "full_attention" } else { "linear_attention" }).collect();
    }
    if let Some(tower) = tower {
        config["vision_config"] = vision_config(tower)?;
    }
    Ok(config)
}

fn vision_config(tower: &Gguf) -> Result<Value, String> {
    let projector = tower.text("clip.projector_type").unwrap_or_default();
    if projector != "qwen3vl_merger" {
        return Err(format!("its vision tower {} is of the kind {projector:?}", name(&tower.path)));
    }
    let whole = |key: &str| {
        tower
            .whole(&format!("clip.vision.{key}"))
            .ok_or_else(|| format!("clip.vision.{key} is missing in {}", name(&tower.path)))
    };
    let side = whole("image_size")?.checked_div(whole("patch_size")?).ok_or("clip.vision.patch_size is 0")?;
    let deepstack = tower.numbers("clip.vision.is_deepstack_layers").unwrap_or_default();
    let deepstack: Vec<usize> = (0..deepstack.len()).filter(|i| deepstack[*i] != 0.0).collect();
    Ok(json!({
        "depth": whole("block_count")?,
        "hidden_size": whole("embedding_length")?,
        "intermediate_size": whole("feed_forward_length")?,
        "num_heads": whole("attention.head_count")?,
        "patch_size": whole("patch_size")?,
        "temporal_patch_size": TEMPORAL_PATCH_SIZE,
        "spatial_merge_size": whole("spatial_merge_size")?,
        "num_position_embeddings": side.saturating_mul(side),
        "out_hidden_size": whole("projection_dim")?,
        "deepstack_visual_indexes": deepstack,
    }))
}

fn preprocessor_config(tower: &Gguf) -> Value {
    let mut config = json!({});
    for (name, key) in [("image_mean", "clip.vision.image_mean"), ("image_std", "clip.vision.image_std")] {
        if let Some(numbers) = tower.numbers(key) {
            config[name] = numbers.into();
        }
    }
    config
}

/// What the file recommends for sampling. The ids that end an answer are left to `config.json`, since there is only
/// room for one here, and the family has two.
fn generation_config(model: &Gguf) -> Value {
    let mut config = json!({});
    let keys = [
        ("temperature", "temp"),
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("repetition_penalty", "penalty_repeat"),
    ];
    for (name, key) in keys {
        if let Some(x) = model.float(&format!("general.sampling.{key}")) {
            config[name] = x.into();
        }
    }
    if let Some(n) = model.whole("general.sampling.top_k") {
        config["top_k"] = n.into();
    }
    config
}

/// `tokenizer.json`: byte-level BPE with the tokens, merges and the split pattern that the file names.
fn tokenizer(model: &Gguf) -> Result<Value, String> {
    const NORMAL: f64 = 1.0;
    const CONTROL: f64 = 3.0;
    const USER_DEFINED: f64 = 4.0;
    match model.text("tokenizer.ggml.model") {
        Some("gpt2") => {}
        other => return Err(format!("its tokenizer is {:?}, expected gpt2", other.unwrap_or_default())),
    }
    let pre = model.text("tokenizer.ggml.pre").unwrap_or_default();
    let (_, pattern) = PATTERNS
        .iter()
        .find(|(name, _)| *name == pre)
        .ok_or_else(|| format!("its pre-tokenizer is {pre:?}, expected qwen35 or qwen2"))?;
    let list = |key: &str| {
        model
            .texts(&format!("tokenizer.ggml.{key}"))
            .ok_or_else(|| format!("tokenizer.ggml.{key} is missing or not a list of texts"))
    };
    let (tokens, merges) = (list("tokens")?, list("merges")?);
    let types = model.numbers("tokenizer.ggml.token_type").unwrap_or_else(|| vec![NORMAL; tokens.len()]);
    if types.len() != tokens.len() {
        return Err(format!("it has {} tokens and {} types of tokens", tokens.len(), types.len()));
    }
    // Padding of the matrices has types of its own and is left out.
    let mut vocab = Map::new();
    let mut added = Vec::new();
    for (id, (token, kind)) in tokens.iter().zip(&types).enumerate() {
        if ![NORMAL, CONTROL, USER_DEFINED].contains(kind) {
            continue;
        }
        if vocab.insert((*token).to_owned(), id.into()).is_some() {
            return Err(format!("the token {token:?} appears twice"));
        }
        if *kind != NORMAL {
            added.push(json!({
                "id": id, "content": token, "special": *kind == CONTROL, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            }));
        }
    }
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let split =
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    Ok(json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }))
}

#[cfg(test)]
mod tests;
