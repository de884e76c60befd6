//! `y = x W^T` for weights in panels (`weights/panels.rs`), in integers: tokens are rounded to eight bits, 64 numbers
//! with a scale of their own, and multiplied with the stored numbers as they are. Sums of a block are exact integers;
//! the blocks of a row are added up in f32, always in the same order, so a token's numbers depend on nothing beside it.
//!
//! Peers treat their 4- and 8-bit formats in the same way. What rounding the tokens costs is measured with the model:
//! it is less than what the weights lost.

pub mod gpu;

use std::sync::LazyLock;

use super::super::super::weights::WeightFormat;
use super::super::super::weights::panels::{self, BLOCK, LINE, Q8_OFFSET, ROWS};
use super::super::cpu::{MIN_PARALLEL, best_of_three};
use super::super::pool::{self, Start};
use super::{Part, groups};

/// Panels of a task.
const TASK_PANELS: usize = 8;
/// Tokens that go through all panels of a task before the next: their vectors stay in the cache, and so do the pages
/// that the results go to.
const TASK_TOKENS: usize = 64;

/// Tokens in eight bits.
pub struct Rounded {
    /// `[t, columns]`, filled up with zeros to whole blocks.
    numbers: Vec<i8>,
    /// `[t, blocks]`.
    scales: Vec<f32>,
    /// Of the numbers of each block.
    sums: Vec<i32>,
    /// The same times the scale.
    scaled_sums: Vec<f32>,
    blocks: usize,
}

impl Rounded {
    pub fn new(x: &[f32], columns: usize) -> Self {
        let (t, blocks) = (x.len() / columns, columns.div_ceil(BLOCK));
        let mut rounded = Self {
            numbers: vec![0; t * blocks * BLOCK],
            scales: vec![0.0; t * blocks],
            sums: vec![0; t * blocks],
            scaled_sums: vec![0.0; t * blocks],
            blocks,
        };
        let numbers = Start(rounded.numbers.as_mut_ptr());
        let scales = Start(rounded.scales.as_mut_ptr());
        let sums = Start(rounded.sums.as_mut_ptr());
        let scaled_sums = Start(rounded.scaled_sums.as_mut_ptr());
        let tokens = (MIN_PARALLEL / columns).max(1);
        let task = |task: usize| {
            for token in task * tokens..t.min((task + 1) * tokens) {
                let at = token * blocks;
                // SAFETY: the token's part of each vector, which no other task touches.
                unsafe {
                    round_token(
                        &x[token * columns..][..columns],
                        std::slice::from_raw_parts_mut(numbers.at(at * BLOCK), blocks * BLOCK),
                        std::slice::from_raw_parts_mut(scales.at(at), blocks),
                        std::slice::from_raw_parts_mut(sums.at(at), blocks),
                        std::slice::from_raw_parts_mut(scaled_sums.at(at), blocks),
                    );
                }
            }
        };
        pool::for_each(t.div_ceil(tokens), task);
        rounded
    }

    /// The numbers that tokens were rounded to.
    #[cfg(test)]
    pub fn to_f32(&self, columns: usize) -> Vec<f32> {
        let tokens =
            self.numbers.chunks_exact(self.blocks * BLOCK).zip(self.scales.chunks_exact(self.blocks));
        let widen = |(numbers, scales): (&[i8], &[f32])| -> Vec<f32> {
            (0..columns).map(|i| f32::from(numbers[i]) * scales[i / BLOCK]).collect()
        };
        tokens.flat_map(widen).collect()
    }

    /// `t` tokens from `first` on.
    fn tokens(&self, first: usize, t: usize) -> Vectors<'_> {
        let range = first * self.blocks..(first + t) * self.blocks;
        Vectors {
            numbers: &self.numbers[range.start * BLOCK..range.end * BLOCK],
            scales: &self.scales[range.clone()],
            sums: &self.sums[range.clone()],
            scaled_sums: &self.scaled_sums[range],
            blocks: self.blocks,
        }
    }
}

/// Some of the tokens, one after the other.
#[derive(Clone, Copy)]
struct Vectors<'a> {
    numbers: &'a [i8],
    scales: &'a [f32],
    sums: &'a [i32],
    scaled_sums: &'a [f32],
    blocks: usize,
}

best_of_three! {
    fn round_token = round_token_by_block(
        x: &[f32], numbers: &mut [i8], scales: &mut [f32], sums: &mut [i32], scaled_sums: &mut [f32],
    )
}

#[inline(always)]
fn round_token_by_block(
    x: &[f32],
    numbers: &mut [i8],
    scales: &mut [f32],
    sums: &mut [i32],
    scaled_sums: &mut [f32],
) {
    let (whole, rest) = x.as_chunks::<BLOCK>();
    let (numbers, _) = numbers.as_chunks_mut::<BLOCK>();
    let mut last = [0.0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    let blocks = whole.iter().chain(std::iter::once(&last));
    let facts = scales.iter_mut().zip(sums).zip(scaled_sums);
    for ((x, numbers), ((scale, sum), scaled)) in blocks.zip(numbers).zip(facts) {
        (*scale, *sum) = round_block(x, numbers);
        *scaled = *scale * *sum as f32;
    }
}

/// Rounds a block; gives its scale and the sum of its numbers. What isn't a finite number makes the scale NaN.
#[inline(always)]
fn round_block(x: &[f32; BLOCK], numbers: &mut [i8; BLOCK]) -> (f32, i32) {
    // Adding it leaves no room for a fraction: the nearest whole number remains, in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let (mut most, mut not_finite) = ([0.0f32; 16], [0.0f32; 16]);
    for x in x.as_chunks::<16>().0 {
        for lane in 0..16 {
            most[lane] = most[lane].max(x[lane].abs());
            not_finite[lane] += x[lane] * 0.0;
        }
    }
    let most = most.into_iter().fold(0.0, f32::max);
    let not_finite: f32 = not_finite.iter().sum();
    let inverse = if most > 0.0 { 127.0 / most } else { 0.0 };
    let mut sum = 0;
    for i in 0..BLOCK {
        let n = ((x[i] * inverse + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
        numbers[i] = n as i8;
        sum += i32::from(numbers[i]);
    }
    (most / 127.0 + not_finite, sum)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

/// Products with weights in panels, by the best instructions that this CPU has.
#[derive(Debug, Clone, Copy)]
pub struct Products {
    format: WeightFormat,
    instructions: Instructions,
}

static BEST: LazyLock<Instructions> = LazyLock::new(|| Instructions::available()[0]);

impl Instructions {
    /// The first is the best.
    fn available() -> Vec<Self> {
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            all.insert(0, Self::Avx2);
            if is_x86_feature_detected!("avxvnni") {
                all.insert(0, Self::AvxVnni);
            }
            if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vnni") {
                all.insert(0, Self::Avx512Vnni);
            }
        }
        all
    }
}

impl Products {
    pub fn new(format: WeightFormat) -> Self {
        Self { format, instructions: *BEST }
    }

    /// One for all instructions that this CPU has: for the test that compares them.
    #[cfg(test)]
    pub fn all(format: WeightFormat) -> Vec<Self> {
        Instructions::available().into_iter().map(|instructions| Self { format, instructions }).collect()
    }

    /// Vectors that are multiplied together at most: as many as leave registers for the running sums.
    fn max_tokens(self) -> usize {
        match self.instructions {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512Vnni => 8,
            _ => 4,
        }
    }

    /// Writes the products `[t, rows]` of the tokens and of `weight [rows, columns]` to `out`, where there is room.
    ///
    /// # Panics
    /// If the lengths disagree.
    pub fn part<'a>(self, x: &'a Rounded, weight: &'a [u8], rows: usize, out: Start<f32>) -> Part<'a> {
        let t = x.scales.len() / x.blocks;
        let panel_bytes = x.blocks * panels::block_bytes(self.format);
        let n_panels = rows.div_ceil(ROWS);
        assert!(weight.len() >= n_panels * panel_bytes, "the weight holds all rows");
        let groups = groups(t, self.max_tokens());
        let task = move |task: usize| {
            let panels = task * TASK_PANELS..n_panels.min((task + 1) * TASK_PANELS);
            let weight = &weight[panels.start * panel_bytes..panels.end * panel_bytes];
            let store = |token: usize, panel: usize, sums: &[f32; ROWS]| {
                let row = (panels.start + panel) * ROWS;
                let n = ROWS.min(rows - row);
                // SAFETY: the token is below `t` and `row + n` at most `rows`, so there is room for the numbers; each
                // (token, panel) is written by one task only.
                unsafe { out.at(token * rows + row).copy_from_nonoverlapping(sums.as_ptr(), n) };
            };
            for groups in groups.chunks(TASK_TOKENS / self.max_tokens()) {
                self.panels(x, groups, weight, panel_bytes, &store);
            }
        };
        Part { n_tasks: n_panels.div_ceil(TASK_PANELS), task: Box::new(task) }
    }

    /// `y [t, rows]`: for the test that compares instructions.
    #[cfg(test)]
    pub fn linear(self, x: &Rounded, weight: &[u8], rows: usize, y: &mut [f32]) {
        assert_eq!(y.len(), x.scales.len() / x.blocks * rows);
        let part = self.part(x, weight, rows, Start(y.as_mut_ptr()));
        (0..part.n_tasks).for_each(part.task);
    }

    /// Groups of tokens with some panels; `store` gets the token, the panel and its sixteen sums.
    fn panels(
        self,
        x: &Rounded,
        groups: &[(usize, usize)],
        weight: &[u8],
        panel_bytes: usize,
        store: &impl Fn(usize, usize, &[f32; ROWS]),
    ) {
        let n_panels = weight.len() / panel_bytes;
        let most = groups.iter().map(|(_, n)| *n).max().unwrap_or(0);
        let mut panel = 0;
        while panel < n_panels {
            // As many panels side by side as leaves registers for the running sums of all tokens.
            let n = match (most, n_panels - panel) {
                (..=2, 4..) => 4,
                (_, 2..) => 2,
                _ => 1,
            };
            let w = &weight[panel * panel_bytes..(panel + n) * panel_bytes];
            for (first, n_tokens) in groups.iter().copied() {
                let store =
                    |token: usize, p: usize, sums: &[f32; ROWS]| store(first + token, panel + p, sums);
                macro_rules! tile {
                    ($($panels:literal: $($tokens:literal)*;)*) => {
                        match (n, n_tokens) {
                            $($(($panels, $tokens) => {
                                self.tile::<$panels, $tokens>(w, x.tokens(first, n_tokens), &store)
                            })*)*
                            _ => unreachable!("{n} panels with {n_tokens} tokens"),
                        }
                    };
                }
                tile! { 4: 1 2; 2: 1 2 3 4 5 6 7 8; 1: 1 2 3 4 5 6 7 8; }
            }
            panel += n;
        }
    }

    /// `P` panels with `T` tokens.
    fn tile<const P: usize, const T: usize>(
        self,
        weight: &[u8],
        x: Vectors,
        store: &impl Fn(usize, usize, &[f32; ROWS]),
    ) {
        let mut sums = [[[0.0; ROWS]; T]; P];
        match self.format {
            WeightFormat::Q8Panels => self.sums::<false, P, T>(weight, x, &mut sums),
            _ => self.sums::<true, P, T>(weight, x, &mut sums),
        }
        for (panel, sums) in sums.iter().enumerate() {
            for (token, sums) in sums.iter().enumerate() {
                store(token, panel, sums);
            }
        }
    }

    fn sums<const Q4: bool, const P: usize, const T: usize>(
        self,
        weight: &[u8],
        x: Vectors,
        sums: &mut [[[f32; ROWS]; T]; P],
    ) {
        let panel_bytes = weight.len() / P;
        match self.instructions {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the instructions were detected; a panel has as many blocks as each vector.
            Instructions::Avx512Vnni => unsafe { x86::avx512::<Q4, P, T>(weight, panel_bytes, x, sums) },
            #[cfg(target_arch = "x86_64")]
            Instructions::AvxVnni => {
                for (weight, sums) in weight.chunks_exact(panel_bytes).zip(sums) {
                    // SAFETY: as above.
                    unsafe { x86::avx_vnni::<Q4, T>(weight, x, sums) };
                }
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => {
                for (weight, sums) in weight.chunks_exact(panel_bytes).zip(sums) {
                    // SAFETY: as above.
                    unsafe { x86::avx2::<Q4, T>(weight, x, sums) };
                }
            }
            Instructions::Portable => {
                for (weight, sums) in weight.chunks_exact(panel_bytes).zip(sums) {
                    for (token, sums) in sums.iter_mut().enumerate() {
                        portable::<Q4>(weight, x, token, sums);
                    }
                }
            }
        }
    }
}

/// One panel with one token.
fn portable<const Q4: bool>(panel: &[u8], x: Vectors, token: usize, sums: &mut [f32; ROWS]) {
    let format = if Q4 { WeightFormat::Q4Panels } else { WeightFormat::Q8Panels };
    for (b, block) in panel.chunks_exact(panels::block_bytes(format)).enumerate() {
        let at = token * x.blocks + b;
        let x_numbers = &x.numbers[at * BLOCK..][..BLOCK];
        let mut products = [0i32; ROWS];
        for (group, line) in block[LINE..].chunks_exact(LINE).enumerate() {
            for (row, product) in products.iter_mut().enumerate() {
                for j in 0..4 {
                    let w = line[4 * row + j];
                    *product += match Q4 {
                        false => i32::from(w) * i32::from(x_numbers[4 * group + j]),
                        true => {
                            i32::from(w & 15) * i32::from(x_numbers[8 * group + j])
                                + i32::from(w >> 4) * i32::from(x_numbers[8 * group + 4 + j])
                        }
                    };
                }
            }
        }
        for (row, (sum, product)) in sums.iter_mut().zip(products).enumerate() {
            let (scale, min) = panels::header(format, block, row);
            let offset = if Q4 { 0 } else { Q8_OFFSET * x.sums[at] };
            *sum = ((product - offset) as f32 * scale).mul_add(x.scales[at], *sum);
            if Q4 {
                *sum = min.mul_add(x.scaled_sums[at], *sum);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{BLOCK, LINE, Q8_OFFSET, ROWS, Vectors};

    const fn block_bytes(q4: bool) -> usize {
        if q4 { LINE + ROWS * BLOCK / 2 } else { LINE + ROWS * BLOCK }
    }

    /// Four numbers of a token, for all rows.
    ///
    /// # Safety
    /// Four numbers can be read at `x`.
    #[inline(always)]
    unsafe fn four(x: *const i8) -> i32 {
        // SAFETY: as the caller promises; the read needs no alignment.
        unsafe { x.cast::<i32>().read_unaligned() }
    }

    /// # Safety
    /// The instructions are there, and `weight` holds `P` panels with as many blocks as each vector.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    // Plain loops over registers: unlike iterators they are unrolled at every level of optimisation.
    #[allow(clippy::needless_range_loop)]
    pub unsafe fn avx512<const Q4: bool, const P: usize, const T: usize>(
        weight: &[u8],
        panel_bytes: usize,
        x: Vectors,
        sums: &mut [[[f32; ROWS]; T]; P],
    ) {
        let low_half = _mm512_set1_epi8(15);
        let mut running = [[_mm512_setzero_ps(); T]; P];
        for b in 0..x.blocks {
            let mut products = [[_mm512_setzero_si512(); T]; P];
            for token in 0..T {
                // The offset that makes stored numbers unsigned, taken back beforehand.
                let offset = if Q4 { 0 } else { -Q8_OFFSET * x.sums[token * x.blocks + b] };
                for panel in 0..P {
                    products[panel][token] = _mm512_set1_epi32(offset);
                }
            }
            // SAFETY: block `b` of the panels and of the vectors is read, in whole groups.
            unsafe {
                let block = |panel: usize| weight.as_ptr().add(panel * panel_bytes + b * block_bytes(Q4));
                // Four numbers of a token in every lane, which the multiplication reads from memory by itself.
                let broadcast = |token: usize, at: usize| {
                    _mm512_set1_epi32(four(x.numbers.as_ptr().add((token * x.blocks + b) * BLOCK + at)))
                };
                for group in 0..(block_bytes(Q4) - LINE) / LINE {
                    for panel in 0..P {
                        let w = _mm512_loadu_si512(block(panel).add(LINE + group * LINE).cast());
                        if Q4 {
                            let low = _mm512_and_si512(w, low_half);
                            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(w), low_half);
                            for token in 0..T {
                                let product = products[panel][token];
                                let product = _mm512_dpbusd_epi32(product, low, broadcast(token, 8 * group));
                                products[panel][token] =
                                    _mm512_dpbusd_epi32(product, high, broadcast(token, 8 * group + 4));
                            }
                        } else {
                            for token in 0..T {
                                products[panel][token] = _mm512_dpbusd_epi32(
                                    products[panel][token],
                                    w,
                                    broadcast(token, 4 * group),
                                );
                            }
                        }
                    }
                }
                for panel in 0..P {
                    let header = block(panel);
                    let (scale, min) = match Q4 {
                        true => (
                            _mm512_cvtph_ps(_mm256_loadu_si256(header.cast())),
                            _mm512_cvtph_ps(_mm256_loadu_si256(header.add(LINE / 2).cast())),
                        ),
                        false => (_mm512_loadu_ps(header.cast()), _mm512_setzero_ps()),
                    };
                    for token in 0..T {
                        let product = _mm512_mul_ps(_mm512_cvtepi32_ps(products[panel][token]), scale);
                        let x_scale = _mm512_set1_ps(x.scales[token * x.blocks + b]);
                        let mut sum = _mm512_fmadd_ps(product, x_scale, running[panel][token]);
                        if Q4 {
                            sum = _mm512_fmadd_ps(
                                min,
                                _mm512_set1_ps(x.scaled_sums[token * x.blocks + b]),
                                sum,
                            );
                        }
                        running[panel][token] = sum;
                    }
                }
            }
        }
        for panel in 0..P {
            for token in 0..T {
                // SAFETY: there is room for sixteen sums.
                unsafe { _mm512_storeu_ps(sums[panel][token].as_mut_ptr(), running[panel][token]) };
            }
        }
    }

    /// Defines `$name`, products of one panel by vectors of half its rows. `$multiply_add` adds to each of eight sums
    /// four products of stored bytes with signed ones, and takes those of eight bits to be larger by `$offset` than
    /// the numbers that they stand for.
    macro_rules! half_panels {
        ($name:ident, $features:tt, $multiply_add:ident, $offset:expr) => {
            /// # Safety
            /// The instructions are there, and `panel` has as many blocks as each vector.
            #[target_feature(enable = $features)]
            #[allow(clippy::needless_range_loop)]
            pub unsafe fn $name<const Q4: bool, const T: usize>(
                panel: &[u8],
                x: Vectors,
                sums: &mut [[f32; ROWS]; T],
            ) {
                const HALVES: usize = 2;
                let low_half = _mm256_set1_epi8(15);
                let mut running = [[_mm256_setzero_ps(); T]; HALVES];
                for b in 0..x.blocks {
                    let mut products = [[_mm256_setzero_si256(); T]; HALVES];
                    for token in 0..T {
                        let offset = if Q4 { 0 } else { -$offset * x.sums[token * x.blocks + b] };
                        for half in 0..HALVES {
                            products[half][token] = _mm256_set1_epi32(offset);
                        }
                    }
                    // SAFETY: block `b` of the panel and of the vectors is read, in whole groups.
                    unsafe {
                        let block = panel.as_ptr().add(b * block_bytes(Q4));
                        for group in 0..(block_bytes(Q4) - LINE) / LINE {
                            let at = group * if Q4 { 8 } else { 4 };
                            for half in 0..HALVES {
                                let w = block.add(LINE + group * LINE + half * LINE / 2);
                                let w = _mm256_loadu_si256(w.cast());
                                for token in 0..T {
                                    let x = x.numbers.as_ptr().add((token * x.blocks + b) * BLOCK + at);
                                    let x_low = _mm256_set1_epi32(four(x));
                                    let product = &mut products[half][token];
                                    if Q4 {
                                        let x_high = _mm256_set1_epi32(four(x.add(4)));
                                        let low = _mm256_and_si256(w, low_half);
                                        let high = _mm256_and_si256(_mm256_srli_epi16::<4>(w), low_half);
                                        *product = $multiply_add::<true>(*product, low, x_low);
                                        *product = $multiply_add::<true>(*product, high, x_high);
                                    } else {
                                        *product = $multiply_add::<false>(*product, w, x_low);
                                    }
                                }
                            }
                        }
                        for half in 0..HALVES {
                            let scale = match Q4 {
                                true => _mm256_cvtph_ps(_mm_loadu_si128(block.add(half * 16).cast())),
                                false => _mm256_loadu_ps(block.add(half * 32).cast()),
                            };
                            for token in 0..T {
                                let product = _mm256_mul_ps(_mm256_cvtepi32_ps(products[half][token]), scale);
                                let x_scale = _mm256_set1_ps(x.scales[token * x.blocks + b]);
                                let mut sum = _mm256_fmadd_ps(product, x_scale, running[half][token]);
                                if Q4 {
                                    let min = _mm_loadu_si128(block.add(LINE / 2 + half * 16).cast());
                                    let x_sum = _mm256_set1_ps(x.scaled_sums[token * x.blocks + b]);
                                    sum = _mm256_fmadd_ps(_mm256_cvtph_ps(min), x_sum, sum);
                                }
                                running[half][token] = sum;
                            }
                        }
                    }
                }
                for half in 0..HALVES {
                    for token in 0..T {
                        let sums = &mut sums[token][half * ROWS / 2..];
                        // SAFETY: there is room for eight sums.
                        unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), running[half][token]) };
                    }
                }
            }
        };
    }

    half_panels! { avx_vnni, "avx2,fma,f16c,avxvnni", multiply_add_vnni, Q8_OFFSET }
    half_panels! { avx2, "avx2,fma,f16c", multiply_add_avx2, 0 }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn multiply_add_vnni<const SMALL: bool>(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        _mm256_dpbusd_avx_epi32(sum, w, x)
    }

    /// Products of two neighbours are added up in 16 bits. Those of numbers of four bits (`SMALL`) have room there;
    /// numbers of eight bits are made signed, which makes an offset needless, and their signs moved to one
    /// side, so that they have it too.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn multiply_add_avx2<const SMALL: bool>(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
        let pairs = if SMALL {
            _mm256_maddubs_epi16(w, x)
        } else {
            // |u - 128| |x| is at most 127 * 127, twice of which is below 2^15.
            let signed = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
            _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(signed, x))
        };
        _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}
