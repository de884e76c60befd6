//! What stands beside the products of the vision tower: bias, GELU, layer norm. Each is defined in Burn's operations;
//! on the CPU, where every operation is a walk over memory of its own, it is one pass shared by all cores.

use burn::tensor::Tensor;

use super::cpu::{self, best_of_three, dot, on_cpu, sigmoid, sum};

/// `x [n, width] + bias [1, width]`.
pub fn add_bias(x: Tensor<2>, bias: &Tensor<2>) -> Tensor<2> {
    match (on_cpu(&x), on_cpu(bias)) {
        (Some(values), Some(bias)) => {
            let (values, bias) = (cpu::slice(&values), cpu::slice(&bias));
            let mut y = vec![0.0; values.len()];
            cpu::by_rows(&mut y, bias.len(), |first, y| biased(&values[first * bias.len()..], bias, y));
            cpu::tensor(y, x.dims())
        }
        _ => x + bias.clone(),
    }
}

/// The tanh form of GELU.
pub fn gelu_tanh(x: Tensor<2>) -> Tensor<2> {
    match on_cpu(&x) {
        Some(values) => {
            let values = cpu::slice(&values);
            let mut y = vec![0.0; values.len()];
            cpu::by_rows(&mut y, 1, |first, y| gelu(&values[first..], y));
            cpu::tensor(y, x.dims())
        }
        None => gelu_tanh_defined(x),
    }
}

fn gelu_tanh_defined(x: Tensor<2>) -> Tensor<2> {
    let inner =
        (x.clone() + x.clone().square() * x.clone() * 0.044_715) * (2.0 / std::f64::consts::PI).sqrt();
    x * (inner.tanh() + 1.0) * 0.5
}

/// The ordinary layer norm over the last axis of `x [n, width]`; `weight` and `bias` `[1, width]`.
pub fn layer_norm(x: Tensor<2>, weight: &Tensor<2>, bias: &Tensor<2>, eps: f64) -> Tensor<2> {
    match (on_cpu(&x), on_cpu(weight), on_cpu(bias)) {
        (Some(values), Some(weight), Some(bias)) => {
            let [values, weight, bias] = [&values, &weight, &bias].map(cpu::slice);
            let mut y = vec![0.0; values.len()];
            cpu::by_rows(&mut y, weight.len(), |first, y| {
                norm(&values[first * weight.len()..], weight, bias, eps as f32, y);
            });
            cpu::tensor(y, x.dims())
        }
        _ => layer_norm_defined(x, weight, bias, eps),
    }
}

fn layer_norm_defined(x: Tensor<2>, weight: &Tensor<2>, bias: &Tensor<2>, eps: f64) -> Tensor<2> {
    let centred = x.clone() - x.mean_dim(1);
    let variance = centred.clone().square().mean_dim(1);
    centred * (variance + eps).sqrt().recip() * weight.clone() + bias.clone()
}

#[inline(always)]
fn biased_body(x: &[f32], bias: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks_exact(bias.len()).zip(y.chunks_exact_mut(bias.len())) {
        for ((x, bias), y) in x.iter().zip(bias).zip(y) {
            *y = x + bias;
        }
    }
}

best_of_three! { fn biased = biased_body(x: &[f32], bias: &[f32], y: &mut [f32]) }

#[inline(always)]
fn gelu_body(x: &[f32], y: &mut [f32]) {
    // (1 + tanh(z)) / 2 is the sigmoid of 2 z.
    const TWICE: f32 = 1.595_769_2;
    for (x, y) in x.iter().zip(y) {
        *y = x * sigmoid(TWICE * (x + 0.044_715 * x * x * x));
    }
}

best_of_three! { fn gelu = gelu_body(x: &[f32], y: &mut [f32]) }

#[inline(always)]
fn norm_body(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, y: &mut [f32]) {
    let width = weight.len();
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        let mean = sum(x) / width as f32;
        for (x, y) in x.iter().zip(&mut *y) {
            *y = x - mean;
        }
        let scale = (dot(y, y) / width as f32 + eps).sqrt().recip();
        for ((y, weight), bias) in y.iter_mut().zip(weight).zip(bias) {
            *y = *y * scale * weight + bias;
        }
    }
}

best_of_three! { fn norm = norm_body(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, y: &mut [f32]) }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::noise::{assert_near, tensor, values};

    #[test]
    fn one_pass_gives_what_the_definitions_say() {
        for shape in [[1, 1], [3, 5], [2, 33], [300, 768], [7, 1001]] {
            let x = tensor(1, shape).mul_scalar(6.0);
            let (weight, bias) = (tensor(2, [1, shape[1]]), tensor(3, [1, shape[1]]));
            let pairs = [
                (add_bias(x.clone(), &bias), x.clone() + bias.clone()),
                (gelu_tanh(x.clone()), gelu_tanh_defined(x.clone())),
                (
                    layer_norm(x.clone() + 2.0, &weight, &bias, 1e-6),
                    layer_norm_defined(x.clone() + 2.0, &weight, &bias, 1e-6),
                ),
            ];
            // Of a single number a norm leaves nothing but rounding.
            let n = if shape[1] == 1 { 2 } else { 3 };
            for (i, (got, expected)) in pairs.into_iter().take(n).enumerate() {
                assert_near(got, &values(expected), 5e-6, &format!("{i} {shape:?}"));
            }
        }
    }
}
