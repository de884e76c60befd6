//! A model before it is here: a folder with its small files and, of its weights, files that have their full length and
//! their headers and nothing else. It can be looked at like the model itself, and takes a few hundred kilobytes.
//!
//! What isn't written of a file takes no room on file systems with holes in files, which are nearly all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::api::{Listing, RemoteFile};
use super::names::is_safe_path;
use super::select::{self, Wanted};
use super::{Hub, HubError};
use crate::sanitize::one_line;

/// What says how a model is built; the tokenizer is large and says nothing about that.
const NEEDED: [&str; 5] = [
    "config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "quantize_config.json",
    select::INDEX,
];
/// Most headers are shorter, so that one request does.
const FIRST_BYTES: u64 = 128 << 10;
/// The largest header of safetensors that is read.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// Present when everything else is.
const DONE: &str = ".complete";

impl Hub {
    /// Fetches what there is to know of a model's weights into `folder`, and says what the engine is to look at.
    /// `gguf_bytes` is how much of a GGUF file its header may take.
    ///
    /// # Errors
    /// [`HubError`] if it can't be fetched or written.
    pub async fn headers(
        &self,
        listing: &Listing,
        wanted: &Wanted,
        folder: &Path,
        gguf_bytes: u64,
    ) -> Result<PathBuf, HubError> {
        let target = match wanted {
            Wanted::Safetensors { .. } => folder.to_owned(),
            Wanted::Gguf { model, .. } => folder.join(model),
        };
        let done = folder.join(format!("{DONE}-{gguf_bytes}"));
        if done.exists() {
            return Ok(target);
        }
        write(folder, |folder| fs::create_dir_all(folder))?;
        let skeleton = Skeleton { hub: self, listing, folder };
        match wanted {
            Wanted::Safetensors { small, index, .. } => {
                for name in small.iter().chain(index).filter(|name| NEEDED.contains(&name.as_str())) {
                    let file = skeleton.file(name)?;
                    let bytes = self.head(listing, file, (0, file.size)).await?;
                    skeleton.write(file, &bytes)?;
                }
                let files = self.needed(listing, wanted).await?;
                for file in files.into_iter().filter(|file| file.name.ends_with(".safetensors")) {
                    skeleton.safetensors(skeleton.file(&file.name)?).await?;
                }
            }
            Wanted::Gguf { .. } => {
                for name in wanted.names() {
                    let file = skeleton.file(name)?;
                    let bytes = self.head(listing, file, (0, file.size.min(gguf_bytes))).await?;
                    skeleton.write(file, &bytes)?;
                }
            }
        }
        write(&done, |path| fs::write(path, ""))?;
        Ok(target)
    }
}

struct Skeleton<'a> {
    hub: &'a Hub,
    listing: &'a Listing,
    folder: &'a Path,
}

impl<'a> Skeleton<'a> {
    fn file(&self, name: &str) -> Result<&'a RemoteFile, HubError> {
        let id = self.listing.id.to_string();
        match self.listing.file(name) {
            _ if !is_safe_path(name) || name.contains('/') => {
                Err(HubError::UnsafeName { id, name: one_line(name) })
            }
            None => Err(HubError::Missing { id, name: one_line(name) }),
            Some(file) => Ok(file),
        }
    }

    async fn safetensors(&self, file: &RemoteFile) -> Result<(), HubError> {
        let mut bytes = self.hub.head(self.listing, file, (0, file.size.min(FIRST_BYTES))).await?;
        let length = bytes.first_chunk().map(|length| u64::from_le_bytes(*length)).unwrap_or_default();
        // A header that claims more is refused by whoever reads it.
        let end = length.saturating_add(8).min(MAX_HEADER_BYTES).min(file.size);
        if end > bytes.len() as u64 {
            bytes.extend(self.hub.head(self.listing, file, (bytes.len() as u64, end)).await?);
        }
        self.write(file, &bytes)
    }

    fn write(&self, file: &RemoteFile, bytes: &[u8]) -> Result<(), HubError> {
        write(&self.folder.join(&file.name), |path| {
            let mut made = File::create(path)?;
            made.write_all(bytes)?;
            made.set_len(file.size)
        })
    }
}

fn write(path: &Path, work: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), HubError> {
    work(path).map_err(|source| HubError::File { doing: "cannot write", path: path.to_owned(), source })
}
