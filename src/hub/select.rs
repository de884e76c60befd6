//! Which files of a repository a model needs. Nothing else of it is fetched: no second copy of the weights in another
//! format, no code.

use serde_json::Value;

/// Small files that the engine reads, or other tools expect beside them.
const SMALL_FILES: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
    "quantize_config.json",
];
pub const INDEX: &str = "model.safetensors.index.json";
/// Of a repository with only GGUF files and no choice made: the usual one, else the next best there is.
const USUAL_QUANTS: [&str; 6] = ["Q4_K_M", "Q4_K_S", "Q5_K_M", "Q8_0", "BF16", "F16"];

/// What is to be fetched of a repository, by the names of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    Safetensors {
        small: Vec<String>,
        /// Names the rest; without one `weights` is complete.
        index: Option<String>,
        weights: Vec<String>,
    },
    Gguf {
        /// What the engine is given.
        model: String,
        /// Further shards of it, and what it sees with.
        others: Vec<String>,
    },
}

impl Wanted {
    /// All that is known to be needed, small files first.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Safetensors { small, index, weights } => {
                small.iter().chain(index).chain(weights).map(String::as_str).collect()
            }
            Self::Gguf { model, others } => others.iter().chain([model]).map(String::as_str).collect(),
        }
    }
}

/// Why nothing was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoChoice {
    Nothing,
    Several(Vec<String>),
    NoQuant(Vec<String>),
}

/// Chooses among the names of a repository. Those in folders are never needed.
///
/// # Errors
/// [`NoChoice`] if there is nothing, or if it isn't clear what is meant.
pub fn choose(names: &[String], quant: Option<&str>) -> Result<Wanted, NoChoice> {
    let has = |name: &str| names.iter().any(|there| there == name);
    let safetensors: Vec<&String> =
        names.iter().filter(|name| name.ends_with(".safetensors") && !name.contains('/')).collect();
    let has_weights = has(INDEX) || !safetensors.is_empty();
    if quant.is_none() && has_weights && has("config.json") && has("tokenizer.json") {
        let small = SMALL_FILES.into_iter().filter(|name| has(name)).map(str::to_owned).collect();
        let index = has(INDEX).then(|| INDEX.to_owned());
        let weights: Vec<String> = match (&index, safetensors.as_slice()) {
            (Some(_), _) => Vec::new(),
            (None, [only]) => vec![(*only).clone()],
            (None, _) if has("model.safetensors") => vec!["model.safetensors".into()],
            (None, _) => return Err(NoChoice::Nothing),
        };
        return Ok(Wanted::Safetensors { small, index, weights });
    }
    let models = gguf_models(names);
    let model = match quant {
        None => match models.as_slice() {
            [] => return Err(NoChoice::Nothing),
            [only] => only.clone(),
            several => {
                let usual =
                    USUAL_QUANTS.iter().find_map(|quant| several.iter().find(|name| is_quant(name, quant)));
                usual.ok_or_else(|| NoChoice::Several(quants(several)))?.clone()
            }
        },
        Some(quant) => {
            let named = models.iter().find(|name| is_quant(name, quant) || name.eq_ignore_ascii_case(quant));
            named.ok_or_else(|| NoChoice::NoQuant(quants(&models)))?.clone()
        }
    };
    let mut others: Vec<String> = other_shards(&model, names);
    others.extend(tower(names));
    Ok(Wanted::Gguf { model, others })
}

/// The GGUF files that are models: of shards the first, and no vision towers.
pub fn gguf_models(names: &[String]) -> Vec<String> {
    let is_model = |name: &&String| {
        name.to_lowercase().ends_with(".gguf")
            && !name.contains('/')
            && !name.to_lowercase().contains("mmproj")
            && shard(name).is_none_or(|(_, number, _)| number == 1)
    };
    names.iter().filter(is_model).cloned().collect()
}

fn other_shards(model: &str, names: &[String]) -> Vec<String> {
    let Some((base, _, count)) = shard(model) else { return Vec::new() };
    let is_other =
        |name: &&String| shard(name).is_some_and(|(of, number, n)| of == base && n == count && number != 1);
    names.iter().filter(is_other).cloned().collect()
}

/// Whether all files of a model that is split are there.
pub fn is_whole(model: &str, names: &[String]) -> bool {
    let n_others = other_shards(model, names).len();
    shard(model).is_none_or(|(_, _, count)| usize::try_from(count).is_ok_and(|count| count == n_others + 1))
}

/// The vision tower: the one with the most common type, since its precision costs little.
fn tower(names: &[String]) -> Option<String> {
    let towers: Vec<&String> = names
        .iter()
        .filter(|name| {
            !name.contains('/')
                && name.to_lowercase().contains("mmproj")
                && name.to_lowercase().ends_with(".gguf")
        })
        .collect();
    let of_type = |kind: &str| towers.iter().find(|name| is_quant(name, kind));
    of_type("F16").or_else(|| of_type("BF16")).or(towers.first()).map(|name| (*name).clone())
}

/// `x-00001-of-00003.gguf` as `x`, 1 and 3.
fn shard(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = name.get(..name.len().checked_sub(".gguf".len())?)?.rsplit_once("-of-")?;
    let (base, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| (text.len() == 5).then(|| text.parse().ok()).flatten();
    Some((base, digits(number)?, digits(count)?))
}

/// Whether a file's name ends in this type, as in `Qwen3.5-4B-Q4_K_M.gguf`. `UD-Q4_K_XL` is one too.
fn is_quant(name: &str, quant: &str) -> bool {
    let Some((before, end)) =
        stem(name).and_then(|stem| stem.split_at_checked(stem.len().checked_sub(quant.len())?))
    else {
        return false;
    };
    end.eq_ignore_ascii_case(quant) && (before.is_empty() || before.ends_with(['-', '.']))
}

/// `Q4_K_M` of `Qwen3.5-4B-Q4_K_M.gguf`.
pub fn quant_of(name: &str) -> Option<&str> {
    stem(name)?.rsplit(['-', '.']).next()
}

fn stem(name: &str) -> Option<&str> {
    match shard(name) {
        Some((base, ..)) => Some(base),
        None => name.get(..name.len().checked_sub(".gguf".len())?),
    }
}

fn quants(names: &[String]) -> Vec<String> {
    names.iter().map(|name| quant_of(name).unwrap_or(name).to_owned()).collect()
}

/// The files that an index names, if it is one.
pub fn shards(index: &[u8]) -> Option<Vec<String>> {
    let json: Value = serde_json::from_slice(index).ok()?;
    let names = json.get("weight_map")?.as_object()?.values().map(|name| name.as_str().map(str::to_owned));
    let mut names: Vec<String> = names.collect::<Option<_>>()?;
    names.sort_unstable();
    names.dedup();
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn of_a_repository_in_hub_layout_only_what_the_engine_reads_is_taken() {
        let all = names(&[
            "README.md",
            "config.json",
            "model.safetensors-00001-of-00001.safetensors",
            INDEX,
            "modeling.py",
            "pytorch_model.bin",
            "sub/model.safetensors",
            "tokenizer.json",
            "vocab.json",
            "x-Q4_K_M.gguf",
        ]);
        let wanted = choose(&all, None).unwrap();
        assert_eq!(wanted.names(), ["config.json", "tokenizer.json", INDEX]);
        let index =
            br#"{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}}"#;
        assert_eq!(shards(index).unwrap(), ["m-1.safetensors", "m-2.safetensors"]);
        let single = choose(
            &names(&["config.json", "model.safetensors", "other.safetensors", "tokenizer.json"]),
            None,
        );
        assert_eq!(single.unwrap().names(), ["config.json", "tokenizer.json", "model.safetensors"]);
        assert_eq!(choose(&names(&["config.json", "model.safetensors"]), None), Err(NoChoice::Nothing));
    }

    #[test]
    fn of_gguf_files_one_is_taken_with_its_shards_and_its_tower() {
        let all = names(&[
            "M-BF16-00001-of-00002.gguf",
            "M-BF16-00002-of-00002.gguf",
            "M-Q4_K_M.gguf",
            "M-Q8_0.gguf",
            "README.md",
            "mmproj-BF16.gguf",
            "mmproj-F16.gguf",
            "mmproj-F32.gguf",
        ]);
        assert_eq!(choose(&all, None).unwrap().names(), ["mmproj-F16.gguf", "M-Q4_K_M.gguf"]);
        assert_eq!(choose(&all, Some("q8_0")).unwrap().names(), ["mmproj-F16.gguf", "M-Q8_0.gguf"]);
        let split = choose(&all, Some("BF16")).unwrap();
        assert_eq!(
            split.names(),
            ["M-BF16-00002-of-00002.gguf", "mmproj-F16.gguf", "M-BF16-00001-of-00002.gguf"]
        );
        assert!(is_quant("M-UD-Q4_K_XL.gguf", "ud-q4_k_xl") && !is_quant("M-Q4_K_M.gguf", "K_M"));
        assert_eq!(choose(&all, Some("Q2_K")), Err(NoChoice::NoQuant(names(&["BF16", "Q4_K_M", "Q8_0"]))));
        assert!(is_whole("M-BF16-00001-of-00002.gguf", &all) && is_whole("M-Q8_0.gguf", &all));
        assert!(!is_whole("M-BF16-00001-of-00002.gguf", &all[..1]));
        assert_eq!(choose(&names(&["a.txt"]), None), Err(NoChoice::Nothing));
        let odd = names(&["M-IQ1_S.gguf", "M-IQ2_S.gguf"]);
        assert_eq!(choose(&odd, None), Err(NoChoice::Several(names(&["IQ1_S", "IQ2_S"]))));
    }
}
