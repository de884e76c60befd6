//! The rule as it is written, in f64, and examples to compare with it.

use burn::tensor::Tensor;

use super::RuleInput;
use crate::engine::device::OpenDevice;
use crate::engine::noise::noise;

pub struct Example {
    /// Tokens, key heads, value heads, `d_k`, `d_v`.
    dims: [usize; 5],
    /// How many decays a head has: 1 or `d_k`.
    n_decays: usize,
    pub state: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    g: Vec<f32>,
    beta: Vec<f32>,
}

impl Example {
    pub fn new(dims: [usize; 5], n_decays: usize) -> Self {
        let [t, key_heads, value_heads, d_k, d_v] = dims;
        let norm = (d_k as f32).powf(-0.5);
        let made = |seed: u32, n: usize, f: &dyn Fn(f32) -> f32| -> Vec<f32> {
            noise(seed, n).into_iter().map(f).collect()
        };
        Self {
            dims,
            n_decays,
            state: noise(1, value_heads * d_k * d_v),
            q: made(2, t * key_heads * d_k, &|x| x * norm),
            k: made(3, t * key_heads * d_k, &|x| x * norm),
            v: noise(4, t * value_heads * d_v),
            // Mostly little, now and then nearly everything.
            g: made(5, t * value_heads * n_decays, &|x| -8.0 * x.powi(4)),
            beta: made(6, t * value_heads, &f32::abs),
        }
    }

    /// Outputs and the state after the last token.
    pub fn outputs(&self) -> (Vec<f32>, Vec<f32>) {
        let [t, key_heads, value_heads, d_k, d_v] = self.dims;
        let mut s: Vec<f64> = self.state.iter().copied().map(f64::from).collect();
        let mut o = Vec::new();
        for token in 0..t {
            for head in 0..value_heads {
                let s = &mut s[head * d_k * d_v..(head + 1) * d_k * d_v];
                let key = (token * key_heads + head * key_heads / value_heads) * d_k;
                let value = token * value_heads + head;
                let (q, k) = (&self.q[key..key + d_k], &self.k[key..key + d_k]);
                for (i, row) in s.chunks_exact_mut(d_v).enumerate() {
                    let g = self.g[value * self.n_decays + i % self.n_decays];
                    row.iter_mut().for_each(|s| *s *= f64::from(g).exp());
                }
                let column = |s: &[f64], w: &[f32], j: usize| -> f64 {
                    (0..d_k).map(|i| f64::from(w[i]) * s[i * d_v + j]).sum()
                };
                for j in 0..d_v {
                    let error = f64::from(self.v[value * d_v + j]) - column(s, k, j);
                    let write = f64::from(self.beta[value]) * error;
                    (0..d_k).for_each(|i| s[i * d_v + j] += f64::from(k[i]) * write);
                }
                o.extend((0..d_v).map(|j| column(s, q, j) as f32));
            }
        }
        (o, s.iter().map(|s| *s as f32).collect())
    }

    /// The state before the first token, and what the rule reads.
    pub fn on(&self, device: &OpenDevice) -> (Tensor<3>, RuleInput) {
        let [t, key_heads, value_heads, d_k, d_v] = self.dims;
        let flat = |x: &[f32]| Tensor::<1>::from_floats(x, &device.tensors);
        let input = RuleInput {
            q: flat(&self.q).reshape([t, key_heads, d_k]),
            k: flat(&self.k).reshape([t, key_heads, d_k]),
            v: flat(&self.v).reshape([t, value_heads, d_v]),
            g: flat(&self.g).reshape([t, value_heads, self.n_decays]),
            beta: flat(&self.beta).reshape([t, value_heads]),
        };
        (flat(&self.state).reshape([value_heads, d_k, d_v]), input)
    }
}
