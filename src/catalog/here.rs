//! The models that are on this machine, whoever fetched them.

use std::path::PathBuf;

use crate::hub::cache::{Cache, Installed};
use crate::hub::select::quant_of;
use crate::hub::{options, stores};
use crate::sanitize::one_line;

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    /// What `--model` takes.
    pub name: String,
    pub store: &'static str,
    pub revision: Option<String>,
    pub commit: Option<String>,
    pub path: PathBuf,
    pub bytes: u64,
}

/// All models of the family on this machine, by where they are and by name.
pub fn here() -> Vec<Here> {
    let installed = options::cache().map(|root| Cache::new(root).list()).unwrap_or_default();
    let of_family = installed.into_iter().filter(|model| stores::is_of_family(&model.path));
    let mut found: Vec<Here> = of_family.map(of_hub).collect();
    found.extend(stores::others().into_iter().map(|model| Here {
        name: match model.store {
            stores::OLLAMA => format!("ollama:{}", one_line(&model.name)),
            _ => one_line(&model.path.display().to_string()),
        },
        store: model.store,
        revision: None,
        commit: None,
        path: model.path,
        bytes: model.bytes,
    }));
    found
}

fn of_hub(model: Installed) -> Here {
    let quant = model.path.file_name().and_then(|name| name.to_str()).filter(|_| model.path.is_file());
    let mut name = model.id.to_string();
    if let Some(quant) = quant.and_then(quant_of) {
        name += &format!(":{}", one_line(quant));
    }
    match model.revision.as_deref() {
        Some("main") => {}
        Some(revision) => name += &format!("@{}", one_line(revision)),
        None => name += &format!("@{}", model.commit),
    }
    Here {
        name,
        store: "Hub cache",
        revision: model.revision,
        commit: Some(model.commit),
        path: model.path,
        bytes: model.bytes,
    }
}
