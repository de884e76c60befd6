//! Requests for bytes: redirects followed by hand, so that the token goes to the Hub and nowhere else, and failures
//! sorted by what helps against them.
//!
//! Addresses of content servers carry signatures; no message shows more of one than its host.

use std::time::Duration;

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, HeaderMap, HeaderValue, LOCATION, RANGE, RETRY_AFTER,
};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};

use super::HubError;
use super::names::RepoId;
use super::options::{HubOptions, Pace, Token};
use crate::sanitize::one_line;

const MAX_HOPS: usize = 10;
/// What is shown of a message of a server.
const MAX_MESSAGE_CHARS: usize = 200;
/// The first wait after a failure is doubled up to this.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

pub const USER_AGENT: &str = concat!("loquat/", env!("CARGO_PKG_VERSION"));

pub struct Http {
    client: Client,
    endpoint: Url,
    token: Option<Token>,
    pub pace: Pace,
}

/// What a request failed of, and what would help.
#[derive(Debug)]
pub struct Failure {
    pub error: HubError,
    pub remedy: Remedy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Asking again changes nothing.
    None,
    /// Later, perhaps; the server may have said when.
    Wait(Option<Duration>),
    /// The address has expired: ask the Hub for a new one.
    NewAddress,
}

impl Failure {
    pub fn last(error: HubError) -> Self {
        Self { error, remedy: Remedy::None }
    }

    pub fn passing(error: HubError) -> Self {
        Self { error, remedy: Remedy::Wait(None) }
    }
}

/// An answer with a body, and the address that gave it.
pub struct Answer {
    pub response: Response,
    pub address: Url,
}

impl Http {
    /// # Errors
    /// `Client` if the system gives no connections, for instance because a proxy's address is wrong.
    pub fn new(options: &HubOptions) -> Result<Self, HubError> {
        let builder = Client::builder().user_agent(USER_AGENT).redirect(Policy::none());
        let client = builder.connect_timeout(options.pace.connect).read_timeout(options.pace.stall).build();
        Ok(Self {
            client: client.map_err(|error| HubError::Client { why: plain(&error) })?,
            endpoint: options.endpoint.clone(),
            token: options.token.clone(),
            pace: options.pace,
        })
    }

    /// The address of a file of a repository at a commit.
    pub fn file_url(&self, id: &RepoId, commit: &str, path: &str) -> Url {
        let mut url = self.endpoint.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments
                .pop_if_empty()
                .extend([id.owner(), id.name(), "resolve", commit])
                .extend(path.split('/'));
        }
        url
    }

    /// Whether this address is the Hub's own.
    fn is_hub(&self, url: &Url) -> bool {
        url.origin() == self.endpoint.origin()
    }

    /// Asks for a file, or for bytes `range.0` up to, not including, `range.1` of it.
    ///
    /// # Errors
    /// [`Failure`], also for a body that is not the asked-for range.
    pub async fn get(&self, id: &RepoId, url: &Url, range: Option<(u64, u64)>) -> Result<Answer, Failure> {
        let mut url = url.clone();
        for _ in 0..MAX_HOPS {
            let mut headers = HeaderMap::new();
            // A body that is packed on its way has other lengths and offsets than the file.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            if let Some((start, end)) = range {
                let value = HeaderValue::from_str(&format!("bytes={start}-{}", end - 1));
                headers.insert(RANGE, value.expect("digits are a header's value"));
            }
            if let Some(token) = self.token.as_ref().filter(|_| self.is_hub(&url)) {
                let value = HeaderValue::from_str(&format!("Bearer {}", token.secret()));
                let mut value = value.expect("a token has no control characters");
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
            let response = self.client.get(url.clone()).headers(headers).send().await;
            let response = response.map_err(|error| Failure::passing(connection(&error, &url)))?;
            if !response.status().is_redirection() {
                return self.judge(id, response, url, range);
            }
            url = self.next(&response, &url)?;
        }
        Err(Failure::last(HubError::Answer { host: host(&url), what: "it redirects in circles".into() }))
    }

    fn next(&self, response: &Response, url: &Url) -> Result<Url, Failure> {
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let next = location.and_then(|location| url.join(location).ok());
        let what = "it redirects to nowhere that can be fetched";
        let wrong = || Failure::passing(HubError::Answer { host: host(url), what: what.into() });
        let is_downgrade = |next: &Url| url.scheme() == "https" && next.scheme() != "https";
        next.filter(|next| matches!(next.scheme(), "http" | "https") && !is_downgrade(next)).ok_or_else(wrong)
    }

    fn judge(
        &self,
        id: &RepoId,
        response: Response,
        url: Url,
        range: Option<(u64, u64)>,
    ) -> Result<Answer, Failure> {
        let status = response.status();
        let headers = response.headers();
        if status.is_success() {
            let wrong = |what: String| Failure::passing(HubError::Answer { host: host(&url), what });
            if status == StatusCode::PARTIAL_CONTENT {
                let given =
                    headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
                let start = range.map(|(start, _)| start);
                if content_start(given) != start || start.is_none() {
                    return Err(wrong(format!("it sent the range {given:?}, which was not asked for")));
                }
            }
            return Ok(Answer { response, address: url });
        }
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let refusal = Refusal {
            status: status.as_u16(),
            code: header("x-error-code"),
            message: header("x-error-message"),
            is_hub: self.is_hub(&url),
            retry_after: header(RETRY_AFTER.as_str()).and_then(|text| retry_after(&text)),
        };
        Err(refusal.failure(id, host(&url), self.token.is_some()))
    }
}

/// An answer that is not a success.
pub struct Refusal {
    pub status: u16,
    /// The Hub's own name for it.
    pub code: Option<String>,
    pub message: Option<String>,
    pub is_hub: bool,
    pub retry_after: Option<Duration>,
}

impl Refusal {
    pub fn failure(self, id: &RepoId, host: String, signed_in: bool) -> Failure {
        let code = self.code.as_deref().unwrap_or_default();
        let status = HubError::Status {
            host,
            status: self.status,
            message: self.message.as_deref().map(shorten).unwrap_or_default(),
        };
        let id = id.to_string();
        match self.status {
            // Signed addresses expire, and content servers say so in several ways.
            401 | 403 | 404 | 410 if !self.is_hub => Failure { error: status, remedy: Remedy::NewAddress },
            401 | 403 if code == "GatedRepo" => Failure::last(HubError::Gated { id, signed_in }),
            401 if code == "RepoNotFound" => Failure::last(HubError::NoRepo { id, signed_in }),
            401 => Failure::last(HubError::Unauthorized { id, signed_in }),
            403 => Failure::last(HubError::Forbidden {
                id,
                why: self.message.as_deref().map(shorten).unwrap_or_default(),
            }),
            404 if code == "RepoNotFound" => Failure::last(HubError::NoRepo { id, signed_in }),
            404 | 410 | 400 | 405 | 451 => Failure::last(status),
            _ => Failure { error: status, remedy: Remedy::Wait(self.retry_after) },
        }
    }
}

fn shorten(message: &str) -> String {
    one_line(message).chars().take(MAX_MESSAGE_CHARS).collect()
}

/// Only what names the server: the rest of a signed address is a secret.
pub fn host(url: &Url) -> String {
    one_line(url.host_str().unwrap_or("the server"))
}

pub fn connection(error: &reqwest::Error, url: &Url) -> HubError {
    HubError::Connection { host: host(url), why: plain(error) }
}

/// The deepest cause, which names the fault without the address.
pub fn plain(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it didn't answer in time".into();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let text = cause.to_string();
    // A top-level message names the whole address.
    if text.contains("://") { "the connection failed".into() } else { shorten(&text) }
}

/// The first byte of `bytes 10-19/100`.
fn content_start(value: &str) -> Option<u64> {
    value.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

/// Seconds; the form with a date is rare, and a wrong clock would make much of it.
pub fn retry_after(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

/// Counts failures in a row, and waits between them.
pub struct Patience<'a> {
    pace: &'a Pace,
    tries: u32,
    failures: u32,
}

/// Whoever asks for a list sits and waits for it; a download can go on for hours.
const LOOKUP_TRIES: u32 = 3;

impl<'a> Patience<'a> {
    pub fn new(pace: &'a Pace) -> Self {
        Self { pace, tries: pace.tries, failures: 0 }
    }

    /// For a question whose answer somebody waits for.
    pub fn short(pace: &'a Pace) -> Self {
        Self { tries: pace.tries.min(LOOKUP_TRIES), ..Self::new(pace) }
    }

    /// Something went forward.
    pub fn renew(&mut self) {
        self.failures = 0;
    }

    /// How long to wait until the next try.
    ///
    /// # Errors
    /// The failure's own error, when there is no hope or no patience left.
    pub fn wait(&mut self, failure: Failure) -> Result<Duration, HubError> {
        self.failures += 1;
        if self.failures > self.tries {
            return Err(failure.error);
        }
        let doublings = self.failures.saturating_sub(1).min(16);
        let backoff = (self.pace.backoff * (1 << doublings)).min(MAX_BACKOFF);
        match failure.remedy {
            Remedy::None => Err(failure.error),
            Remedy::Wait(Some(asked)) if asked > self.pace.max_wait => Err(failure.error),
            Remedy::Wait(Some(asked)) => Ok(asked),
            // The first new address may well be good at once.
            Remedy::NewAddress if self.failures == 1 => Ok(Duration::ZERO),
            Remedy::Wait(None) | Remedy::NewAddress => Ok(backoff),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, is_hub: bool) -> Refusal {
        Refusal { status, code: None, message: None, is_hub, retry_after: None }
    }

    #[test]
    fn an_expired_address_is_renewed_and_a_refusal_of_the_hub_is_final() {
        let id = RepoId::parse("a/b").unwrap();
        let remedy = |status, is_hub| refusal(status, is_hub).failure(&id, "host".into(), false).remedy;
        assert_eq!(remedy(403, false), Remedy::NewAddress);
        assert_eq!(remedy(403, true), Remedy::None);
        assert_eq!(remedy(404, true), Remedy::None);
        assert_eq!(remedy(503, true), Remedy::Wait(None));
        assert_eq!(remedy(416, false), Remedy::Wait(None));
    }

    #[test]
    fn waits_grow_are_bounded_and_begin_anew_with_each_new_byte() {
        let pace = Pace { tries: 3, ..Pace::default() };
        let mut patience = Patience::new(&pace);
        let failure = || Failure::passing(HubError::Endpoint);
        let waits: Vec<u64> = (0..3).map(|_| patience.wait(failure()).unwrap().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4]);
        assert!(patience.wait(failure()).is_err());
        patience.renew();
        assert_eq!(patience.wait(failure()).unwrap().as_secs(), 1);
        let asked = |secs| Failure {
            error: HubError::Endpoint,
            remedy: Remedy::Wait(Some(Duration::from_secs(secs))),
        };
        assert_eq!(patience.wait(asked(7)).unwrap().as_secs(), 7);
        assert!(patience.wait(asked(3600)).is_err());
    }

    #[test]
    fn no_message_shows_a_signed_address() {
        let url = Url::parse("https://cdn.example/blob?Signature=secret").unwrap();
        assert_eq!(host(&url), "cdn.example");
        assert_eq!(content_start("bytes 10-19/100"), Some(10));
        assert_eq!(content_start("10-19"), None);
    }
}
