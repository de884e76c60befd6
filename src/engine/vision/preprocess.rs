//! A picture's file -> pixels that the tower takes.
//!
//! A file is untrusted: its size is checked before anything is decoded, and what decoding may allocate is
//! bounded. Orientation is applied, transparency shows white, everything becomes 8-bit RGB.
//! Source: the family's image processor in transformers, and Pillow for what happens before it.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{
    ColorType, DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, Rgb, RgbImage,
};

use super::super::config::vision::CHANNELS;
use super::resize::{TooNarrow, resample, smart_resize};
use crate::chat::Detail;
use crate::msg::{PictureFacts, PictureLimits};

/// Largest picture file that is read.
pub const MAX_FILE_BYTES: u64 = 64 << 20;
/// Longest side of a picture, and the most that decoding one may allocate, its copy as RGB included.
const MAX_SIDE: u32 = 16_384;
pub(super) const MAX_DECODED_BYTES: u64 = 256 << 20;
/// The same for the RGB alone: 67 megapixels. A picture that is turned or rescaled is there twice for a moment.
const MAX_RGB_BYTES: u64 = 192 << 20;

/// What is wrong with a picture, as a clause that follows its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    #[error("the file is empty")]
    Empty,
    #[error("{0} is not built in; convert it to PNG or JPEG")]
    NotBuiltIn(&'static str),
    #[error("it is not a picture that Loquat reads (PNG, JPEG, WebP, GIF, BMP, TIFF, QOI)")]
    UnknownFormat,
    #[error(transparent)]
    TooNarrow(#[from] TooNarrow),
    #[error(
        "it has {width}x{height} pixels and would need {mib} MiB to open; at most {MAX_SIDE} a side and {} MiB are taken",
        MAX_DECODED_BYTES >> 20
    )]
    TooLarge { width: u32, height: u32, mib: u64 },
    #[error("its pixels can't be read ({0}); the file may be damaged or incomplete")]
    Damaged(String),
    #[error("its frames need more than {} MiB together; make it shorter or smaller", MAX_DECODED_BYTES >> 20)]
    ClipTooLarge,
    #[error("it is not a moving GIF; attach it as an image")]
    NotMoving,
}

/// A picture that is ready for the tower: frames of one size, in groups that become one temporal slot each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels {
    /// A whole number of groups of `temporal_patch_size` frames; a still picture is one group of one frame,
    /// which stands for all of its group.
    pub frames: Vec<RgbImage>,
}

/// How patches are cut and scaled.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchLayout {
    pub patch_size: usize,
    pub temporal_patch_size: usize,
    pub spatial_merge_size: usize,
    pub mean: [f32; CHANNELS],
    pub std: [f32; CHANNELS],
}

/// What sending this picture means, from its header alone.
///
/// # Errors
/// [`PictureError`]
pub fn inspect(bytes: &[u8], limits: &PictureLimits, detail: Detail) -> Result<PictureFacts, PictureError> {
    let (width, height) = oriented_size(&mut decoder(bytes)?);
    let (model_width, model_height) = smart_resize(width, height, &capped(limits, detail))?;
    let (full_width, full_height) = smart_resize(width, height, limits)?;
    let tokens =
        |width: u32, height: u32| (width / limits.factor) as usize * (height / limits.factor) as usize;
    Ok(PictureFacts {
        width,
        height,
        model_width,
        model_height,
        frames: 1,
        tokens: tokens(model_width, model_height),
        full_tokens: tokens(full_width, full_height),
    })
}

/// The picture at the size that the model sees.
///
/// # Errors
/// [`PictureError`]
pub fn load(bytes: &[u8], limits: &PictureLimits, detail: Detail) -> Result<Pixels, PictureError> {
    let image = decode(bytes)?;
    let (width, height) = smart_resize(image.width(), image.height(), &capped(limits, detail))?;
    Ok(Pixels { frames: vec![resample(&image, width, height)] })
}

/// The picture as 8-bit RGB, turned the right way up.
///
/// # Errors
/// [`PictureError`]
pub fn decode(bytes: &[u8]) -> Result<RgbImage, PictureError> {
    let mut decoder = decoder(bytes)?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    image.apply_orientation(orientation);
    Ok(to_rgb(image))
}

/// The limits, with what `detail` allows as the upper one.
pub fn capped(limits: &PictureLimits, detail: Detail) -> PictureLimits {
    let max_pixels = limits.max_pixels.min(detail.max_pixels()).max(u64::from(limits.factor).pow(2));
    // The model's lower limit keeps small pictures legible; somebody who asks for fewer pixels gets fewer.
    PictureLimits { max_pixels, min_pixels: limits.min_pixels.min(max_pixels), ..*limits }
}

/// A decoder whose picture has a sane size.
fn decoder(bytes: &[u8]) -> Result<impl ImageDecoder + '_, PictureError> {
    let format = format(bytes)?;
    let is_cut_off = match format {
        ImageFormat::Jpeg => is_jpeg_cut_off(bytes),
        // The last chunk.
        ImageFormat::Png => !bytes.windows(4).rev().any(|name| name == b"IEND"),
        _ => false,
    };
    if is_cut_off {
        return Err(PictureError::Damaged("it ends too early".into()));
    }
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits());
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = oriented_size(&mut decoder);
    // Before the size itself: a strip of 1 x 20000 is refused for its shape, which is what its owner can see.
    smart_resize(width, height, &PictureLimits { factor: 1, min_pixels: 0, max_pixels: u64::MAX })?;
    let rgb = u64::from(width) * u64::from(height) * CHANNELS as u64;
    let whole = match decoder.color_type() {
        ColorType::Rgb8 => rgb,
        _ => decoder.total_bytes().saturating_add(rgb),
    };
    if rgb > MAX_RGB_BYTES {
        return Err(PictureError::TooLarge { width, height, mib: whole >> 20 });
    }
    check_size(width, height, whole)?;
    Ok(decoder)
}

pub(super) fn check_size(width: u32, height: u32, bytes: u64) -> Result<(), PictureError> {
    match width.max(height) > MAX_SIDE || bytes > MAX_DECODED_BYTES {
        true => Err(PictureError::TooLarge { width, height, mib: bytes >> 20 }),
        false => Ok(()),
    }
}

pub(super) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    limits
}

/// The format, told by the content: a file's name proves nothing.
pub(super) fn format(bytes: &[u8]) -> Result<ImageFormat, PictureError> {
    if bytes.is_empty() {
        return Err(PictureError::Empty);
    }
    // ISO media files begin with a box `ftyp` that names the brand.
    if let Some(brand) = bytes.get(8..12).filter(|_| bytes.get(4..8) == Some(b"ftyp")) {
        return Err(match brand {
            b"avif" | b"avis" => PictureError::NotBuiltIn("AVIF"),
            b"heic" | b"heix" | b"hevc" | b"hevx" | b"heim" | b"heis" | b"mif1" | b"msf1" => {
                PictureError::NotBuiltIn("HEIC")
            }
            _ => PictureError::NotBuiltIn("video"),
        });
    }
    if bytes.starts_with(&[0xff, 0x0a]) || bytes.starts_with(b"\0\0\0\x0cJXL ") {
        return Err(PictureError::NotBuiltIn("JPEG XL"));
    }
    image::guess_format(bytes).map_err(|_| PictureError::UnknownFormat)
}

/// Whether a JPEG lacks its end: decoders fill the rest with grey, and nobody would notice. Inside the pixel data
/// neither marker can occur; a thumbnail in front has both.
fn is_jpeg_cut_off(bytes: &[u8]) -> bool {
    let last = |marker: u8| bytes.windows(2).rposition(|pair| pair == [0xff, marker]);
    let (start_of_scan, end_of_image) = (last(0xda), last(0xd9));
    end_of_image.is_none() || end_of_image < start_of_scan
}

pub(super) fn damaged(error: ImageError) -> PictureError {
    match error {
        ImageError::Unsupported(_) => PictureError::UnknownFormat,
        error => PictureError::Damaged(error.to_string()),
    }
}

fn oriented_size(decoder: &mut impl ImageDecoder) -> (u32, u32) {
    let (width, height) = decoder.dimensions();
    match decoder.orientation() {
        Ok(
            Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH,
        ) => (height, width),
        _ => (width, height),
    }
}

/// 8-bit RGB. Of 16-bit values the upper byte is kept, as Pillow does.
pub(super) fn to_rgb(image: DynamicImage) -> RgbImage {
    match image {
        DynamicImage::ImageRgb8(image) => image,
        DynamicImage::ImageLuma16(_) | DynamicImage::ImageRgb16(_) => {
            let wide = image.into_rgb16();
            RgbImage::from_fn(wide.width(), wide.height(), |x, y| {
                Rgb(wide.get_pixel(x, y).0.map(|value| (value >> 8) as u8))
            })
        }
        DynamicImage::ImageLumaA16(_) | DynamicImage::ImageRgba16(_) => {
            let wide = image.into_rgba16();
            RgbImage::from_fn(wide.width(), wide.height(), |x, y| {
                let [r, g, b, a] = wide.get_pixel(x, y).0.map(|value| (value >> 8) as u8);
                on_white([r, g, b], a)
            })
        }
        image if image.color().has_alpha() => {
            let rgba = image.into_rgba8();
            RgbImage::from_fn(rgba.width(), rgba.height(), |x, y| {
                let [r, g, b, a] = rgba.get_pixel(x, y).0;
                on_white([r, g, b], a)
            })
        }
        image => image.into_rgb8(),
    }
}

/// A transparent colour on white paper, in Pillow's integer arithmetic.
pub(super) fn on_white(colour: [u8; CHANNELS], alpha: u8) -> Rgb<u8> {
    let alpha = u32::from(alpha);
    Rgb(colour.map(|value| {
        let sum = (u32::from(value) * alpha + 255 * (255 - alpha)) * 128 + (128 << 7);
        ((((sum >> 8) + sum) >> 8) >> 7) as u8
    }))
}

impl Pixels {
    pub fn width(&self) -> usize {
        self.frames[0].width() as usize
    }

    pub fn height(&self) -> usize {
        self.frames[0].height() as usize
    }
}

impl PatchLayout {
    /// Temporal slots, rows and columns of patches.
    pub fn grid(&self, pixels: &Pixels) -> [usize; 3] {
        let slots = pixels.frames.len().div_ceil(self.temporal_patch_size);
        [slots, pixels.height() / self.patch_size, pixels.width() / self.patch_size]
    }

    /// Numbers of one patch.
    pub fn patch_values(&self) -> usize {
        CHANNELS * self.temporal_patch_size * self.patch_size * self.patch_size
    }

    /// Row and column of patch `i` in a frame of so many columns of patches. They come in blocks of
    /// `spatial_merge_size` squared, so that those which become one token are neighbours.
    pub fn place(&self, i: usize, columns: usize) -> (usize, usize) {
        let merge = self.spatial_merge_size;
        let (block, inner) = (i / (merge * merge), i % (merge * merge));
        let across = columns / merge;
        (block / across * merge + inner / merge, block % across * merge + inner % merge)
    }

    /// The patches `range` of one temporal slot, `[patches, channel * frame * row * column]`, flat.
    pub fn patches(&self, pixels: &Pixels, slot: usize, range: std::ops::Range<usize>) -> Vec<f32> {
        let p = self.patch_size;
        let columns = pixels.width() / p;
        let last = pixels.frames.len() - 1;
        let scale: [[f32; 256]; CHANNELS] = std::array::from_fn(|channel| {
            let (mean, std) = (self.mean[channel] * 255.0, self.std[channel] * 255.0);
            std::array::from_fn(|value| (value as f32 - mean) / std)
        });
        let mut out = Vec::with_capacity(range.len() * self.patch_values());
        for i in range {
            let (row, column) = self.place(i, columns);
            for (channel, scale) in scale.iter().enumerate() {
                for frame in 0..self.temporal_patch_size {
                    let frame = &pixels.frames[(slot * self.temporal_patch_size + frame).min(last)];
                    for y in row * p..(row + 1) * p {
                        let start = (y * columns + column) * p * CHANNELS;
                        let values = frame.as_raw()[start..start + p * CHANNELS]
                            .iter()
                            .skip(channel)
                            .step_by(CHANNELS);
                        out.extend(values.map(|value| scale[*value as usize]));
                    }
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
