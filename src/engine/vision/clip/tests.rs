use image::codecs::gif::GifEncoder;
use image::{Delay, Frame, Rgba, RgbaImage};

use super::*;
use crate::msg::PictureLimits;

const LIMITS: ClipLimits = ClipLimits {
    pixels: PictureLimits { factor: 32, min_pixels: 4_096, max_pixels: 25_165_824 },
    frames_per_slot: 2,
    time_tokens: 10,
};

/// Frames that grow brighter.
fn gif(n: u32, delay_ms: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new_with_speed(&mut bytes, 30);
    for i in 0..n {
        let grey = (255 * i / n.max(1)) as u8;
        let image = RgbaImage::from_pixel(64, 96, Rgba([grey, grey, grey, 255]));
        let delay = Delay::from_numer_denom_ms(delay_ms, 1);
        encoder.encode_frame(Frame::from_parts(image, 0, 0, delay)).unwrap();
    }
    drop(encoder);
    bytes
}

#[test]
fn two_frames_a_second_are_seen_in_pairs_with_their_times() {
    // Four seconds at ten frames a second.
    let bytes = gif(40, 100);
    let clip = load(&bytes, &LIMITS, Detail::High).unwrap();
    assert_eq!(clip.pixels.frames.len(), 8);
    assert_eq!((clip.pixels.width(), clip.pixels.height()), (64, 96));
    let brightness: Vec<u8> = clip.pixels.frames.iter().map(|frame| frame.get_pixel(5, 5).0[0]).collect();
    assert!(brightness.is_sorted() && brightness[0] < 10 && brightness[7] > 240, "{brightness:?}");
    // Frames 0 and 6, 11 and 17, …, of ten a second.
    let times: Vec<String> = clip.times.iter().map(|time| format!("{time:.2}")).collect();
    assert_eq!(times, ["0.30", "1.40", "2.50", "3.60"]);
    let facts = inspect(&bytes, &LIMITS, Detail::High).unwrap();
    assert_eq!((facts.frames, facts.tokens), (8, 4 * (2 * 3 + 10)));
}

#[test]
fn short_clips_show_at_least_what_they_have() {
    for (n, seen) in [(2, 2), (3, 4), (5, 4)] {
        let clip = load(&gif(n, 100), &LIMITS, Detail::Auto).unwrap();
        assert_eq!((clip.pixels.frames.len(), clip.times.len()), (seen, seen / 2), "{n} frames");
    }
}

#[test]
fn what_does_not_move_is_not_a_clip() {
    assert_eq!(load(&gif(1, 100), &LIMITS, Detail::Auto), Err(PictureError::NotMoving));
    let png = std::fs::read(crate::engine::golden::path("vision", "images/tiny.png")).unwrap();
    assert_eq!(load(&png, &LIMITS, Detail::Auto), Err(PictureError::NotMoving));
    let whole = gif(10, 100);
    for cut in [20, whole.len() / 2] {
        // Half a file may still have whole frames; it must not panic.
        let _ = load(&whole[..cut], &LIMITS, Detail::Auto);
    }
}
