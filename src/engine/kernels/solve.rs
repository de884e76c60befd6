//! Forward substitution: `x` of `(I + a) x = rhs` for a batch of unit lower triangular systems.
//!
//! The chunked delta rule needs it, because inside a chunk each token corrects what the tokens before it
//! wrote. An inverse by repeated squaring would be shorter, but its terms grow like binomial coefficients
//! and cancel; substitution stays exact to rounding.

pub mod gpu;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::Kernels;
use super::linear::float_tensor;
use super::pool;

/// Solves `(I + a) x = rhs`: `a [b, n, n]` (only what is below its diagonal counts), `rhs` and `x [b, n, m]`.
pub fn solve_unit_lower(a: Tensor<3>, rhs: Tensor<3>) -> Tensor<3> {
    Tensor::from_dispatch(Dispatch::solve_unit_lower(a.into_dispatch(), rhs.into_dispatch()))
}

/// The definition, for one system: `a [n, n]` (only below the diagonal), `x [n, m]` in place.
pub fn solve(a: &[f32], n: usize, m: usize, x: &mut [f32]) {
    for i in 1..n {
        let (solved, rest) = x.split_at_mut(i * m);
        let row = &mut rest[..m];
        for (j, solved) in solved.chunks_exact(m).enumerate() {
            let factor = a[i * n + j];
            for (value, s) in row.iter_mut().zip(solved) {
                *value -= factor * s;
            }
        }
    }
}

pub(super) fn flex(a: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    let (a, rhs) = (a.to_contiguous(), rhs.to_contiguous());
    let [b, n, m] = [0, 1, 2].map(|i| rhs.layout().shape()[i]);
    let a = a.as_slice::<f32>().expect("the systems are f32 and contiguous here");
    let mut x = rhs.as_slice::<f32>().expect("the right sides are f32 and contiguous here").to_vec();
    pool::chunks_mut(&mut x, n * m, |i, x| solve(&a[i * n * n..(i + 1) * n * n], n, m, x));
    float_tensor(x, [b, n, m])
}
