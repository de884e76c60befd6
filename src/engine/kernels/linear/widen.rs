//! Widening of stored numbers to f32, by the best instructions that the CPU has.

use super::super::super::weights::WeightFormat;

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

    use super::WeightFormat;
    use crate::engine::weights::blocks;

    const BF16: u8 = WeightFormat::Bf16 as u8;
    const F16: u8 = WeightFormat::F16 as u8;
    const F32: u8 = WeightFormat::F32 as u8;

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
