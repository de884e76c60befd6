//! The delta rule in chunks, for prompts: equal to single steps in real arithmetic.
//!
//! All steps of a chunk correct what those before them wrote; put together, that is one triangular system per chunk,
//! whose solution doesn't need the state. Only a few products per chunk are left to be done one after the other.

use burn::tensor::{Tensor, TensorData};

use crate::engine::kernels::delta::RuleInput;
use crate::engine::kernels::solve::solve_unit_lower;

/// Tokens per chunk, as in the reference. The triangular work grows with it, the serial steps shrink.
const CHUNK: usize = 64;
/// The same where each key channel has its own decay: then every pair of steps takes `d_k` exponentials.
const CHUNK_PER_KEY: usize = 16;

/// Any number of tokens: `o [t, value_heads, d_v]` and the new state `[value_heads, d_k, d_v]`.
pub fn delta_chunks(input: RuleInput, mut state: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
    let [t, heads, d_v] = input.v.dims();
    let [_, key_heads, d_k] = input.k.dims();
    let device = input.k.device();
    let chunk = match input.g.dims()[2] {
        1 => CHUNK,
        _ => CHUNK_PER_KEY,
    };
    let chunk = chunk.min(t);
    let n_chunks = t.div_ceil(chunk);

    // Value head h reads key head h / r: each key head is repeated r times in a row.
    let repeated = |x: Tensor<3>| match heads / key_heads {
        1 => x.swap_dims(0, 1),
        r => {
            let x = x.swap_dims(0, 1).reshape([key_heads, 1, t, d_k]);
            x.expand([key_heads, r, t, d_k]).reshape([heads, t, d_k])
        }
    };
    // Padding steps have k = v = q = beta = g = 0, which leaves the state as it is.
    let in_chunks = |x: Tensor<3>| {
        let width = x.dims()[2];
        let padding = n_chunks * chunk - t;
        let padded = match padding {
            0 => x,
            _ => Tensor::cat(vec![x, Tensor::zeros([heads, padding, width], &device)], 1),
        };
        padded.reshape([heads, n_chunks, chunk, width])
    };
    let [q, k, v, g, beta] = [
        repeated(input.q),
        repeated(input.k),
        input.v.swap_dims(0, 1),
        input.g.swap_dims(0, 1),
        input.beta.transpose().unsqueeze_dim(2),
    ]
    .map(in_chunks);

    // Row i, column j: the decay from step j to step i, for i >= j. The mask comes before the exponential,
    // which would overflow above the diagonal.
    let lower = lower_triangle(chunk, &device);
    let g = g.cumsum(2);
    let mask: Tensor<5> = lower.clone().unsqueeze_dim(2);
    let decay = ((rows(g.clone()) - columns(g.clone())) * mask.clone()).exp() * mask;
    let strictly_lower = lower - Tensor::eye(chunk, &device).unsqueeze();

    let k_beta = k.clone() * beta.clone();
    let a = decayed_products(k_beta.clone(), k.clone(), decay.clone()) * strictly_lower;
    let rhs = Tensor::cat(vec![v * beta, k_beta * g.clone().exp()], 3);
    let solved = solve_unit_lower(
        a.reshape([heads * n_chunks, chunk, chunk]),
        rhs.reshape([heads * n_chunks, chunk, d_v + d_k]),
    )
    .reshape([heads, n_chunks, chunk, d_v + d_k]);
    let u = solved.clone().narrow(3, 0, d_v);
    let w = solved.narrow(3, d_v, d_k);

    let scores = decayed_products(q.clone(), k.clone(), decay);
    let q_decayed = q * g.clone().exp();
    let g_last = g.clone().narrow(2, chunk - 1, 1);
    let k_decayed = (k * (g_last.clone() - g).exp()).swap_dims(2, 3);
    let state_decay = g_last.exp().swap_dims(2, 3);

    // What is left depends on the state and runs chunk after chunk.
    let mut outputs = Vec::with_capacity(n_chunks);
    for i in 0..n_chunks {
        let at = |x: &Tensor<4>| -> Tensor<3> { x.clone().narrow(1, i, 1).squeeze_dim(1) };
        let corrected = at(&u) - at(&w).matmul(state.clone());
        outputs.push(at(&q_decayed).matmul(state.clone()) + at(&scores).matmul(corrected.clone()));
        state = state * at(&state_decay) + at(&k_decayed).matmul(corrected);
    }
    (Tensor::cat(outputs, 1).narrow(1, 0, t).swap_dims(0, 1), state)
}

/// The channels of every step, `[heads, n_chunks, chunk, width]`, to set steps against steps:
/// `[heads, n_chunks, width, chunk, 1]`.
fn rows(x: Tensor<4>) -> Tensor<5> {
    x.swap_dims(2, 3).unsqueeze_dim(4)
}

/// The same as `[heads, n_chunks, width, 1, chunk]`.
fn columns(x: Tensor<4>) -> Tensor<5> {
    x.swap_dims(2, 3).unsqueeze_dim(3)
}

/// Products of the steps of `x` and `y` `[heads, n_chunks, chunk, d_k]`, summed over `d_k`, each term times its decay
/// `[heads, n_chunks, 1 or d_k, chunk, chunk]`.
fn decayed_products(x: Tensor<4>, y: Tensor<4>, decay: Tensor<5>) -> Tensor<4> {
    match decay.dims()[2] {
        // The same for all terms.
        1 => x.matmul(y.swap_dims(2, 3)) * decay.squeeze_dim::<4>(2),
        // As two factors, one for x and one for y, it would be one matrix product; but one of them would be the
        // exponential of a positive number, which can overflow.
        _ => (rows(x) * columns(y) * decay).sum_dim(2).squeeze_dim(2),
    }
}

/// Ones on and below the diagonal: `[1, 1, n, n]`.
fn lower_triangle(n: usize, device: &burn::tensor::Device) -> Tensor<4> {
    let ones: Vec<f32> = (0..n).flat_map(|i| (0..n).map(move |j| f32::from(u8::from(j <= i)))).collect();
    Tensor::from_data(TensorData::new(ones, [1, 1, n, n]), device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::golden::{cpu, gpu};
    use crate::engine::kernels::delta::definition::Example;
    use crate::engine::noise::assert_near;

    #[test]
    fn chunks_follow_the_rule_with_one_decay_and_with_one_per_key_channel() {
        let (cpu, gpu) = (cpu(), gpu());
        for dims in
            [[1, 1, 1, 1, 1], [15, 2, 4, 3, 5], [16, 1, 1, 8, 8], [17, 2, 6, 24, 17], [70, 3, 3, 32, 16]]
        {
            let [t, _, _, d_k, _] = dims;
            for decays in [1, d_k] {
                let example = Example::new(dims, decays);
                let (expected, expected_state) = example.outputs();
                // Fewer on the GPU, whose driver compiles kernels for each shape.
                let devices = if t > 16 { vec![&cpu, &gpu] } else { vec![&cpu] };
                for device in devices {
                    let (state, input) = example.on(device);
                    let (o, after) = delta_chunks(input, state);
                    let what = format!("{dims:?} with {decays} decays on {}", device.name);
                    assert_near(o, &expected, 1e-5, &what);
                    assert_near(after, &expected_state, 1e-5, &what);
                }
            }
        }
    }
}
