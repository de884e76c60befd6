//! RMS norms over the last axis, in f32: `x * rsqrt(mean(x^2) + eps) * weight`.
//!
//! Each is defined in Burn's operations, which a GPU's compiler fuses. On the CPU, where every operation is a walk
//! over memory of its own, it is one pass.

use burn::tensor::Tensor;
use burn::tensor::activation;

use super::cpu::{self, best_of_three, dot, on_cpu, silu};

/// `x [.., width]`, `weight [width]`.
pub fn rms_norm<const D: usize>(x: Tensor<D>, weight: &Tensor<1>, eps: f64) -> Tensor<D> {
    match (on_cpu(&x), on_cpu(weight)) {
        (Some(values), Some(weight)) => {
            let (values, weight) = (cpu::slice(&values), cpu::slice(&weight));
            let mut y = vec![0.0; values.len()];
            cpu::by_rows(&mut y, weight.len(), |first, y| {
                norm(&values[first * weight.len()..], weight, eps as f32, y);
            });
            cpu::tensor(y, x.dims())
        }
        _ => rms_norm_defined(x, weight, eps),
    }
}

pub(super) fn rms_norm_defined<const D: usize>(x: Tensor<D>, weight: &Tensor<1>, eps: f64) -> Tensor<D> {
    let mean = x.clone().square().mean_dim(D - 1);
    x * (mean + eps).sqrt().recip() * weight.clone().unsqueeze()
}

/// The norm of `x`, times `silu(gate)`; both `[t, heads, width]`.
pub fn gated_rms_norm(x: Tensor<3>, gate: Tensor<3>, weight: &Tensor<1>, eps: f64) -> Tensor<3> {
    match (on_cpu(&x), on_cpu(&gate), on_cpu(weight)) {
        (Some(values), Some(gates), Some(weight)) => {
            let [values, gates, weight] = [&values, &gates, &weight].map(cpu::slice);
            let mut y = vec![0.0; values.len()];
            cpu::by_rows(&mut y, weight.len(), |first, y| {
                let at = first * weight.len();
                gated_norm(&values[at..], &gates[at..], weight, eps as f32, y);
            });
            cpu::tensor(y, x.dims())
        }
        _ => gated_rms_norm_defined(x, gate, weight, eps),
    }
}

pub(super) fn gated_rms_norm_defined(
    x: Tensor<3>,
    gate: Tensor<3>,
    weight: &Tensor<1>,
    eps: f64,
) -> Tensor<3> {
    rms_norm_defined(x, weight, eps) * activation::silu(gate)
}

/// `silu(gate) * up`, of the same shape.
pub fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    match (on_cpu(&gate), on_cpu(&up)) {
        (Some(gates), Some(ups)) => {
            let (gates, ups) = (cpu::slice(&gates), cpu::slice(&ups));
            let mut y = vec![0.0; gates.len()];
            cpu::by_rows(&mut y, 1, |first, y| gated(&gates[first..], &ups[first..], y));
            cpu::tensor(y, gate.dims())
        }
        _ => swiglu_defined(gate, up),
    }
}

pub(super) fn swiglu_defined(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    activation::silu(gate) * up
}

#[inline(always)]
fn norm_body(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    for (x, y) in x.chunks_exact(weight.len()).zip(y.chunks_exact_mut(weight.len())) {
        let scale = (dot(x, x) / weight.len() as f32 + eps).sqrt().recip();
        for ((x, weight), y) in x.iter().zip(weight).zip(y) {
            *y = x * scale * weight;
        }
    }
}

best_of_three! { fn norm = norm_body(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) }

#[inline(always)]
fn gated_norm_body(x: &[f32], gate: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    norm_body(x, weight, eps, y);
    for (y, gate) in y.iter_mut().zip(gate) {
        *y *= silu(*gate);
    }
}

best_of_three! { fn gated_norm = gated_norm_body(x: &[f32], gate: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) }

#[inline(always)]
fn gated_body(gate: &[f32], up: &[f32], y: &mut [f32]) {
    for ((gate, up), y) in gate.iter().zip(up).zip(y) {
        *y = silu(*gate) * up;
    }
}

best_of_three! { fn gated = gated_body(gate: &[f32], up: &[f32], y: &mut [f32]) }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::noise::{assert_near, tensor, values};

    const SHAPES: [[usize; 3]; 5] = [[1, 1, 1], [1, 3, 5], [2, 1, 33], [9, 16, 128], [300, 7, 192]];

    #[test]
    fn one_pass_gives_what_the_definitions_say() {
        for shape in SHAPES {
            let (x, gate) = (tensor(1, shape).mul_scalar(3.0), tensor(2, shape).mul_scalar(20.0));
            let weight = tensor(3, [shape[2]]);
            let pairs = [
                (rms_norm(x.clone(), &weight, 1e-6), rms_norm_defined(x.clone(), &weight, 1e-6)),
                (
                    gated_rms_norm(x.clone(), gate.clone(), &weight, 1e-6),
                    gated_rms_norm_defined(x.clone(), gate.clone(), &weight, 1e-6),
                ),
            ];
            for (got, expected) in pairs {
                assert_near(got, &values(expected), 1e-6, &format!("{shape:?}"));
            }
            let flat = |x: Tensor<3>| x.reshape([shape[0], shape[1] * shape[2]]);
            let (gate, up) = (flat(gate), flat(x));
            assert_near(
                swiglu(gate.clone(), up.clone()),
                &values(swiglu_defined(gate, up)),
                1e-6,
                &format!("{shape:?}"),
            );
        }
    }
}
