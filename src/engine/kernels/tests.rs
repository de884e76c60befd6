use burn::tensor::Tensor;
use half::{bf16, f16};

use super::super::device::{DeviceChoice, OpenDevice, open_device};
use super::super::model::linear::Linear;
use super::super::noise::{assert_close, assert_near, noise, values};
use super::super::weights::Weight;
use super::super::weights::quantise::quantise;
use super::delta::definition::Example;
use super::linear::dots::Dots;
use super::linear::panels::{Products, Rounded};
use super::*;

fn stored(values: &[f32], format: WeightFormat) -> Vec<u8> {
    match format {
        WeightFormat::Bf16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
        WeightFormat::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
        WeightFormat::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        _ => unreachable!("blocks are made of random bytes"),
    }
}

/// The formats whose numbers stand for themselves.
const PLAIN: [WeightFormat; 3] = [WeightFormat::Bf16, WeightFormat::F16, WeightFormat::F32];

/// Formats in blocks, where in a block its f16 scales are, and what makes its numbers at most about one.
const BLOCKS: [(WeightFormat, &[usize], f32); 10] = [
    (WeightFormat::Q4_0, &[0], 0.12),
    (WeightFormat::Q4_1, &[0, 2], 0.06),
    (WeightFormat::Q5_0, &[0], 0.06),
    (WeightFormat::Q5_1, &[0, 2], 0.03),
    (WeightFormat::Q8_0, &[0], 0.0078),
    (WeightFormat::Q4K, &[0, 2], 0.0009),
    (WeightFormat::Q5K, &[0, 2], 0.0005),
    (WeightFormat::Q6K, &[208], 0.00024),
    (WeightFormat::Fp8, &[], 0.002),
    (WeightFormat::Int4, &[0], 0.06),
];

fn formats() -> impl Iterator<Item = WeightFormat> {
    PLAIN.into_iter().chain(BLOCKS.map(|(format, _, _)| format))
}

/// A matrix of no pattern, as it is stored.
fn random(seed: u32, rows: usize, columns: usize, format: WeightFormat) -> Vec<u8> {
    let Some((_, scales, scale)) = BLOCKS.into_iter().find(|(block, _, _)| *block == format) else {
        return stored(&noise(seed, rows * columns), format);
    };
    let n = rows * format.row_bytes(columns);
    // FP8 has no infinities, and `packed.rs` refuses what isn't a number.
    let byte = |x: f32| (x.to_bits() >> 4) as u8 & if format == WeightFormat::Fp8 { 0xbf } else { 0xff };
    let mut bytes: Vec<u8> = noise(seed, n).into_iter().map(byte).collect();
    let block_bytes = format.row_bytes(1);
    for (block, factor) in bytes.chunks_exact_mut(block_bytes).zip(noise(seed + 1, n / block_bytes)) {
        for at in scales {
            block[*at..at + 2].copy_from_slice(&f16::from_f32(scale * factor).to_le_bytes());
        }
        match format {
            WeightFormat::Fp8 => block[..4].copy_from_slice(&(scale * factor).to_le_bytes()),
            WeightFormat::Int4 => block[2] %= 17,
            _ => {}
        }
    }
    bytes
}

/// Tiny, odd, not a multiple of any block, and the widths of real layers.
const SHAPES: [(usize, usize, usize); 8] = [
    (1, 1, 1),
    (1, 3, 5),
    (2, 7, 33),
    (1, 130, 65),
    (5, 17, 48),
    (4, 96, 100),
    (9, 200, 1024),
    (3, 70, 3584),
];

/// Rounding of an f32 sum of `columns` products, each at most 1: about the square root of the count in units
/// of the last place, with a factor of 8 for the unlucky.
fn tolerance(columns: usize) -> f32 {
    8.0 * (columns as f32).sqrt() * f32::EPSILON * 4.0
}

#[test]
fn linear_on_the_cpu_equals_its_definition() {
    for format in formats() {
        for (t, rows, columns) in SHAPES.into_iter().chain([(40, 30, 300)]) {
            let x = noise(1, t * columns);
            // One byte in front makes the weights unaligned, as they may be in a file.
            let bytes = [vec![0], random(2, rows, columns, format)].concat();
            let expected = linear::linear_scalar(&x, &bytes[1..], format, rows, columns);
            let got = linear::linear(&x, &bytes[1..], format, rows, columns);
            assert_close(&got, &expected, tolerance(columns), &format!("{format:?} {t}x{columns}x{rows}"));
        }
    }
}

/// Whole blocks of every instruction set, rests, and numbers of rows that fill no tile.
const DOT_SHAPES: [(usize, usize); 9] =
    [(1, 1), (3, 15), (16, 16), (5, 31), (33, 33), (17, 64), (31, 65), (7, 200), (30, 1024)];

#[test]
fn widening_gives_the_bits_of_its_definition() {
    for format in formats() {
        for columns in [1, 31, 32, 100, 256, 300, 1024] {
            let row = random(2, 1, columns, format);
            let (mut got, mut expected) = (vec![0.0; columns], vec![0.0; columns]);
            linear::widen(format, &row, &mut got);
            format.widen(&row, &mut expected);
            assert_eq!(got, expected, "{format:?} {columns}");
            assert!(
                expected.iter().any(|x| *x != 0.0) && expected.iter().all(|x| x.abs() < 4.0),
                "{format:?}"
            );
        }
    }
}

/// In panels: what rounding the tokens changed is known, so the products must be exact but for rounding of sums.
#[test]
fn every_instruction_set_multiplies_panels_as_they_are_defined() {
    for format in [WeightFormat::Q8Panels, WeightFormat::Q4Panels] {
        for (t, rows, columns) in SHAPES.into_iter().chain([(40, 30, 300), (2, 150, 64), (7, 300, 128)]) {
            let plain = Weight::from_f32(noise(2, rows * columns), vec![rows, columns]);
            let weight = quantise(&plain, format).unwrap().weight;
            let x = noise(1, t * columns);
            let rounded = Rounded::new(&x, columns);
            let seen = rounded.to_f32(columns);
            // 127 steps from 0 to the largest number.
            assert!(x.iter().zip(&seen).all(|(a, b)| (a - b).abs() <= 0.5 / 127.0 + 1e-6));
            let as_f32: Vec<u8> = weight.to_f32().iter().flat_map(|v| v.to_le_bytes()).collect();
            let expected = linear::linear_scalar(&seen, &as_f32, WeightFormat::F32, rows, columns);
            for products in Products::all(format) {
                let mut got = vec![0.0; t * rows];
                products.linear(&rounded, &weight.data, rows, &mut got);
                let what = format!("{products:?} {t}x{columns}x{rows}");
                assert_close(&got, &expected, tolerance(columns), &what);
                // A token's numbers don't depend on what stands beside it.
                let mut alone = vec![0.0; rows];
                products.linear(&Rounded::new(&x[..columns], columns), &weight.data, rows, &mut alone);
                assert_eq!(alone, got[..rows], "{what}");
            }
        }
    }
}

#[test]
fn what_is_no_number_stays_visible_in_products_of_panels() {
    let weight = quantise(&Weight::from_f32(noise(2, 32 * 128), vec![32, 128]), WeightFormat::Q8Panels);
    let weight = weight.unwrap().weight;
    for bad in [f32::NAN, f32::INFINITY] {
        let mut x = noise(1, 128);
        x[100] = bad;
        let y = linear::linear(&x, &weight.data, weight.format, 32, 128);
        assert!(y.iter().all(|y| y.is_nan()));
    }
    let y = linear::linear(&[0.0; 128], &weight.data, weight.format, 32, 128);
    assert!(y.iter().all(|y| *y == 0.0));
}

#[test]
fn every_instruction_set_gives_the_same_dot_products() {
    for format in PLAIN {
        for (rows, columns) in DOT_SHAPES {
            let weight = stored(&noise(4, rows * columns), format);
            for t in 1..=4 {
                let x = noise(3, t * columns);
                let expected = linear::linear_scalar(&x, &weight, format, rows, columns);
                for dots in Dots::all(format) {
                    let mut sums = vec![0.0; rows * t];
                    dots.products(&weight, &dots.arrange(&x, columns), columns, &mut sums);
                    // They come row by row, the definition's token by token.
                    let by_token: Vec<f32> =
                        (0..t).flat_map(|i| sums[i..].iter().step_by(t).copied()).collect();
                    assert_close(
                        &by_token,
                        &expected,
                        tolerance(columns),
                        &format!("{dots:?} {rows}x{columns}"),
                    );
                }
            }
        }
    }
}

#[test]
fn a_token_gets_the_same_bits_alone_and_in_company() {
    for format in PLAIN {
        for (rows, columns) in DOT_SHAPES {
            let weight = stored(&noise(4, rows * columns), format);
            let x = noise(10, 4 * columns);
            for dots in Dots::all(format) {
                let products = |x: &[f32], rows: usize| {
                    let mut sums = vec![0.0; rows * (x.len() / columns)];
                    dots.products(&weight, &dots.arrange(x, columns), columns, &mut sums);
                    sums
                };
                for (t, token) in (1..=4).flat_map(|t| (0..t).map(move |token| (t, token))) {
                    let together = products(&x[..t * columns], rows);
                    let alone = products(&x[token * columns..(token + 1) * columns], rows);
                    let together: Vec<f32> = together[token..].iter().step_by(t).copied().collect();
                    assert_eq!(together, alone, "{dots:?} {columns}, token {token} of {t}");
                    assert_eq!(
                        products(&x[..columns], 1),
                        products(&x[..columns], rows)[..1],
                        "{dots:?} {columns}"
                    );
                }
            }
        }
    }
    for format in formats() {
        let (t, rows, columns) = (7, 70, 300);
        let weight = random(2, rows, columns, format);
        let x = noise(1, t * columns);
        let alone: Vec<f32> =
            x.chunks_exact(columns).flat_map(|x| linear::linear(x, &weight, format, rows, columns)).collect();
        assert_eq!(linear::linear(&x, &weight, format, rows, columns), alone, "{format:?}");
    }
}

#[test]
fn linear_on_the_gpu_equals_its_definition() {
    let device =
        open_device(DeviceChoice::Gpu(None)).expect("a Vulkan driver; .ci/run installs a software one");
    for format in formats() {
        // Blocks become f32 before they reach the GPU, so a few shapes tell all there is to know.
        let shapes = if format.is_plain() { &SHAPES[..] } else { &[(1, 3, 5), (5, 17, 300)] };
        for (t, rows, columns) in shapes.iter().copied() {
            let x = noise(1, t * columns);
            let bytes = random(2, rows, columns, format);
            let expected = linear::linear_scalar(&x, &bytes, format, rows, columns);
            let weight = Weight { format, shape: vec![rows, columns], data: bytes.into() };
            let linear = Linear::new(weight, &device);
            let x = Tensor::<1>::from_floats(x.as_slice(), &device.tensors).reshape([t, columns]);
            let got: Vec<f32> = linear.forward(x).into_data().try_to_vec().unwrap();
            assert_close(&got, &expected, tolerance(columns), &format!("{format:?} {t}x{columns}x{rows}"));
        }
    }
}

#[test]
fn panels_on_the_gpu_are_read_as_they_are_defined() {
    let device =
        open_device(DeviceChoice::Gpu(None)).expect("a Vulkan driver; .ci/run installs a software one");
    for format in [WeightFormat::Q8Panels, WeightFormat::Q4Panels] {
        // Few tokens, and enough for widened tiles; the last in blocks of one panel.
        for (t, rows, columns, max_buffer_bytes) in
            [(1, 16, 64, 1 << 20), (3, 35, 200, 1 << 20), (6, 70, 130, 1 << 20), (2, 40, 100, 1)]
        {
            let plain = Weight::from_f32(noise(2, rows * columns), vec![rows, columns]);
            let weight = quantise(&plain, format).unwrap().weight;
            let x = noise(1, t * columns);
            let as_f32: Vec<u8> = weight.to_f32().iter().flat_map(|v| v.to_le_bytes()).collect();
            let expected = linear::linear_scalar(&x, &as_f32, WeightFormat::F32, rows, columns);
            let device = OpenDevice { max_buffer_bytes, ..device.clone() };
            let linear = Linear::new(weight, &device);
            let x = Tensor::<1>::from_floats(x.as_slice(), &device.tensors).reshape([t, columns]);
            let got = values(linear.forward(x));
            assert_close(&got, &expected, tolerance(columns), &format!("{format:?} {t}x{columns}x{rows}"));
        }
    }
}

#[test]
fn a_weight_cut_into_blocks_gives_the_same_product() {
    for choice in [DeviceChoice::Cpu, DeviceChoice::Gpu(None)] {
        let device = open_device(choice).expect("a Vulkan driver; .ci/run installs a software one");
        for (format, t, rows, columns) in
            [(WeightFormat::Bf16, 1, 21, 33), (WeightFormat::F32, 6, 50, 16), (WeightFormat::Q6K, 3, 9, 256)]
        {
            let x = noise(1, t * columns);
            let bytes = random(2, rows, columns, format);
            let expected = linear::linear_scalar(&x, &bytes, format, rows, columns);
            // Blocks begin anywhere in a file, and each of these has an odd number of words.
            let data = bytes::Bytes::from([vec![0, 0], bytes].concat()).slice(2..);
            let weight = Weight { format, shape: vec![rows, columns], data };
            // Room for four rows, or for less than one: then a block holds two all the same.
            for max_buffer_bytes in [4 * columns * 4, 1] {
                let device = OpenDevice { max_buffer_bytes, ..device.clone() };
                let linear = Linear::new(weight.clone(), &device);
                let x = Tensor::<1>::from_floats(x.as_slice(), &device.tensors).reshape([t, columns]);
                let got: Vec<f32> = linear.forward(x).into_data().try_to_vec().unwrap();
                assert_close(&got, &expected, tolerance(columns), &format!("{format:?} on {}", device.name));
            }
        }
    }
}

#[test]
fn substitution_solves_the_system_on_both_devices() {
    let gpu = open_device(DeviceChoice::Gpu(None)).expect("a Vulkan driver; .ci/run installs a software one");
    let cpu = open_device(DeviceChoice::Cpu).unwrap();
    for (b, n, m) in [(1, 1, 1), (2, 5, 3), (3, 64, 40), (2, 16, 100)] {
        let a = noise(5, b * n * n);
        let expected = noise(6, b * n * m);
        // The right side is made from the answer, in f64: rhs = x + strictly_lower(a) x. Halving `a` keeps the
        // answer well conditioned at n = 64.
        let a: Vec<f32> = a.iter().map(|v| v / 16.0).collect();
        let mut rhs = vec![0.0; b * n * m];
        for (s, i, c) in (0..b).flat_map(|s| (0..n).flat_map(move |i| (0..m).map(move |c| (s, i, c)))) {
            let x = |j: usize| f64::from(expected[(s * n + j) * m + c]);
            let below: f64 = (0..i).map(|j| f64::from(a[(s * n + i) * n + j]) * x(j)).sum();
            rhs[(s * n + i) * m + c] = (x(i) + below) as f32;
        }
        for device in [&cpu, &gpu] {
            let tensor =
                |v: &[f32], shape: [usize; 3]| Tensor::<1>::from_floats(v, &device.tensors).reshape(shape);
            let x = solve::solve_unit_lower(tensor(&a, [b, n, n]), tensor(&rhs, [b, n, m]));
            let got: Vec<f32> = x.into_data().try_to_vec().unwrap();
            assert_close(&got, &expected, 2e-5, &format!("{b} systems of {n}x{m} on {}", device.name));
        }
    }
}

#[test]
fn delta_steps_follow_the_rule_on_both_devices() {
    let gpu = open_device(DeviceChoice::Gpu(None)).expect("a Vulkan driver; .ci/run installs a software one");
    let cpu = open_device(DeviceChoice::Cpu).unwrap();
    for dims in
        [[1, 1, 1, 1, 1], [3, 2, 4, 16, 16], [9, 3, 3, 24, 17], [5, 2, 6, 32, 80], [2, 1, 2, 128, 128]]
    {
        let [t, _, _, d_k, _] = dims;
        for n_decays in [1, d_k] {
            let example = Example::new(dims, n_decays);
            let (expected, expected_state) = example.outputs();
            for device in [&cpu, &gpu] {
                let (before, input) = example.on(device);
                let (o, after) = delta::delta_steps(input.clone(), before.clone());
                let what = format!("{dims:?} with {n_decays} decays on {}", device.name);
                assert_near(o.clone(), &expected, 2e-6, &what);
                assert_near(after.clone(), &expected_state, 2e-6, &what);
                // A state that is still held elsewhere is not changed, and one token at a time gives the same bits.
                assert_eq!(values(before.clone()), example.state, "{what}");
                let mut alone = before;
                let mut outputs = Vec::new();
                for token in 0..t {
                    let one = delta::RuleInput {
                        q: input.q.clone().narrow(0, token, 1),
                        k: input.k.clone().narrow(0, token, 1),
                        v: input.v.clone().narrow(0, token, 1),
                        g: input.g.clone().narrow(0, token, 1),
                        beta: input.beta.clone().narrow(0, token, 1),
                    };
                    let (o, next) = delta::delta_steps(one, alone);
                    outputs.push(o);
                    alone = next;
                }
                assert_eq!(values(Tensor::cat(outputs, 0)), values(o), "{what}");
                assert_eq!(values(alone), values(after), "{what}");
            }
        }
    }
}
