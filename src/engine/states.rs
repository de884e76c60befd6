//! Saved states: caches of earlier conversations in a folder, so that nothing is read twice, not even after the
//! program has ended.
//!
//! A file is found by the tokens it begins with, so it serves every prompt that begins alike. Its name has the model
//! it is of and a checksum: a file of another model, another version of the mathematics or with a damaged byte is
//! never used, the prompt is then read as if there were none. The folder has a budget; what was not used for the
//! longest time goes first.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::cache::saved::{self, Head};
use super::cache::{Cache, Checkpoint, TokenKey};
use super::unfinished;
use super::weights;
use crate::private;
use crate::units::hex;

/// Bytes of all files together.
const BUDGET_BYTES: u64 = 4 << 30;
/// Checkpoints per file: the end of the last prompt, and what came before it for a prompt that ends otherwise.
pub const CHECKPOINTS: usize = 3;
/// A file has to save at least this many tokens, or reading them is as quick.
const MIN_GAIN_TOKENS: usize = 32;
/// To be changed with anything that changes what a cache holds for the same tokens.
const VERSION: u32 = 1;
const EXTENSION: &str = "state";
/// Bytes whose checksum is made by one task.
const CHUNK: usize = 16 << 20;

/// Where states are saved, and which.
#[derive(Debug, Clone)]
pub struct StateOptions {
    pub folder: PathBuf,
    /// Only what took longer than this to read.
    pub worth: Duration,
}

pub struct States {
    pub options: StateOptions,
    /// For the fingerprint, which is made when it is first wanted.
    checkpoint: Rc<weights::Checkpoint>,
    device: String,
    model: OnceCell<String>,
}

/// A file from which a prompt can go on.
pub struct Found {
    path: PathBuf,
    /// How many of the prompt's tokens it has read.
    pub len: usize,
}

impl States {
    /// `device` because the same tokens give slightly other numbers on another one.
    pub fn new(options: StateOptions, checkpoint: Rc<weights::Checkpoint>, device: &str) -> Self {
        Self { options, checkpoint, device: device.to_owned(), model: OnceCell::new() }
    }

    /// What tells this model's files from others'.
    fn model(&self) -> &str {
        self.model.get_or_init(|| {
            let mut hash = Sha256::new();
            hash.update(format!("{VERSION} {} {}\n", env!("CARGO_PKG_VERSION"), self.device));
            hash.update(self.checkpoint.fingerprint());
            hex(&hash.finalize()[..8])
        })
    }

    /// The file that has read most of a prompt, if it has read more than `at_least` tokens of it.
    pub fn find(&self, keys: &[TokenKey], at_least: usize) -> Option<Found> {
        // Most turns continue what is in memory: then no file needs to be opened.
        if keys.len() - 1 < at_least + MIN_GAIN_TOKENS {
            return None;
        }
        let mut best: Option<Found> = None;
        for (path, head) in self.mine() {
            let common = head.keys.iter().zip(keys).take_while(|(a, b)| a == b).count();
            let len = head.reach(common.min(keys.len() - 1));
            if len >= best.as_ref().map_or(at_least + MIN_GAIN_TOKENS, |best| best.len + 1) {
                best = Some(Found { path, len });
            }
        }
        best
    }

    /// Fills `cache` from a file. A damaged one is removed, and the cache is empty then.
    pub fn restore(&self, found: &Found, cache: &mut Cache) -> Option<Vec<Checkpoint>> {
        let map = weights::map_file(&found.path).ok()?;
        let restored = match name(self.model(), &map) == found.path.file_name()?.to_string_lossy() {
            true => saved::read(&map, found.len, cache),
            false => None,
        };
        match &restored {
            None => drop(fs::remove_file(&found.path)),
            // What was used lately is removed last.
            Some(_) => drop(File::open(&found.path).and_then(|f| f.set_modified(SystemTime::now()))),
        }
        restored
    }

    /// Writes a file. Those whose tokens it continues are removed, and others until the budget holds.
    ///
    /// # Errors
    /// If there is no file then. It would have saved time; nothing else is lost.
    pub fn save(&self, cache: &Cache, checkpoints: &[Checkpoint]) -> io::Result<()> {
        let folder = &self.options.folder;
        private::create_folder(folder)?;
        unfinished::remove_old(folder);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let unfinished = folder.join(format!("{}-{number}.{}", std::process::id(), unfinished::EXTENSION));
        let written = saved::write(cache, checkpoints, self.model(), &unfinished).map_err(io::Error::other);
        let finished = written.and_then(|()| self.finish(&unfinished, cache, checkpoints));
        if finished.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        finished
    }

    fn finish(&self, unfinished: &Path, cache: &Cache, checkpoints: &[Checkpoint]) -> io::Result<()> {
        make_private(unfinished)?;
        let file = File::open(unfinished)?;
        let bytes = file.metadata()?.len();
        if bytes > BUDGET_BYTES {
            return Err(io::Error::other("the state is larger than the budget"));
        }
        let name = name(self.model(), &weights::map_file(unfinished).map_err(io::Error::other)?);
        let tokens = &cache.tokens()[..checkpoints.last().map_or(0, Checkpoint::len)];
        for (path, head) in self.mine() {
            if tokens.starts_with(&head.keys) {
                let _ = fs::remove_file(path);
            }
        }
        self.make_room(bytes);
        fs::rename(unfinished, self.options.folder.join(name))
    }

    /// The files of this model that can be read.
    fn mine(&self) -> impl Iterator<Item = (PathBuf, Head)> {
        // Without a folder there is no need for the fingerprint.
        files(&self.options.folder, EXTENSION).filter_map(|path| {
            let is_mine = path.file_name()?.to_str()?.starts_with(self.model());
            let head = is_mine.then(|| Head::read(&weights::map_file(&path).ok()?)).flatten()?;
            (head.model == self.model()).then_some((path, head))
        })
    }

    /// Removes the files that were not used for the longest time, until there is room for `bytes` more.
    fn make_room(&self, bytes: u64) {
        let mut all: Vec<(SystemTime, u64, PathBuf)> = files(&self.options.folder, EXTENSION)
            .filter_map(|path| {
                let metadata = path.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), path))
            })
            .collect();
        all.sort();
        let mut total: u64 = all.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, size, path) in all {
            if total + bytes <= BUDGET_BYTES {
                break;
            }
            let _ = fs::remove_file(path);
            total -= size;
        }
    }
}

fn files(folder: &Path, extension: &'static str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(move |path| path.extension().is_some_and(|e| e == extension))
}

/// Checksums of parts and a checksum of those, so that a large file is checked by all cores.
fn name(model: &str, file: &[u8]) -> String {
    let parts: Vec<[u8; 32]> = file.par_chunks(CHUNK).map(|chunk| Sha256::digest(chunk).into()).collect();
    format!("{model}-{}.{EXTENSION}", hex(&Sha256::digest(parts.concat())[..8]))
}

/// What was said in a conversation is its user's alone.
#[cfg(unix)]
fn make_private(file: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn make_private(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests;
