//! Where the Hub is, where its files are kept, and whether to talk to it at all: the variables that all of its tools
//! share, read here because those tools disagree about the rare cases.

use std::env;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use super::HubError;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// No token is longer; a file that is, is something else.
const MAX_TOKEN_BYTES: usize = 4096;

/// Everything the client needs to know.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// The folder of `models--…` folders. `None` for a user without a home.
    pub cache: Option<PathBuf>,
    pub endpoint: Url,
    pub token: Option<Token>,
    /// No connection is made.
    pub offline: bool,
    pub pace: Pace,
}

/// How patient downloads are, and in which pieces they come.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub connect: Duration,
    /// Without a byte for so long, a connection is given up and made anew.
    pub stall: Duration,
    /// The first wait after a failure; each further one is twice as long, up to a minute.
    pub backoff: Duration,
    /// Most that a server may ask us to wait.
    pub max_wait: Duration,
    /// Tries that bring no new byte before it is given up.
    pub tries: u32,
    /// Bytes asked for at a time.
    pub range_bytes: u32,
    /// Ranges fetched at the same time.
    pub at_once: usize,
    /// Between two looks at a lock that another process holds.
    pub lock_poll: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            stall: Duration::from_secs(30),
            backoff: Duration::from_secs(1),
            max_wait: Duration::from_secs(300),
            tries: 8,
            range_bytes: 16 << 20,
            at_once: 4,
            lock_poll: Duration::from_millis(500),
        }
    }
}

/// An access token. It has no way into a message: `Debug` hides it and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_token =
            !text.is_empty() && text.len() <= MAX_TOKEN_BYTES && text.bytes().all(|b| b.is_ascii_graphic());
        is_token.then(|| Self(text.into()))
    }

    /// For the one header that carries it.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl HubOptions {
    /// As the environment says: `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_TOKEN_PATH` and
    /// `HF_HUB_OFFLINE`. An empty variable counts as none.
    ///
    /// # Errors
    /// `Endpoint` if `HF_ENDPOINT` is no address.
    pub fn from_environment() -> Result<Self, HubError> {
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.into());
        let url = Url::parse(endpoint.trim_end_matches('/')).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
        Ok(Self {
            cache: cache(),
            endpoint: url.ok_or(HubError::Endpoint)?,
            token: token(),
            offline: is_offline(),
            pace: Pace::default(),
        })
    }
}

/// Whether no connection may be made at all.
pub fn is_offline() -> bool {
    is_on("HF_HUB_OFFLINE")
}

fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// As Python's client reads a switch.
fn is_on(name: &str) -> bool {
    text(name).is_some_and(|value| ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str()))
}

/// Never a folder that other users can write, such as `/tmp`: whoever has no home has no cache.
fn home() -> Option<PathBuf> {
    let usual = || Some(env::home_dir().filter(|home| home.is_absolute())?.join(".cache"));
    path("HF_HOME").or_else(|| Some(path("XDG_CACHE_HOME").or_else(usual)?.join("huggingface")))
}

/// Where the Hub's tools keep their files.
pub fn cache() -> Option<PathBuf> {
    path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE")).or_else(|| Some(home()?.join("hub")))
}

fn token() -> Option<Token> {
    if is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
        return None;
    }
    let of_file = |path: PathBuf| Token::new(&fs::read_to_string(path).ok()?);
    let named = text("HF_TOKEN").as_deref().and_then(Token::new);
    named.or_else(|| of_file(path("HF_TOKEN_PATH").or_else(|| Some(home()?.join("token")))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_shown() {
        let token = Token::new(" hf_secret\n").unwrap();
        assert_eq!(token.secret(), "hf_secret");
        assert!(!format!("{token:?}").contains("secret"));
        for text in ["", "  ", "two words", "line\nbreak", "ü"] {
            assert_eq!(Token::new(text), None, "{text:?}");
        }
    }
}
