//! The file system, as far as attaching needs it: what is in a folder, which files are below one, whether a
//! path is a file's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::paths::is_picture;
use crate::sanitize::{clean, one_line};

/// More entries than anybody scrolls through.
const MAX_ENTRIES: usize = 5_000;
const MAX_DEPTH: usize = 6;

/// Folders that builds and package managers fill; nobody attaches from there.
const SKIPPED: [&str; 3] = ["target", "node_modules", "__pycache__"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    pub path: PathBuf,
    /// Cleaned.
    pub name: String,
    pub is_folder: bool,
    pub n_bytes: u64,
}

/// Folders and pictures, folders first, each by name; what is hidden is left out.
///
/// # Errors
/// A sentence when the folder can't be read.
pub fn list(folder: &Path) -> Result<Vec<FolderEntry>, String> {
    let read = fs::read_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => "this folder may not be read".to_owned(),
        _ => format!("this folder can't be read: {error}"),
    })?;
    let mut entries: Vec<FolderEntry> = read.flatten().filter_map(offered).take(MAX_ENTRIES).collect();
    entries.sort_by_key(|entry| (!entry.is_folder, entry.name.to_lowercase()));
    Ok(entries)
}

fn offered(entry: fs::DirEntry) -> Option<FolderEntry> {
    let path = entry.path();
    let name = entry.file_name().to_string_lossy().into_owned();
    // By its name first: looking at every file of a large folder takes long.
    let may_be_folder = entry.file_type().is_ok_and(|kind| !kind.is_file());
    if name.starts_with('.') || !(may_be_folder || is_picture(&path)) {
        return None;
    }
    // Follows links, as opening the file will.
    let meta = fs::metadata(&path).ok()?;
    if !(meta.is_dir() || (meta.is_file() && is_picture(&path))) {
        return None;
    }
    let name = one_line(&name);
    Some(FolderEntry { path, name, is_folder: meta.is_dir(), n_bytes: meta.len() })
}

/// The files below a folder, by their paths from it, those near it first.
pub fn below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut level = vec![String::new()];
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for prefix in level {
            let Ok(read) = fs::read_dir(folder.join(&prefix)) else { continue };
            let mut entries: Vec<(String, bool)> =
                read.flatten().filter_map(|entry| visible(&entry)).take(MAX_ENTRIES).collect();
            entries.sort();
            for (name, is_folder) in entries {
                if found.len() + next.len() >= MAX_ENTRIES {
                    return found;
                }
                if is_folder {
                    next.push(format!("{prefix}{name}/"));
                } else {
                    found.push(format!("{prefix}{name}"));
                }
            }
        }
        level = next;
    }
    found
}

/// Name and whether it is a folder; nothing for what isn't offered. A name that a terminal would not show as
/// it is can't be typed back either.
fn visible(entry: &fs::DirEntry) -> Option<(String, bool)> {
    let name = entry.file_name().into_string().ok()?;
    // Links to folders aren't followed: they may lead back up.
    let kind = entry.file_type().ok()?;
    let skipped = name.starts_with('.')
        || name.contains(['\n', '\t'])
        || clean(&name) != name
        || (kind.is_dir() && SKIPPED.contains(&name.as_str()));
    (!skipped).then(|| (name, kind.is_dir()))
}

/// The first reading of a paste of which every path is a file.
pub fn existing(readings: Vec<Vec<PathBuf>>) -> Option<Vec<PathBuf>> {
    readings.into_iter().find(|paths| paths.iter().all(|path| path.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        dir
    }

    #[test]
    fn a_folder_shows_folders_and_pictures() {
        let dir = folder(&["b.png", "A.jpg", "notes.txt", ".hidden.png", "z/c.png", ".git/x.png"]);
        let entries = list(dir.path()).unwrap();
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["z", "A.jpg", "b.png"]);
        assert!(list(&dir.path().join("nowhere")).unwrap_err().contains("can't be read"));
    }

    #[test]
    fn files_below_a_folder_come_nearest_first_without_builds_and_hidden_ones() {
        let dir =
            folder(&["src/a.rs", "z.png", "target/x.png", ".git/y", "src/deep/b.png", "1/2/3/4/5/6/7.png"]);
        assert_eq!(below(dir.path()), ["z.png", "src/a.rs", "src/deep/b.png"]);
        let many: Vec<String> = (0..MAX_ENTRIES + 10).map(|n| format!("{n}.txt")).collect();
        let names: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(below(folder(&names).path()).len(), MAX_ENTRIES);
    }

    #[test]
    fn a_paste_is_files_only_if_all_of_them_are() {
        let dir = folder(&["a b.png"]);
        let (there, gone) = (dir.path().join("a b.png"), dir.path().join("b.png"));
        let readings = vec![vec![there.clone(), gone.clone()], vec![there.clone()]];
        assert_eq!(existing(readings), Some(vec![there]));
        assert_eq!(existing(vec![vec![gone], vec![dir.path().into()]]), None);
    }
}
