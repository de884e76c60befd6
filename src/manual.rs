//! The manual page and the completions of shells, from the same definitions as `--help`.

use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

/// What a shell reads to complete `loquat` and its arguments.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "loquat", &mut script);
    script
}

/// The page `loquat(1)`, in roff.
pub fn page() -> Vec<u8> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).expect("memory can always be written to");
    page
}

/// Writes that page and one for each command into a folder.
///
/// # Errors
/// If a file can't be written.
pub fn write_pages(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
}
