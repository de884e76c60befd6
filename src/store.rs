//! Kept conversations: a SQLite database and, beside it, a folder of pictures named by their SHA-256.
//!
//! Several programs may have it open at once: the log is written ahead (WAL), a writer waits for another one, and
//! rows are numbered by the database. A program that is killed loses what it hadn't written, nothing else. Only
//! their owner may read the files.
//!
//! Everything in it is untrusted text: whoever shows it cleans it. Knows nothing of terminals, models or the
//! session; `writer` is the thread through which a session uses it.

mod conversations;
mod pictures;
mod search;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::msg::StoredId;
use crate::private;

pub use conversations::{Kept, NewMessage};
pub use writer::{Job, Keep, Writer};

/// One step of the database's form each; a step that was released is never changed.
const MIGRATIONS: [&str; 2] =
    [include_str!("store/migrations/0001_init.sql"), include_str!("store/migrations/0002_reading.sql")];

/// How long a writer waits for another program's.
const PATIENCE: Duration = Duration::from_secs(10);

const FILE: &str = "history.db";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path} can't be used: {source}")]
    Folder { path: PathBuf, source: io::Error },
    #[error(
        "the history {path} is damaged; move it away to begin a new one (`sqlite3 {path} .recover` saves what can be saved)"
    )]
    Damaged { path: PathBuf },
    #[error(
        "the history {path} is of a newer Loquat (format {found}, this one knows {known}); update Loquat"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("there is no conversation {}; `loquat history list` shows all", .0.0)]
    Unknown(StoredId),
    #[error("there is no conversation yet")]
    Empty,
    #[error("a message belongs to nothing that was kept")]
    Stray,
    #[error("the history {path} can't be used: {source}")]
    Database { path: PathBuf, source: rusqlite::Error },
}

pub struct Store {
    db: Connection,
    folder: PathBuf,
}

impl Store {
    /// Opens the history in `folder`, or begins one.
    ///
    /// # Errors
    /// Everything but `Unknown`, `Empty` and `Stray`.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(FILE);
        let unusable = |source| StoreError::Folder { path: folder.to_owned(), source };
        private::create_folder(folder).map_err(unusable)?;
        // SQLite gives the files beside it the rights that this one has.
        private::create_file(&path).map_err(|source| StoreError::Folder { path: path.clone(), source })?;
        let failed = |error| database_error(&path, error);
        let mut db = Connection::open(&path).map_err(failed)?;
        db.busy_timeout(PATIENCE).map_err(failed)?;
        // Which journal it is was decided by whoever began it; here it only costs a look.
        db.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
        // With a log, a program that is killed loses nothing that was written; only a power cut may.
        db.pragma_update(None, "synchronous", "normal").map_err(failed)?;
        // Moving the log into the database waits for the disk, on a busy one for seconds: not while an answer grows.
        db.pragma_update(None, "wal_autocheckpoint", 0).map_err(failed)?;
        db.pragma_update(None, "foreign_keys", true).map_err(failed)?;
        migrate(&mut db, &path)?;
        Ok(Self { db, folder: folder.to_owned() })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        database_error(&self.path(), error)
    }
}

/// Looks through a whole database without changing it: how many conversations it has; `None` if there is no database.
///
/// # Errors
/// `Damaged`, `Newer`, `Folder` or `Database`.
pub fn examine(folder: &Path) -> Result<Option<usize>, StoreError> {
    let path = folder.join(FILE);
    match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Folder { path, source }),
        // Made, but nothing was kept before its program ended.
        Ok(meta) if meta.len() == 0 => return Ok(None),
        Ok(_) => {}
    }
    let failed = |error| database_error(&path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(&path, flags).map_err(failed)?;
    db.busy_timeout(PATIENCE).map_err(failed)?;
    let found = version(&db).map_err(failed)?;
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(StoreError::Newer { path, found, known });
    }
    let verdict: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if verdict != "ok" {
        return Err(StoreError::Damaged { path });
    }
    if found == 0 {
        return Ok(None);
    }
    let count = "SELECT count(*) FROM conversations WHERE deleted_ms IS NULL";
    db.query_row(count, [], |row| row.get::<_, i64>(0)).map(|count| Some(count as usize)).map_err(failed)
}

fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |error| database_error(path, error);
    let known = MIGRATIONS.len() as i64;
    match version(db).map_err(failed)? {
        found if found == known => return Ok(()),
        found if found > known => return Err(StoreError::Newer { path: path.to_owned(), found, known }),
        _ => {}
    }
    // Another program may be doing the same; who comes second finds it done.
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let done = version(&transaction).map_err(failed)?;
    for step in MIGRATIONS.iter().skip(done.max(0) as usize) {
        transaction.execute_batch(step).map_err(failed)?;
    }
    if done < known {
        transaction.pragma_update(None, "user_version", known).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

fn database_error(path: &Path, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Damaged { path },
        _ => StoreError::Database { path, source },
    }
}

/// The date of today, here: `2026-12-01`. SQLite knows the time zone.
pub fn today() -> String {
    let date = Connection::open_in_memory()
        .and_then(|db| db.query_row("SELECT date('now', 'localtime')", [], |row| row.get(0)));
    date.unwrap_or_default()
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
