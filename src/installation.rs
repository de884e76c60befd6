//! How the program came onto this machine, and so how it is updated and removed.

pub mod uninstall;
pub mod update;

use std::path::{Path, PathBuf};

/// What `install.sh` has written, below the prefix.
const LIST: &str = "share/loquat/installed";

/// Who put the program where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `install.sh` of an archive, below this prefix.
    Archive(PathBuf),
    /// The setup program of Windows.
    Setup,
    Deb,
    Rpm,
    Homebrew,
    Winget,
    Cargo,
    /// Somebody who built it, or copied it.
    Unknown,
}

/// The running program and who put it there.
pub fn find() -> (PathBuf, Source) {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.canonicalize().unwrap_or(program);
    let source = Source::of(&program, Path::exists);
    (program, source)
}

impl Source {
    fn of(program: &Path, exists: impl Fn(&Path) -> bool) -> Self {
        let folder = program.parent().unwrap_or(Path::new(""));
        let has = |part: &str| program.iter().any(|name| name.eq_ignore_ascii_case(part));
        if let Some(prefix) = folder.parent()
            && exists(&prefix.join(LIST))
        {
            return Self::Archive(prefix.to_owned());
        }
        if has("Cellar") || has("Caskroom") {
            return Self::Homebrew;
        }
        if has("WinGet") {
            return Self::Winget;
        }
        if has(".cargo") {
            return Self::Cargo;
        }
        if exists(&folder.join("uninstall.exe")) {
            return Self::Setup;
        }
        if folder == Path::new("/usr/bin") {
            // Debian wants this file of a package; nobody else writes it.
            if exists(Path::new("/usr/share/doc/loquat/changelog.gz")) {
                return Self::Deb;
            }
            let databases = ["/usr/lib/sysimage/rpm", "/var/lib/rpm"];
            if databases.iter().any(|database| exists(Path::new(database))) {
                return Self::Rpm;
            }
        }
        Self::Unknown
    }

    /// For people, after "installed by".
    pub fn name(&self) -> &'static str {
        match self {
            Self::Archive(_) => "install.sh",
            Self::Setup => "the setup program",
            Self::Deb => "a Debian package",
            Self::Rpm => "an RPM package",
            Self::Homebrew => "Homebrew",
            Self::Winget => "winget",
            Self::Cargo => "cargo",
            Self::Unknown => "hand",
        }
    }

    /// What updates it, where that isn't `loquat update`.
    fn updated_by(&self) -> &'static str {
        match self {
            Self::Archive(_) => "loquat update",
            Self::Setup | Self::Winget => "winget upgrade Loquat.Loquat",
            Self::Deb => "sudo apt install ./loquat_VERSION_ARCH.deb",
            Self::Rpm => "sudo dnf upgrade ./loquat-VERSION.ARCH.rpm",
            Self::Homebrew => "brew upgrade loquat",
            Self::Cargo | Self::Unknown => "cargo install --path . --locked (in its sources)",
        }
    }

    /// What removes the program, where that isn't `loquat uninstall`.
    fn removed_by(&self) -> &'static str {
        match self {
            Self::Archive(_) => "loquat uninstall",
            Self::Setup => "uninstall.exe beside it, or Settings > Apps",
            Self::Deb => "sudo apt purge loquat",
            Self::Rpm => "sudo dnf remove loquat",
            Self::Homebrew => "brew uninstall loquat",
            Self::Winget => "winget uninstall Loquat.Loquat",
            Self::Cargo => "cargo uninstall loquat",
            Self::Unknown => "deleting the file",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_installed_it_is_told_by_where_it_is() {
        let source = |program: &str, there: &[&str]| {
            Source::of(Path::new(program), |path| there.iter().any(|known| path == Path::new(known)))
        };
        let list = "/home/a/.local/share/loquat/installed";
        assert_eq!(source("/home/a/.local/bin/loquat", &[list]), Source::Archive("/home/a/.local".into()));
        let dpkg = ["/usr/share/doc/loquat/changelog.gz", "/var/lib/rpm"];
        assert_eq!(source("/usr/bin/loquat", &dpkg), Source::Deb);
        assert_eq!(source("/usr/bin/loquat", &dpkg[1..]), Source::Rpm);
        assert_eq!(source("/home/a/bin/loquat", &dpkg), Source::Unknown);
        assert_eq!(source("/opt/homebrew/Cellar/loquat/0.1.0/bin/loquat", &[]), Source::Homebrew);
        assert_eq!(source("/home/a/.cargo/bin/loquat", &[]), Source::Cargo);
        assert_eq!(source("/apps/Loquat/loquat.exe", &["/apps/Loquat/uninstall.exe"]), Source::Setup);
    }
}
