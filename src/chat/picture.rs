//! Pictures and clips as parts of a message.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// A picture (or a clip) that belongs to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// File name, for people. Untrusted text.
    pub name: String,
    pub source: PictureSource,
    pub detail: Detail,
}

/// Where a picture's file is. The session reads it once, when the message is sent or the picture inspected:
/// what happens to the file afterwards doesn't change the conversation.
#[derive(Clone, PartialEq, Eq)]
pub enum PictureSource {
    File(PathBuf),
    /// On the network. Who may fetch it does so before the message is sent.
    Address(String),
    /// The content of the file, still in its own format.
    Bytes(Arc<[u8]>),
}

/// How many pixels of a picture the model gets to see: more pixels, more tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    /// About 256 tokens: enough for "what is this".
    Low,
    /// About 1024 tokens, a megapixel.
    #[default]
    Auto,
    /// As many as the model can take.
    High,
    Pixels(u32),
}

impl Picture {
    pub fn file(path: PathBuf, detail: Detail) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self { name, source: PictureSource::File(path), detail }
    }

    /// A relative path begins in `folder`.
    pub fn resolve(&mut self, folder: &Path) {
        if let PictureSource::File(path) = &mut self.source {
            *path = folder.join(&*path);
        }
    }
}

/// Without the content, which can be megabytes.
impl fmt::Debug for PictureSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Address(address) => f.debug_tuple("Address").field(address).finish(),
            Self::Bytes(bytes) => f.debug_tuple("Bytes").field(&bytes.len()).finish(),
        }
    }
}

impl Detail {
    /// At most this many pixels, before the model's own limit.
    pub fn max_pixels(self) -> u64 {
        match self {
            Self::Low => 256 << 10,
            Self::Auto => 1 << 20,
            Self::High => u64::MAX,
            Self::Pixels(pixels) => u64::from(pixels),
        }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Low => f.write_str("low"),
            Self::Auto => f.write_str("auto"),
            Self::High => f.write_str("high"),
            Self::Pixels(pixels) => write!(f, "{pixels}"),
        }
    }
}

impl FromStr for Detail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "low" => Ok(Self::Low),
            "auto" => Ok(Self::Auto),
            "high" => Ok(Self::High),
            _ => match text.parse() {
                Ok(pixels) if pixels > 0 => Ok(Self::Pixels(pixels)),
                _ => Err("expected low, auto, high or a number of pixels".into()),
            },
        }
    }
}
