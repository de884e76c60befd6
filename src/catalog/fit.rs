//! Whether a model would fit into this machine's memory, from the headers of its files: a few hundred kilobytes of each.

use std::path::PathBuf;

use crate::engine::generate::{EngineError, LoadOptions};
use crate::engine::inspect::{self, Inspection};
use crate::engine::weights::quantised::Bits;
use crate::hub::names::ModelRef;
use crate::hub::select::Wanted;
use crate::hub::{Hub, HubError};
use crate::msg::{Judgement, Verdict};
use crate::paths;

/// How much of a GGUF file its header is taken to be, each tried when the one before was too little: the vocabulary is
/// in it.
const GGUF_HEADER_BYTES: [u64; 3] = [4 << 20, 16 << 20, 32 << 20];

#[derive(Debug, thiserror::Error)]
pub enum FitError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A model that was looked at from afar.
pub struct Fit {
    /// What is to be fetched; 0 if it is here.
    pub download_bytes: u64,
    pub inspection: Inspection,
}

impl Fit {
    /// What that means for this machine.
    pub fn judgement(&self) -> Judgement {
        let memory = &self.inspection.memory;
        let needs_bytes = memory.needs.total();
        Judgement {
            download_bytes: self.download_bytes,
            needs_bytes,
            context_tokens: memory.context_tokens,
            terms: memory.needs.terms().to_vec(),
            quant: self.inspection.bits.map(Bits::name),
            tokens_per_second: None,
            verdict: match (memory.available, memory.fitting_context) {
                (None, _) => Verdict::Unknown,
                (Some(available), _) if needs_bytes <= available => {
                    Verdict::Fits { spare_bytes: available - needs_bytes }
                }
                (Some(_), Some(context_tokens)) => Verdict::FitsAt { context_tokens },
                (Some(_), None) => Verdict::TooBig,
            },
        }
    }
}

/// Looks at a model that need not be here.
///
/// # Errors
/// If its headers can't be had, or aren't those of a model that Loquat runs.
pub async fn fit(hub: &Hub, model: &ModelRef, load: &LoadOptions) -> Result<Fit, FitError> {
    if let Some(found) = hub.cache()?.find(model) {
        return Ok(Fit { download_bytes: 0, inspection: look(load, found.path)? });
    }
    let listing = hub.listing(&model.id, &model.revision).await?;
    let wanted = listing.choose(model.quant.as_deref())?;
    let files = hub.needed(&listing, &wanted).await?;
    let download_bytes = files.iter().map(|file| file.size).sum();
    let folder = paths::cache().ok_or(HubError::NoCache)?.join("headers").join(model.id.folder());
    let folder = match &wanted {
        Wanted::Safetensors { .. } => folder.join(&listing.commit),
        // Of each choice its own: a folder with several GGUF files is several models.
        Wanted::Gguf { model, .. } => folder.join(&listing.commit).join(model.trim_end_matches(".gguf")),
    };
    let enough: &[u64] = match &wanted {
        Wanted::Safetensors { .. } => &[0],
        Wanted::Gguf { .. } => &GGUF_HEADER_BYTES,
    };
    let mut last = None;
    for bytes in enough {
        let target = hub.headers(&listing, &wanted, &folder, *bytes).await?;
        match look(load, target) {
            Ok(inspection) => return Ok(Fit { download_bytes, inspection }),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("it was tried at least once").into())
}

/// Looks at a model that is here.
///
/// # Errors
/// If it is none that Loquat runs.
pub fn look(load: &LoadOptions, dir: PathBuf) -> Result<Inspection, EngineError> {
    inspect::inspect(&LoadOptions { dir, ..load.clone() })
}
