//! The folder that all tools of the Hub share: `models--OWNER--NAME` with `blobs`, `snapshots` and `refs`.
//!
//! A snapshot is a folder of links to blobs, and a ref is a branch's commit. A snapshot of ours gets its links one by
//! one as files are complete, so what is missing shows; but other tools may have left half of one too, so that a
//! snapshot counts as a model only if all that its weights need is there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::HubError;
use super::names::{Hash, ModelRef, RepoId, is_commit, is_safe_path};
use super::part;
use super::select::{self, Wanted};

/// No index is larger.
const MAX_INDEX_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// A model that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    pub id: RepoId,
    pub commit: String,
    /// The branch or tag that it was fetched as, if any is known.
    pub revision: Option<String>,
    /// What the engine is given: the snapshot, or a GGUF file in it.
    pub path: PathBuf,
    pub bytes: u64,
}

impl Cache {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn repo(&self, id: &RepoId) -> PathBuf {
        self.root.join(id.folder())
    }

    pub fn blobs(&self, id: &RepoId) -> PathBuf {
        self.repo(id).join("blobs")
    }

    pub fn snapshot(&self, id: &RepoId, commit: &str) -> PathBuf {
        self.repo(id).join("snapshots").join(commit)
    }

    pub fn lock(&self, id: &RepoId, hash: &Hash) -> PathBuf {
        self.root.join(".locks").join(id.folder()).join(format!("{}.lock", hash.as_str()))
    }

    /// The commit that a revision was when it was last fetched.
    pub fn commit_of(&self, id: &RepoId, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.into());
        }
        let text = fs::read_to_string(self.repo(id).join("refs").join(revision)).ok()?;
        Some(text.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// A model's place if all of it is here, without asking anybody.
    pub fn find(&self, model: &ModelRef) -> Option<Installed> {
        let commit = self.commit_of(&model.id, &model.revision)?;
        let snapshot = self.snapshot(&model.id, &commit);
        let path = complete(&snapshot, model.quant.as_deref())?;
        let revision = Some(model.revision.clone()).filter(|revision| !is_commit(revision));
        Some(Installed { id: model.id.clone(), revision, bytes: bytes_of(&snapshot, &path), commit, path })
    }

    /// Whether a file of a listing is here already, by its blob or its place in the snapshot.
    pub fn has(&self, id: &RepoId, commit: &str, name: &str, hash: &Hash, size: u64) -> bool {
        let is_there =
            |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == size);
        is_there(&self.blobs(id).join(hash.as_str())) || is_there(&self.snapshot(id, commit).join(name))
    }

    /// Puts a complete blob into its snapshot. Where there are no links, the blob moves there: never two copies.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn link(&self, id: &RepoId, commit: &str, name: &str, hash: &Hash) -> Result<(), HubError> {
        debug_assert!(is_safe_path(name), "names are checked where they come in");
        let pointer = self.snapshot(id, commit).join(name);
        let blob = self.blobs(id).join(hash.as_str());
        let linked = || -> io::Result<()> {
            let folder = pointer.parent().unwrap_or(&pointer);
            fs::create_dir_all(folder)?;
            if !blob.exists() || points_to(&pointer, &blob) {
                return Ok(());
            }
            if fs::symlink_metadata(&pointer).is_ok() {
                fs::remove_file(&pointer)?;
            }
            // From `snapshots/COMMIT/…` back to the repository, so that the cache can be moved as a whole.
            let up = "../".repeat(2 + name.matches('/').count());
            if symlink(Path::new(&format!("{up}blobs/{}", hash.as_str())), &pointer).is_err() {
                fs::rename(&blob, &pointer)?;
            }
            part::sync_folder(folder);
            Ok(())
        };
        linked().map_err(|source| HubError::File { doing: "cannot write", path: pointer.clone(), source })
    }

    /// Notes which commit a branch is. The last thing that a download does.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn set_ref(&self, id: &RepoId, revision: &str, commit: &str) -> Result<(), HubError> {
        if is_commit(revision) {
            return Ok(());
        }
        let path = self.repo(id).join("refs").join(revision);
        // Of this writer alone: another one of the same revision may be about to rename its own.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut new = path.clone().into_os_string();
        new.push(format!(".{}-{number}.loquat-new", std::process::id()));
        let written = || -> io::Result<()> {
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            fs::write(&new, commit)?;
            fs::rename(&new, &path)
        };
        written().map_err(|source| HubError::File { doing: "cannot write", path: path.clone(), source })
    }

    /// Everything here that can be run, by name. Repositories that can't be read are left out.
    pub fn list(&self) -> Vec<Installed> {
        let mut found: Vec<Installed> = self.ids().flat_map(|id| self.list_repo(&id)).collect();
        found.sort_by(|a, b| (&a.id, &a.path).cmp(&(&b.id, &b.path)));
        found
    }

    /// Repositories with downloads of ours that were interrupted.
    pub fn unfinished(&self) -> Vec<RepoId> {
        let has_part = |id: &RepoId| names_in(&self.blobs(id)).iter().any(|name| part::is_part(name));
        let mut found: Vec<RepoId> = self.ids().filter(has_part).collect();
        found.sort();
        found
    }

    fn ids(&self) -> impl Iterator<Item = RepoId> {
        let folders = fs::read_dir(&self.root).into_iter().flatten().flatten();
        folders.filter_map(|entry| RepoId::of_folder(entry.file_name().to_str()?))
    }

    fn list_repo(&self, id: &RepoId) -> Vec<Installed> {
        let refs = self.refs(id);
        let snapshots = fs::read_dir(self.repo(id).join("snapshots")).into_iter().flatten().flatten();
        let commits =
            snapshots.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_commit(name));
        let mut found = Vec::new();
        for commit in commits {
            let snapshot = self.snapshot(id, &commit);
            let revision = refs.iter().find(|(_, of_ref)| *of_ref == commit).map(|(name, _)| name.clone());
            let names = names_in(&snapshot);
            let paths = match complete(&snapshot, None) {
                Some(path) if path == snapshot => vec![path],
                // Of several GGUF files each is a model.
                _ => {
                    let models = select::gguf_models(&names).into_iter();
                    let whole = models.filter(|model| select::is_whole(model, &names));
                    whole.map(|name| snapshot.join(name)).collect()
                }
            };
            for path in paths {
                let bytes = bytes_of(&snapshot, &path);
                found.push(Installed {
                    id: id.clone(),
                    commit: commit.clone(),
                    revision: revision.clone(),
                    path,
                    bytes,
                });
            }
        }
        found
    }

    fn refs(&self, id: &RepoId) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.repo(id).join("refs")).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let commit = self.commit_of(id, &name)?;
            Some((name, commit))
        });
        named.collect()
    }

    /// Removes a repository with everything in it; says how many bytes that frees.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn remove(&self, id: &RepoId) -> Result<Option<u64>, HubError> {
        let folder = self.repo(id);
        if !folder.is_dir() {
            return Ok(None);
        }
        let bytes = folder_bytes(&folder);
        let failed =
            |path: &Path, source| HubError::File { doing: "cannot remove", path: path.to_owned(), source };
        fs::remove_dir_all(&folder).map_err(|source| failed(&folder, source))?;
        let _ = fs::remove_dir_all(self.root.join(".locks").join(id.folder()));
        Ok(Some(bytes))
    }
}

#[cfg(unix)]
fn symlink(target: &Path, pointer: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, pointer)
}

#[cfg(windows)]
fn symlink(target: &Path, pointer: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, pointer)
}

fn points_to(pointer: &Path, blob: &Path) -> bool {
    let target = |path: &Path| path.canonicalize().ok();
    fs::symlink_metadata(pointer).is_ok_and(|meta| meta.is_symlink())
        && target(pointer).is_some_and(|to| Some(to) == target(blob))
}

/// What the engine is to be given, if all that a model needs is in this folder.
pub fn complete(snapshot: &Path, quant: Option<&str>) -> Option<PathBuf> {
    let names = names_in(snapshot);
    let has = |name: &str| names.iter().any(|there| there == name);
    match select::choose(&names, quant).ok()? {
        Wanted::Gguf { model, .. } => select::is_whole(&model, &names).then(|| snapshot.join(model)),
        Wanted::Safetensors { index, .. } => {
            let shards = match index {
                Some(index) => read_index(&snapshot.join(index))?,
                None => Vec::new(),
            };
            shards.iter().all(|shard| has(shard)).then(|| snapshot.to_owned())
        }
    }
}

fn read_index(path: &Path) -> Option<Vec<String>> {
    let meta = fs::metadata(path).ok().filter(|meta| meta.len() <= MAX_INDEX_BYTES)?;
    debug_assert!(meta.is_file());
    select::shards(&fs::read(path).ok()?)
}

/// Plain files of a folder that are there: a link to a blob that is gone doesn't count.
pub fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let there = entries.filter(|entry| entry.path().is_file());
    let mut names: Vec<String> = there.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

fn bytes_of(snapshot: &Path, path: &Path) -> u64 {
    if path.is_file() {
        return fs::metadata(path).map_or(0, |meta| meta.len());
    }
    let sizes = names_in(snapshot).into_iter().filter_map(|name| fs::metadata(snapshot.join(name)).ok());
    sizes.map(|meta| meta.len()).sum()
}

/// Files below a folder, each counted once however many links there are to it.
pub fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => folder_bytes(&entry.path()),
        Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |meta| meta.len()),
        _ => 0,
    });
    bytes.sum()
}

#[cfg(test)]
mod tests;
