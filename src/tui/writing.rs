//! Writing a draft in the person's editor.

use std::env;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::private;

/// Opens the draft in the editor and gives what it left. Blocks until the editor has ended.
///
/// # Errors
/// A sentence; the draft is as it was then.
pub fn write(draft: &str) -> Result<String, String> {
    // Readable by its owner only, and gone afterwards.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("loquat-{}-{number}", std::process::id()));
    private::create_folder(&folder)
        .map_err(|error| format!("no file for the editor can be made: {error}"))?;
    let path = folder.join("message.md");
    let result = fs::write(&path, draft)
        .map_err(|error| format!("{} can't be written: {error}", path.display()))
        .and_then(|()| edit(&path))
        .and_then(|()| {
            fs::read_to_string(&path).map_err(|error| format!("{} can't be read: {error}", path.display()))
        });
    let _ = fs::remove_dir_all(&folder);
    result
}

/// Opens a file in `$VISUAL` or `$EDITOR`.
///
/// # Errors
/// A sentence if it can't be started or ended with an error.
pub fn edit(path: &std::path::Path) -> Result<(), String> {
    let named = ["VISUAL", "EDITOR"]
        .into_iter()
        .find_map(|name| env::var(name).ok().filter(|it| !it.trim().is_empty()));
    let editor = named.unwrap_or_else(|| if cfg!(windows) { "notepad" } else { "vi" }.to_owned());
    // Editors are often named with their flags, as in `code --wait`.
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    match Command::new(program).args(words).arg(path).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{program} ended with an error; {} may be unchanged", path.display())),
        Err(error) => Err(format!("{program} can't be started: {error}; EDITOR names another editor")),
    }
}
