//! Reads the small text files of a model folder: whole, but never more than the caller allows.
//!
//! A model folder comes from strangers, so a file is measured while it is read: its length on disk
//! may be a lie (a device, a growing file). Knows nothing of what the files mean.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::built_in;
use super::gguf::{GgufError, folder};

#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    #[error("{path} is missing; the download may be incomplete, or this is not a model folder")]
    Missing { path: PathBuf },
    #[error("cannot read {path}: {reason}")]
    Read { path: PathBuf, reason: io::Error },
    #[error(
        "{path} is larger than {limit_bytes} bytes, which no model of this family needs; download it again"
    )]
    TooLarge { path: PathBuf, limit_bytes: u64 },
    #[error("{path} is not valid UTF-8 text; download it again")]
    NotText { path: PathBuf },
    #[error("{path} is not a regular file; download it again")]
    NotAFile { path: PathBuf },
    #[error(transparent)]
    Gguf(#[from] GgufError),
}

/// The text of `path`, at most `limit_bytes` of it.
///
/// # Errors
/// `Missing`, `Read`, `TooLarge` and `NotText`, as their messages say.
pub fn read_text(path: &Path, limit_bytes: u64) -> Result<String, ModelFileError> {
    let failed = |reason: io::Error| match reason.kind() {
        io::ErrorKind::NotFound => ModelFileError::Missing { path: path.to_owned() },
        _ => ModelFileError::Read { path: path.to_owned(), reason },
    };
    if built_in::is_built_in(path) {
        let bytes = built_in::file(path).ok_or_else(|| ModelFileError::Missing { path: path.to_owned() })?;
        return String::from_utf8(bytes.to_vec())
            .map_err(|_| ModelFileError::NotText { path: path.to_owned() });
    }
    if let Some(text) = gguf_text(path)? {
        return match text.len() as u64 > limit_bytes {
            true => Err(ModelFileError::TooLarge { path: path.to_owned(), limit_bytes }),
            false => Ok(text),
        };
    }
    // Before it is opened: opening a pipe would wait for somebody to write into it.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(ModelFileError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(limit_bytes + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(ModelFileError::TooLarge { path: path.to_owned(), limit_bytes });
    }
    String::from_utf8(bytes).map_err(|_| ModelFileError::NotText { path: path.to_owned() })
}

/// The text of a file that a GGUF model only seems to have, if `path` is one.
fn gguf_text(path: &Path) -> Result<Option<String>, ModelFileError> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(None);
    };
    match folder::find(dir)? {
        None => Ok(None),
        Some(files) => {
            files.text(name)?.map(Some).ok_or_else(|| ModelFileError::Missing { path: path.to_owned() })
        }
    }
}

/// Like [`read_text`], for a file that need not be there.
///
/// # Errors
/// As [`read_text`], without `Missing`.
pub fn read_text_if_present(path: &Path, limit_bytes: u64) -> Result<Option<String>, ModelFileError> {
    match read_text(path, limit_bytes) {
        Ok(text) => Ok(Some(text)),
        Err(ModelFileError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
