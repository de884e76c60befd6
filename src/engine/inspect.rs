//! What a model is and what it takes, from its config and the headers of its files: no page of its weights is read.

use std::collections::BTreeMap;
use std::path::Path;

use super::config::ModelConfig;
use super::device::find_device;
use super::fit::{Needs, Plan};
use super::generate::{EngineError, LoadOptions, display_name};
use super::ram;
use super::weights::groups::Group;
use super::weights::quantised::Bits;
use super::weights::{Checkpoint, WeightsError};

pub struct Inspection {
    /// As the folder or the file is called.
    pub name: String,
    pub config: ModelConfig,
    pub checkpoint: Checkpoint,
    pub sees: bool,
    pub has_mtp: bool,
    /// What its plain matrices are quantised to when it is loaded.
    pub bits: Option<Bits>,
    /// What that costs each tensor, once it has been done: the error's part of its numbers.
    pub errors: BTreeMap<String, f64>,
    pub memory: Memory,
}

/// What it takes where it would run.
pub struct Memory {
    pub is_gpu: bool,
    pub context_tokens: usize,
    pub needs: Needs,
    /// `None` if nobody says; then there is no verdict.
    pub available: Option<u64>,
    /// The largest context that fits, up to the wanted one; `None` if none does, or without a verdict.
    pub fitting_context: Option<usize>,
}

impl Memory {
    /// Whether it fits, if that can be said.
    pub fn fits(&self) -> Option<bool> {
        self.available.map(|available| self.needs.total() <= available)
    }
}

/// Looks at a model without loading it.
///
/// # Errors
/// Those of [`super::generate::Engine::load`] that config and headers show.
pub fn inspect(options: &LoadOptions) -> Result<Inspection, EngineError> {
    let dir = &options.dir;
    let config = ModelConfig::open(dir)?;
    let checkpoint = Checkpoint::open(dir)?;
    check(&checkpoint, dir)?;
    let device = find_device(options.device())?;
    let context_tokens = options.context_of(&config);
    let available = device.shares_ram.then(ram::available).flatten();
    let (quant, is_gpu) = (options.quant, device.is_gpu);
    let plan = Plan::choose(dir, &config, &checkpoint, is_gpu, quant, context_tokens, available)?;
    let bits = plan.bits;
    let folder = options.quantised.as_deref();
    let errors = bits.zip(folder).and_then(|(bits, folder)| checkpoint.quantisation_errors(bits, folder));
    let memory = Memory {
        is_gpu: device.is_gpu,
        context_tokens,
        needs: plan.needs(context_tokens),
        available,
        fitting_context: available.and_then(|bytes| plan.largest_context(context_tokens, bytes)),
    };
    Ok(Inspection {
        name: display_name(dir),
        sees: plan.weights.vision.is_some(),
        has_mtp: plan.has_mtp,
        bits,
        errors: errors.unwrap_or_default(),
        memory,
        config,
        checkpoint,
    })
}

/// What loading would refuse at first sight: no embedding, and matrices of types that aren't read.
fn check(checkpoint: &Checkpoint, dir: &Path) -> Result<(), WeightsError> {
    let tensors = checkpoint.tensors();
    if !tensors.iter().any(|tensor| tensor.group == Group::Embedding) {
        return Err(WeightsError::Missing { name: "model.embed_tokens.weight".into(), dir: dir.to_owned() });
    }
    let mut matrices = tensors.iter().filter(|tensor| {
        // Of packed matrices the scales stand for no number of the model.
        tensor.group != Group::Other && tensor.shape.len() > 1 && tensor.parameters > 0
    });
    match matrices.find(|tensor| tensor.format.is_none()) {
        Some(tensor) => {
            Err(WeightsError::Dtype { name: tensor.name.to_owned(), dtype: tensor.type_name.to_owned() })
        }
        None => Ok(()),
    }
}
