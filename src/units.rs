//! Quantities and checksums as people read them.

use std::fmt;

/// `1 file`, `2 files`.
pub fn n_files(n: usize) -> String {
    format!("{n} {}", if n == 1 { "file" } else { "files" })
}

/// Bytes as checksums are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number of bytes for people, with three digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut size = self.0 as f64;
        let mut unit = 0;
        // 1023.6 would be written as 1024.
        while size >= 1023.5 && unit + 1 < UNITS.len() {
            size /= 1024.0;
            unit += 1;
        }
        let decimals = match unit {
            0 => 0,
            _ if size < 9.995 => 2,
            _ if size < 99.95 => 1,
            _ => 0,
        };
        f.pad(&format!("{size:.decimals$} {}", UNITS[unit]))
    }
}
