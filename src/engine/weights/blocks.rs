//! Numbers in blocks that share scales: how each block format is read. This is the definition; the kernels run the
//! same loops with wider instructions.
//!
//! The formats of GGUF are laid out as in the file. Two are our own, for checkpoints that keep their scales in
//! tensors apart: [`WeightFormat::Fp8`] and [`WeightFormat::Int4`] (see `packed.rs`).
//! Source of the GGUF layouts: `ggml-common.h` and the Python package `gguf`, whose rounding is followed to the bit.

use half::f16;

use super::{WeightFormat, panels};

/// Numbers of a block in the formats with two levels of scales.
const SUPER: usize = 256;
/// Numbers of the other GGUF formats, and of [`WeightFormat::Int4`].
const SMALL: usize = 32;
/// Numbers that share a scale in the official FP8 checkpoints.
pub const FP8_BLOCK: usize = 128;
pub const INT4_BLOCK: usize = SMALL;

/// Numbers and bytes of a block; plain formats have blocks of one number.
pub const fn layout(format: WeightFormat) -> (usize, usize) {
    match format {
        WeightFormat::Bf16 | WeightFormat::F16 => (1, 2),
        WeightFormat::F32 => (1, 4),
        WeightFormat::Q4_0 => (SMALL, 2 + 16),
        WeightFormat::Q4_1 => (SMALL, 4 + 16),
        WeightFormat::Q5_0 => (SMALL, 2 + 4 + 16),
        WeightFormat::Q5_1 => (SMALL, 4 + 4 + 16),
        WeightFormat::Q8_0 => (SMALL, 2 + 32),
        WeightFormat::Q4K => (SUPER, 4 + 12 + 128),
        WeightFormat::Q5K => (SUPER, 4 + 12 + 32 + 128),
        WeightFormat::Q6K => (SUPER, 128 + 64 + 16 + 2),
        WeightFormat::Fp8 => (FP8_BLOCK, 4 + 128),
        WeightFormat::Int4 => (INT4_BLOCK, 4 + 16),
        WeightFormat::Q8Panels | WeightFormat::Q4Panels => {
            (panels::BLOCK, panels::block_bytes(format) / panels::ROWS)
        }
    }
}

/// Widens the numbers of whole blocks; the last one may be wanted in part only.
#[inline(always)]
pub fn widen(format: WeightFormat, bytes: &[u8], out: &mut [f32]) {
    match format {
        WeightFormat::Bf16 | WeightFormat::F16 | WeightFormat::F32 => unreachable!("not a block format"),
        WeightFormat::Q8Panels | WeightFormat::Q4Panels => unreachable!("rows of panels are no blocks"),
        WeightFormat::Q4_0 => each::<18, SMALL>(bytes, out, q4_0),
        WeightFormat::Q4_1 => each::<20, SMALL>(bytes, out, q4_1),
        WeightFormat::Q5_0 => each::<22, SMALL>(bytes, out, q5_0),
        WeightFormat::Q5_1 => each::<24, SMALL>(bytes, out, q5_1),
        WeightFormat::Q8_0 => each::<34, SMALL>(bytes, out, q8_0),
        WeightFormat::Q4K => each::<144, SUPER>(bytes, out, q4_k),
        WeightFormat::Q5K => each::<176, SUPER>(bytes, out, q5_k),
        WeightFormat::Q6K => each::<210, SUPER>(bytes, out, q6_k),
        WeightFormat::Fp8 => each::<132, FP8_BLOCK>(bytes, out, fp8),
        WeightFormat::Int4 => each::<20, INT4_BLOCK>(bytes, out, int4),
    }
}

#[inline(always)]
fn each<const BYTES: usize, const N: usize>(
    bytes: &[u8],
    out: &mut [f32],
    widen: impl Fn(&[u8; BYTES], &mut [f32; N]),
) {
    let (blocks, _) = bytes.as_chunks::<BYTES>();
    let (whole, rest) = out.as_chunks_mut::<N>();
    for (block, out) in blocks.iter().zip(whole.iter_mut()) {
        widen(block, out);
    }
    if !rest.is_empty() {
        let mut last = [0.0; N];
        widen(&blocks[whole.len()], &mut last);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[inline(always)]
fn half(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// By bits, so that no call to a conversion routine stands in the way of wide instructions. Moving the bits into
/// place and scaling by 2^112 corrects the exponent, exactly and for subnormal numbers too.
#[inline(always)]
fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = f32::from_bits(u32::from(bits & 0x7fff) << 13) * 5.192_297e33;
    let is_finite = bits & 0x7c00 != 0x7c00;
    let magnitude = if is_finite { magnitude } else { f16::from_bits(bits & 0x7fff).to_f32() };
    f32::from_bits(magnitude.to_bits() | u32::from(bits & 0x8000) << 16)
}

#[inline(always)]
fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

// In the formats of 32, the low nibbles are the first 16 numbers and the high ones the other 16.

#[inline(always)]
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = half(block, 0);
    for i in 0..16 {
        let q = block[2 + i];
        out[i] = d * f32::from((q & 15) as i8 - 8);
        out[i + 16] = d * f32::from((q >> 4) as i8 - 8);
    }
}

#[inline(always)]
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for i in 0..16 {
        let q = block[4 + i];
        out[i] = d * f32::from(q & 15) + m;
        out[i + 16] = d * f32::from(q >> 4) + m;
    }
}

#[inline(always)]
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let (d, high) = (half(block, 0), word(block, 2));
    for i in 0..16 {
        let q = block[6 + i];
        let fifth = |i: usize| ((high >> i & 1) << 4) as u8;
        out[i] = d * f32::from((q & 15 | fifth(i)) as i8 - 16);
        out[i + 16] = d * f32::from((q >> 4 | fifth(i + 16)) as i8 - 16);
    }
}

#[inline(always)]
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m, high) = (half(block, 0), half(block, 2), word(block, 4));
    for i in 0..16 {
        let q = block[8 + i];
        let fifth = |i: usize| ((high >> i & 1) << 4) as u8;
        out[i] = d * f32::from(q & 15 | fifth(i)) + m;
        out[i + 16] = d * f32::from(q >> 4 | fifth(i + 16)) + m;
    }
}

#[inline(always)]
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = half(block, 0);
    for i in 0..32 {
        out[i] = d * f32::from(block[2 + i] as i8);
    }
}

/// Scale and minimum of the eight parts of a block of 256, six bits each: the first four in the low bits of a byte
/// of their own, the others in nibbles and in what is left of those bytes.
#[inline(always)]
fn six_bit_pair(packed: &[u8], part: usize) -> (f32, f32) {
    let (scale, min) = match part {
        0..4 => (packed[part] & 63, packed[part + 4] & 63),
        _ => (
            packed[part + 4] & 15 | (packed[part - 4] >> 6) << 4,
            packed[part + 4] >> 4 | (packed[part] >> 6) << 4,
        ),
    };
    (scale.into(), min.into())
}

#[inline(always)]
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, d_min) = (half(block, 0), half(block, 2));
    // 64 numbers share 32 bytes: the low nibbles are the first half, the high ones the second.
    for pair in 0..4 {
        let q = &block[16 + 32 * pair..][..32];
        let out = &mut out[64 * pair..][..64];
        let ((s0, m0), (s1, m1)) =
            (six_bit_pair(&block[4..16], 2 * pair), six_bit_pair(&block[4..16], 2 * pair + 1));
        let (s0, m0, s1, m1) = (d * s0, d_min * m0, d * s1, d_min * m1);
        for i in 0..32 {
            out[i] = s0 * f32::from(q[i] & 15) - m0;
            out[i + 32] = s1 * f32::from(q[i] >> 4) - m1;
        }
    }
}

#[inline(always)]
fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, d_min) = (half(block, 0), half(block, 2));
    let high = &block[16..48];
    for pair in 0..4 {
        let q = &block[48 + 32 * pair..][..32];
        let out = &mut out[64 * pair..][..64];
        let ((s0, m0), (s1, m1)) =
            (six_bit_pair(&block[4..16], 2 * pair), six_bit_pair(&block[4..16], 2 * pair + 1));
        let (s0, m0, s1, m1) = (d * s0, d_min * m0, d * s1, d_min * m1);
        for i in 0..32 {
            let (low, top) = (high[i] >> (2 * pair) & 1, high[i] >> (2 * pair + 1) & 1);
            out[i] = s0 * f32::from(q[i] & 15 | low << 4) - m0;
            out[i + 32] = s1 * f32::from(q[i] >> 4 | top << 4) - m1;
        }
    }
}

#[inline(always)]
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let d = half(block, 208);
    // 128 numbers in four runs of 32: nibbles from 64 bytes, the upper two bits from 32.
    for part in 0..2 {
        let (low, high) = (&block[64 * part..][..64], &block[128 + 32 * part..][..32]);
        let scales = &block[192 + 8 * part..][..8];
        let out = &mut out[128 * part..][..128];
        for run in 0..4 {
            for i in 0..32 {
                let nibble = match run {
                    0 | 1 => low[32 * run + i] & 15,
                    _ => low[32 * (run - 2) + i] >> 4,
                };
                let q = (nibble | (high[i] >> (2 * run) & 3) << 4) as i8 - 32;
                let scale = d * f32::from(scales[2 * run + i / 16] as i8);
                out[32 * run + i] = scale * f32::from(q);
            }
        }
    }
}

/// An f32 scale, then 128 numbers of 4 bits of exponent and 3 of fraction. Without NaN: `packed.rs` refuses it.
#[inline(always)]
fn fp8(block: &[u8; 132], out: &mut [f32; 128]) {
    let scale = f32::from_bits(word(block, 0));
    for i in 0..128 {
        // As for f16: the exponents differ by 120.
        let bits = u32::from(block[4 + i]);
        let magnitude = f32::from_bits((bits & 0x7f) << 20) * 1.329_228e36;
        out[i] = f32::from_bits(magnitude.to_bits() | (bits & 0x80) << 24) * scale;
    }
}

/// An f16 scale and a zero point, then nibbles as in the formats of GGUF.
#[inline(always)]
fn int4(block: &[u8; 20], out: &mut [f32; 32]) {
    let (scale, zero) = (half(block, 0), block[2] as i8);
    for i in 0..16 {
        let q = block[4 + i];
        out[i] = scale * f32::from((q & 15) as i8 - zero);
        out[i + 16] = scale * f32::from((q >> 4) as i8 - zero);
    }
}

#[cfg(test)]
mod tests;
