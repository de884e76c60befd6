use super::*;
use crate::engine::noise::noise;

fn matrix(values: Vec<f32>, columns: usize) -> Weight {
    let rows = values.len() / columns;
    Weight::from_f32(values, vec![rows, columns])
}

/// Noise with a few large numbers, as weights have.
fn weights(rows: usize, columns: usize) -> Weight {
    let values = noise(5, rows * columns).into_iter();
    matrix(values.map(|x| x * x * x * 0.2).collect(), columns)
}

fn relative_error(weight: &Weight, quantised: &Weight) -> f64 {
    let pairs: Vec<(f32, f32)> = weight.to_f32().into_iter().zip(quantised.to_f32()).collect();
    let sum = |of: fn(&(f32, f32)) -> f32| pairs.iter().map(|pair| f64::from(of(pair)).powi(2)).sum::<f64>();
    (sum(|(x, y)| x - y) / sum(|(x, _)| *x)).sqrt()
}

#[test]
fn the_error_is_that_of_the_numbers_and_as_small_as_the_bits_allow() {
    for (format, most) in [(WeightFormat::Q8Panels, 0.006), (WeightFormat::Q4Panels, 0.11)] {
        for (rows, columns) in [(16, 64), (5, 100), (33, 1024)] {
            let weight = weights(rows, columns);
            let Quantised { weight: quantised, error } = quantise(&weight, format).unwrap();
            let measured = relative_error(&weight, &quantised);
            assert!((error.relative() - measured).abs() < 1e-4, "{} and {measured}", error.relative());
            assert!(measured > 0.0 && measured < most, "{format:?} {rows}x{columns}: {measured}");
        }
    }
}

/// The nearest of sixteen steps between the least and the largest number of a block.
fn plainly_rounded(weight: &Weight) -> Weight {
    let columns = weight.shape[1];
    let mut values = weight.to_f32();
    for row in values.chunks_exact_mut(columns) {
        for block in row.chunks_mut(BLOCK) {
            let (low, high) = block.iter().fold((f32::MAX, f32::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
            let scale = (high - low) / 15.0;
            block.iter_mut().for_each(|x| *x = low + ((*x - low) / scale).round() * scale);
        }
    }
    matrix(values, columns)
}

#[test]
fn searching_beats_plain_rounding() {
    let weight = weights(64, 512);
    let searched = quantise(&weight, WeightFormat::Q4Panels).unwrap().error.relative();
    let plain = relative_error(&weight, &plainly_rounded(&weight));
    assert!(searched < 0.93 * plain, "searched {searched}, plain {plain}");
}

#[test]
fn numbers_that_fit_are_kept_as_they_are() {
    // Sixteen steps of a quarter; and blocks of one number.
    let steps = matrix((0..256).map(|i| (i % 16) as f32 * 0.25 - 2.0).collect(), 128);
    let same = matrix([0.0, 0.5, -3.0].into_iter().flat_map(|x| [x; 70]).collect(), 70);
    for weight in [steps, same] {
        let quantised = quantise(&weight, WeightFormat::Q4Panels).unwrap();
        assert_eq!(quantised.weight.to_f32(), weight.to_f32());
        assert_eq!(quantised.error.relative(), 0.0);
    }
}

#[test]
fn what_is_no_number_is_refused() {
    for bad in [f32::NAN, f32::INFINITY] {
        for format in [WeightFormat::Q8Panels, WeightFormat::Q4Panels] {
            let mut values = noise(1, 640);
            values[70] = bad;
            assert!(quantise(&matrix(values, 64), format).is_none());
        }
    }
}
