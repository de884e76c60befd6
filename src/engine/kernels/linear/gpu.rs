//! The GPU forms: a product for few tokens that widens as it goes, and plain widening for many, where a
//! blocked multiplication of f32 tiles is faster. For plain formats; panels have kernels of their own
//! (`panels/gpu.rs`), and `model/linear.rs` widens all others.

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::super::weights::WeightFormat;
use super::panels;

/// Units that share one dot product; one workgroup of this size exists on every adapter.
pub const UNITS: u32 = 64;
/// Workgroups along one axis of a launch: the least that every adapter allows is 65535.
const MAX_CUBES: u32 = 32768;

pub fn matvec(x: CubeTensor, weight: CubeTensor, format: WeightFormat, rows: usize) -> CubeTensor {
    if format.is_panels() {
        return panels::gpu::matvec(x, weight, format, rows);
    }
    let x = into_contiguous(x);
    let [t, columns] = [x.meta.shape()[0], x.meta.shape()[1]];
    let y = empty(&x, [t, rows]);
    // SAFETY: the buffers have the lengths that the shapes say, and the kernel checks its row.
    unsafe {
        matvec_kernel::launch_unchecked(
            &x.client.clone(),
            cubes(rows, t),
            CubeDim::new_1d(UNITS),
            x.into_buffer_arg(),
            weight.into_buffer_arg(),
            y.clone().into_buffer_arg(),
            rows as u32,
            columns as u32,
            format as u32,
            UNITS as usize,
        );
    }
    y
}

pub fn widen_rows(
    weight: CubeTensor,
    format: WeightFormat,
    start: usize,
    rows: usize,
    columns: usize,
) -> CubeTensor {
    if format.is_panels() {
        return panels::gpu::widen_rows(weight, format, start, rows, columns);
    }
    let out = empty(&weight, [rows, columns]);
    let n = (rows * columns) as u32;
    // SAFETY: the kernel checks its position against `n`, and the weight holds all rows.
    unsafe {
        widen_kernel::launch_unchecked(
            &weight.client.clone(),
            cubes(n.div_ceil(UNITS) as usize, 1),
            CubeDim::new_1d(UNITS),
            weight.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            (start * columns) as u32,
            n,
            format as u32,
        );
    }
    out
}

pub fn empty<const D: usize>(like: &CubeTensor, shape: [usize; D]) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), Shape::new(shape), DType::F32)
}

/// The f16 in the low half of a word, by its bits: moving them into place and scaling by 2^112 corrects the exponent,
/// exactly and for subnormal numbers too. No adapter needs the f16 feature for it.
#[cube]
pub fn widen_f16(bits: u32) -> f32 {
    let magnitude = f32::reinterpret((bits & 0x7fffu32) << 13u32) * 5.192_297e33_f32;
    f32::reinterpret(u32::reinterpret(magnitude) | ((bits & 0x8000u32) << 16u32))
}

/// Workgroups for `n` things and `z` layers of them, however many there are along one axis at most.
pub fn cubes(n: usize, z: usize) -> CubeCount {
    let x = (n as u32).min(MAX_CUBES);
    CubeCount::Static(x, (n as u32).div_ceil(x), z as u32)
}

/// Number `index` of a weight. 16-bit formats have two numbers in a word, the first in the low half.
#[cube]
fn element(weight: &[u32], index: usize, #[comptime] format: u32) -> f32 {
    if comptime!(format == WeightFormat::F32 as u32) {
        f32::reinterpret(weight[index])
    } else {
        let word = weight[index / 2];
        let shift = (index as u32 % 2u32) * 16u32;
        let bits = (word >> shift) & 0xffffu32;
        if comptime!(format == WeightFormat::Bf16 as u32) {
            f32::reinterpret(bits << 16u32)
        } else {
            widen_f16(bits)
        }
    }
}

#[cube(launch_unchecked)]
fn matvec_kernel(
    x: &[f32],
    weight: &[u32],
    y: &mut [f32],
    rows: u32,
    columns: u32,
    #[comptime] format: u32,
    #[comptime] units: usize,
) {
    let row = CUBE_POS_X + CUBE_POS_Y * CUBE_COUNT_X;
    if row >= rows {
        terminate!();
    }
    let rows = rows as usize;
    let columns = columns as usize;
    let row = row as usize;
    let token = CUBE_POS_Z as usize;
    let unit = UNIT_POS_X as usize;

    let mut sum = 0.0f32;
    let mut column = unit;
    while column < columns {
        sum += element(weight, row * columns + column, format) * x[token * columns + column];
        column += units;
    }

    let mut sums = Shared::<[f32]>::new_slice(units);
    sums[unit] = sum;
    sync_cube();
    let mut half = comptime!(units / 2).runtime();
    while half > 0 {
        if unit < half {
            sums[unit] += sums[unit + half];
        }
        sync_cube();
        half /= 2;
    }
    if unit == 0 {
        y[token * rows + row] = sums[0];
    }
}

#[cube(launch_unchecked)]
fn widen_kernel(weight: &[u32], out: &mut [f32], start: u32, n: u32, #[comptime] format: u32) {
    let position = (CUBE_POS_X + CUBE_POS_Y * CUBE_COUNT_X) * CUBE_DIM_X + UNIT_POS_X;
    if position < n {
        out[position as usize] = element(weight, (start + position) as usize, format);
    }
}
