use image::codecs::jpeg::JpegEncoder;
use image::{ImageEncoder, Rgba, RgbaImage};

use super::*;
use crate::engine::golden::{self, Tensors};

const LIMITS: PictureLimits = PictureLimits { factor: 32, min_pixels: 65_536, max_pixels: 16_777_216 };

fn file(name: &str) -> Vec<u8> {
    std::fs::read(golden::path("vision", &format!("images/{name}"))).unwrap()
}

fn png(image: &RgbaImage) -> Vec<u8> {
    encoded(image, ImageFormat::Png)
}

fn encoded(image: &RgbaImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let image = DynamicImage::ImageRgba8(image.clone());
    let image = if format == ImageFormat::Jpeg { image.into_rgb8().into() } else { image };
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

#[test]
fn decoded_pixels_are_those_of_the_reference() {
    let golden = Tensors::open("vision", "preprocess.safetensors");
    for name in ["gray", "palette", "alpha"] {
        let image = decode(&file(&format!("{name}.png"))).unwrap();
        let got: Vec<f64> = image.as_raw().iter().copied().map(f64::from).collect();
        assert_eq!(got, golden.values(&format!("{name}.rgb")), "{name}");
    }
    // Where a JPEG has fewer colour samples than pixels, decoders differ in how they spread them: the one built in
    // and libjpeg-turbo agree to the bit without, and to a few levels with it.
    let image = decode(&file("photo.jpg")).unwrap();
    let differences = image.as_raw().iter().zip(golden.values("photo.rgb"));
    let differences: Vec<f64> = differences.map(|(a, b)| (f64::from(*a) - b).abs()).collect();
    let worst = differences.iter().copied().fold(0.0, f64::max);
    let mean = differences.iter().sum::<f64>() / differences.len() as f64;
    assert!(worst <= 4.0 && mean <= 0.3, "photo.jpg: {worst} at most, {mean} on average");
}

#[test]
fn patches_are_those_of_the_reference() {
    let golden = Tensors::open("vision", "preprocess.safetensors");
    let limits = PictureLimits { factor: 32, min_pixels: 4_096, max_pixels: 24_576 };
    let pixels = load(&file("tiny.png"), &limits, Detail::Auto).unwrap();
    let layout = PatchLayout {
        patch_size: 16,
        temporal_patch_size: 2,
        spatial_merge_size: 2,
        mean: [0.5; 3],
        std: [0.5; 3],
    };
    assert_eq!(layout.grid(&pixels), [1, 4, 6]);
    let expected = golden.values("tiny.pixel_values_fast");
    golden::assert_close(&layout.patches(&pixels, 0, 0..24), expected, 1e-7, "tiny");
    // Cut elsewhere, the same.
    let pieces = [layout.patches(&pixels, 0, 0..5), layout.patches(&pixels, 0, 5..24)].concat();
    golden::assert_close(&pieces, expected, 1e-7, "tiny in pieces");
}

/// A JPEG of two colours with an EXIF orientation.
fn turned(orientation: u8) -> Vec<u8> {
    let image = RgbImage::from_fn(48, 32, |x, y| match (x < 24, y < 16) {
        (true, true) => Rgb([250, 0, 0]),
        (false, true) => Rgb([0, 250, 0]),
        (true, false) => Rgb([0, 0, 250]),
        (false, false) => Rgb([250, 250, 250]),
    });
    let mut bytes = Vec::new();
    let mut encoder = JpegEncoder::new_with_quality(&mut bytes, 95);
    // TIFF header, one directory with one entry: tag 0x0112, short, count 1.
    let exif =
        [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".as_slice(), &[orientation, 0, 0, 0, 0, 0, 0, 0]]
            .concat();
    encoder.set_exif_metadata(exif).unwrap();
    encoder.write_image(&image, 48, 32, image::ExtendedColorType::Rgb8).unwrap();
    bytes
}

#[test]
fn each_exif_orientation_is_undone() {
    // Colours at the four corners, row by row, as a viewer shows them. From the TIFF specification: what the
    // zeroth row and column of the stored picture are in the shown one.
    let [r, g, b, w] = ['r', 'g', 'b', 'w'];
    let shown = [
        (1, [r, g, b, w]),
        (2, [g, r, w, b]),
        (3, [w, b, g, r]),
        (4, [b, w, r, g]),
        (5, [r, b, g, w]),
        (6, [b, r, w, g]),
        (7, [w, g, b, r]),
        (8, [g, w, r, b]),
    ];
    for (orientation, corners) in shown {
        let bytes = turned(orientation);
        let image = decode(&bytes).unwrap();
        let (width, height) = image.dimensions();
        assert_eq!((width, height), if orientation < 5 { (48, 32) } else { (32, 48) }, "{orientation}");
        let facts = inspect(&bytes, &LIMITS, Detail::Auto).unwrap();
        assert_eq!((facts.width, facts.height), (width, height));
        let name = |x: u32, y: u32| match image.get_pixel(x, y).0.map(|value| value > 128) {
            [true, false, false] => r,
            [false, true, false] => g,
            [false, false, true] => b,
            _ => w,
        };
        let far = (width - 5, height - 5);
        assert_eq!(
            [name(4, 4), name(far.0, 4), name(4, far.1), name(far.0, far.1)],
            corners,
            "{orientation}"
        );
    }
}

#[test]
fn every_built_in_format_is_read() {
    let image =
        RgbaImage::from_fn(
            40,
            30,
            |x, _| if x < 20 { Rgba([255, 0, 0, 255]) } else { Rgba([0, 0, 255, 255]) },
        );
    for format in [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::WebP,
        ImageFormat::Gif,
        ImageFormat::Bmp,
        ImageFormat::Tiff,
        ImageFormat::Qoi,
    ] {
        let bytes = encoded(&image, format);
        let decoded = decode(&bytes).unwrap_or_else(|error| panic!("{format:?}: {error}"));
        assert_eq!(decoded.dimensions(), (40, 30), "{format:?}");
        let [left, right] = [decoded.get_pixel(5, 15).0, decoded.get_pixel(35, 15).0];
        assert!(
            left[0] > 240 && left[2] < 20 && right[0] < 20 && right[2] > 240,
            "{format:?}: {left:?} {right:?}"
        );
        assert_eq!(inspect(&bytes, &LIMITS, Detail::Auto).unwrap().tokens, 70, "{format:?}");
    }
}

#[test]
fn wide_values_keep_their_upper_byte() {
    let image = image::ImageBuffer::from_fn(8, 8, |_, _| Rgb([0x12ffu16, 0x8000, 0xffff]));
    assert_eq!(to_rgb(DynamicImage::ImageRgb16(image)).get_pixel(3, 3).0, [0x12, 0x80, 0xff]);
}

#[test]
fn the_detail_caps_the_pixels_before_anything_is_decoded() {
    let photo = png(&RgbaImage::new(4032, 3024));
    let tokens = |detail| inspect(&photo, &LIMITS, detail).unwrap().tokens;
    assert_eq!(tokens(Detail::High), 11_844);
    assert_eq!(tokens(Detail::Auto), 972);
    assert!(tokens(Detail::Low) <= 256);
    assert!(tokens(Detail::Pixels(50_000)) <= 50);
    assert_eq!(tokens(Detail::Pixels(1)), 1);
    let facts = inspect(&photo, &LIMITS, Detail::Auto).unwrap();
    assert_eq!((facts.width, facts.height), (4032, 3024));
    assert_eq!((facts.model_width, facts.model_height, facts.full_tokens), (1152, 864, 11_844));
}

/// A PNG header that claims a size; there is nothing behind it.
fn bomb(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = png(&RgbaImage::new(1, 1));
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let crc = crc32(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn what_can_not_be_a_picture_says_why() {
    let whole = file("photo.jpg");
    let grey = DynamicImage::new_luma8(12_000, 12_000);
    let mut flat = Cursor::new(Vec::new());
    grey.write_to(&mut flat, ImageFormat::Png).unwrap();
    let flat_png = png(&RgbaImage::new(99, 99));
    let cases: [(&str, Vec<u8>, &str); 12] = [
        ("flat bomb", flat.into_inner(), "12000x12000"),
        ("truncated png", flat_png[..flat_png.len() - 20].to_vec(), "damaged or incomplete"),
        ("empty", Vec::new(), "the file is empty"),
        ("text", b"hello, I am a text file".to_vec(), "not a picture that Loquat reads"),
        ("heic", b"\0\0\0\x18ftypheic\0\0\0\0".to_vec(), "HEIC is not built in"),
        ("avif", b"\0\0\0\x18ftypavif\0\0\0\0".to_vec(), "AVIF is not built in"),
        ("mp4", b"\0\0\0\x18ftypisom\0\0\0\0".to_vec(), "video is not built in"),
        ("wide bomb", bomb(60_000, 60_000), "60000x60000"),
        ("deep bomb", bomb(15_000, 15_000), "15000x15000"),
        ("strip", png(&RgbaImage::new(1, 20_000)), "1x20000; one side may be at most 200 times"),
        ("truncated", whole[..whole.len() / 2].to_vec(), "damaged or incomplete"),
        ("cut header", png(&RgbaImage::new(9, 9))[..20].to_vec(), "damaged or incomplete"),
    ];
    for (name, bytes, says) in cases {
        let inspected =
            inspect(&bytes, &LIMITS, Detail::Auto).err().unwrap_or_else(|| panic!("{name} was attached"));
        assert!(inspected.to_string().contains(says), "{name}: {inspected}");
        let error = decode(&bytes).err().unwrap_or_else(|| panic!("{name} was read")).to_string();
        assert!(error.contains(says), "{name}: {error}");
    }
}

#[test]
fn damaged_files_never_panic() {
    for name in ["photo.jpg", "alpha.png", "palette.png"] {
        let whole = file(name);
        for i in 0..200 {
            let mut bytes = whole.clone();
            let at = (i * 7919 + 13) % bytes.len();
            bytes[at] ^= 1 << (i % 8);
            let _ = decode(&bytes);
            let _ = decode(&whole[..whole.len() * i / 200]);
        }
    }
}
