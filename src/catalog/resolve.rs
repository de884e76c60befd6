//! What `--model` names: a folder, a file, a model of the Hub, or one of Ollama's.
//!
//! What is here is found without asking anybody.

use std::path::{Path, PathBuf};

use crate::engine::built_in;
use crate::hub::names::ModelRef;
use crate::hub::pull::Reporter;
use crate::hub::{Hub, HubError, stores};
use crate::sanitize::one_line;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The engine says what is wrong with it.
    Path(PathBuf),
    Hub(ModelRef),
    Ollama(String),
}

/// A path that exists comes before a name that looks like one.
pub fn named(model: &Path) -> Named {
    if built_in::is_built_in(model) || model.exists() {
        return Named::Path(model.to_owned());
    }
    let text = model.to_str().unwrap_or_default();
    if let Some(name) = text.strip_prefix("ollama:") {
        return Named::Ollama(name.to_owned());
    }
    ModelRef::parse(text).map_or_else(|| Named::Path(model.to_owned()), Named::Hub)
}

#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error(
        "{0} is not on this machine; `loquat models pull {0}` downloads it, and so does --pull. \
         If you meant a folder: there is none of that name"
    )]
    NotHere(ModelRef),
    #[error("Ollama has no model {0} of the Qwen3.5 family; `loquat models list` shows those it has")]
    NotOfOllama(String),
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// Where the model is. With a reporter it may be downloaded.
///
/// # Errors
/// If it isn't here and isn't to be downloaded, or can't be.
pub async fn resolve(hub: &Hub, model: &Path, download: Option<&Reporter>) -> Result<PathBuf, ResolveError> {
    match named(model) {
        Named::Path(path) => Ok(path),
        Named::Ollama(name) => {
            let with_tag = if name.contains(':') { name.clone() } else { format!("{name}:latest") };
            let models = stores::others().into_iter().filter(|model| model.store == stores::OLLAMA);
            let found = models.into_iter().find(|model| model.name == with_tag);
            found.map(|model| model.path).ok_or_else(|| ResolveError::NotOfOllama(one_line(&name)))
        }
        Named::Hub(model) => match hub.cache()?.find(&model) {
            Some(found) => Ok(found.path),
            None => match download {
                Some(reporter) => Ok(hub.pull(&model, reporter).await?.path),
                None => Err(ResolveError::NotHere(model)),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_comes_before_a_model_of_the_hub() {
        let model = |text: &str| named(Path::new(text));
        assert_eq!(model("src/engine"), Named::Path("src/engine".into()));
        assert_eq!(model("Qwen/Qwen3.5-0.8B"), Named::Hub(ModelRef::parse("Qwen/Qwen3.5-0.8B").unwrap()));
        assert_eq!(model("./Qwen/Qwen3.5-0.8B"), Named::Path("./Qwen/Qwen3.5-0.8B".into()));
        assert_eq!(model("ollama:qwen3.5:4b"), Named::Ollama("qwen3.5:4b".into()));
        assert_eq!(model(built_in::DIR), Named::Path(built_in::DIR.into()));
    }
}
