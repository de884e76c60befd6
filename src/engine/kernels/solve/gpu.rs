//! One unit per column of each system: columns are independent, so nothing is shared or waited for.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

const UNITS: u32 = 64;

pub fn solve(a: CubeTensor, rhs: CubeTensor) -> CubeTensor {
    let (a, rhs) = (into_contiguous(a), into_contiguous(rhs));
    let [b, n, m] = [0, 1, 2].map(|i| rhs.meta.shape()[i]);
    let x = empty_device_contiguous_dtype(
        rhs.client.clone(),
        rhs.device.clone(),
        rhs.meta.shape().clone(),
        rhs.dtype,
    );
    // SAFETY: the kernel checks its column; the buffers have the lengths that the shapes say.
    unsafe {
        solve_kernel::launch_unchecked(
            &rhs.client.clone(),
            CubeCount::Static((m as u32).div_ceil(UNITS), b as u32, 1),
            CubeDim::new_1d(UNITS),
            a.into_buffer_arg(),
            rhs.into_buffer_arg(),
            x.clone().into_buffer_arg(),
            n as u32,
            m as u32,
        );
    }
    x
}

#[cube(launch_unchecked)]
fn solve_kernel(a: &[f32], rhs: &[f32], x: &mut [f32], n: u32, m: u32) {
    let column = CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X;
    if column >= m {
        terminate!();
    }
    let n = n as usize;
    let m = m as usize;
    let system = CUBE_POS_Y as usize;
    let first = system * n * m + column as usize;
    let a_first = system * n * n;
    for i in 0..n {
        let mut value = rhs[first + i * m];
        for j in 0..i {
            value -= a[a_first + i * n + j] * x[first + j * m];
        }
        x[first + i * m] = value;
    }
}
