//! Checks files that are here against the hashes that they are named by. Other tools have been seen to keep the error
//! page of a server as a model.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::HubError;
use super::cache::Cache;
use super::names::{Hash, RepoId};
use super::part::Hasher;

/// What was found of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The name of a file that it is the content of.
    pub name: String,
    pub blob: PathBuf,
    pub bytes: u64,
    pub is_right: bool,
}

impl Cache {
    /// Hashes every blob of a repository; `begin` is called before each, with its name and size.
    ///
    /// # Errors
    /// If one can't be read.
    pub fn verify(&self, id: &RepoId, mut begin: impl FnMut(&str, u64)) -> Result<Vec<Checked>, HubError> {
        let names = self.names_of_blobs(id);
        let entries = fs::read_dir(self.blobs(id)).into_iter().flatten().flatten();
        let mut blobs: Vec<(String, PathBuf, Hash)> = entries
            .filter_map(|entry| {
                let hash = Hash::parse(entry.file_name().to_str()?)?;
                let blob = entry.path();
                let name = names.iter().find(|(_, target)| *target == blob).map(|(name, _)| name.clone());
                Some((name.unwrap_or_else(|| hash.as_str().to_owned()), blob, hash))
            })
            .collect();
        blobs.sort();
        let mut checked = Vec::new();
        for (name, blob, hash) in blobs {
            let failed = |source| HubError::File { doing: "cannot read", path: blob.clone(), source };
            let bytes = fs::metadata(&blob).map_err(failed)?.len();
            begin(&name, bytes);
            let is_right = hash_of(&blob, &hash, bytes).map_err(failed)? == hash.as_str();
            checked.push(Checked { name, blob, bytes, is_right });
        }
        Ok(checked)
    }

    fn names_of_blobs(&self, id: &RepoId) -> Vec<(String, PathBuf)> {
        let blobs = self.blobs(id);
        let snapshots = fs::read_dir(self.repo(id).join("snapshots")).into_iter().flatten().flatten();
        let files =
            snapshots.flat_map(|snapshot| fs::read_dir(snapshot.path()).into_iter().flatten().flatten());
        let named = files.filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            Some((entry.file_name().into_string().ok()?, blobs.join(target.file_name()?)))
        });
        named.collect()
    }
}

fn hash_of(path: &Path, expected: &Hash, size: u64) -> io::Result<String> {
    let mut hasher = Hasher::new(expected, size);
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            n => hasher.update(&buffer[..n]),
        }
    }
}
