//! One process at a time fetches a file: the lock files that all of the Hub's tools use, in `.locks` of the cache.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Held until it is dropped, or the process ends in whatever way.
pub struct Lock {
    _file: Option<File>,
}

impl Lock {
    /// Waits for it without holding up a thread; `waiting` is called once if another process has it.
    ///
    /// # Errors
    /// If the lock file can't be made.
    pub async fn take(path: &Path, poll: Duration, waiting: impl FnOnce()) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        let mut waiting = Some(waiting);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: Some(file) }),
                Err(TryLockError::WouldBlock) => {}
                // A file system without locks: two processes may then do the same work, each checked by its hash.
                Err(TryLockError::Error(_)) => return Ok(Self { _file: None }),
            }
            if let Some(waiting) = waiting.take() {
                waiting();
            }
            tokio::time::sleep(poll).await;
        }
    }
}
