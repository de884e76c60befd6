//! How a download goes, on standard error: one line that changes in a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::hub::pull::{Notice, Progress, Reporter};
use crate::units::{ByteSize, n_files};

/// Between two lines of a log.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What is told of a download of `model`.
pub fn reporter(model: &str) -> Reporter {
    let is_terminal = io::stderr().is_terminal();
    let logged: Mutex<Option<Instant>> = Mutex::new(None);
    let model = model.to_owned();
    Reporter::new(move |notice| {
        let mut out = io::stderr().lock();
        // Nobody to tell is no reason to stop.
        let _ = match notice {
            Notice::Progress(progress) if is_terminal => write!(out, "\r\x1b[K{model}: {}", line(progress)),
            Notice::Progress(progress) => {
                let mut logged = logged.lock().unwrap_or_else(PoisonError::into_inner);
                let is_whole = progress.done_bytes >= progress.total_bytes;
                if !is_whole && logged.is_some_and(|logged| logged.elapsed() < LOG_EVERY) {
                    return;
                }
                *logged = Some(Instant::now());
                writeln!(out, "loquat: {model}: {}", line(progress))
            }
            notice => {
                let clear = if is_terminal { "\r\x1b[K" } else { "" };
                writeln!(out, "{clear}loquat: {model}: {}", sentence(&notice))
            }
        };
        let _ = out.flush();
    })
}

/// Ends the line that changes.
pub fn end() {
    if io::stderr().is_terminal() {
        let _ = writeln!(io::stderr());
    }
}

/// `1.20 GiB of 1.63 GiB, 23.1 MiB/s, 19 s left`.
pub fn line(progress: Progress) -> String {
    let Progress { done_bytes, total_bytes, bytes_per_second } = progress;
    let mut text = format!("{} of {}", ByteSize(done_bytes), ByteSize(total_bytes));
    if bytes_per_second > 0.0 && done_bytes < total_bytes {
        text += &format!(", {}/s", ByteSize(bytes_per_second as u64));
        if let Some(left) = progress.remaining() {
            text += &format!(", {} left", duration(left));
        }
    }
    text
}

fn duration(time: Duration) -> String {
    match time.as_secs() {
        secs @ 0..120 => format!("{secs} s"),
        secs @ 120..7200 => format!("{} min", secs / 60),
        secs => format!("{} h", secs / 3600),
    }
}

fn sentence(notice: &Notice) -> String {
    match notice {
        Notice::Begun { total_bytes, files, licence, .. } => {
            let licence = licence.as_ref().map(|name| format!(", licence {name}")).unwrap_or_default();
            format!("{} in {}{licence}", ByteSize(*total_bytes), n_files(*files))
        }
        Notice::Waiting { file } => format!("another process is downloading {file}; waiting for it"),
        Notice::Retrying { file, why, wait } => {
            format!("{file}: {why}; trying again in {} s", wait.as_secs_f32().ceil())
        }
        Notice::Progress(progress) => line(*progress),
    }
}
