//! Rotary position embedding of the first channels of each head.

use burn::tensor::Tensor;

use super::cpu::{self, best_of_three, on_cpu};

/// `x [t, heads, head_dim]`; `cos` and `sin` `[t, 1, half]`: channel i of a head turns against channel i + half, and
/// those behind both halves pass.
pub fn rotate(x: Tensor<3>, cos: &Tensor<3>, sin: &Tensor<3>) -> Tensor<3> {
    let [_, heads, head_dim] = x.dims();
    match (on_cpu(&x), on_cpu(cos), on_cpu(sin)) {
        (Some(values), Some(cos), Some(sin)) => {
            let [values, cos, sin] = [&values, &cos, &sin].map(cpu::slice);
            let mut y = values.to_vec();
            let (width, half) = (heads * head_dim, cos.len() / x.dims()[0]);
            cpu::by_rows(&mut y, width, |first, y| {
                turn(y, &cos[first * half..], &sin[first * half..], half, head_dim, heads);
            });
            cpu::tensor(y, x.dims())
        }
        _ => rotate_defined(x, cos, sin),
    }
}

pub(super) fn rotate_defined(x: Tensor<3>, cos: &Tensor<3>, sin: &Tensor<3>) -> Tensor<3> {
    let head_dim = x.dims()[2];
    let half = cos.dims()[2];
    let first = x.clone().narrow(2, 0, half);
    let second = x.clone().narrow(2, half, half);
    let (cos, sin) = (cos.clone(), sin.clone());
    let mut parts =
        vec![first.clone() * cos.clone() - second.clone() * sin.clone(), second * cos + first * sin];
    if 2 * half < head_dim {
        parts.push(x.narrow(2, 2 * half, head_dim - 2 * half));
    }
    Tensor::cat(parts, 2)
}

#[inline(always)]
fn turn_body(y: &mut [f32], cos: &[f32], sin: &[f32], half: usize, head_dim: usize, heads: usize) {
    for (i, token) in y.chunks_exact_mut(heads * head_dim).enumerate() {
        let (cos, sin) = (&cos[i * half..][..half], &sin[i * half..][..half]);
        for head in token.chunks_exact_mut(head_dim) {
            let (first, rest) = head.split_at_mut(half);
            for (((a, b), cos), sin) in first.iter_mut().zip(&mut rest[..half]).zip(cos).zip(sin) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}

best_of_three! {
    fn turn = turn_body(y: &mut [f32], cos: &[f32], sin: &[f32], half: usize, head_dim: usize, heads: usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::noise::{assert_near, tensor, values};

    #[test]
    fn one_pass_turns_as_the_definition_says() {
        for (t, heads, head_dim, half) in [(1, 1, 2, 1), (3, 2, 8, 2), (5, 3, 10, 5), (400, 8, 64, 8)] {
            let (x, cos, sin) =
                (tensor(1, [t, heads, head_dim]), tensor(2, [t, 1, half]), tensor(3, [t, 1, half]));
            let (got, expected) = (rotate(x.clone(), &cos, &sin), rotate_defined(x, &cos, &sin));
            assert_near(got, &values(expected), 1e-6, &format!("{t} {heads} {head_dim} {half}"));
        }
    }
}
