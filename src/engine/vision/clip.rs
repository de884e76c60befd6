//! Moving pictures: which frames of a GIF the model sees, and when each group of them was.

use std::io::Cursor;

use image::codecs::gif::GifDecoder;
use image::{AnimationDecoder, ImageDecoder, ImageFormat, RgbImage};

use super::preprocess::{
    MAX_DECODED_BYTES, PictureError, Pixels, capped, check_size, damaged, format, limits, on_white,
};
use super::resize::{resample, smart_resize_clip};
use crate::chat::Detail;
use crate::msg::{ClipLimits, PictureFacts};

/// Frames per second that the model was trained with, and the fewest and the most of them.
const SAMPLED_FPS: f64 = 2.0;
const MIN_FRAMES: usize = 4;
const MAX_FRAMES: usize = 768;

/// A clip that is ready for the tower.
#[derive(Debug, Clone, PartialEq)]
pub struct Clip {
    pub pixels: Pixels,
    /// Seconds from the beginning, one for each temporal slot.
    pub times: Vec<f64>,
}

/// The frames of a GIF that the model sees.
///
/// # Errors
/// `NotMoving` for other formats; else as for pictures.
pub fn load(bytes: &[u8], limits: &ClipLimits, detail: Detail) -> Result<Clip, PictureError> {
    let (frames, fps) = decode(bytes)?;
    prepare(&frames, &sampled(frames.len(), fps), fps, &capped_for_clips(limits, detail))
}

/// What sending a clip means. All its frames are decoded to count them.
///
/// # Errors
/// As [`load`].
pub fn inspect(bytes: &[u8], limits: &ClipLimits, detail: Detail) -> Result<PictureFacts, PictureError> {
    let (frames, fps) = decode(bytes)?;
    let (width, height) = frames[0].dimensions();
    let n = sampled(frames.len(), fps).len();
    let slots = n.div_ceil(limits.frames_per_slot);
    let factor = limits.pixels.factor;
    let tokens = |(width, height): (u32, u32)| {
        slots * ((width / factor) as usize * (height / factor) as usize + limits.time_tokens)
    };
    let seen = size(width, height, n, &capped_for_clips(limits, detail))?;
    Ok(PictureFacts {
        width,
        height,
        model_width: seen.0,
        model_height: seen.1,
        frames: n,
        tokens: tokens(seen),
        full_tokens: tokens(size(width, height, n, limits)?),
    })
}

/// A clip's limits hold for all its frames together, so a still picture's cap is far too low for it. Four times as
/// much makes eight frames of 360p.
fn capped_for_clips(limits: &ClipLimits, detail: Detail) -> ClipLimits {
    let detail = match detail {
        Detail::Low | Detail::Auto => Detail::Pixels((detail.max_pixels() * 4) as u32),
        other => other,
    };
    ClipLimits { pixels: capped(&limits.pixels, detail), ..*limits }
}

fn size(width: u32, height: u32, n_frames: usize, limits: &ClipLimits) -> Result<(u32, u32), PictureError> {
    let group = limits.frames_per_slot;
    Ok(smart_resize_clip(width, height, n_frames.max(group), group, &limits.pixels)?)
}

/// Which of `total` frames the model sees.
fn sampled(total: usize, fps: f64) -> Vec<usize> {
    let n = ((total as f64 / fps * SAMPLED_FPS) as usize).clamp(MIN_FRAMES, MAX_FRAMES);
    spread(total, n.min(total))
}

/// `n` indices, evenly over `0..total`, rounded half to even.
fn spread(total: usize, n: usize) -> Vec<usize> {
    let step = if n > 1 { (total - 1) as f64 / (n - 1) as f64 } else { 0.0 };
    (0..n).map(|i| (i as f64 * step).round_ties_even() as usize).collect()
}

/// The chosen frames of a clip that has `fps` frames a second, at the size that the model sees.
///
/// # Errors
/// If its shape is too narrow.
pub fn prepare(
    frames: &[RgbImage],
    indices: &[usize],
    fps: f64,
    limits: &ClipLimits,
) -> Result<Clip, PictureError> {
    let temporal_patch_size = limits.frames_per_slot;
    let (width, height) = frames[0].dimensions();
    let (width, height) = size(width, height, indices.len(), limits)?;
    let mut indices = indices.to_vec();
    // The last group is filled up with the last frame.
    let last = *indices.last().expect("a clip has frames");
    indices.resize(indices.len().next_multiple_of(temporal_patch_size), last);
    let time = |index: &usize| *index as f64 / fps;
    let times = indices
        .chunks_exact(temporal_patch_size)
        .map(|group| (time(&group[0]) + time(&group[temporal_patch_size - 1])) / 2.0)
        .collect();
    let frames = indices.iter().map(|index| resample(&frames[*index], width, height)).collect();
    Ok(Clip { pixels: Pixels { frames }, times })
}

/// All frames, and how many there are a second on average.
fn decode(bytes: &[u8]) -> Result<(Vec<RgbImage>, f64), PictureError> {
    if format(bytes)? != ImageFormat::Gif {
        return Err(PictureError::NotMoving);
    }
    let mut decoder = GifDecoder::new(Cursor::new(bytes)).map_err(damaged)?;
    decoder.set_limits(limits()).map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    let frame_bytes = u64::from(width) * u64::from(height) * 3;
    check_size(width, height, frame_bytes)?;
    let mut frames = Vec::new();
    let mut seconds = 0.0;
    for frame in decoder.into_frames() {
        let frame = frame.map_err(damaged)?;
        let (numerator, denominator) = frame.delay().numer_denom_ms();
        seconds += f64::from(numerator) / f64::from(denominator) / 1000.0;
        let rgba = frame.into_buffer();
        frames.push(RgbImage::from_fn(width, height, |x, y| {
            let [r, g, b, a] = rgba.get_pixel(x, y).0;
            on_white([r, g, b], a)
        }));
        if frames.len() as u64 * frame_bytes > MAX_DECODED_BYTES {
            return Err(PictureError::ClipTooLarge);
        }
    }
    if frames.len() < 2 {
        return Err(PictureError::NotMoving);
    }
    // A GIF without delays is shown at ten frames a second by every viewer.
    let fps = if seconds > 0.0 { frames.len() as f64 / seconds } else { 10.0 };
    Ok((frames, fps))
}

#[cfg(test)]
mod tests;
