//! Names from people and from servers: what a model is called, and which file names may be written.
//!
//! A listing comes from whoever runs the server, so a name in it is a claim: it must not leave its folder, hide in
//! it, or mean something else on another system. Knows nothing of files or networks.

use std::fmt;

/// The branch that is meant when none is named.
pub const DEFAULT_REVISION: &str = "main";
/// The Hub allows 96.
const MAX_PART_BYTES: usize = 96;
/// What most file systems allow.
const MAX_NAME_BYTES: usize = 255;

/// `owner/name`, safe as a part of paths and addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepoId {
    owner: String,
    name: String,
}

impl RepoId {
    pub fn parse(text: &str) -> Option<Self> {
        let (owner, name) = text.split_once('/')?;
        let is_part = |part: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            // `--` separates owner and name in the cache's folder names.
            let is_plain = !part.starts_with(['.', '-']) && !part.ends_with(['.', '-']);
            !part.is_empty()
                && part.len() <= MAX_PART_BYTES
                && part.chars().all(allowed)
                && is_plain
                && !part.contains("--")
                && !part.contains("..")
        };
        (is_part(owner) && is_part(name)).then(|| Self { owner: owner.into(), name: name.into() })
    }

    /// The id that a folder of the cache stands for.
    pub fn of_folder(folder: &str) -> Option<Self> {
        let (owner, name) = folder.strip_prefix("models--")?.split_once("--")?;
        Self::parse(&format!("{owner}/{name}"))
    }

    /// What the cache calls its folder.
    pub fn folder(&self) -> String {
        format!("models--{}--{}", self.owner, self.name)
    }

    pub fn owner(&self) -> &str {
        &self.owner
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// A model on the Hub as people name it: `OWNER/NAME[:QUANT][@REVISION]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelRef {
    pub id: RepoId,
    /// Which of a repository's GGUF files, such as `Q4_K_M`.
    pub quant: Option<String>,
    /// A branch, a tag or a commit.
    pub revision: String,
}

impl ModelRef {
    /// `None` if it isn't such a name.
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, revision) = match text.split_once('@') {
            Some((rest, revision)) => (rest, revision),
            None => (text, DEFAULT_REVISION),
        };
        let (id, quant) = match rest.split_once(':') {
            Some((id, quant)) => (id, Some(quant)),
            None => (rest, None),
        };
        let is_word = |quant: &str| {
            !quant.is_empty()
                && quant.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        };
        if !is_safe_path(revision) || !quant.is_none_or(is_word) {
            return None;
        }
        Some(Self { id: RepoId::parse(id)?, quant: quant.map(str::to_owned), revision: revision.into() })
    }

    pub fn new(id: RepoId) -> Self {
        Self { id, quant: None, revision: DEFAULT_REVISION.into() }
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)?;
        if let Some(quant) = &self.quant {
            write!(f, ":{quant}")?;
        }
        match self.revision.as_str() {
            DEFAULT_REVISION => Ok(()),
            revision => write!(f, "@{revision}"),
        }
    }
}

/// The name of a commit: 40 hexadecimal digits.
pub fn is_commit(text: &str) -> bool {
    text.len() == 40 && is_hex(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether a `/`-separated path stays below the folder it is joined to, on every system.
pub fn is_safe_path(path: &str) -> bool {
    !path.is_empty() && path.len() <= 4 * MAX_NAME_BYTES && path.split('/').all(is_safe_name)
}

fn is_safe_name(name: &str) -> bool {
    // Windows takes these for devices, with any extension.
    const DEVICES: [&str; 4] = ["CON", "PRN", "AUX", "NUL"];
    let stem = name.split('.').next().unwrap_or_default().trim_end();
    let is_port = |prefix: &str| {
        let digit = stem.get(..prefix.len()).filter(|head| head.eq_ignore_ascii_case(prefix));
        digit.is_some() && stem[prefix.len()..].chars().count() == 1
    };
    let is_device =
        DEVICES.iter().any(|device| stem.eq_ignore_ascii_case(device)) || is_port("COM") || is_port("LPT");
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name != "."
        && name != ".."
        && !name.ends_with(['.', ' '])
        && !name
            .chars()
            .any(|c| c.is_control() || matches!(c, '\\' | ':' | '<' | '>' | '"' | '|' | '?' | '*'))
        && !is_device
}

/// What the content of a file must be, by the name that it has in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hash {
    /// Of large files.
    Sha256(String),
    /// Of small ones: the SHA-1 by which git calls them.
    GitBlob(String),
}

impl Hash {
    pub fn parse(text: &str) -> Option<Self> {
        match text.len() {
            64 if is_hex(text) => Some(Self::Sha256(text.into())),
            40 if is_hex(text) => Some(Self::GitBlob(text.into())),
            _ => None,
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Sha256(text) | Self::GitBlob(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_by_owner_and_name_and_perhaps_more() {
        let plain = ModelRef::parse("Qwen/Qwen3.5-0.8B").unwrap();
        assert_eq!(
            (plain.id.folder().as_str(), plain.revision.as_str()),
            ("models--Qwen--Qwen3.5-0.8B", "main")
        );
        let full = ModelRef::parse("unsloth/Qwen3.5-4B-GGUF:Q4_K_M@refs/pr/3").unwrap();
        assert_eq!((full.quant.as_deref(), full.revision.as_str()), (Some("Q4_K_M"), "refs/pr/3"));
        for name in [plain, full] {
            assert_eq!(ModelRef::parse(&name.to_string()), Some(name.clone()));
            assert_eq!(RepoId::of_folder(&name.id.folder()), Some(name.id));
        }
        let no_names = [
            "qwen",
            "./qwen",
            "../x/y",
            "/tmp/model",
            "a/b/c",
            "a/..",
            "~/model",
            "a//b",
            "a/b@",
            "a/b@../x",
            "a/b:",
            "a/b@x\u{7}",
            "a--b/c",
            "C:/model",
            "a/.b",
            "a\\b/c",
        ];
        for name in no_names {
            assert_eq!(ModelRef::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn names_that_leave_their_folder_or_mean_devices_are_refused() {
        let bad = [
            "",
            ".",
            "..",
            "/tmp/x",
            "a/../b",
            "../x",
            "a//b",
            "a\\b",
            "C:/x.txt",
            "..\\..\\win.txt",
            "CON",
            "nul.txt ",
            "nul.txt",
            "com1",
            "LPT9.bin",
            "x.",
            "x ",
            "a\u{1b}]0;title\u{7}b",
            "a\nb",
            "a\0b",
            "a\u{85}b",
            "x/CON.gguf",
        ];
        for name in bad {
            assert!(!is_safe_path(name), "{name:?}");
        }
        assert!(!is_safe_path(&"a".repeat(300)));
        for name in [
            "config.json",
            "sub/dir/notes with space #1.txt",
            "model-00001-of-00002.safetensors",
            "console.txt",
        ] {
            assert!(is_safe_path(name), "{name:?}");
        }
        assert_eq!(Hash::parse("../../../x"), None);
        assert_eq!(Hash::parse(&"F".repeat(64)), None);
    }
}
