use super::*;
use crate::engine::golden::{self, Tensors};

#[test]
fn sizes_are_those_of_the_reference() {
    let table = golden::json("vision", "smart_resize.json");
    let mut errors = 0;
    for (kind, row) in ["image", "video"]
        .into_iter()
        .flat_map(|kind| table[kind].as_array().unwrap().iter().map(move |row| (kind, row)))
    {
        let number = |key: &str| row[key].as_u64().unwrap();
        let limits = PictureLimits {
            factor: number("factor") as u32,
            min_pixels: number("min_pixels"),
            max_pixels: number("max_pixels"),
        };
        let (width, height) = (number("width") as u32, number("height") as u32);
        let got = match kind {
            "image" => smart_resize(width, height, &limits),
            // The reference refuses fewer frames than a group has; the caller repeats them.
            _ if number("frames") < number("temporal_factor") => continue,
            _ => {
                let (frames, group) = (number("frames") as usize, number("temporal_factor") as usize);
                smart_resize_clip(width, height, frames, group, &limits)
            }
        };
        match row["result"].as_array() {
            Some(size) => {
                let size = [&size[1], &size[0]].map(|n| n.as_u64().unwrap() as u32);
                assert_eq!(got.map(<[u32; 2]>::from), Ok(size), "{row}");
            }
            None => {
                assert!(got.is_err(), "{row}");
                errors += 1;
            }
        }
    }
    assert!(errors > 3);
}

#[test]
fn an_empty_picture_has_no_size() {
    let limits = PictureLimits { factor: 32, min_pixels: 65_536, max_pixels: 1 << 24 };
    assert!(smart_resize(0, 5, &limits).is_err() && smart_resize(5, 0, &limits).is_err());
}

#[test]
fn pixels_are_those_of_the_reference() {
    let golden = Tensors::open("vision", "preprocess.safetensors");
    for name in ["square", "tiny", "odd", "big", "tall", "wide", "gray", "palette", "alpha"] {
        let file = golden::path("vision", &format!("images/{name}.png"));
        let image = super::super::preprocess::decode(&std::fs::read(file).unwrap()).unwrap();
        let (shape, expected) = golden.get(&format!("{name}.resized_fast"));
        let got = resample(&image, shape[1] as u32, shape[0] as u32);
        let got: Vec<f64> = got.as_raw().iter().copied().map(f64::from).collect();
        let different = got.iter().zip(expected).filter(|(a, b)| a != b).count();
        assert_eq!(different, 0, "{name}: {different} of {} values differ", expected.len());
    }
}

#[test]
fn a_picture_of_one_colour_keeps_it() {
    let colour = image::Rgb([1, 128, 254]);
    let image = RgbImage::from_pixel(37, 91, colour);
    for (width, height) in [(64, 32), (32, 256), (1, 1), (37, 91), (200, 3)] {
        let resized = resample(&image, width, height);
        assert_eq!(resized.dimensions(), (width, height));
        assert!(resized.pixels().all(|pixel| *pixel == colour), "{width}x{height}");
    }
}
