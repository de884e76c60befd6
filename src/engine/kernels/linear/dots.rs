//! Dot products of stored rows with one or more f32 vectors, for AVX-512, AVX2 and everything else.
//!
//! Rows are walked side by side and share the loads of the vectors; the vectors share the widened rows. Each product
//! has running sums of its own, added up in one order, so a token's numbers don't depend on what stands beside it.

use std::borrow::Cow;
use std::sync::LazyLock;

use half::{bf16, f16};

use super::super::super::weights::WeightFormat;

/// Vectors that are multiplied together at most.
pub const MAX_TOKENS: usize = 6;

/// Dot products with rows in one format of plain numbers, by the best instructions that this CPU has.
#[derive(Debug, Clone, Copy)]
pub struct Dots {
    format: WeightFormat,
    instructions: Instructions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

static BEST: LazyLock<Instructions> = LazyLock::new(|| Instructions::available()[0]);

impl Instructions {
    /// The first is the best.
    fn available() -> Vec<Self> {
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            if has_avx2 {
                all.insert(0, Self::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                all.insert(0, Self::Avx512);
            }
        }
        all
    }

    /// Numbers of a row that are widened at once.
    fn block(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::BLOCK_512,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::BLOCK_256,
            Self::Portable => 1,
        }
    }
}

impl Dots {
    pub fn new(format: WeightFormat) -> Self {
        Self { format, instructions: *BEST }
    }

    /// One for all instructions that this CPU has: for the test that compares them.
    #[cfg(test)]
    pub fn all(format: WeightFormat) -> Vec<Self> {
        Instructions::available().into_iter().map(|instructions| Self { format, instructions }).collect()
    }

    /// Vectors of `columns` numbers as [`Self::products`] wants them. Two neighbours in bf16 are one word, of which
    /// the halves are widened separately; so in whole blocks the numbers of even index come first.
    pub fn arrange<'a>(&self, x: &'a [f32], columns: usize) -> Cow<'a, [f32]> {
        let block = self.instructions.block();
        if self.format != WeightFormat::Bf16 || block == 1 {
            return x.into();
        }
        let mut arranged = x.to_vec();
        for (vector, arranged) in x.chunks_exact(columns).zip(arranged.chunks_exact_mut(columns)) {
            for (block_of, arranged) in vector.chunks_exact(block).zip(arranged.chunks_exact_mut(block)) {
                for (i, pair) in block_of.as_chunks::<2>().0.iter().enumerate() {
                    [arranged[i], arranged[block / 2 + i]] = *pair;
                }
            }
        }
        arranged.into()
    }

    /// The products of the rows in `w` (little endian, at any alignment) with the vectors `x [t, columns]`, arranged,
    /// at most [`MAX_TOKENS`] of them: `sums [rows, t]`.
    ///
    /// # Panics
    /// If the lengths disagree.
    pub fn products(&self, w: &[u8], x: &[f32], columns: usize, sums: &mut [f32]) {
        match x.len() / columns {
            1 => self.rows::<1>(w, x, columns, sums),
            2 => self.rows::<2>(w, x, columns, sums),
            3 => self.rows::<3>(w, x, columns, sums),
            4 => self.rows::<4>(w, x, columns, sums),
            5 => self.rows::<5>(w, x, columns, sums),
            MAX_TOKENS => self.rows::<MAX_TOKENS>(w, x, columns, sums),
            t => unreachable!("{t} vectors at once"),
        }
    }

    fn rows<const T: usize>(&self, w: &[u8], x: &[f32], columns: usize, sums: &mut [f32]) {
        let (sums, rest) = sums.as_chunks_mut::<T>();
        let row_bytes = self.format.row_bytes(columns);
        assert!(
            rest.is_empty() && x.len() == T * columns,
            "whole vectors, and a sum for each row and vector"
        );
        assert!(w.len() >= sums.len() * row_bytes, "the weights hold all rows");
        let x: [&[f32]; T] = std::array::from_fn(|i| &x[i * columns..(i + 1) * columns]);
        let n = columns / self.instructions.block() * self.instructions.block();
        match self.instructions {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the instructions were detected, and the lengths were just checked.
            Instructions::Avx512 => unsafe { x86::avx512(self.format, w, row_bytes, x, n, sums) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx2 => unsafe { x86::avx2(self.format, w, row_bytes, x, n, sums) },
            Instructions::Portable => {
                for (w, sums) in w.chunks_exact(row_bytes).zip(sums) {
                    *sums = x.map(|x| portable(self.format, w, x));
                }
                return;
            }
        }
        if n < columns {
            let done = self.format.row_bytes(n);
            for (w, sums) in w.chunks_exact(row_bytes).zip(sums) {
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum += portable(self.format, &w[done..], &x[n..]);
                }
            }
        }
    }
}

fn portable(format: WeightFormat, w: &[u8], x: &[f32]) -> f32 {
    match format {
        WeightFormat::Bf16 => lanes::<2>(w, x, |b| bf16::from_le_bytes(b).to_f32()),
        WeightFormat::F16 => lanes::<2>(w, x, |b| f16::from_le_bytes(b).to_f32()),
        WeightFormat::F32 => lanes::<4>(w, x, f32::from_le_bytes),
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

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::WeightFormat;

    const BF16: u8 = WeightFormat::Bf16 as u8;
    const F16: u8 = WeightFormat::F16 as u8;
    const F32: u8 = WeightFormat::F32 as u8;

    /// Two vectors of f32.
    pub const BLOCK_512: usize = 32;
    pub const BLOCK_256: usize = 16;

    const fn number_bytes(format: u8) -> usize {
        if format == F32 { 4 } else { 2 }
    }

    /// Defines `$name`, products with vectors of one width. The widths differ in how many rows have their running sums in
    /// the registers together (`$rows`, for one vector, for two, up to four, and for more), in how a block of a row is widened and
    /// in how the lanes of the running sums are added up.
    macro_rules! products {
        (
            $name:ident, $features:tt, $block:ident, rows: [$one:literal, $two:literal, $four:literal, $more:literal],
            $zero:ident, $load:ident, $multiply_add:ident, $widen:ident, $add_up:ident
        ) => {
            /// Products over the first `n` columns, a multiple of the block.
            ///
            /// # Safety
            /// The instructions are there, `w` holds `sums.len()` rows of `row_bytes`, and each row and vector has `n`
            /// numbers.
            #[target_feature(enable = $features)]
            pub unsafe fn $name<const T: usize>(
                format: WeightFormat,
                w: &[u8],
                row_bytes: usize,
                x: [&[f32]; T],
                n: usize,
                sums: &mut [[f32; T]],
            ) {
                /// # Safety
                /// As above.
                #[target_feature(enable = $features)]
                unsafe fn rows<const FORMAT: u8, const T: usize>(
                    w: *const u8,
                    row_bytes: usize,
                    x: [*const f32; T],
                    n: usize,
                    sums: &mut [[f32; T]],
                ) {
                    let mut done = 0;
                    while done < sums.len() {
                        let left = &mut sums[done..];
                        // SAFETY: rows from `done` on, of which there are as many as `left` has places.
                        done += unsafe {
                            let w = w.add(done * row_bytes);
                            match (T, left.len()) {
                                (1, $one..) => tile::<FORMAT, $one, T>(w, row_bytes, x, n, left),
                                (1 | 2, $two..) => tile::<FORMAT, $two, T>(w, row_bytes, x, n, left),
                                (1..=4, $four..) => tile::<FORMAT, $four, T>(w, row_bytes, x, n, left),
                                (_, $more..) => tile::<FORMAT, $more, T>(w, row_bytes, x, n, left),
                                _ => tile::<FORMAT, 1, T>(w, row_bytes, x, n, left),
                            }
                        };
                    }
                }

                /// The products of `R` rows, which it says.
                ///
                /// # Safety
                /// As above, and `sums` has `R` places.
                #[target_feature(enable = $features)]
                // Plain loops over registers: unlike iterators they are unrolled at every level of optimisation.
                #[allow(clippy::needless_range_loop)]
                unsafe fn tile<const FORMAT: u8, const R: usize, const T: usize>(
                    w: *const u8,
                    row_bytes: usize,
                    x: [*const f32; T],
                    n: usize,
                    sums: &mut [[f32; T]],
                ) -> usize {
                    let mut running = [[$zero(); T]; R];
                    let mut i = 0;
                    while i < n {
                        let mut x_now = [[$zero(); 2]; T];
                        for token in 0..T {
                            let x = x[token];
                            // SAFETY: a whole block begins at `i`.
                            x_now[token] = unsafe { [$load(x.add(i)), $load(x.add(i + $block / 2))] };
                        }
                        for row in 0..R {
                            // SAFETY: as above; the row is one of those that the caller promises.
                            let [a, b] = unsafe {
                                $widen::<FORMAT>(w.add(row * row_bytes + i * number_bytes(FORMAT)))
                            };
                            for token in 0..T {
                                let sum = $multiply_add(a, x_now[token][0], running[row][token]);
                                running[row][token] = $multiply_add(b, x_now[token][1], sum);
                            }
                        }
                        i += $block;
                    }
                    $add_up(running, sums);
                    R
                }

                let (w, x) = (w.as_ptr(), x.map(<[f32]>::as_ptr));
                // SAFETY: as the caller promises.
                unsafe {
                    match format {
                        WeightFormat::Bf16 => rows::<BF16, T>(w, row_bytes, x, n, sums),
                        WeightFormat::F16 => rows::<F16, T>(w, row_bytes, x, n, sums),
                        _ => rows::<F32, T>(w, row_bytes, x, n, sums),
                    }
                }
            }
        };
    }

    // Sixteen running sums: enough to hide the latency of each, few enough for the registers.
    products! {
        avx512, "avx512f", BLOCK_512, rows: [16, 8, 4, 2],
        _mm512_setzero_ps, _mm512_loadu_ps, _mm512_fmadd_ps, widen_512, add_up_512
    }
    // There are half as many registers as with AVX-512.
    products! {
        avx2, "avx2,fma,f16c", BLOCK_256, rows: [8, 4, 2, 1],
        _mm256_setzero_ps, _mm256_loadu_ps, _mm256_fmadd_ps, widen_256, add_up_256
    }

    /// 32 numbers as two vectors: bf16 those of even and of odd index, others one half after the other.
    ///
    /// # Safety
    /// AVX-512F is there, and 32 numbers of the format can be read at `w`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn widen_512<const FORMAT: u8>(w: *const u8) -> [__m512; 2] {
        // SAFETY: the caller promises the bytes; the loads need no alignment.
        unsafe {
            match FORMAT {
                BF16 => {
                    let words = _mm512_loadu_si512(w.cast());
                    let odd = _mm512_and_si512(words, _mm512_set1_epi32(-0x1_0000));
                    [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)), _mm512_castsi512_ps(odd)]
                }
                F16 => [
                    _mm512_cvtph_ps(_mm256_loadu_si256(w.cast())),
                    _mm512_cvtph_ps(_mm256_loadu_si256(w.add(32).cast())),
                ],
                _ => [_mm512_loadu_ps(w.cast()), _mm512_loadu_ps(w.add(64).cast())],
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    #[allow(clippy::needless_range_loop)]
    fn add_up_512<const R: usize, const T: usize>(running: [[__m512; T]; R], sums: &mut [[f32; T]]) {
        let mut all = [_mm512_setzero_ps(); 16];
        for row in 0..R {
            for token in 0..T {
                // The condition holds: no tile has more sums. It is for tiles that are compiled but never used.
                if row * T + token < 16 {
                    all[row * T + token] = running[row][token];
                }
            }
        }
        let all = sum_each(all);
        for row in 0..R {
            for token in 0..T {
                if row * T + token < 16 {
                    sums[row][token] = all[row * T + token];
                }
            }
        }
    }

    /// The sum of each vector's lanes, added up in pairs, always in the same order.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn sum_each(v: [__m512; 16]) -> [f32; 16] {
        // Four vectors become one, which has a sum for each of them in every quarter.
        let mut fours = [_mm512_setzero_ps(); 4];
        for i in 0..4 {
            let [a, b, c, d] = [v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]];
            let ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
            let cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
            let (low, high) = (_mm512_unpacklo_pd(ab, cd), _mm512_unpackhi_pd(ab, cd));
            fours[i] = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
        }
        let [a, b, c, d] = fours;
        let ab = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xEE>(a, b));
        let cd = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xEE>(c, d));
        let sums = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xDD>(ab, cd));
        let mut lanes = [0.0; 16];
        // SAFETY: there is room for sixteen values.
        unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sums) };
        lanes
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_up_256<const R: usize, const T: usize>(running: [[__m256; T]; R], sums: &mut [[f32; T]]) {
        for (sum, running) in sums[..R].iter_mut().flatten().zip(running.iter().flatten()) {
            let mut lanes = [0.0f32; 8];
            // SAFETY: there is room for eight values.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), *running) };
            *sum = lanes.iter().sum();
        }
    }

    /// 16 numbers as two vectors: bf16 those of even and of odd index, others one half after the other.
    ///
    /// # Safety
    /// AVX2 and F16C are there, and 16 numbers of the format can be read at `w`.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn widen_256<const FORMAT: u8>(w: *const u8) -> [__m256; 2] {
        // SAFETY: the caller promises the bytes; the loads need no alignment.
        unsafe {
            match FORMAT {
                BF16 => {
                    let words = _mm256_loadu_si256(w.cast());
                    let odd = _mm256_and_si256(words, _mm256_set1_epi32(-0x1_0000));
                    [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(words)), _mm256_castsi256_ps(odd)]
                }
                F16 => [
                    _mm256_cvtph_ps(_mm_loadu_si128(w.cast())),
                    _mm256_cvtph_ps(_mm_loadu_si128(w.add(16).cast())),
                ],
                _ => [_mm256_loadu_ps(w.cast()), _mm256_loadu_ps(w.add(32).cast())],
            }
        }
    }
}
