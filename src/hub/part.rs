//! A file on its way: what has arrived of it, where, and what it hashes to so far.
//!
//! The bytes are at their places in `HASH.loquat.part`; `HASH.loquat.progress` beside it counts those of each piece.
//! A count is written after the bytes that it counts, so a process that is killed loses what was on the wire and
//! nothing else. A machine that loses power may lose bytes whose count was kept: then the hash is wrong, and the file
//! is fetched anew.
//! Knows nothing of networks.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::names::Hash;
use crate::units::hex;

/// How the names end.
const PART: &str = ".loquat.part";
const PROGRESS: &str = ".loquat.progress";
/// Begins a file of counts; the number is that of its layout.
const MAGIC: &[u8; 8] = b"loquat 1";
const HEADER_BYTES: u64 = 24;
const COUNT_BYTES: u64 = 4;
/// Written bytes are given to the disk at least this often.
const SYNC_BYTES: u64 = 64 << 20;
/// Read at a time to be hashed.
const HASH_CHUNK: usize = 1 << 20;

pub struct Part {
    path: PathBuf,
    progress_path: PathBuf,
    file: File,
    progress: File,
    size: u64,
    piece_bytes: u32,
    counts: Vec<AtomicU32>,
    unsynced: Mutex<u64>,
    /// Something new is there to be hashed, or nobody wants the hash any more.
    grown: Condvar,
    grown_lock: Mutex<()>,
    abandoned: AtomicBool,
}

impl Part {
    /// Goes on with what is there of the file, or begins.
    ///
    /// # Errors
    /// If the files can't be opened or written.
    pub fn open(blobs: &Path, hash: &Hash, size: u64, piece_bytes: u32) -> io::Result<Self> {
        let beside = |ending: &str| blobs.join(format!("{}{ending}", hash.as_str()));
        let (path, progress_path) = (beside(PART), beside(PROGRESS));
        let open =
            |path: &Path| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let (file, mut progress) = (open(&path)?, open(&progress_path)?);
        let (piece_bytes, counts) = match read_counts(&mut progress, size) {
            Some(found) => found,
            None => {
                file.set_len(0)?;
                begin(&mut progress, size, piece_bytes)?;
                (piece_bytes, vec![0; n_pieces(size, piece_bytes)])
            }
        };
        let part = Self {
            path,
            progress_path,
            file,
            progress,
            size,
            piece_bytes,
            counts: counts.into_iter().map(AtomicU32::new).collect(),
            unsynced: Mutex::new(0),
            grown: Condvar::new(),
            grown_lock: Mutex::new(()),
            abandoned: AtomicBool::new(false),
        };
        part.forget_what_is_missing()?;
        Ok(part)
    }

    /// Bytes that were counted must be in the file.
    fn forget_what_is_missing(&self) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        for piece in 0..self.counts.len() {
            let (start, end) = self.range(piece);
            let count = u64::from(self.count(piece));
            if count > end - start || (count > 0 && start + count > len) {
                self.counts[piece].store(0, Ordering::Release);
                self.write_count(piece)?;
            }
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn n_pieces(&self) -> usize {
        self.counts.len()
    }

    /// Where a piece begins and ends.
    pub fn range(&self, piece: usize) -> (u64, u64) {
        let start = piece as u64 * u64::from(self.piece_bytes);
        (start, (start + u64::from(self.piece_bytes)).min(self.size))
    }

    fn count(&self, piece: usize) -> u32 {
        self.counts[piece].load(Ordering::Acquire)
    }

    /// What is missing of a piece: from where to where.
    pub fn missing(&self, piece: usize) -> Option<(u64, u64)> {
        let (start, end) = self.range(piece);
        let next = start + u64::from(self.count(piece));
        (next < end).then_some((next, end))
    }

    /// Bytes that are there.
    pub fn done_bytes(&self) -> u64 {
        (0..self.counts.len()).map(|piece| u64::from(self.count(piece))).sum()
    }

    /// Writes bytes that begin at `offset` of the file, as far as they go on where a piece ends so far. Says how many
    /// of them were new.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub fn write(&self, mut offset: u64, mut bytes: &[u8]) -> io::Result<u64> {
        let mut n_new = 0;
        while !bytes.is_empty() && offset < self.size {
            let piece = usize::try_from(offset / u64::from(self.piece_bytes)).map_err(io::Error::other)?;
            let (_, end) = self.range(piece);
            let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(bytes.len());
            let (here, rest) = bytes.split_at(room);
            if let Some((next, _)) = self.missing(piece)
                && next >= offset
                && next < offset + here.len() as u64
            {
                let new = &here[(next - offset) as usize..];
                write_at(&self.file, next, new)?;
                self.counts[piece].fetch_add(new.len() as u32, Ordering::Release);
                self.write_count(piece)?;
                n_new += new.len() as u64;
            }
            (offset, bytes) = (offset + here.len() as u64, rest);
        }
        self.wake();
        Ok(n_new)
    }

    fn write_count(&self, piece: usize) -> io::Result<()> {
        let at = HEADER_BYTES + COUNT_BYTES * piece as u64;
        write_at(&self.progress, at, &self.count(piece).to_le_bytes())
    }

    /// Whether so much was written that the disk should have it.
    pub fn wants_sync(&self, n_new: u64) -> bool {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        *unsynced += n_new;
        let wants = *unsynced >= SYNC_BYTES;
        if wants {
            *unsynced = 0;
        }
        wants
    }

    /// Gives what was written to the disk, bytes before counts.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.progress.sync_data()
    }

    /// Hashes the file while it grows, and waits until it is whole. `None` if it was abandoned.
    ///
    /// # Errors
    /// If what was written can't be read.
    pub fn hash(&self, expected: &Hash) -> io::Result<Option<String>> {
        let mut hasher = Hasher::new(expected, self.size);
        let mut file = File::open(&self.path)?;
        let mut buffer = vec![0; HASH_CHUNK];
        let (mut hashed, mut piece) = (0, 0);
        while hashed < self.size {
            let Some(until) = self.wait_beyond(hashed, &mut piece) else { return Ok(None) };
            while hashed < until {
                let room = usize::try_from(until - hashed).unwrap_or(HASH_CHUNK).min(HASH_CHUNK);
                file.read_exact(&mut buffer[..room])?;
                hasher.update(&buffer[..room]);
                hashed += room as u64;
                if self.abandoned.load(Ordering::Acquire) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(hasher.finish()))
    }

    /// The end of what is there without a gap, once that is more than `hashed`.
    fn wait_beyond(&self, hashed: u64, piece: &mut usize) -> Option<u64> {
        let mut guard = self.grown_lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.abandoned.load(Ordering::Acquire) {
                return None;
            }
            while *piece + 1 < self.counts.len() && self.missing(*piece).is_none() {
                *piece += 1;
            }
            let until = self.range(*piece).0 + u64::from(self.count(*piece));
            if until > hashed {
                return Some(until);
            }
            guard = self.grown.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nobody wants the hash any more.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // Held, so that a wait that has just looked can't miss it.
        let _guard = self.grown_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.grown.notify_all();
    }

    /// The whole file takes its name, and both names are on the disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn finish(&self, blob: &Path) -> io::Result<()> {
        self.file.set_len(self.size)?;
        self.file.sync_all()?;
        std::fs::rename(&self.path, blob)?;
        let _ = std::fs::remove_file(&self.progress_path);
        sync_folder(blob.parent().unwrap_or(Path::new(".")));
        Ok(())
    }

    /// Throws away what arrived: it was wrong.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn discard(&self) -> io::Result<()> {
        std::fs::remove_file(&self.progress_path)?;
        std::fs::remove_file(&self.path)
    }
}

/// Whether a file in a folder of blobs is one that isn't complete.
pub fn is_part(name: &str) -> bool {
    name.ends_with(PART)
}

/// Bytes that earlier tries left of a file.
pub fn bytes_left(blobs: &Path, hash: &Hash, size: u64) -> u64 {
    let path = blobs.join(format!("{}{PROGRESS}", hash.as_str()));
    let counts = File::open(path).ok().and_then(|mut file| read_counts(&mut file, size));
    counts.map_or(0, |(_, counts)| counts.into_iter().map(u64::from).sum::<u64>().min(size))
}

/// A folder's list of names, as far as the system lets us.
pub fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

fn n_pieces(size: u64, piece_bytes: u32) -> usize {
    usize::try_from(size.div_ceil(u64::from(piece_bytes))).unwrap_or(usize::MAX)
}

fn begin(progress: &mut File, size: u64, piece_bytes: u32) -> io::Result<()> {
    progress.set_len(0)?;
    progress.seek(SeekFrom::Start(0))?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(size.to_le_bytes());
    bytes.extend(u64::from(piece_bytes).to_le_bytes());
    bytes.resize(bytes.len() + n_pieces(size, piece_bytes) * COUNT_BYTES as usize, 0);
    progress.write_all(&bytes)
}

/// `None` if they are not those of a file of this size.
fn read_counts(progress: &mut File, size: u64) -> Option<(u32, Vec<u32>)> {
    let mut header = [0; HEADER_BYTES as usize];
    progress.read_exact(&mut header).ok()?;
    let number =
        |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("the slice has 8 bytes"));
    let piece_bytes = u32::try_from(number(16)).ok().filter(|bytes| *bytes > 0)?;
    if &header[..8] != MAGIC || number(8) != size {
        return None;
    }
    let expected = n_pieces(size, piece_bytes).checked_mul(COUNT_BYTES as usize)?;
    if progress.metadata().ok()?.len() != HEADER_BYTES + expected as u64 {
        return None;
    }
    let mut bytes = vec![0; expected];
    progress.read_exact(&mut bytes).ok()?;
    let counts = bytes.chunks_exact(COUNT_BYTES as usize);
    Some((piece_bytes, counts.map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()))
}

#[cfg(unix)]
fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_at(file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        (offset, bytes) = (offset + n as u64, &bytes[n..]);
    }
    Ok(())
}

/// The hash of a small file that is in memory.
pub fn hash_of_bytes(bytes: &[u8], expected: &Hash) -> String {
    let mut hasher = Hasher::new(expected, bytes.len() as u64);
    hasher.update(bytes);
    hasher.finish()
}

/// One of the two ways in which the Hub names content.
pub enum Hasher {
    Sha256(Sha256),
    GitBlob(Sha1),
}

impl Hasher {
    pub fn new(expected: &Hash, size: u64) -> Self {
        match expected {
            Hash::Sha256(_) => Self::Sha256(Sha256::new()),
            Hash::GitBlob(_) => Self::GitBlob(Sha1::new().chain_update(format!("blob {size}\0"))),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::GitBlob(hasher) => hasher.update(bytes),
        }
    }

    pub fn finish(self) -> String {
        match self {
            Self::Sha256(hasher) => hex(&hasher.finalize()),
            Self::GitBlob(hasher) => hex(&hasher.finalize()),
        }
    }
}

#[cfg(test)]
mod tests;
