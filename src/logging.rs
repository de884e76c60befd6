//! The log file: what happened, for a bug report. Only this program's own records, and warnings of its libraries. What
//! was said to a model and what it said is never in it, nor is the Hub's token.
//!
//! One file for its owner's eyes in the state folder, moved aside when it is large; nothing is made before there is
//! something to say.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::{LevelFilter, Log, Metadata, Record};

use crate::private;
use crate::sanitize::one_line;

/// One old file of this size is kept beside the present one.
const MAX_BYTES: u64 = 1 << 20;

/// Longer messages are cut.
const MAX_CHARS: usize = 2_000;

/// Where it is: `loquat.log` in this folder.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("loquat.log")
}

/// Starts logging, once for a program. Panics are logged from then on, too.
pub fn start(folder: &Path, level: LevelFilter) {
    let logger = FileLog { folder: folder.to_owned(), level, file: Mutex::new(None) };
    if level == LevelFilter::Off || log::set_boxed_logger(Box::new(logger)).is_err() {
        return;
    }
    log::set_max_level(level);
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // Not its message: that may hold a piece of what was said.
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        log::error!("panic at {place}");
        previous(info);
    }));
}

struct FileLog {
    folder: PathBuf,
    level: LevelFilter,
    file: Mutex<Option<Written>>,
}

struct Written {
    file: File,
    n_bytes: u64,
}

impl Log for FileLog {
    fn enabled(&self, metadata: &Metadata) -> bool {
        let is_ours = metadata.target().split("::").next() == Some("loquat");
        metadata.level() <= if is_ours { self.level } else { self.level.min(LevelFilter::Warn) }
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = line(SystemTime::now(), record);
        // Whoever can't be told of a failure here is best served by going on.
        let _ = self.write(&line);
    }

    fn flush(&self) {}
}

impl FileLog {
    fn write(&self, line: &str) -> io::Result<()> {
        let mut written = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let path = path(&self.folder);
        if written.as_ref().is_none_or(|written| written.n_bytes > MAX_BYTES) {
            *written = None;
            private::create_folder(&self.folder)?;
            if fs::metadata(&path).is_ok_and(|meta| meta.len() > MAX_BYTES) {
                fs::rename(&path, path.with_extension("log.1"))?;
            }
            private::create_file(&path)?;
            let file = OpenOptions::new().append(true).open(&path)?;
            let n_bytes = file.metadata()?.len();
            *written = Some(Written { file, n_bytes });
        }
        let Some(written) = written.as_mut() else { return Ok(()) };
        written.n_bytes += line.len() as u64;
        // One write, so that lines of two programs don't mix.
        written.file.write_all(line.as_bytes())
    }
}

fn line(now: SystemTime, record: &Record) -> String {
    let text = one_line(&record.args().to_string());
    let text: String = text.chars().take(MAX_CHARS).collect();
    format!("{} {:<5} {}  {}\n", time(now), record.level(), record.target(), without_tokens(&text))
}

/// Hides what looks like a token of the Hub or of a server, wherever it comes from.
fn without_tokens(text: &str) -> String {
    let is_secret = |word: &str| ["hf_", "sk-", "Bearer"].iter().any(|begin| word.contains(begin));
    let mut hides_next = false;
    let words = text.split(' ').map(|word| {
        let hides = hides_next || is_secret(word);
        hides_next = word.contains("Bearer") && word.trim_end_matches(':').ends_with("Bearer");
        if hides { "[hidden]" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// `2026-12-01T03:14:15Z`.
fn time(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, second) = ((since / 86_400) as i64, since % 86_400);
    // Years begin in March here, so that the day that is sometimes there is the last one.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use log::Level;

    use super::*;

    fn at(seconds: u64) -> String {
        time(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_796_083_199), "2026-11-30T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn a_line_holds_no_control_characters_and_no_tokens() {
        let write = |args: std::fmt::Arguments| {
            line(UNIX_EPOCH, &Record::builder().args(args).level(Level::Warn).target("loquat::hub").build())
        };
        let text = write(format_args!("a\u{1b}[31m red\nline hf_abcdefgh Authorization: Bearer xyz end"));
        assert_eq!(
            text,
            "1970-01-01T00:00:00Z WARN  loquat::hub  a red line [hidden] Authorization: [hidden] [hidden] end\n"
        );
        assert!(write(format_args!("{}", "x".repeat(9000))).len() < 2100);
    }

    #[test]
    fn a_large_file_is_moved_aside_and_libraries_only_warn() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let logger = FileLog { folder: folder.clone(), level: LevelFilter::Debug, file: Mutex::new(None) };
        assert!(!folder.exists(), "nothing is made before there is something to say");
        let meta = |level, target| Metadata::builder().level(level).target(target).build();
        assert!(logger.enabled(&meta(Level::Debug, "loquat::session")));
        assert!(!logger.enabled(&meta(Level::Info, "hyper::client")));
        assert!(!logger.enabled(&meta(Level::Trace, "loquat")));
        let long = format!("{}\n", "x".repeat(1 << 16));
        for _ in 0..20 {
            logger.write(&long).unwrap();
        }
        let old = fs::metadata(folder.join("loquat.log.1")).unwrap().len();
        let new = fs::metadata(path(&folder)).unwrap().len();
        assert_eq!(old + new, 20 * long.len() as u64);
        assert!(old > MAX_BYTES && new < MAX_BYTES);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(path(&folder)).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
