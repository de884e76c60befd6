//! The operations Burn doesn't have, as one backend extension: a slow twin that defines each of them, a fast
//! one for the CPU, one for the GPU, and a test that compares them.
//!
//! Knows slices, shapes and weight formats; nothing of layers, files or tokens.

pub mod affine;
pub mod attention;
pub(super) mod cpu;
pub mod delta;
pub mod linear;
pub mod norm;
pub mod pool;
pub mod profile;
pub mod rope;
pub mod solve;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, backend_extension};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_flex::Flex;

use super::weights::WeightFormat;

/// The custom operations. Weights travel as U32 words, since that is the one integer type that every GPU
/// stores, and since bf16 tensors give silently wrong numbers on adapters without bf16.
#[backend_extension(Cube, Flex, Fusion)]
pub trait Kernels: Backend {
    /// `x [t, columns]` times the transpose of `weight [rows, columns]`: `[t, rows]`.
    #[fusion(dtype = x, shape = linear_shape(x, rows))]
    fn packed_linear(
        x: FloatTensor<Self>,
        weight: IntTensor<Self>,
        format: WeightFormat,
        rows: usize,
    ) -> FloatTensor<Self>;

    /// Rows `start..start + rows` of a weight as f32: `[rows, columns]`.
    #[fusion(dtype = DType::F32, shape = widened_shape(weight, rows, columns))]
    fn widen_rows(
        weight: IntTensor<Self>,
        format: WeightFormat,
        start: usize,
        rows: usize,
        columns: usize,
    ) -> FloatTensor<Self>;

    /// Solves `(I + a) x = rhs` for each of `b` systems; `a [b, n, n]` counts below its diagonal only,
    /// `rhs [b, n, m]`.
    #[fusion(dtype = rhs, shape = rhs)]
    fn solve_unit_lower(a: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Steps of the gated delta rule, see [`delta::delta_steps`]: the outputs and the new state.
    #[fusion(meta = |state, _q, _k, v, _g, _beta| (v.clone(), state.clone()))]
    fn delta_steps(
        state: FloatTensor<Self>,
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        g: FloatTensor<Self>,
        beta: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

fn linear_shape(x: &Shape, rows: &usize) -> Shape {
    Shape::new([x[0], *rows])
}

fn widened_shape(_weight: &Shape, rows: &usize, columns: &usize) -> Shape {
    Shape::new([*rows, *columns])
}

impl Kernels for Flex {
    fn packed_linear(
        x: FloatTensor<Self>,
        weight: IntTensor<Self>,
        format: WeightFormat,
        rows: usize,
    ) -> FloatTensor<Self> {
        linear::flex(x, &weight, format, rows)
    }

    fn widen_rows(
        weight: IntTensor<Self>,
        format: WeightFormat,
        start: usize,
        rows: usize,
        columns: usize,
    ) -> FloatTensor<Self> {
        linear::flex_widen_rows(&weight, format, start, rows, columns)
    }

    fn solve_unit_lower(a: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        solve::flex(a, rhs)
    }

    fn delta_steps(
        state: FloatTensor<Self>,
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        g: FloatTensor<Self>,
        beta: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        delta::flex(state, [q, k, v, g, beta])
    }
}

impl Kernels for CubeBackend {
    fn packed_linear(
        x: FloatTensor<Self>,
        weight: IntTensor<Self>,
        format: WeightFormat,
        rows: usize,
    ) -> FloatTensor<Self> {
        linear::gpu::matvec(x, weight, format, rows)
    }

    fn widen_rows(
        weight: IntTensor<Self>,
        format: WeightFormat,
        start: usize,
        rows: usize,
        columns: usize,
    ) -> FloatTensor<Self> {
        linear::gpu::widen_rows(weight, format, start, rows, columns)
    }

    fn solve_unit_lower(a: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        solve::gpu::solve(a, rhs)
    }

    fn delta_steps(
        state: FloatTensor<Self>,
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        g: FloatTensor<Self>,
        beta: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        delta::gpu::steps(state, [q, k, v, g, beta])
    }
}

#[cfg(test)]
mod tests;
