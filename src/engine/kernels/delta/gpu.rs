//! One unit per column of each head's state: columns don't depend on each other.

use burn::tensor::Shape;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

const UNITS: u32 = 64;

pub fn steps(state: CubeTensor, inputs: [CubeTensor; 5]) -> (CubeTensor, CubeTensor) {
    // A state that somebody else still holds is copied first.
    let state = into_contiguous(state);
    let state = if state.can_mut() { state } else { state.copy() };
    let [q, k, v, g, beta] = inputs.map(into_contiguous);
    let [value_heads, d_k, d_v] = [0, 1, 2].map(|i| state.meta.shape()[i]);
    let [t, key_heads] = [0, 1].map(|i| q.meta.shape()[i]);
    let n_decays = g.meta.shape()[2];
    let o = empty_device_contiguous_dtype(
        state.client.clone(),
        state.device.clone(),
        Shape::new([t, value_heads, d_v]),
        state.dtype,
    );
    // SAFETY: the kernel checks its column; the buffers have the lengths that the shapes say.
    unsafe {
        steps_kernel::launch_unchecked(
            &state.client.clone(),
            CubeCount::Static((d_v as u32).div_ceil(UNITS), value_heads as u32, 1),
            CubeDim::new_1d(UNITS),
            state.clone().into_buffer_arg(),
            q.into_buffer_arg(),
            k.into_buffer_arg(),
            v.into_buffer_arg(),
            g.into_buffer_arg(),
            beta.into_buffer_arg(),
            o.clone().into_buffer_arg(),
            t as u32,
            d_k as u32,
            d_v as u32,
            key_heads as u32,
            value_heads as u32,
            n_decays,
        );
    }
    (o, state)
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn steps_kernel(
    state: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    g: &[f32],
    beta: &[f32],
    o: &mut [f32],
    t: u32,
    d_k: u32,
    d_v: u32,
    key_heads: u32,
    value_heads: u32,
    #[comptime] n_decays: usize,
) {
    let column = CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X;
    if column >= d_v {
        terminate!();
    }
    let head = CUBE_POS_Y;
    let key_head = head / (value_heads / key_heads);
    let d_k_size = d_k as usize;
    let d_v_size = d_v as usize;
    let first = (head * d_k * d_v + column) as usize;
    for token in 0..t {
        let key = ((token * key_heads + key_head) * d_k) as usize;
        let value = (token * value_heads + head) as usize;
        // One for all rows of the state, or read anew for each.
        let mut decay = f32::exp(g[value * n_decays]);
        let mut predicted = 0.0f32;
        for i in 0..d_k_size {
            if comptime!(n_decays > 1) {
                decay = f32::exp(g[value * n_decays + i]);
            }
            predicted += decay * k[key + i] * state[first + i * d_v_size];
        }
        let at = value * d_v_size + column as usize;
        let error = beta[value] * (v[at] - predicted);
        let mut sum = 0.0f32;
        for i in 0..d_k_size {
            if comptime!(n_decays > 1) {
                decay = f32::exp(g[value * n_decays + i]);
            }
            let s = decay * state[first + i * d_v_size] + k[key + i] * error;
            state[first + i * d_v_size] = s;
            sum += q[key + i] * s;
        }
        o[at] = sum;
    }
}
