//! The pictures of kept messages: files named by the SHA-256 of their content, so that one picture in many
//! messages is kept once.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::chat::{Picture, PictureSource};

use super::Store;
use crate::private;
use crate::units::hex;

/// Larger files aren't read again.
const MAX_BYTES: u64 = 1 << 30;

impl Store {
    /// Keeps the content of a picture; `None` if its file is gone.
    pub(super) fn keep_picture(&self, picture: &Picture) -> io::Result<Option<String>> {
        let bytes: Arc<[u8]> = match &picture.source {
            PictureSource::Bytes(bytes) => bytes.clone(),
            PictureSource::File(path) => match fs::read(path) {
                Ok(bytes) => bytes.into(),
                Err(_) => return Ok(None),
            },
            PictureSource::Address(_) => return Ok(None),
        };
        let sha256 = hex(&Sha256::digest(&bytes));
        let path = self.picture_path(&sha256);
        if path.exists() {
            return Ok(Some(sha256));
        }
        private::create_folder(path.parent().unwrap_or(&self.folder))?;
        // Under another name first: a file with this name is always whole.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let unfinished = path.with_extension(format!("{}-{number}.part", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(&unfinished).and_then(|mut file| file.write_all(&bytes));
        if let Err(error) = written.and_then(|()| fs::rename(&unfinished, &path)) {
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        Ok(Some(sha256))
    }

    /// Where a picture's content is. The message goes on without it if it isn't there any more.
    pub(super) fn picture_source(&self, sha256: Option<&str>) -> PictureSource {
        let Some(sha256) =
            sha256.filter(|name| name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit()))
        else {
            return PictureSource::File(self.folder.join("a picture that was not kept"));
        };
        let path = self.picture_path(sha256);
        let is_small = fs::metadata(&path).is_ok_and(|meta| meta.len() <= MAX_BYTES);
        match is_small.then(|| fs::read(&path)) {
            Some(Ok(bytes)) => PictureSource::Bytes(bytes.into()),
            Some(Err(_)) | None => PictureSource::File(path),
        }
    }

    /// Removes pictures that no message has any more.
    pub(super) fn remove_pictures(&self, sha256: &[String]) {
        for name in sha256 {
            let used = self.db.query_row(
                "SELECT EXISTS (SELECT 1 FROM pictures WHERE sha256 = ?1)",
                [name],
                |row| row.get::<_, bool>(0),
            );
            if matches!(used, Ok(false)) {
                let _ = fs::remove_file(self.picture_path(name));
            }
        }
    }

    fn picture_path(&self, sha256: &str) -> PathBuf {
        self.folder.join("pictures").join(&sha256[..2]).join(sha256)
    }
}
