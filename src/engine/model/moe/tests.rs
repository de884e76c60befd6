use std::collections::BTreeMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize};

use super::*;
use crate::engine::golden::{cpu, gpu};
use crate::engine::noise::{assert_near, noise};
use crate::engine::weights::Checkpoint;

/// Tensors in f32 by name.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn open(tensors: &Tensors) -> Checkpoint {
    let bytes: BTreeMap<&str, (Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, (shape, values))| {
            (name.as_str(), (shape.clone(), values.iter().flat_map(|v| v.to_le_bytes()).collect()))
        })
        .collect();
    let views = bytes
        .iter()
        .map(|(name, (shape, data))| (*name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("model.safetensors"), serialize(views, None).unwrap()).unwrap();
    Checkpoint::open(dir.path()).unwrap()
}

struct Block {
    hidden: usize,
    config: MoeConfig,
    tensors: Tensors,
}

impl Block {
    /// Experts apart, each with its own three matrices.
    fn new(
        hidden: usize,
        num_experts: usize,
        k: usize,
        inner: usize,
        shared: Option<usize>,
        norm: bool,
    ) -> Self {
        let mut tensors = Tensors::new();
        let mut seed = 0;
        let mut add = |name: String, rows: usize, columns: usize| {
            seed += 1;
            tensors.insert(name, (vec![rows, columns], noise(seed, rows * columns)));
        };
        add("gate.weight".into(), num_experts, hidden);
        let mlps = (0..num_experts).map(|i| (format!("experts.{i}."), inner));
        for (name, inner) in mlps.chain(shared.map(|inner| ("shared_expert.".to_owned(), inner))) {
            add(format!("{name}gate_proj.weight"), inner, hidden);
            add(format!("{name}up_proj.weight"), inner, hidden);
            add(format!("{name}down_proj.weight"), hidden, inner);
        }
        if shared.is_some() {
            add("shared_expert_gate.weight".into(), 1, hidden);
        }
        let config = MoeConfig {
            num_experts,
            num_experts_per_tok: k,
            moe_intermediate_size: inner,
            shared_expert_intermediate_size: shared,
            norm_topk_prob: norm,
            sparse_layers: vec![true],
        };
        Self { hidden, config, tensors }
    }

    /// The same tensors, all experts in two of them, whose names end in `suffix`.
    fn packed(&self, suffix: &str) -> Tensors {
        let (n, inner) = (self.config.num_experts, self.config.moe_intermediate_size);
        let mut packed = self.tensors.clone();
        let mut take = |i: usize, name: &str| packed.remove(&format!("experts.{i}.{name}.weight")).unwrap().1;
        let (mut gate_up, mut down) = (Vec::new(), Vec::new());
        for i in 0..n {
            gate_up.extend(take(i, "gate_proj"));
            gate_up.extend(take(i, "up_proj"));
            down.extend(take(i, "down_proj"));
        }
        packed.insert(format!("experts.gate_up_proj{suffix}"), (vec![n, 2 * inner, self.hidden], gate_up));
        packed.insert(format!("experts.down_proj{suffix}"), (vec![n, self.hidden, inner], down));
        packed
    }

    fn load(
        &self,
        tensors: &Tensors,
        device: &crate::engine::device::OpenDevice,
    ) -> Result<Moe, WeightsError> {
        Moe::load(self.hidden, &self.config, &Loader::new(&open(tensors), device, ""))
    }

    fn product(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let (shape, values) = &self.tensors[name];
        let dot = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
        values.chunks_exact(shape[1]).map(dot).collect()
    }

    fn mlp(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let gate = self.product(&format!("{name}gate_proj.weight"), x);
        let up = self.product(&format!("{name}up_proj.weight"), x);
        let inner: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        self.product(&format!("{name}down_proj.weight"), &inner)
    }

    /// What the block makes of one token, as the paper has it.
    fn plainly(&self, x: &[f32]) -> Vec<f32> {
        let x: Vec<f64> = x.iter().copied().map(f64::from).collect();
        let logits = self.product("gate.weight", &x);
        let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
        let mut likeliest: Vec<(usize, f64)> =
            logits.iter().map(|logit| logit.exp() / sum).enumerate().collect();
        likeliest.sort_by(|a, b| b.1.total_cmp(&a.1));
        likeliest.truncate(self.config.num_experts_per_tok);
        let chosen: f64 = likeliest.iter().map(|(_, p)| p).sum();
        let mut y = vec![0.0; self.hidden];
        let mut add = |by: f64, more: Vec<f64>| y.iter_mut().zip(more).for_each(|(y, more)| *y += by * more);
        for (expert, p) in likeliest {
            let weight = if self.config.norm_topk_prob { p / chosen } else { p };
            add(weight, self.mlp(&format!("experts.{expert}."), &x));
        }
        if self.config.shared_expert_intermediate_size.is_some() {
            let logit = self.product("shared_expert_gate.weight", &x)[0];
            add(1.0 / (1.0 + (-logit).exp()), self.mlp("shared_expert.", &x));
        }
        y.into_iter().map(|y| y as f32).collect()
    }
}

#[test]
fn experts_packed_or_apart_give_what_the_plain_statement_gives() {
    let (cpu, gpu) = (cpu(), gpu());
    for (t, block) in [
        (1, Block::new(8, 4, 1, 3, Some(5), true)),
        (5, Block::new(33, 7, 3, 17, None, false)),
        (9, Block::new(16, 64, 10, 8, Some(1), true)),
        (70, Block::new(24, 5, 5, 10, Some(6), false)),
    ] {
        let x = noise(99, t * block.hidden);
        let expected: Vec<f32> = x.chunks_exact(block.hidden).flat_map(|x| block.plainly(x)).collect();
        for (tensors, device) in [
            (block.tensors.clone(), &cpu),
            (block.packed(""), &cpu),
            (block.packed(".weight"), &cpu),
            (block.packed(""), &gpu),
        ] {
            let moe = block.load(&tensors, device).unwrap();
            let x = Tensor::<1>::from_floats(x.as_slice(), &device.tensors).reshape([t, block.hidden]);
            let what = format!("{t} tokens, {:?} on {}", block.config, device.name);
            assert_near(moe.forward(x), &expected, 2e-5, &what);
        }
    }
}

#[test]
fn of_equal_experts_the_first_are_chosen_and_weights_sum_to_one_if_asked() {
    let equal = choose(&[1.0, 3.0, 3.0, 3.0], 2, true);
    assert_eq!(equal, [Route { expert: 1, weight: 0.5 }, Route { expert: 2, weight: 0.5 }]);
    let as_they_are = choose(&[0.0, 0.0, 0.0, 0.0], 2, false);
    assert_eq!(as_they_are, [Route { expert: 0, weight: 0.25 }, Route { expert: 1, weight: 0.25 }]);
    // Large logits don't overflow, and numbers that are none choose experts that exist.
    assert_eq!(choose(&[3e38, -3e38], 1, true), [Route { expert: 0, weight: 1.0 }]);
    let none = choose(&[f32::NAN; 4], 2, true);
    assert!(none.len() == 2 && none.iter().all(|route| route.expert < 4 && route.weight.is_nan()));
}

#[test]
fn a_missing_or_misshapen_expert_is_named() {
    let block = Block::new(8, 4, 2, 3, Some(5), true);
    let error = |tensors: &Tensors| block.load(tensors, &cpu()).err().expect("it is refused").to_string();
    let mut tensors = block.tensors.clone();
    tensors.remove("experts.3.up_proj.weight");
    assert!(error(&tensors).contains("weight experts.3.up_proj.weight is missing"));
    let mut tensors = block.packed("");
    tensors.get_mut("experts.down_proj").unwrap().0 = vec![4, 3, 8];
    assert!(
        error(&tensors).contains("weight experts.down_proj has shape [4, 3, 8], the config says [4, 8, 3]")
    );
    tensors.remove("experts.down_proj");
    assert!(error(&tensors).contains("experts.down_proj.weight is missing"));
}
