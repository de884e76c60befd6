//! What the passes for the CPU share: the memory behind a tensor, the best instructions that this processor has, and
//! mathematics that compilers can turn into them.

use burn::backend::{BackendTensor, DispatchTensor, DispatchTensorKind};
use burn::tensor::{Int, Tensor};
use burn_flex::FlexTensor;

use super::linear::float_tensor;
use super::pool;

/// Fewer numbers than this aren't worth waking other threads.
pub const MIN_PARALLEL: usize = 1 << 16;

/// The tensor's numbers, one after the other, if it lives on the CPU.
pub fn on_cpu<const D: usize>(tensor: &Tensor<D>) -> Option<FlexTensor> {
    match tensor.clone().into_dispatch().kind {
        DispatchTensorKind::Flex(tensor) => Some(tensor.float().to_contiguous()),
        _ => None,
    }
}

/// The words of a stored weight, if it lives on the CPU.
pub fn words_on_cpu(words: &Tensor<1, Int>) -> Option<FlexTensor> {
    match words.clone().into_dispatch().kind {
        DispatchTensorKind::Flex(tensor) => Some(tensor.int()),
        _ => None,
    }
}

pub fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("activations are f32, and contiguous since `on_cpu`")
}

/// The tensor of `values` on the CPU.
pub fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
    let kind = DispatchTensorKind::Flex(BackendTensor::Float(float_tensor(values, shape)));
    Tensor::from_dispatch(DispatchTensor { kind, autodiff: Default::default() })
}

/// Has `work` fill `y` in pieces of whole rows of `width` numbers, on several threads if it is large. It is told the
/// index of a piece's first row.
pub fn by_rows(y: &mut [f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    if y.len() < 2 * MIN_PARALLEL {
        return work(0, y);
    }
    let rows = (MIN_PARALLEL / width).max(1);
    pool::chunks_mut(y, rows * width, |i, y| work(i * rows, y));
}

/// Defines `$name` as `$body`, an inlined function, compiled for AVX-512, for AVX2 and for every processor, of which
/// the best is taken when it runs. The instructions differ in width only, so the numbers are the same; unless the body
/// is said to be `fused`: then it is told, by a constant, whether a product and a sum are rounded once.
macro_rules! best_of_three {
    ($(#[$doc:meta])* $visible:vis fn $name:ident = $body:ident($($arg:ident: $kind:ty),* $(,)?)) => {
        crate::engine::kernels::cpu::best_of_three! {
            @ [$(#[$doc])*] [$visible] $name ($body) ($body) ($($arg: $kind),*)
        }
    };
    ($(#[$doc:meta])* $visible:vis fn $name:ident = fused $body:ident($($arg:ident: $kind:ty),* $(,)?)) => {
        crate::engine::kernels::cpu::best_of_three! {
            @ [$(#[$doc])*] [$visible] $name
            ($body::<true>) ($body::<{ cfg!(target_arch = "aarch64") }>) ($($arg: $kind),*)
        }
    };
    (@ [$(#[$doc:meta])*] [$visible:vis] $name:ident ($best:expr) ($portable:expr) ($($arg:ident: $kind:ty),*)) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $visible fn $name($($arg: $kind),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f")]
                fn avx512($($arg: $kind),*) {
                    $best($($arg),*);
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $kind),*) {
                    $best($($arg),*);
                }
                if is_x86_feature_detected!("avx512f") {
                    // SAFETY: the processor has just said that it knows these instructions.
                    return unsafe { avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $portable($($arg),*);
        }
    };
}
pub(in crate::engine) use best_of_three;

/// `a * b + c`, rounded once where that is one instruction.
#[inline(always)]
pub fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Sixteen numbers at an address that is a multiple of 64: a load never crosses a cache line, which would halve the
/// speed of loops over numbers that are in the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Line(pub [f32; LANES]);

impl Line {
    pub const ZERO: Self = Self([0.0; LANES]);
}

pub const LANES: usize = 16;

/// The sum of products, in sixteen running sums.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    add_up(sums) + rest
}

/// The sum, in sixteen running sums.
#[inline(always)]
pub fn sum(x: &[f32]) -> f32 {
    let (blocks, rest) = x.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for x in blocks {
        for lane in 0..LANES {
            sums[lane] += x[lane];
        }
    }
    add_up(sums) + rest.iter().sum::<f32>()
}

/// Halves onto each other: as vectors do it, and better rounded than one after the other.
#[inline(always)]
pub fn add_up(mut sums: [f32; LANES]) -> f32 {
    let mut n = LANES / 2;
    while n > 0 {
        for lane in 0..n {
            sums[lane] += sums[lane + n];
        }
        n /= 2;
    }
    sums[0]
}

/// `e^x` without a branch or a call, so that loops over it become vectors. Within 2 units of the last place; 0 below
/// -87.3, where it would lose digits, and its largest finite value above 88.3.
///
/// Source of the method: argument reduction by multiples of ln 2 in two parts, then a polynomial (Cody and Waite).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN2_HIGH: f32 = 355.0 / 512.0;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding it leaves no room for a fraction: the nearest whole number remains, in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let inside = x.clamp(-87.3, 88.3);
    let rounded = inside * LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (inside - n * LN2_HIGH) - n * LN2_LOW;
    // 1/k! for k = 7 .. 2.
    let mut p = 1.984_127e-4;
    for c in [1.388_888_9e-3, 8.333_334e-3, 4.166_666_6e-2, 0.166_666_67, 0.5] {
        p = p * r + c;
    }
    let p = (p * r * r + r) + 1.0;
    let scale = f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23));
    if x < -87.3 { 0.0 } else { p * scale }
}

#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_right_to_the_last_places() {
        for i in -8_730..8_830 {
            for x in [i as f32 * 0.01, i as f32 * 0.01 + 0.003_7] {
                let right = f64::from(x).exp();
                let error = (f64::from(exp(x)) - right).abs() / right;
                assert!(error < 2.0 * f64::from(f32::EPSILON), "exp({x}) is {}, not {right}", exp(x));
            }
        }
        assert_eq!([exp(-100.0), exp(f32::NEG_INFINITY), exp(0.0)], [0.0, 0.0, 1.0]);
        assert!(exp(1000.0).is_finite() && exp(f32::NAN).is_nan());
    }

    #[test]
    fn a_dot_product_of_any_length_is_complete() {
        for n in [0, 1, 15, 16, 17, 100] {
            let ones = vec![1.0; n];
            let numbers: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(dot(&ones, &numbers), (n * n.saturating_sub(1) / 2) as f32);
        }
    }
}
