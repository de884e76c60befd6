use super::*;
use crate::engine::golden::Tensors;

#[test]
fn blocks_are_read_as_the_gguf_package_reads_them() {
    let file = Tensors::open("formats", "blocks.safetensors");
    let types = [
        ("Q4_0", WeightFormat::Q4_0),
        ("Q4_1", WeightFormat::Q4_1),
        ("Q5_0", WeightFormat::Q5_0),
        ("Q5_1", WeightFormat::Q5_1),
        ("Q8_0", WeightFormat::Q8_0),
        ("Q4_K", WeightFormat::Q4K),
        ("Q5_K", WeightFormat::Q5K),
        ("Q6_K", WeightFormat::Q6K),
    ];
    for (name, format) in types {
        let blocks: Vec<u8> = file.values(&format!("{name}.blocks")).iter().map(|b| *b as u8).collect();
        let expected: Vec<u32> =
            file.values(&format!("{name}.values")).iter().map(|x| (*x as f32).to_bits()).collect();
        let mut got = vec![0.0; expected.len()];
        format.widen(&blocks, &mut got);
        assert_eq!(got.into_iter().map(f32::to_bits).collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn scales_of_every_size_are_read() {
    for bits in 0..=u16::MAX {
        let (got, expected) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
        assert!(got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(), "{bits:#x}");
    }
}

#[test]
fn the_last_block_of_a_row_may_be_wanted_in_part() {
    let mut row = vec![0; WeightFormat::Q8_0.row_bytes(40)];
    for (i, block) in row.chunks_exact_mut(34).enumerate() {
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[2..].iter_mut().enumerate().for_each(|(j, q)| *q = (32 * i + j) as u8);
    }
    let mut values = vec![0.0; 40];
    WeightFormat::Q8_0.widen(&row, &mut values);
    assert_eq!(values, (0..40).map(|i| i as f32 / 2.0).collect::<Vec<_>>());
}
