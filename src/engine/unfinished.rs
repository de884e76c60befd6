//! Files in the making: they have another name until they are whole, and what killed programs leave is removed later.

use std::fs;
use std::path::Path;
use std::time::Duration;

pub const EXTENSION: &str = "part";
/// After this time an unfinished file is of a program that was killed.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Removes the unfinished files of a folder to which nobody has written for a while.
pub fn remove_old(folder: &Path) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let age = path.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if path.extension().is_some_and(|e| e == EXTENSION) && age.is_some_and(|age| age > KEPT_FOR) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_old_unfinished_files_go() {
        let dir = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - 2 * KEPT_FOR;
        for (name, modified) in [("new.part", SystemTime::now()), ("old.part", old), ("old.state", old)] {
            File::create(dir.path().join(name)).unwrap().set_modified(modified).unwrap();
        }
        remove_old(dir.path());
        let has = |name: &str| dir.path().join(name).exists();
        assert!(has("new.part") && !has("old.part") && has("old.state"));
    }
}
