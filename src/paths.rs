//! Where files of the program live, by the rules of each system.

use std::path::PathBuf;

use directories::ProjectDirs;

/// Files that can be made again; nothing is lost when they are deleted. `None` for a user without a home.
pub fn cache() -> Option<PathBuf> {
    Some(ProjectDirs::from("", "", "loquat")?.cache_dir().to_owned())
}
