//! A guess at how fast a model would write here: each token reads all of its active weights once, so no faster than
//! the memory is.

use crate::engine::inspect::Inspection;
use crate::engine::ram::bandwidth;
use crate::engine::weights::groups::Group;

/// Of the memory's speed, what reading weights reaches in practice.
const REACHED: f64 = 0.7;

/// Tokens a second; `None` for a device whose memory isn't the CPU's.
pub fn estimate(inspection: &Inspection) -> Option<u32> {
    // A GPU without memory of its own is asked about the same memory.
    inspection.memory.available?;
    let bytes = inspection.memory.needs.weights as f64 * active_share(inspection);
    let per_second = REACHED * bandwidth() as f64 / bytes.max(1.0);
    (per_second >= 1.0).then_some(per_second.min(9999.0) as u32)
}

/// The part of the weights that one token needs: of the experts only those that are chosen for it.
fn active_share(inspection: &Inspection) -> f64 {
    let Some(moe) = &inspection.config.moe else { return 1.0 };
    let tensors = inspection.checkpoint.tensors();
    let is_of_text = |group| !matches!(group, Group::Vision | Group::Mtp | Group::Other);
    let all: u64 = tensors.iter().filter(|it| is_of_text(it.group)).map(|it| it.bytes).sum();
    let experts: u64 = tensors.iter().filter(|it| it.group == Group::Experts).map(|it| it.bytes).sum();
    let chosen = moe.num_experts_per_tok as f64 / moe.num_experts.max(1) as f64;
    1.0 - experts as f64 / all.max(1) as f64 * (1.0 - chosen)
}
