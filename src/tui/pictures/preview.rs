//! A picture made for the terminal: decoded within limits, scaled to its place, encoded for the protocol.

use std::fmt;
use std::io::Cursor;
use std::sync::Arc;

use image::{DynamicImage, ImageDecoder, ImageReader, Limits};
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui::widgets::Widget;
use ratatui_image::Image;
use ratatui_image::protocol::Protocol as Encoded;
use ratatui_image::protocol::halfblocks::Halfblocks;
use ratatui_image::protocol::iterm2::Iterm2;
use ratatui_image::protocol::kitty::Kitty;
use ratatui_image::protocol::sixel::Sixel;
use ratatui_image::sliced::{SignedPosition, SlicedImage, SlicedProtocol};

use super::graphics::{Graphics, Protocol};
use crate::tui::commands::Region;

/// Larger pictures aren't decoded for a preview: a small file can claim to be a huge picture.
const MAX_SIDE: u32 = 16_384;
const MAX_DECODED_BYTES: u64 = 256 << 20;

/// Ready to be drawn, at one size. Copies are the same picture.
#[derive(Clone)]
pub struct Preview(Arc<Inner>);

struct Inner {
    drawing: Drawing,
    /// In characters.
    size: Size,
}

enum Drawing {
    /// Can be drawn in part, at the edge of what is in sight.
    Rows(SlicedProtocol),
    /// Only as a whole.
    Whole(Encoded),
}

/// Decodes a picture file, turned as its orientation says.
///
/// # Errors
/// A sentence when it isn't a picture that can be shown.
pub fn decode(bytes: &[u8]) -> Result<DynamicImage, String> {
    let unreadable = |error: &dyn fmt::Display| format!("can't be shown: {error}");
    let mut reader =
        ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| unreadable(&error))?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| unreadable(&error))?;
    if decoder.total_bytes() > MAX_DECODED_BYTES {
        return Err("is too large to be shown".into());
    }
    let orientation = decoder.orientation().map_err(|error| unreadable(&error))?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(|error| unreadable(&error))?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// Cuts a part out of a picture file; gives a PNG file.
///
/// # Errors
/// A sentence when it can't be read, or has no such part.
pub fn crop(bytes: &[u8], region: Region) -> Result<Arc<[u8]>, String> {
    let image = decode(bytes).map_err(|why| format!("the picture {why}"))?;
    let (width, height) = (image.width(), image.height());
    let (half_width, half_height) = (width.div_ceil(2), height.div_ceil(2));
    let (x, y, part_width, part_height) = match region {
        Region::Left => (0, 0, half_width, height),
        Region::Right => (width - half_width, 0, half_width, height),
        Region::Top => (0, 0, width, half_height),
        Region::Bottom => (0, height - half_height, width, half_height),
        Region::Middle => (width / 4, height / 4, half_width, half_height),
        Region::Area { x, y, width, height } => (x, y, width, height),
    };
    if x >= width || y >= height {
        return Err(format!("the picture has {width}x{height} pixels: {x},{y} is outside"));
    }
    let part = image.crop_imm(x, y, part_width.min(width - x), part_height.min(height - y));
    let mut out = Cursor::new(Vec::new());
    part.write_to(&mut out, image::ImageFormat::Png).map_err(|error| error.to_string())?;
    Ok(out.into_inner().into())
}

impl Preview {
    /// Scales a picture down to fit into `columns` x `rows` characters; `None` if nothing is to be drawn.
    pub fn new(image: &DynamicImage, graphics: Graphics, columns: u16, rows: u16) -> Option<Self> {
        if columns == 0 || rows == 0 || image.width() == 0 || image.height() == 0 {
            return None;
        }
        let (cell_width, cell_height) =
            (u32::from(graphics.cell.0.max(1)), u32::from(graphics.cell.1.max(1)));
        let side = graphics.max_side;
        // Whole characters, at least one of them.
        let fit = |cells: u16, cell: u32| (u32::from(cells) * cell).min((side / cell).max(1) * cell);
        let (width, height) = (fit(columns, cell_width), fit(rows, cell_height));
        let image = match image.width() <= width && image.height() <= height {
            true => image.clone(),
            false => image.thumbnail(width, height),
        };
        let size = Size {
            width: (image.width().div_ceil(cell_width) as u16).clamp(1, columns),
            height: (image.height().div_ceil(cell_height) as u16).clamp(1, rows),
        };
        let drawing = encode(image, graphics, size)?;
        Some(Self(Arc::new(Inner { drawing, size })))
    }

    pub fn size(&self) -> Size {
        self.0.size
    }

    /// Draws it into `area`, with its first row `top` rows below the area's (or above, when negative).
    pub fn draw(&self, area: Rect, top: i32, buffer: &mut Buffer) {
        let (width, height) = (self.0.size.width, i32::from(self.0.size.height));
        let bottom = top + height;
        let is_whole = top >= 0 && bottom <= i32::from(area.height);
        // A picture larger than the area on both sides is cut wrongly by the crate.
        let hangs_over_both = top < 0 && bottom > i32::from(area.height);
        if width > area.width || hangs_over_both {
            return;
        }
        match &self.0.drawing {
            Drawing::Rows(rows) => {
                // Nothing in sight, however far away.
                let Ok(top) = i16::try_from(top) else { return };
                SlicedImage::new(rows, SignedPosition::from((0, top))).render(area, buffer);
            }
            Drawing::Whole(encoded) if is_whole => {
                let area = Rect { y: area.y + top as u16, width, height: height as u16, ..area };
                Image::new(encoded).render(area, buffer);
            }
            Drawing::Whole(_) => {}
        }
    }
}

fn encode(image: DynamicImage, graphics: Graphics, size: Size) -> Option<Drawing> {
    Some(match graphics.protocol {
        Protocol::Off => return None,
        Protocol::Blocks => Drawing::Rows(SlicedProtocol::Halfblocks(Halfblocks::new(image, size).ok()?)),
        Protocol::Kitty => {
            let kitty = Kitty::new(image, size, picture_number(), graphics.in_tmux, false).ok()?;
            Drawing::Rows(SlicedProtocol::Kitty(kitty))
        }
        Protocol::Sixel => Drawing::Whole(Encoded::Sixel(Sixel::new(image, size, graphics.in_tmux).ok()?)),
        Protocol::Iterm2 => {
            let cell_height = u32::from(graphics.cell.1.max(1));
            let rows: Option<Vec<Encoded>> = (0..u32::from(size.height))
                .map(|row| {
                    let y = row * cell_height;
                    let height = cell_height.min(image.height().saturating_sub(y)).max(1);
                    let row = image.crop_imm(0, y, image.width(), height);
                    Iterm2::new(row, Size { height: 1, ..size }, graphics.in_tmux).ok().map(Encoded::ITerm2)
                })
                .collect();
            Drawing::Rows(SlicedProtocol::Sliced(rows?))
        }
    })
}

/// A number for kitty to know the picture by. Another program in the same window may have counted from 1.
fn picture_number() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id() & 0xffff;
    (process << 12) | (NEXT.fetch_add(1, Ordering::Relaxed) & 0xfff) | 1 << 30
}

impl PartialEq for Preview {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Preview({})", self.0.size)
    }
}

#[cfg(test)]
mod tests {
    use image::{ImageFormat, Rgb, RgbImage};
    use ratatui::buffer::Cell;

    use super::super::graphics::{Answer, Environment, Images};
    use super::*;

    fn graphics(protocol: Protocol) -> Graphics {
        let answer = Answer { cell: Some((10, 20)), ..Answer::default() };
        Graphics::new(Images::Only(protocol), Environment::default(), answer)
    }

    fn picture(width: u32, height: u32) -> DynamicImage {
        DynamicImage::ImageRgb8(RgbImage::from_pixel(width, height, Rgb([200, 100, 50])))
    }

    fn drawn(protocol: Protocol, top: i32) -> Buffer {
        let area = Rect::new(0, 0, 30, 6);
        let mut buffer = Buffer::empty(area);
        Preview::new(&picture(800, 400), graphics(protocol), 20, 5).unwrap().draw(area, top, &mut buffer);
        buffer
    }

    #[test]
    fn a_picture_keeps_its_proportions_and_is_never_blown_up() {
        let size = |width, height| {
            Preview::new(&picture(width, height), graphics(Protocol::Blocks), 40, 10).unwrap().size()
        };
        assert_eq!(size(4000, 3000), Size::new(27, 10));
        assert_eq!(size(4000, 100), Size::new(40, 1));
        assert_eq!(size(30, 30), Size::new(3, 2));
        assert!(Preview::new(&picture(9, 9), graphics(Protocol::Off), 40, 10).is_none());
    }

    #[test]
    fn every_protocol_draws_and_none_leaves_its_area() {
        for protocol in [Protocol::Kitty, Protocol::Sixel, Protocol::Iterm2, Protocol::Blocks] {
            let whole = drawn(protocol, 1);
            assert_ne!(whole[(0, 1)], Cell::default(), "{protocol:?}");
            assert_eq!(whole[(0, 0)], Cell::default(), "{protocol:?}");
            for top in [-100_000, -6, -3, 3, 5, 6, 100_000] {
                drawn(protocol, top);
            }
        }
        assert!(drawn(Protocol::Kitty, 0)[(0, 0)].symbol().starts_with("\x1b_G"));
        assert!(drawn(Protocol::Sixel, 0)[(0, 0)].symbol().contains("\x1bP"));
        assert!(drawn(Protocol::Iterm2, 0)[(0, 0)].symbol().contains("\x1b]1337;File="));
        assert_eq!(drawn(Protocol::Sixel, -1), Buffer::empty(Rect::new(0, 0, 30, 6)), "only as a whole");
    }

    #[test]
    fn what_claims_to_be_huge_is_refused_before_it_is_decoded() {
        let mut bytes = Cursor::new(Vec::new());
        picture(8, 8).write_to(&mut bytes, ImageFormat::Png).unwrap();
        let mut bytes = bytes.into_inner();
        assert!(decode(&bytes).is_ok());
        // Width and height in the header; its checksum follows.
        bytes[16..24].copy_from_slice(&[0, 0, 0x3f, 0xff, 0, 0, 0x3f, 0xff]);
        let checksum = crc32(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&checksum.to_be_bytes());
        assert!(decode(&bytes).is_err());
        assert!(decode(b"no picture").is_err());
        assert!(decode(b"").is_err());
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |mut crc, byte| {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
            }
            crc
        })
    }
}
