//! Where files of the program live, by the rules of each system.

use std::env;
use std::path::PathBuf;

use directories::ProjectDirs;

/// Files that can be made again; nothing is lost when they are deleted. `None` for a user without a home.
pub fn cache() -> Option<PathBuf> {
    Some(ProjectDirs::from("", "", "loquat")?.cache_dir().to_owned())
}

/// Files that a person writes. `LOQUAT_CONFIG_DIR`, or the system's place for them.
pub fn config() -> Option<PathBuf> {
    match env::var_os("LOQUAT_CONFIG_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Some(dir.into()),
        None => Some(ProjectDirs::from("", "", "loquat")?.config_dir().to_owned()),
    }
}

/// What a program notes about itself. `LOQUAT_STATE_DIR`, or the system's place for it.
pub fn state() -> Option<PathBuf> {
    match env::var_os("LOQUAT_STATE_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Some(dir.into()),
        None => {
            let dirs = ProjectDirs::from("", "", "loquat")?;
            Some(dirs.state_dir().unwrap_or_else(|| dirs.data_local_dir()).to_owned())
        }
    }
}

/// Files that can't: `LOQUAT_DATA_DIR`, or the system's place for them. `None` for a user without a home.
pub fn data() -> Option<PathBuf> {
    match env::var_os("LOQUAT_DATA_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Some(dir.into()),
        None => Some(ProjectDirs::from("", "", "loquat")?.data_dir().to_owned()),
    }
}
