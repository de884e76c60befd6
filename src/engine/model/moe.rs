//! Mixture of experts: a router sends each token to a few of many MLPs, and all tokens through a shared one.
//!
//! An expert's weights stay where they are in the file and are read only when a token is routed to it. The tokens
//! of a pass are put in the order of their experts, so that each expert in use multiplies all its tokens at once,
//! and their results are put back. Each token is routed by its own numbers and adds up its experts in the order of
//! their numbers, so what it gets doesn't depend on the others in the pass.
//! Source: `Qwen3_5MoeSparseMoeBlock` of the reference; `Qwen3NextSparseMoeBlock` differs in `norm_topk_prob`.

use burn::tensor::activation::sigmoid;
use burn::tensor::{Int, Tensor, TensorData};

use super::linear::Linear;
use super::mlp::Mlp;
use super::{Loader, WeightsError, join};
use crate::engine::config::MoeConfig;
use crate::engine::weights::Weight;

pub struct Moe {
    /// The router, one row per expert.
    gate: Linear,
    experts: Vec<Mlp>,
    shared_expert: Option<SharedExpert>,
    num_experts_per_tok: usize,
    norm_topk_prob: bool,
}

struct SharedExpert {
    mlp: Mlp,
    /// How much of it each token gets: one row.
    gate: Linear,
}

/// An expert that a token goes to, and what it counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Route {
    pub expert: usize,
    pub weight: f32,
}

impl Moe {
    pub fn load(hidden: usize, config: &MoeConfig, loader: &Loader) -> Result<Self, WeightsError> {
        let shared_expert = match config.shared_expert_intermediate_size {
            None => None,
            Some(inner) => Some(SharedExpert {
                mlp: Mlp::load(hidden, inner, &loader.inside("shared_expert."))?,
                gate: loader.linear("shared_expert_gate.weight", 1, hidden)?,
            }),
        };
        Ok(Self {
            gate: loader.linear("gate.weight", config.num_experts, hidden)?,
            experts: load_experts(hidden, config, &loader.inside("experts."))?,
            shared_expert,
            num_experts_per_tok: config.num_experts_per_tok,
            norm_topk_prob: config.norm_topk_prob,
        })
    }

    /// `x [t, hidden_size]`, already normed.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let routed = self.mix(x.clone(), &self.route(&x));
        match &self.shared_expert {
            None => routed,
            Some(shared) => routed + shared.mlp.forward(x.clone()) * sigmoid(shared.gate.forward(x)),
        }
    }

    /// The router's logits `[t, num_experts]`.
    pub fn router_logits(&self, x: Tensor<2>) -> Tensor<2> {
        self.gate.forward(x)
    }

    /// `num_experts_per_tok` routes for each token, one token after the other.
    fn route(&self, x: &Tensor<2>) -> Vec<Route> {
        let n_logits = x.dims()[0] * self.experts.len();
        // A device that fails here gives no numbers; the logits of the pass then aren't numbers either, which is
        // reported where they are read.
        let logits =
            self.router_logits(x.clone()).try_into_data().ok().and_then(|data| data.try_to_vec().ok());
        let logits: Vec<f32> = logits.unwrap_or_else(|| vec![f32::NAN; n_logits]);
        let rows = logits.chunks_exact(self.experts.len());
        rows.flat_map(|row| choose(row, self.num_experts_per_tok, self.norm_topk_prob)).collect()
    }

    /// The weighted sum of what its experts make of each token.
    fn mix(&self, x: Tensor<2>, routes: &[Route]) -> Tensor<2> {
        let k = self.num_experts_per_tok;
        let t = routes.len() / k;
        let device = x.device();
        let indices = |values: Vec<usize>| -> Tensor<1, Int> {
            let values: Vec<i32> = values.into_iter().map(|i| i as i32).collect();
            Tensor::from_data(TensorData::new(values, [t * k]), &device)
        };

        // Places in `routes`, by expert.
        let mut order: Vec<usize> = (0..routes.len()).collect();
        order.sort_by_key(|place| routes[*place].expert);
        let grouped = x.select(0, indices(order.iter().map(|place| place / k).collect()));
        let mut start = 0;
        let groups = order.chunk_by(|a, b| routes[*a].expert == routes[*b].expert);
        let outputs = groups.map(|group| {
            let tokens = grouped.clone().narrow(0, start, group.len());
            start += group.len();
            self.experts[routes[group[0]].expert].forward(tokens)
        });
        let outputs = join(outputs.collect(), 0);

        // Back to the tokens: first the rows of all tokens' first routes, then those of their second ones.
        let by_rank = |place: usize| (place % k) * t + place / k;
        let (mut rows, mut weights) = (vec![0; t * k], vec![0.0; t * k]);
        for (row, place) in order.into_iter().enumerate() {
            rows[by_rank(place)] = row;
            weights[by_rank(place)] = routes[place].weight;
        }
        let rows = indices(rows);
        let weights: Tensor<2> = Tensor::from_data(TensorData::new(weights, [t * k, 1]), &device);
        let terms = (0..k).map(|rank| {
            let output = outputs.clone().select(0, rows.clone().narrow(0, rank * t, t));
            output * weights.clone().narrow(0, rank * t, t)
        });
        terms.reduce(|sum, term| sum + term).expect("a token has at least one expert")
    }
}

/// The `k` likeliest experts of a token by the softmax of its router logits, in the order of their numbers. Of equal
/// ones the first count.
pub fn choose(logits: &[f32], k: usize, norm_topk_prob: bool) -> Vec<Route> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponentials: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
    let sum: f32 = exponentials.iter().sum();
    let mut routes: Vec<Route> = exponentials
        .into_iter()
        .enumerate()
        .map(|(expert, exponential)| Route { expert, weight: exponential / sum })
        .collect();
    routes.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    routes.truncate(k);
    if norm_topk_prob {
        let sum: f32 = routes.iter().map(|route| route.weight).sum();
        routes.iter_mut().for_each(|route| route.weight /= sum);
    }
    routes.sort_by_key(|route| route.expert);
    routes
}

/// Either all experts in two tensors, or three matrices for each of them.
fn load_experts(hidden: usize, config: &MoeConfig, loader: &Loader) -> Result<Vec<Mlp>, WeightsError> {
    let (n, inner) = (config.num_experts, config.moe_intermediate_size);
    let names = ["gate_up_proj", "gate_up_proj.weight"];
    if !names.into_iter().any(|name| loader.contains(name)) {
        return (0..n).map(|i| Mlp::load(hidden, inner, &loader.inside(&format!("{i}.")))).collect();
    }
    let packed = |name: &str, rows: usize, columns: usize| {
        let with_suffix = format!("{name}.weight");
        let name = if loader.contains(name) { name } else { &with_suffix };
        loader.weight(name, &[n, rows, columns]).map(Weight::into_matrix)
    };
    // Per expert: the rows of the gate, then those of the other branch.
    let gate_up = packed("gate_up_proj", 2 * inner, hidden)?;
    let down = packed("down_proj", hidden, inner)?;
    let linear = |weight: &Weight, start: usize, rows: usize| {
        Linear::new(weight.rows(start..start + rows), loader.device)
    };
    let expert = |i: usize| Mlp {
        gate_proj: linear(&gate_up, 2 * i * inner, inner),
        up_proj: linear(&gate_up, (2 * i + 1) * inner, inner),
        down_proj: linear(&down, i * hidden, hidden),
    };
    Ok((0..n).map(expert).collect())
}

#[cfg(test)]
mod tests;
