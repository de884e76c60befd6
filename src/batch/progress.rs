//! How far a batch is, on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use serde_json::json;

use crate::cli::ProgressForm;

/// What has become of the records so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that could be read, whether or not they could be answered.
    pub n_read: usize,
    pub n_answered: usize,
    pub n_failed: usize,
    /// Those that an earlier run has answered.
    pub n_kept: usize,
    /// Of all answers.
    pub n_tokens: usize,
}

/// How it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Nothing,
    /// One line that is written over.
    Line,
    Json,
}

pub struct Progress {
    form: Form,
    started: Instant,
    /// There is a line on the screen to be written over.
    is_shown: bool,
}

impl Progress {
    pub fn new(form: ProgressForm) -> Self {
        let form = match form {
            ProgressForm::None => Form::Nothing,
            ProgressForm::Json => Form::Json,
            // Answers on the same screen would be mixed with it.
            ProgressForm::Auto if io::stderr().is_terminal() && !io::stdout().is_terminal() => Form::Line,
            ProgressForm::Auto => Form::Nothing,
        };
        Self { form, started: Instant::now(), is_shown: false }
    }

    pub fn show(&mut self, counts: &Counts, n_running: usize) {
        let seconds = self.started.elapsed().as_secs_f64();
        let Counts { n_answered, n_failed, n_kept, n_tokens, .. } = *counts;
        let speed = if seconds > 0.0 { (n_tokens as f64 / seconds * 10.0).round() / 10.0 } else { 0.0 };
        // If nobody reads it, there is nobody to tell.
        let _ = match self.form {
            Form::Nothing => Ok(()),
            Form::Line => {
                self.is_shown = true;
                write!(
                    io::stderr(),
                    "\r\x1b[K{n_answered} answered, {n_failed} failed, {n_kept} from before; {speed} tok/s"
                )
            }
            Form::Json => {
                let json = json!({
                    "answered": n_answered, "failed": n_failed, "kept": n_kept, "running": n_running,
                    "tokens": n_tokens, "tok_s": speed, "seconds": (seconds * 10.0).round() / 10.0,
                });
                writeln!(io::stderr(), "{json}")
            }
        };
    }

    /// Leaves the last line where it is.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = writeln!(io::stderr());
        }
    }

    /// Takes the line away, for something else to be said.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
