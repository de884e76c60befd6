//! Which size a picture gets (`smart_resize`), and the bicubic resampling that makes it.
//!
//! Both as in the family's image processor: the size by f64 arithmetic with rounding half to even, the pixels
//! by torchvision's antialiased resize of 8-bit pictures, horizontal pass first, each pass with 16-bit weights
//! and a result rounded to 8 bits. Source: `smart_resize` of transformers, `UpSampleKernel` of ATen.

use image::RgbImage;
use rayon::prelude::*;

use crate::msg::PictureLimits;

/// Longer than this many times its width, a picture says nothing to the model.
const MAX_RATIO: f64 = 200.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is {width}x{height}; one side may be at most 200 times as long as the other")]
pub struct TooNarrow {
    pub width: u32,
    pub height: u32,
}

/// Width and height for a picture of `width` x `height`: multiples of `factor` whose product is within the
/// limits.
///
/// # Errors
/// [`TooNarrow`], also for an empty picture.
pub fn smart_resize(width: u32, height: u32, limits: &PictureLimits) -> Result<(u32, u32), TooNarrow> {
    resize_frames(width, height, None, limits)
}

/// The same for a clip of `n_frames`: the limits hold for all its frames together.
///
/// # Errors
/// [`TooNarrow`]
pub fn smart_resize_clip(
    width: u32,
    height: u32,
    n_frames: usize,
    temporal_patch_size: usize,
    limits: &PictureLimits,
) -> Result<(u32, u32), TooNarrow> {
    resize_frames(width, height, Some((n_frames, temporal_patch_size)), limits)
}

fn resize_frames(
    width: u32,
    height: u32,
    clip: Option<(usize, usize)>,
    limits: &PictureLimits,
) -> Result<(u32, u32), TooNarrow> {
    let narrow = TooNarrow { width, height };
    if width == 0 || height == 0 {
        return Err(narrow);
    }
    let factor = f64::from(limits.factor);
    let (mut w, mut h) = (f64::from(width), f64::from(height));
    // Only a clip's processor scales small frames up first.
    if clip.is_some() && w.min(h) < factor {
        let scale = factor / w.min(h);
        (w, h) = ((w * scale).trunc(), (h * scale).trunc());
    }
    if w.max(h) / w.min(h) > MAX_RATIO {
        return Err(narrow);
    }
    let n = clip.map_or(1.0, |(n, _)| n as f64);
    let padded = clip.map_or(1.0, |(n, patch)| {
        let patch = patch as f64;
        (n as f64 / patch).round_ties_even() * patch
    });
    let round = |side: f64| (side / factor).round_ties_even() * factor;
    let (mut new_w, mut new_h) = (round(w), round(h));
    let (min, max) = (limits.min_pixels as f64, limits.max_pixels as f64);
    if padded * new_w * new_h > max {
        let scale = (n * w * h / max).sqrt();
        let shrink = |side: f64| factor.max((side / scale / factor).floor() * factor);
        (new_w, new_h) = (shrink(w), shrink(h));
    } else if padded * new_w * new_h < min {
        let scale = (min / (n * w * h)).sqrt();
        let grow = |side: f64| (side * scale / factor).ceil() * factor;
        (new_w, new_h) = (grow(w), grow(h));
    }
    Ok((new_w as u32, new_h as u32))
}

/// The picture at `width` x `height`.
pub fn resample(image: &RgbImage, width: u32, height: u32) -> RgbImage {
    let wide = match image.width() == width {
        true => None,
        false => Some(resample_rows(image, width)),
    };
    let image = wide.as_ref().unwrap_or(image);
    match image.height() == height {
        true => image.clone(),
        false => resample_columns(image, height),
    }
}

/// For each output pixel of an axis: the first input pixel it sees, and the weights of those it sees.
struct Weights {
    taps: Vec<(usize, Vec<i32>)>,
    /// Bits after the binary point.
    precision: u32,
}

impl Weights {
    fn new(n_in: usize, n_out: usize) -> Self {
        let scale = n_in as f64 / n_out as f64;
        // When it shrinks, the kernel is widened so that every input pixel counts.
        let widen = scale.max(1.0);
        let support = 2.0 * widen;
        let real: Vec<(usize, Vec<f64>)> = (0..n_out)
            .map(|i| {
                let centre = scale * (i as f64 + 0.5);
                let first = ((centre - support + 0.5) as i64).max(0) as usize;
                let end = ((centre + support + 0.5) as i64).min(n_in as i64) as usize;
                let weights: Vec<f64> =
                    (first..end).map(|j| keys_cubic((j as f64 - centre + 0.5) / widen)).collect();
                let sum: f64 = weights.iter().sum();
                (first, weights.iter().map(|w| w / sum).collect())
            })
            .collect();
        let largest = real.iter().flat_map(|(_, w)| w).fold(0.0, |a: f64, b| a.max(*b));
        // As many bits as let the largest weight fit into 16.
        let mut precision = 0;
        while precision < 22 && 0.5 + largest * f64::from(1u32 << (precision + 1)) < f64::from(1 << 15) {
            precision += 1;
        }
        let one = f64::from(1u32 << precision);
        let fixed = |w: &f64| (w * one + 0.5f64.copysign(*w)) as i32;
        Self {
            taps: real.into_iter().map(|(first, w)| (first, w.iter().map(fixed).collect())).collect(),
            precision,
        }
    }

    fn half(&self) -> i32 {
        1 << (self.precision - 1)
    }

    fn to_u8(&self, sum: i32) -> u8 {
        (sum >> self.precision).clamp(0, 255) as u8
    }
}

/// The Keys kernel with a = -0.5.
fn keys_cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

const RGB: usize = 3;

fn resample_rows(image: &RgbImage, width: u32) -> RgbImage {
    let weights = Weights::new(image.width() as usize, width as usize);
    let mut out = RgbImage::new(width, image.height());
    let rows_in = image.par_chunks_exact(image.width() as usize * RGB);
    rows_in.zip(out.par_chunks_exact_mut(width as usize * RGB)).for_each(|(row, row_out)| {
        for ((first, taps), pixel) in weights.taps.iter().zip(row_out.chunks_exact_mut(RGB)) {
            let mut sums = [weights.half(); RGB];
            for (weight, source) in taps.iter().zip(row[first * RGB..].chunks_exact(RGB)) {
                for (sum, value) in sums.iter_mut().zip(source) {
                    *sum += weight * i32::from(*value);
                }
            }
            for (value, sum) in pixel.iter_mut().zip(sums) {
                *value = weights.to_u8(sum);
            }
        }
    });
    out
}

fn resample_columns(image: &RgbImage, height: u32) -> RgbImage {
    let weights = Weights::new(image.height() as usize, height as usize);
    let mut out = RgbImage::new(image.width(), height);
    let row_len = image.width() as usize * RGB;
    out.par_chunks_exact_mut(row_len).zip(&weights.taps).for_each(|(row_out, (first, taps))| {
        let mut sums = vec![weights.half(); row_len];
        for (weight, row) in taps.iter().zip(image.as_raw()[first * row_len..].chunks_exact(row_len)) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += weight * i32::from(*value);
            }
        }
        for (value, sum) in row_out.iter_mut().zip(sums) {
            *value = weights.to_u8(sum);
        }
    });
    out
}

#[cfg(test)]
mod tests;
