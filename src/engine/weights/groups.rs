//! Which part of a model a tensor belongs to, told from its name. For sums only: what a model needs, and in which
//! shape, is said where it is loaded.

/// The parts, in the order in which a token meets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    Embedding,
    /// Everything in the layers but experts, and the norm behind them.
    Layers,
    Experts,
    Head,
    Mtp,
    Vision,
    /// Not read by Loquat.
    Other,
}

impl Group {
    pub const ALL: [Self; 7] =
        [Self::Embedding, Self::Layers, Self::Experts, Self::Head, Self::Mtp, Self::Vision, Self::Other];

    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Layers => "layers",
            Self::Experts => "experts",
            Self::Head => "head",
            Self::Mtp => "MTP head",
            Self::Vision => "vision",
            Self::Other => "not used",
        }
    }

    /// By a name of the Hub layout.
    pub(super) fn of_hub(name: &str) -> Self {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if starts(&["model.visual.", "visual.", "vision_tower."]) {
            Self::Vision
        } else if starts(&["mtp.", "model.mtp.", "language_model.mtp."]) {
            Self::Mtp
        } else if starts(&["lm_head."]) {
            Self::Head
        } else {
            match name.strip_prefix("model.").map(|rest| rest.strip_prefix("language_model.").unwrap_or(rest))
            {
                Some(rest) if rest.starts_with("embed_tokens.") => Self::Embedding,
                Some(rest) if rest.starts_with("layers.") && rest.contains(".mlp.experts.") => Self::Experts,
                Some(rest) if rest.starts_with("layers.") || rest.starts_with("norm.") => Self::Layers,
                _ => Self::Other,
            }
        }
    }

    /// By a name of a GGUF file whose blocks from `trunk_layers` on are the MTP head's.
    pub(super) fn of_gguf(name: &str, trunk_layers: usize) -> Self {
        if name.starts_with("v.") || name.starts_with("mm.") {
            return Self::Vision;
        }
        let block = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        match block {
            Some(block) if block >= trunk_layers => Self::Mtp,
            Some(_) if name.contains("_exps.") => Self::Experts,
            Some(_) => Self::Layers,
            None => match name {
                "token_embd.weight" => Self::Embedding,
                "output.weight" => Self::Head,
                "output_norm.weight" => Self::Layers,
                _ => Self::Other,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_layouts_say_the_part() {
        for (hub, gguf, group) in [
            ("model.embed_tokens.weight", "token_embd.weight", Group::Embedding),
            ("model.language_model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight", Group::Layers),
            ("model.layers.3.mlp.experts.7.up_proj.qweight", "blk.3.ffn_up_exps.weight", Group::Experts),
            ("model.layers.3.mlp.experts.gate_up_proj", "blk.3.ffn_gate_up_exps.weight", Group::Experts),
            ("model.layers.3.mlp.shared_expert.up_proj.weight", "blk.3.ffn_up_shexp.weight", Group::Layers),
            ("model.norm.weight", "output_norm.weight", Group::Layers),
            ("lm_head.weight", "output.weight", Group::Head),
            ("mtp.layers.0.mlp.experts.7.up_proj.weight", "blk.4.ffn_up_exps.weight", Group::Mtp),
            ("model.visual.blocks.0.norm1.weight", "v.blk.0.ln1.weight", Group::Vision),
            ("optimizer.step", "rope_freqs.weight", Group::Other),
        ] {
            assert_eq!((Group::of_hub(hub), Group::of_gguf(gguf, 4)), (group, group), "{hub}");
        }
    }
}
