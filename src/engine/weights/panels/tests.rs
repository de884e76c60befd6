use super::*;

/// Every place of a matrix, also of one that fills no panel and no block, has the number that was put there.
#[test]
fn what_is_put_into_a_place_is_read_there() {
    for (format, most) in [(WeightFormat::Q8Panels, 255), (WeightFormat::Q4Panels, 15)] {
        for (rows, columns) in [(1, 1), (16, 64), (17, 65), (35, 200)] {
            let mut matrix = vec![0; bytes(format, rows, columns)];
            let u = |row: usize, column: usize| ((row * 7 + column * 3) % (most + 1)) as u8;
            for row in 0..rows {
                let panel = panel_bytes(format, columns);
                let panel = &mut matrix[row / ROWS * panel..][..panel];
                for (i, block) in panel.chunks_exact_mut(block_bytes(format)).enumerate() {
                    let columns = i * BLOCK..columns.min((i + 1) * BLOCK);
                    let numbers: Vec<u8> = columns.map(|column| u(row, column)).collect();
                    // Powers of two have exact products.
                    let min = if most == 15 { -(row as f32) } else { 0.0 };
                    put(format, block, row % ROWS, 0.5 + row as f32, f16::from_f32(min), &numbers);
                }
            }
            let mut got = vec![0.0; rows * columns];
            widen_rows(format, &matrix, 0..rows, columns, &mut got);
            for (i, got) in got.into_iter().enumerate() {
                let (row, column) = (i / columns, i % columns);
                let u = f32::from(u(row, column));
                let expected = match format {
                    WeightFormat::Q8Panels => (0.5 + row as f32) * (u - 128.0),
                    _ => (0.5 + row as f32) * u - row as f32,
                };
                assert_eq!(got, expected, "{format:?} {rows}x{columns} at {row},{column}");
            }
        }
    }
}

#[test]
fn sizes_are_those_of_the_description() {
    // 1024 x 1024 weights: bits per weight times that.
    assert_eq!(bytes(WeightFormat::Q8Panels, 1024, 1024) * 8, 17 * 512 * 1024);
    assert_eq!(bytes(WeightFormat::Q4Panels, 1024, 1024) * 8, 9 * 512 * 1024);
    assert_eq!(bytes(WeightFormat::Q4Panels, 17, 65), 2 * 2 * 576);
}
