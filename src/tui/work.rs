//! Does the work that effects ask for, on threads beside the loop.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::effect::{Place, Work};
use super::markdown::highlight;
use super::msg::Done;
use super::picker::{Look, Seen};
use super::pictures::preview::{self, Preview};
use super::pictures::{clipboard, files};

/// Larger picture files aren't previewed in the picker.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Larger text files are longer than any context.
const MAX_TEXT_BYTES: u64 = 8 << 20;

/// A decoded picture takes up to hundreds of megabytes, so that there is one at a time.
static DECODING: Mutex<()> = Mutex::new(());

/// Does it, however long that takes. `folder` is where relative paths begin.
///
/// Picture decoders read what strangers wrote, so a panic in one is a picture that can't be shown.
pub fn work(work: Work, folder: &Path) -> Done {
    match work {
        Work::Preview { picture, bytes, place } => {
            let made = one_at_a_time(|| {
                let image = preview::decode(&bytes)?;
                Ok(Preview::new(&image, place.graphics, place.columns, place.rows))
            });
            Done::Preview { picture, preview: made.ok().flatten() }
        }
        Work::CheckPaste { text, readings } => Done::PasteChecked { text, files: files::existing(readings) },
        Work::ReadClipboard => Done::Clipboard(caught(clipboard::read)),
        Work::FindFiles => Done::FilesFound(files::below(folder)),
        Work::ListFolder(folder) => {
            let entries = files::list(&folder);
            Done::FolderListed { folder, entries }
        }
        Work::Highlight(blocks) => {
            Done::Highlighted(caught(|| Ok(highlight::highlight(&blocks))).unwrap_or_default())
        }
        Work::Export { path, text } => {
            let path = folder.join(path);
            Done::Exported(write_new(&path, &text).map(|()| path))
        }
        // The program does these, which knows of files of settings.
        Work::Keep { .. } => Done::Kept(Ok(())),
        Work::Configure { setting, .. } => Done::Configured(Ok(setting)),
        Work::ShowSettings(_) | Work::Diagnose => Done::Report(Ok(String::new())),
        Work::ReadSchema(path) => Done::SchemaRead(read_schema(&folder.join(path))),
        Work::Crop { picture, bytes, region } => {
            Done::Cropped { picture, part: one_at_a_time(|| preview::crop(&bytes, region)) }
        }
        Work::ReadFiles(paths) => {
            Done::FilesRead(paths.iter().map(|path| read_text(&folder.join(path))).collect())
        }
        Work::LookAt { path, place } => {
            let seen = one_at_a_time(|| look(&path, place));
            Done::LookedAt(Look { path, seen })
        }
    }
}

/// The name and the text of a file.
fn read_text(path: &Path) -> Result<(String, String), String> {
    let shown = path.display();
    let meta = fs::metadata(path).map_err(|error| format!("{shown} can't be read: {error}"))?;
    if !meta.is_file() {
        return Err(format!("{shown} is no file"));
    }
    if meta.len() > MAX_TEXT_BYTES {
        return Err(format!("{shown} is too large to be read by a model: {} MB", meta.len() / 1_000_000));
    }
    let bytes = fs::read(path).map_err(|error| format!("{shown} can't be read: {error}"))?;
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok((path.to_string_lossy().into_owned(), text)),
        _ => Err(format!("{shown} is no text; pictures are attached by /image")),
    }
}

fn read_schema(path: &Path) -> Result<(String, serde_json::Value), String> {
    let (name, text) = read_text(path)?;
    let schema: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("{name} is no JSON: {error}"))?;
    match schema {
        serde_json::Value::Object(_) | serde_json::Value::Bool(_) => Ok((name, schema)),
        _ => Err(format!("{name} is no JSON Schema: that is an object")),
    }
}

/// Never over a file that is there.
fn write_new(path: &Path, text: &str) -> Result<(), String> {
    let file = fs::OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{} exists already; name another file", path.display())
        }
        _ => format!("{} can't be written: {error}", path.display()),
    })
}

fn look(path: &Path, place: Place) -> Result<Seen, String> {
    let unreadable = |error: std::io::Error| format!("can't be read: {error}");
    // Before it is opened: opening a pipe would wait for somebody to write into it.
    let meta = fs::metadata(path).map_err(unreadable)?;
    if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
        return Err("is too large to be shown".into());
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(unreadable)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    let image = preview::decode(&bytes)?;
    let preview = Preview::new(&image, place.graphics, place.columns, place.rows);
    Ok(Seen { width: image.width(), height: image.height(), preview })
}

fn one_at_a_time<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // The lock guards nothing that a panic could leave half done.
    let _guard = DECODING.lock().unwrap_or_else(PoisonError::into_inner);
    caught(decode)
}

fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let work = std::panic::AssertUnwindSafe(work);
    std::panic::catch_unwind(work).unwrap_or_else(|_| Err("can't be read: its format is broken".into()))
}
