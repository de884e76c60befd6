//! `loquat models inspect`: what there is to say about a model that is here, as text and as JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::cli::InspectArgs;
use crate::engine::config::LayerType;
use crate::engine::generate::{EngineError, LoadOptions};
use crate::engine::inspect::{self, Inspection, Memory};
use crate::engine::weights::TensorFacts;
use crate::engine::weights::groups::Group;
use crate::engine::weights::quantised::Bits;
use crate::sanitize::one_line;
use crate::units::ByteSize;

/// `loquat models inspect`.
///
/// # Errors
/// If there is no model that can be used; a closed output is an end.
pub fn inspect(load: &LoadOptions, args: &InspectArgs) -> Result<(), EngineError> {
    let inspection = inspect::inspect(load)?;
    let text = match args.json {
        true => format!("{}\n", to_json(&inspection)),
        false => to_text(&inspection, args.tensors),
    };
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Tensors that have something in common.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    tensors: usize,
    parameters: u64,
    bytes: u64,
}

impl Sum {
    fn of<'a>(tensors: impl IntoIterator<Item = &'a TensorFacts<'a>>) -> Self {
        tensors.into_iter().fold(Self::default(), |sum, tensor| Self {
            tensors: sum.tensors + 1,
            parameters: sum.parameters.saturating_add(tensor.parameters),
            bytes: sum.bytes.saturating_add(tensor.bytes),
        })
    }

    fn to_json(self) -> Value {
        json!({"tensors": self.tensors, "parameters": self.parameters, "bytes": self.bytes})
    }
}

/// By part of the model, without parts that it doesn't have.
fn by_group(tensors: &[TensorFacts]) -> Vec<(&'static str, Sum)> {
    let sums = Group::ALL.map(|group| (group.name(), Sum::of(tensors.iter().filter(|t| t.group == group))));
    sums.into_iter().filter(|(_, sum)| sum.tensors > 0).collect()
}

/// By the type that the file names, the one with the most bytes first.
fn by_format<'a>(tensors: &[TensorFacts<'a>]) -> Vec<(&'a str, Sum)> {
    let mut formats: BTreeMap<&str, Vec<&TensorFacts>> = BTreeMap::new();
    for tensor in tensors {
        formats.entry(tensor.type_name).or_default().push(tensor);
    }
    let mut sums: Vec<_> = formats.into_iter().map(|(name, tensors)| (name, Sum::of(tensors))).collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.bytes));
    sums
}

/// `BF16 safetensors, 1 file`: the formats of matrices, since small tensors are in others more often than not.
fn found(inspection: &Inspection, tensors: &[TensorFacts]) -> String {
    let checkpoint = &inspection.checkpoint;
    let matrices: Vec<TensorFacts> = tensors.iter().filter(|t| t.shape.len() > 1).copied().collect();
    let formats: Vec<String> = match checkpoint.packing() {
        Some(packing) => vec![packing.into()],
        None => by_format(&matrices).into_iter().map(|(name, _)| one_line(name)).collect(),
    };
    let n = checkpoint.n_files();
    let files = if n == 1 { "file" } else { "files" };
    format!("{} {}, {n} {files}", formats.join(" + "), checkpoint.container())
}

fn to_text(inspection: &Inspection, with_tensors: bool) -> String {
    let Inspection { name, config, checkpoint, sees, has_mtp, bits, errors, memory } = inspection;
    let tensors = checkpoint.tensors();
    let all = Sum::of(&tensors);
    let [linear, full] =
        [LayerType::LinearAttention, LayerType::FullAttention].map(|kind| config.n_layers(kind));
    let yes = |is: bool| if is { "yes" } else { "no" };
    let mut facts = vec![
        ("architecture", format!("{}, hidden size {}", config.model_type, config.hidden_size)),
        ("found", format!("{}, {}", found(inspection, &tensors), ByteSize(all.bytes))),
        ("parameters", count(all.parameters)),
        ("layers", format!("{}: {linear} linear attention, {full} full attention", linear + full)),
    ];
    if let Some(moe) = &config.moe {
        let (n, per_token) = (moe.num_experts, moe.num_experts_per_tok);
        let layers = moe.n_sparse_layers();
        facts.push(("experts", format!("{n} in each of {layers} layers, {per_token} for a token")));
    }
    if let Some(bits) = bits {
        let worst = errors.values().copied().fold(0.0, f64::max);
        facts.push((
            "loaded as",
            match errors.is_empty() {
                true => bits.name().into(),
                false => format!("{}, at most {:.2} % error in a tensor", bits.name(), 100.0 * worst),
            },
        ));
    }
    facts.extend([
        ("vision", yes(*sees).into()),
        ("MTP head", yes(*has_mtp).into()),
        ("context", format!("up to {} tokens", config.max_position_embeddings)),
    ]);
    let mut text = format!("{}\n", one_line(name));
    for (name, value) in facts {
        text += &format!("  {name:<22} {value}\n");
    }
    for (title, sums) in [("parts", by_group(&tensors)), ("formats", by_format(&tensors))] {
        text += &format!("\n{title}\n");
        for (name, sum) in sums {
            text += &format!(
                "  {:<22} {:>10}  {:>14} parameters in {} {}\n",
                one_line(name),
                ByteSize(sum.bytes),
                count(sum.parameters),
                sum.tensors,
                if sum.tensors == 1 { "tensor" } else { "tensors" },
            );
        }
    }
    text += &memory_to_text(memory);
    if with_tensors {
        text += "\ntensors\n";
        for tensor in tensors {
            let TensorFacts { name, type_name, shape, bytes, .. } = tensor;
            let error = errors.get(name).map(|error| format!("  ({:.2} % error)", 100.0 * error));
            text += &format!(
                "  {:<8} {:>12}  {:<22} {}{}\n",
                one_line(type_name),
                bytes,
                shape_to_text(shape),
                one_line(name),
                error.unwrap_or_default(),
            );
        }
    }
    text
}

fn shape_to_text(shape: &[usize]) -> String {
    let axes: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("[{}]", axes.join(", "))
}

fn memory_to_text(memory: &Memory) -> String {
    let device = if memory.is_gpu { "a GPU" } else { "the CPU" };
    let mut text = format!("\nmemory on {device}, with a context of {} tokens\n", memory.context_tokens);
    let mut line = |name: &str, bytes: u64| text += &format!("  {name:<22} {:>10}\n", ByteSize(bytes));
    for (name, bytes) in memory.needs.terms() {
        line(name, bytes);
    }
    line("together", memory.needs.total());
    if let Some(available) = memory.available {
        line("available", available);
    }
    text += &match (memory.fits(), memory.fitting_context) {
        (Some(true), _) => "  It fits.\n".into(),
        (Some(false), Some(tokens)) => format!("  Too big; --context {tokens} fits.\n"),
        (Some(false), None) => "  Too big, whatever the context.\n".into(),
        (None, _) => "  Whether it fits can't be told: the GPU doesn't say how much memory it has.\n".into(),
    };
    text
}

/// A number of parameters for people.
fn count(n: u64) -> String {
    let x = n as f64;
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.0} thousand", x / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} million", x / 1e6),
        _ => format!("{:.2} billion", x / 1e9),
    }
}

fn to_json(inspection: &Inspection) -> Value {
    let Inspection { name, config, checkpoint, sees, has_mtp, bits, errors, memory } = inspection;
    let tensors = checkpoint.tensors();
    let all = Sum::of(&tensors);
    let sums = |sums: Vec<(&str, Sum)>| -> Map<String, Value> {
        sums.into_iter().map(|(name, sum)| (one_line(name), sum.to_json())).collect()
    };
    let experts = config.moe.as_ref().map(|moe| {
        json!({
            "count": moe.num_experts, "per_token": moe.num_experts_per_tok, "layers": moe.n_sparse_layers(),
        })
    });
    let tensor = |tensor: &TensorFacts| {
        json!({
            "name": one_line(tensor.name), "format": one_line(tensor.type_name), "shape": tensor.shape,
            "bytes": tensor.bytes, "parameters": tensor.parameters, "part": tensor.group.name(),
            "quantisation_error": errors.get(tensor.name),
        })
    };
    let terms: Map<String, Value> =
        memory.needs.terms().into_iter().map(|(name, bytes)| (name.into(), bytes.into())).collect();
    json!({
        "name": one_line(name),
        "architecture": config.model_type,
        "found": found(inspection, &tensors),
        "files": checkpoint.n_files(),
        "bytes": all.bytes,
        "parameters": all.parameters,
        "layers": {
            "linear_attention": config.n_layers(LayerType::LinearAttention),
            "full_attention": config.n_layers(LayerType::FullAttention),
        },
        "experts": experts,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "quantised": bits.map(Bits::name),
        "vision": sees,
        "mtp": has_mtp,
        "context_limit": config.max_position_embeddings,
        "parts": sums(by_group(&tensors)),
        "formats": sums(by_format(&tensors)),
        "memory": {
            "device": if memory.is_gpu { "gpu" } else { "cpu" },
            "context": memory.context_tokens,
            "terms": terms,
            "total": memory.needs.total(),
            "available": memory.available,
            "fits": memory.fits(),
            "fitting_context": memory.fitting_context,
        },
        "tensors": tensors.iter().map(tensor).collect::<Vec<_>>(),
    })
}
