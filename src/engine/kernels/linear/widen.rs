//! Widening of stored numbers to f32, for AVX-512 and everything else.

use super::super::super::weights::WeightFormat;

/// Widens stored numbers to f32.
pub fn widen(format: WeightFormat, bytes: &[u8], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        x86::widen_avx512(format, bytes, out);
        return;
    }
    format.widen(bytes, out);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::WeightFormat;

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
        assert!(bytes.len() >= out.len() * format.bytes(), "one stored number per output");
        let n = out.len() / 16 * 16;
        // SAFETY: the caller detected AVX-512F; `n` numbers lie inside both slices.
        unsafe {
            match format {
                WeightFormat::Bf16 => widen_blocks::<BF16>(bytes.as_ptr(), out.as_mut_ptr(), n),
                WeightFormat::F16 => widen_blocks::<F16>(bytes.as_ptr(), out.as_mut_ptr(), n),
                WeightFormat::F32 => widen_blocks::<F32>(bytes.as_ptr(), out.as_mut_ptr(), n),
            }
        }
        format.widen(&bytes[n * format.bytes()..], &mut out[n..]);
    }

    /// # Safety
    /// AVX-512F is there, `n` is a multiple of 16, and both pointers lead to `n` numbers.
    #[target_feature(enable = "avx512f")]
    unsafe fn widen_blocks<const FORMAT: u8>(bytes: *const u8, out: *mut f32, n: usize) {
        let size = number_bytes(FORMAT);
        for i in (0..n).step_by(16) {
            // SAFETY: `i + 16 <= n`.
            unsafe { _mm512_storeu_ps(out.add(i), load_avx512::<FORMAT>(bytes.add(i * size))) };
        }
    }
}
