//! Models that other programs have fetched, read where they are: those of Ollama and LM Studio, and what tells that a
//! file or folder is a model of this family.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::select;

/// `model_type` of config files, and `general.architecture` of GGUF files.
const MODEL_TYPES: [&str; 6] =
    ["qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next", "qwen3_5_vision"];
const ARCHITECTURES: [&str; 3] = ["qwen35", "qwen35moe", "qwen3next"];
/// No config or manifest is larger.
const MAX_JSON_BYTES: u64 = 4 << 20;
/// A GGUF file begins with its architecture.
const GGUF_START_BYTES: u64 = 4096;

pub const OLLAMA: &str = "Ollama";
pub const LM_STUDIO: &str = "LM Studio";

/// A model in another program's store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Whose it is, for people.
    pub store: &'static str,
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
}

/// What Ollama and LM Studio have of this family.
pub fn others() -> Vec<Stored> {
    let home = env::home_dir().filter(|home| home.is_absolute());
    let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let ollama = match named("OLLAMA_MODELS") {
        Some(folder) => vec![folder],
        None => below_home(".ollama/models")
            .into_iter()
            .chain([PathBuf::from("/usr/share/ollama/.ollama/models")])
            .collect(),
    };
    let lm_studio = [below_home(".lmstudio/models"), below_home(".cache/lm-studio/models")];
    let mut found: Vec<Stored> = ollama.iter().flat_map(|root| of_ollama(root)).collect();
    found.extend(lm_studio.into_iter().flatten().flat_map(|root| of_lm_studio(&root)));
    found.sort_by(|a, b| (a.store, &a.name).cmp(&(b.store, &b.name)));
    found
}

/// Manifests are `manifests/HOST/OWNER/NAME/TAG`; those of Ollama itself are in `registry.ollama.ai/library`.
pub fn of_ollama(root: &Path) -> Vec<Stored> {
    let mut found = Vec::new();
    for host in folders(&root.join("manifests")) {
        for owner in folders(&host) {
            for name in folders(&owner) {
                let tags = fs::read_dir(&name).into_iter().flatten().flatten();
                found.extend(tags.filter_map(|tag| ollama_model(root, &owner, &name, &tag.path())));
            }
        }
    }
    found
}

fn ollama_model(root: &Path, owner: &Path, name: &Path, manifest: &Path) -> Option<Stored> {
    let manifest_json = read_json(manifest)?;
    let layers = manifest_json.get("layers")?.as_array()?;
    let is_model = |layer: &&Value| layer["mediaType"] == "application/vnd.ollama.image.model";
    let digest = layers.iter().find(is_model)?.get("digest")?.as_str()?.strip_prefix("sha256:")?;
    if digest.len() != 64 || !digest.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let path = root.join("blobs").join(format!("sha256-{digest}"));
    let owner = owner.file_name()?.to_str().filter(|owner| *owner != "library");
    let (name, tag) = (name.file_name()?.to_str()?, manifest.file_name()?.to_str()?);
    let name = owner.map_or(format!("{name}:{tag}"), |owner| format!("{owner}/{name}:{tag}"));
    stored(OLLAMA, name, path)
}

/// Models are `PUBLISHER/NAME/FILE.gguf`.
pub fn of_lm_studio(root: &Path) -> Vec<Stored> {
    let repos = folders(root).into_iter().flat_map(|publisher| folders(&publisher));
    let models = repos.flat_map(|repo| {
        let names = super::cache::names_in(&repo);
        select::gguf_models(&names).into_iter().map(move |name| repo.join(name)).collect::<Vec<_>>()
    });
    let named = models.filter_map(|path| {
        let name = path.strip_prefix(root).ok()?.to_str()?.to_owned();
        stored(LM_STUDIO, name, path)
    });
    named.collect()
}

fn stored(store: &'static str, name: String, path: PathBuf) -> Option<Stored> {
    let bytes = fs::metadata(&path).ok().filter(|meta| meta.is_file())?.len();
    is_of_family(&path).then_some(Stored { store, name, path, bytes })
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).collect()
}

/// Whether a model folder or a GGUF file is of the family that Loquat runs, by what it says itself.
pub fn is_of_family(path: &Path) -> bool {
    if path.is_file() {
        return architecture(path).is_some_and(|name| ARCHITECTURES.contains(&name.as_str()));
    }
    let Some(config) = read_json(&path.join("config.json")) else { return false };
    let model_type = config.get("model_type").and_then(Value::as_str);
    model_type.is_some_and(|kind| MODEL_TYPES.contains(&kind))
}

/// The first key of nearly every GGUF file.
fn architecture(path: &Path) -> Option<String> {
    const KEY: &[u8] = b"general.architecture";
    let mut start = Vec::new();
    File::open(path).ok()?.take(GGUF_START_BYTES).read_to_end(&mut start).ok()?;
    if !start.starts_with(b"GGUF") {
        return None;
    }
    let at = start.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    // The type of a text, then its length, then the text.
    let length = start.get(at + 4..at + 12)?.first_chunk().map(|length| u64::from_le_bytes(*length))?;
    let end = (at + 12).checked_add(usize::try_from(length).ok()?)?;
    String::from_utf8(start.get(at + 12..end)?.to_vec()).ok()
}

fn read_json(path: &Path) -> Option<Value> {
    let mut bytes = Vec::new();
    fs::metadata(path).ok().filter(|meta| meta.is_file())?;
    File::open(path).ok()?.take(MAX_JSON_BYTES).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn gguf(architecture: &str) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
        bytes.extend(20u64.to_le_bytes());
        bytes.extend(b"general.architecture\x08\0\0\0");
        bytes.extend((architecture.len() as u64).to_le_bytes());
        bytes.extend(architecture.as_bytes());
        bytes
    }

    #[test]
    fn models_of_other_programs_are_found_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let digest = "a".repeat(64);
        let manifest = format!(
            r#"{{"layers": [{{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:{digest}"}}]}}"#
        );
        write(&dir.path().join("manifests/registry.ollama.ai/library/qwen3.5/4b"), manifest.as_bytes());
        write(
            &dir.path().join("manifests/registry.ollama.ai/library/bad/1"),
            b"{\"layers\": [{\"digest\": \"../x\"}]}",
        );
        write(&dir.path().join(format!("blobs/sha256-{digest}")), &gguf("qwen35"));
        let found = of_ollama(dir.path());
        assert_eq!(found.iter().map(|model| model.name.as_str()).collect::<Vec<_>>(), ["qwen3.5:4b"]);

        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("unsloth/Qwen3.5-4B-GGUF/Qwen3.5-4B-Q4_K_M.gguf"), &gguf("qwen35"));
        write(&dir.path().join("unsloth/Qwen3.5-4B-GGUF/mmproj-F16.gguf"), &gguf("clip"));
        write(&dir.path().join("other/Llama/llama.gguf"), &gguf("llama"));
        let found = of_lm_studio(dir.path());
        let names: Vec<_> = found.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["unsloth/Qwen3.5-4B-GGUF/Qwen3.5-4B-Q4_K_M.gguf"]);
    }
}
