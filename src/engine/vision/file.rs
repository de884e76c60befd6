//! The bytes of a picture, from its file: a regular one, of bounded size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::preprocess::MAX_FILE_BYTES;
use crate::chat::PictureSource;
use crate::msg::ErrorCode;

/// Why a picture's file can't be used, as a clause that follows its name.
#[derive(Debug, thiserror::Error)]
pub enum PictureFileError {
    #[error("pictures are not fetched from the network; save it and give its path")]
    Address,
    #[error("there is no such file")]
    Missing,
    #[error("it is a folder; name the picture in it")]
    Folder,
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is larger than {} MiB", MAX_FILE_BYTES >> 20)]
    TooLarge,
    #[error("it can't be read: {0}")]
    Read(io::Error),
}

impl PictureFileError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Missing | Self::Address => ErrorCode::ImageMissing,
            Self::Folder | Self::NotAFile | Self::TooLarge | Self::Read(_) => ErrorCode::ImageUnreadable,
        }
    }
}

/// The content of the picture's file.
///
/// # Errors
/// [`PictureFileError`]
pub fn bytes(source: &PictureSource) -> Result<Arc<[u8]>, PictureFileError> {
    match source {
        PictureSource::Bytes(bytes) => Ok(bytes.clone()),
        PictureSource::File(path) => read(path),
        PictureSource::Address(_) => Err(PictureFileError::Address),
    }
}

fn read(path: &Path) -> Result<Arc<[u8]>, PictureFileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => PictureFileError::Missing,
        _ => PictureFileError::Read(error),
    };
    // Before it is opened: opening a pipe would wait for somebody to write into it.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(PictureFileError::Folder);
    }
    if !metadata.is_file() {
        return Err(PictureFileError::NotAFile);
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 > MAX_FILE_BYTES {
        true => Err(PictureFileError::TooLarge),
        false => Ok(bytes.into()),
    }
}
