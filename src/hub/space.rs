//! How much room a disk has.

use std::path::Path;

/// Bytes that may still be written to the disk that holds `folder`; `None` if the system doesn't say.
#[cfg(unix)]
pub fn free(folder: &Path) -> Option<u64> {
    // The folder may not be there yet; its nearest ancestor that is, is on the same disk.
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let stat = rustix::fs::statvfs(there).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

#[cfg(not(unix))]
pub fn free(_folder: &Path) -> Option<u64> {
    None
}

/// Left free beside what is fetched: a twentieth of it, at most half a gibibyte.
pub fn margin(bytes: u64) -> u64 {
    (bytes / 20).min(512 << 20)
}
