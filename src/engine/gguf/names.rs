//! What the tensors of a GGUF file are called in the original checkpoint, and what its converter changed in them.
//!
//! Source: llama.cpp's `convert_hf_to_gguf.py` and its tables of names, for `qwen35`, `qwen35moe` and `qwen3next`.

use super::Gguf;

/// Names of one model. The original's names are those of a text-only export, and `model.visual.` for the tower.
pub struct Names {
    /// Layers of the model proper; the MTP layer is the block behind them.
    trunk_layers: usize,
    has_tiled_value_heads: bool,
}

/// Where a tensor of the original is.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    pub tensor: String,
    /// Which part of the tensor's first axis.
    pub expert: Option<usize>,
    pub change: Change,
}

/// What the converter did to the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    None,
    /// Norms that are stored around zero have their one added.
    PlusOne,
    /// `-exp(A_log)` in place of `A_log`.
    MinusExp,
    /// A tensor for each frame of a patch.
    SplitFrames,
}

/// Tensors of a layer. Experts have an axis of their own in front.
const LAYER: [(&str, &str); 29] = [
    ("input_layernorm.weight", "attn_norm.weight"),
    ("post_attention_layernorm.weight", "post_attention_norm.weight"),
    ("linear_attn.in_proj_qkv.weight", "attn_qkv.weight"),
    ("linear_attn.in_proj_z.weight", "attn_gate.weight"),
    ("linear_attn.in_proj_b.weight", "ssm_beta.weight"),
    ("linear_attn.in_proj_a.weight", "ssm_alpha.weight"),
    ("linear_attn.in_proj_ba.weight", "ssm_ba.weight"),
    ("linear_attn.in_proj_qkvz.weight", "ssm_in.weight"),
    ("linear_attn.conv1d.weight", "ssm_conv1d.weight"),
    ("linear_attn.A_log", "ssm_a"),
    ("linear_attn.dt_bias", "ssm_dt.bias"),
    ("linear_attn.norm.weight", "ssm_norm.weight"),
    ("linear_attn.out_proj.weight", "ssm_out.weight"),
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("mlp.experts.down_proj", "ffn_down_exps.weight"),
    ("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"),
    ("mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"),
    ("mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"),
    ("mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"),
];

/// Tensors of one expert: parts of tensors that hold all of them.
const EXPERT: [(&str, &str); 3] = [
    ("gate_proj.weight", "ffn_gate_exps.weight"),
    ("up_proj.weight", "ffn_up_exps.weight"),
    ("down_proj.weight", "ffn_down_exps.weight"),
];

/// Tensors of the MTP head outside its layer; they are in the block of that layer.
const MTP: [(&str, &str); 4] = [
    ("fc.weight", "nextn.eh_proj.weight"),
    ("pre_fc_norm_embedding.weight", "nextn.enorm.weight"),
    ("pre_fc_norm_hidden.weight", "nextn.hnorm.weight"),
    ("norm.weight", "nextn.shared_head_norm.weight"),
];

const TOP: [(&str, &str); 3] = [
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];

/// Tensors of the vision tower outside its blocks, without `.weight` and `.bias`.
const TOWER: [(&str, &str); 5] = [
    ("patch_embed.proj", "v.patch_embd"),
    ("pos_embed", "v.position_embd"),
    ("merger.norm", "v.post_ln"),
    ("merger.linear_fc1", "mm.0"),
    ("merger.linear_fc2", "mm.2"),
];

const TOWER_BLOCK: [(&str, &str); 6] = [
    ("norm1", "ln1"),
    ("attn.qkv", "attn_qkv"),
    ("attn.proj", "attn_out"),
    ("norm2", "ln2"),
    ("mlp.linear_fc1", "ffn_up"),
    ("mlp.linear_fc2", "ffn_down"),
];

fn find(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(original, _)| *original == name).map(|(_, tensor)| *tensor)
}

/// `7.rest` as a number and the rest.
fn numbered(name: &str) -> Option<(usize, &str)> {
    let (number, rest) = name.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

impl Names {
    pub fn new(model: &Gguf) -> Self {
        let architecture = model.text("general.architecture").unwrap_or_default();
        let count = |key: &str| model.whole(&format!("{architecture}.{key}")).unwrap_or_default();
        Self {
            trunk_layers: count("block_count").saturating_sub(count("nextn_predict_layers")) as usize,
            // Only `qwen3next` keeps the original's order.
            has_tiled_value_heads: architecture.starts_with("qwen35"),
        }
    }

    pub fn trunk_layers(&self) -> usize {
        self.trunk_layers
    }

    pub fn has_tiled_value_heads(&self) -> bool {
        self.has_tiled_value_heads
    }

    /// Where the tensor `name` of the original is, if there is a place for it.
    pub fn source(&self, name: &str) -> Option<Source> {
        let (tensor, expert) = self.tensor(name)?;
        let change = if name == "model.visual.patch_embed.proj.weight" {
            Change::SplitFrames
        } else if name.ends_with(".A_log") {
            Change::MinusExp
        } else if self.is_zero_centred_norm(name) {
            Change::PlusOne
        } else {
            Change::None
        };
        Some(Source { tensor, expert, change })
    }

    fn is_zero_centred_norm(&self, name: &str) -> bool {
        let is_norm = name.ends_with("norm.weight") || name.contains(".pre_fc_norm_");
        is_norm && !name.ends_with("linear_attn.norm.weight") && !name.starts_with("model.visual.")
    }

    fn tensor(&self, name: &str) -> Option<(String, Option<usize>)> {
        if let Some(tensor) = find(&TOP, name) {
            return Some((tensor.into(), None));
        }
        if let Some(rest) = name.strip_prefix("model.visual.") {
            return Some((tower_tensor(rest)?, None));
        }
        let (block, rest) = if let Some(rest) = name.strip_prefix("model.layers.") {
            numbered(rest).filter(|(i, _)| *i < self.trunk_layers)?
        } else if let Some(rest) = name.strip_prefix("mtp.layers.") {
            let (i, rest) = numbered(rest)?;
            (self.trunk_layers.checked_add(i)?, rest)
        } else {
            let tensor = find(&MTP, name.strip_prefix("mtp.")?)?;
            return Some((format!("blk.{}.{tensor}", self.trunk_layers), None));
        };
        if let Some((expert, rest)) = rest.strip_prefix("mlp.experts.").and_then(numbered) {
            return Some((format!("blk.{block}.{}", find(&EXPERT, rest)?), Some(expert)));
        }
        Some((format!("blk.{block}.{}", find(&LAYER, rest)?), None))
    }
}

fn tower_tensor(name: &str) -> Option<String> {
    let (module, part) = name.rsplit_once('.')?;
    if let Some((i, module)) = module.strip_prefix("blocks.").and_then(numbered) {
        return Some(format!("v.blk.{i}.{}.{part}", find(&TOWER_BLOCK, module)?));
    }
    Some(format!("{}.{part}", find(&TOWER, module)?))
}
