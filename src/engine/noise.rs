//! Numbers for tests that compare a computation with its plain statement.

use burn::tensor::{Device, Tensor};

/// Numbers of no pattern in -1..1, the same on every run.
pub fn noise(seed: u32, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// A tensor of them on the CPU.
pub fn tensor<const D: usize>(seed: u32, shape: [usize; D]) -> Tensor<D> {
    let flat: Tensor<1> =
        Tensor::from_floats(noise(seed, shape.iter().product()).as_slice(), &Device::flex());
    flat.reshape(shape)
}

pub fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec().unwrap()
}

pub fn assert_close(got: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() <= tolerance * (1.0 + e.abs()), "{what}: value {i} is {g}, expected {e}");
    }
}

/// [`assert_close`] for the numbers of a tensor.
pub fn assert_near<const D: usize>(got: Tensor<D>, expected: &[f32], tolerance: f32, what: &str) {
    assert_close(&values(got), expected, tolerance, what);
}
