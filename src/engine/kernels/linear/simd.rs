//! Dot products of a stored row with one or more f32 vectors, for AVX-512, AVX2 and everything else, chosen
//! once per product from what the CPU reports.
//!
//! With several vectors a row is read and widened once for all of them. Each result is summed in the same
//! order as alone, so a token's numbers don't depend on how many others were computed with it.

use half::{bf16, f16};

use super::super::super::weights::WeightFormat;

/// Takes a row of stored numbers (little endian, any alignment) and `T` vectors of as many f32 values.
pub type Dot<const T: usize> = fn(&[u8], [&[f32]; T]) -> [f32; T];

/// The best dot product for `format` on this CPU.
pub fn dot<const T: usize>(format: WeightFormat) -> Dot<T> {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(dot) = x86::dot_avx512(format).or_else(|| x86::dot_avx2(format)) {
            return dot;
        }
    }
    portable(format)
}

/// Every dot product that this CPU can run, with its name: for the test that compares them.
#[cfg(test)]
pub fn all<const T: usize>(format: WeightFormat) -> Vec<(&'static str, Dot<T>)> {
    let mut all = vec![("portable", portable(format))];
    #[cfg(target_arch = "x86_64")]
    {
        all.extend(x86::dot_avx512(format).map(|dot| ("avx512", dot)));
        all.extend(x86::dot_avx2(format).map(|dot| ("avx2", dot)));
    }
    all
}

/// The dot product without CPU-specific instructions.
fn portable<const T: usize>(format: WeightFormat) -> Dot<T> {
    match format {
        WeightFormat::Bf16 => |w, x| x.map(|x| lanes::<2>(w, x, |b| bf16::from_le_bytes(b).to_f32())),
        WeightFormat::F16 => |w, x| x.map(|x| lanes::<2>(w, x, |b| f16::from_le_bytes(b).to_f32())),
        WeightFormat::F32 => |w, x| x.map(|x| lanes::<4>(w, x, f32::from_le_bytes)),
        _ => unreachable!("rows in blocks are widened before"),
    }
}

/// Sixteen running sums, which the compiler turns into whatever vectors the target has.
fn lanes<const BYTES: usize>(w: &[u8], x: &[f32], widen: impl Fn([u8; BYTES]) -> f32) -> f32 {
    const N: usize = 16;
    let (w, _) = w.as_chunks::<BYTES>();
    let (w_blocks, w_rest) = w.as_chunks::<N>();
    let (x_blocks, x_rest) = x.as_chunks::<N>();
    let mut sums = [0.0f32; N];
    for (w, x) in w_blocks.iter().zip(x_blocks) {
        for lane in 0..N {
            sums[lane] += widen(w[lane]) * x[lane];
        }
    }
    let rest: f32 = w_rest.iter().zip(x_rest).map(|(w, x)| widen(*w) * x).sum();
    sums.iter().sum::<f32>() + rest
}

/// Widens a row of stored numbers to f32.
pub fn widen(format: WeightFormat, bytes: &[u8], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    match format.is_plain() {
        true if is_x86_feature_detected!("avx512f") => return x86::widen_avx512(format, bytes, out),
        false if has_avx512_integers() => {
            // SAFETY: the features were detected.
            return unsafe { x86::widen_blocks_avx512(format, bytes, out) };
        }
        false if is_x86_feature_detected!("avx2") => {
            // SAFETY: the feature was detected.
            return unsafe { x86::widen_blocks_avx2(format, bytes, out) };
        }
        _ => {}
    }
    format.widen(bytes, out);
}

#[cfg(target_arch = "x86_64")]
fn has_avx512_integers() -> bool {
    is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
}

/// Widened numbers as a row of stored ones.
pub fn bytes(values: &[f32]) -> &[u8] {
    // SAFETY: every byte of an f32 is a byte, and the slice has its length and lifetime.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Dot, WeightFormat, portable};
    use crate::engine::weights::blocks;

    const BF16: u8 = WeightFormat::Bf16 as u8;
    const F16: u8 = WeightFormat::F16 as u8;
    const F32: u8 = WeightFormat::F32 as u8;

    /// Numbers per iteration of AVX-512: four vectors, enough loads in flight to fill the memory bus.
    const BLOCK_512: usize = 64;
    const BLOCK_256: usize = 32;

    pub fn dot_avx512<const T: usize>(format: WeightFormat) -> Option<Dot<T>> {
        is_x86_feature_detected!("avx512f").then_some(match format {
            WeightFormat::Bf16 => avx512::<BF16, T>,
            WeightFormat::F16 => avx512::<F16, T>,
            WeightFormat::F32 => avx512::<F32, T>,
            _ => unreachable!("rows in blocks are widened before"),
        })
    }

    pub fn dot_avx2<const T: usize>(format: WeightFormat) -> Option<Dot<T>> {
        let detected = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        detected.then_some(match format {
            WeightFormat::Bf16 => avx2::<BF16, T>,
            WeightFormat::F16 => avx2::<F16, T>,
            WeightFormat::F32 => avx2::<F32, T>,
            _ => unreachable!("rows in blocks are widened before"),
        })
    }

    /// Needs AVX-512F.
    fn avx512<const FORMAT: u8, const T: usize>(w: &[u8], x: [&[f32]; T]) -> [f32; T] {
        let n = whole_blocks::<FORMAT, T>(w, x, BLOCK_512);
        // SAFETY: `dot_avx512` hands this out only where AVX-512F was detected; `n` numbers lie inside all.
        let sums = unsafe { sum_avx512::<FORMAT, T>(w.as_ptr(), x.map(<[f32]>::as_ptr), n) };
        with_rest::<FORMAT, T>(sums, w, x, n)
    }

    /// Needs AVX2, FMA and F16C.
    fn avx2<const FORMAT: u8, const T: usize>(w: &[u8], x: [&[f32]; T]) -> [f32; T] {
        let n = whole_blocks::<FORMAT, T>(w, x, BLOCK_256);
        // SAFETY: `dot_avx2` hands this out only where the features were detected; `n` numbers lie inside all.
        let sums = unsafe { sum_avx2::<FORMAT, T>(w.as_ptr(), x.map(<[f32]>::as_ptr), n) };
        with_rest::<FORMAT, T>(sums, w, x, n)
    }

    /// How many numbers make whole blocks.
    fn whole_blocks<const FORMAT: u8, const T: usize>(w: &[u8], x: [&[f32]; T], block: usize) -> usize {
        let columns = x[0].len();
        assert!(x.iter().all(|x| x.len() == columns), "vectors have the same length");
        assert!(w.len() >= columns * number_bytes(FORMAT), "a row holds one number per activation");
        columns / block * block
    }

    /// Adds what comes after the whole blocks, in plain code.
    fn with_rest<const FORMAT: u8, const T: usize>(
        mut sums: [f32; T],
        w: &[u8],
        x: [&[f32]; T],
        n: usize,
    ) -> [f32; T] {
        let columns = x[0].len();
        if n == columns {
            return sums;
        }
        let format = match FORMAT {
            BF16 => WeightFormat::Bf16,
            F16 => WeightFormat::F16,
            _ => WeightFormat::F32,
        };
        let rest = portable(format)(&w[format.row_bytes(n)..format.row_bytes(columns)], x.map(|x| &x[n..]));
        for (sum, rest) in sums.iter_mut().zip(rest) {
            *sum += rest;
        }
        sums
    }

    const fn number_bytes(format: u8) -> usize {
        if format == F32 { 4 } else { 2 }
    }

    /// # Safety
    /// AVX-512F is there, and sixteen numbers of the format can be read at `w`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_avx512<const FORMAT: u8>(w: *const u8) -> __m512 {
        // SAFETY: the caller promises the bytes; the loads need no alignment.
        unsafe {
            match FORMAT {
                BF16 => {
                    let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(w.cast()));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
                }
                F16 => _mm512_cvtph_ps(_mm256_loadu_si256(w.cast())),
                _ => _mm512_loadu_ps(w.cast()),
            }
        }
    }

    /// # Safety
    /// AVX-512F is there, `n` is a multiple of `BLOCK_512`, and all pointers lead to `n` numbers.
    #[target_feature(enable = "avx512f")]
    unsafe fn sum_avx512<const FORMAT: u8, const T: usize>(
        w: *const u8,
        x: [*const f32; T],
        n: usize,
    ) -> [f32; T] {
        let mut sums = [[_mm512_setzero_ps(); 4]; T];
        for i in (0..n).step_by(BLOCK_512) {
            for lane in 0..4 {
                let at = i + lane * 16;
                // SAFETY: `at + 16 <= n`, since `i + BLOCK_512 <= n`.
                let w = unsafe { load_avx512::<FORMAT>(w.add(at * number_bytes(FORMAT))) };
                for (sums, x) in sums.iter_mut().zip(x) {
                    // SAFETY: as above.
                    sums[lane] = unsafe { _mm512_fmadd_ps(w, _mm512_loadu_ps(x.add(at)), sums[lane]) };
                }
            }
        }
        sums.map(|[a, b, c, d]| _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d))))
    }

    /// # Safety
    /// AVX2 and F16C are there, and eight numbers of the format can be read at `w`.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn load_avx2<const FORMAT: u8>(w: *const u8) -> __m256 {
        // SAFETY: the caller promises the bytes; the loads need no alignment.
        unsafe {
            match FORMAT {
                BF16 => {
                    let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(w.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
                }
                F16 => _mm256_cvtph_ps(_mm_loadu_si128(w.cast())),
                _ => _mm256_loadu_ps(w.cast()),
            }
        }
    }

    /// # Safety
    /// AVX2, FMA and F16C are there, `n` is a multiple of `BLOCK_256`, and all pointers lead to `n` numbers.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn sum_avx2<const FORMAT: u8, const T: usize>(
        w: *const u8,
        x: [*const f32; T],
        n: usize,
    ) -> [f32; T] {
        let mut sums = [[_mm256_setzero_ps(); 4]; T];
        for i in (0..n).step_by(BLOCK_256) {
            for lane in 0..4 {
                let at = i + lane * 8;
                // SAFETY: `at + 8 <= n`, since `i + BLOCK_256 <= n`.
                let w = unsafe { load_avx2::<FORMAT>(w.add(at * number_bytes(FORMAT))) };
                for (sums, x) in sums.iter_mut().zip(x) {
                    // SAFETY: as above.
                    sums[lane] = unsafe { _mm256_fmadd_ps(w, _mm256_loadu_ps(x.add(at)), sums[lane]) };
                }
            }
        }
        sums.map(|[a, b, c, d]| {
            let sum = _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d));
            let mut lanes = [0.0f32; 8];
            // SAFETY: `lanes` has room for eight values.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sum) };
            lanes.iter().sum()
        })
    }

    /// Needs AVX-512F.
    pub fn widen_avx512(format: WeightFormat, bytes: &[u8], out: &mut [f32]) {
        assert!(bytes.len() >= format.row_bytes(out.len()), "one stored number per output");
        let n = out.len() / 16 * 16;
        // SAFETY: the caller detected AVX-512F; `n` numbers lie inside both slices.
        unsafe {
            match format {
                WeightFormat::Bf16 => widen_plain::<BF16>(bytes.as_ptr(), out.as_mut_ptr(), n),
                WeightFormat::F16 => widen_plain::<F16>(bytes.as_ptr(), out.as_mut_ptr(), n),
                WeightFormat::F32 => widen_plain::<F32>(bytes.as_ptr(), out.as_mut_ptr(), n),
                _ => unreachable!("blocks have a function of their own"),
            }
        }
        format.widen(&bytes[format.row_bytes(n)..], &mut out[n..]);
    }

    /// The definition, compiled for wider vectors. Without fused operations, so that the numbers are the same.
    ///
    /// # Safety
    /// The features are there.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub unsafe fn widen_blocks_avx512(format: WeightFormat, bytes: &[u8], out: &mut [f32]) {
        blocks::widen(format, bytes, out);
    }

    /// # Safety
    /// AVX2 is there.
    #[target_feature(enable = "avx2")]
    pub unsafe fn widen_blocks_avx2(format: WeightFormat, bytes: &[u8], out: &mut [f32]) {
        blocks::widen(format, bytes, out);
    }

    /// # Safety
    /// AVX-512F is there, `n` is a multiple of 16, and both pointers lead to `n` numbers.
    #[target_feature(enable = "avx512f")]
    unsafe fn widen_plain<const FORMAT: u8>(bytes: *const u8, out: *mut f32, n: usize) {
        let size = number_bytes(FORMAT);
        for i in (0..n).step_by(16) {
            // SAFETY: `i + 16 <= n`.
            unsafe { _mm512_storeu_ps(out.add(i), load_avx512::<FORMAT>(bytes.add(i * size))) };
        }
    }
}
