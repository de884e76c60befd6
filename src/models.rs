//! `loquat models`: finding, fetching and judging models, as text and as JSON.
//!
//! Names in files and from servers are untrusted: each is cleaned where it is put into the output.

pub mod fit;
pub mod info;
pub mod inspect;
pub mod list;
pub mod progress;
pub mod pull;
pub mod search;

use std::io::{self, Write};

use crate::hub::HubError;
use crate::hub::names::{ModelRef, RepoId};

pub use inspect::inspect;

fn model_ref(text: &str) -> Result<ModelRef, HubError> {
    ModelRef::parse(text).ok_or_else(|| HubError::Name(text.to_owned()))
}

fn repo_id(text: &str) -> Result<RepoId, HubError> {
    RepoId::parse(text).ok_or_else(|| HubError::Name(text.to_owned()))
}

/// An output that nobody reads any more is an end, not an error.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Columns of text under their titles; numbers are to be aligned by the caller.
fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = titles.iter().map(|title| title.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let body: String = rows.iter().map(|row| line(row.iter().map(String::as_str).collect())).collect();
    line(titles.to_vec()) + &body
}
