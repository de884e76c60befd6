//! What the Hub says of a repository: its commit, its files with their sizes and hashes, and what a search finds.
//!
//! Requests of our own rather than those of `hf-hub`: version 1.0.0 doesn't read the SHA-256 that a listing has, doesn't
//! wait as long as a server asks, and doesn't limit what it takes in.

use reqwest::Url;
use reqwest::header::LINK;
use serde::Deserialize;
use serde_json::Value;

use super::http::{Answer, Failure, Patience, connection, host};
use super::names::{Hash, RepoId, is_commit};
use super::{Hub, HubError};
use crate::sanitize::one_line;

/// No repository of one model has more.
const MAX_FILES: usize = 20_000;
/// Of one answer of the Hub, and of a small file.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// A repository at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    pub id: RepoId,
    pub commit: String,
    pub files: Vec<RemoteFile>,
    pub licence: Option<String>,
    pub is_gated: bool,
    pub downloads: Option<u64>,
}

/// A file as the Hub lists it. Its name is what the server says: it is checked where it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    pub name: String,
    pub size: u64,
    pub hash: Hash,
}

impl Listing {
    pub fn names(&self) -> Vec<String> {
        self.files.iter().map(|file| file.name.clone()).collect()
    }

    pub fn file(&self, name: &str) -> Option<&RemoteFile> {
        self.files.iter().find(|file| file.name == name)
    }
}

/// One line of a search's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub id: String,
    pub downloads: Option<u64>,
    pub is_gated: bool,
}

#[derive(Deserialize)]
struct ModelAnswer {
    #[serde(default)]
    id: String,
    sha: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    /// `false`, or how access is given.
    #[serde(default)]
    gated: Value,
    downloads: Option<u64>,
}

impl ModelAnswer {
    fn is_gated(&self) -> bool {
        !matches!(self.gated, Value::Bool(false) | Value::Null)
    }
}

#[derive(Deserialize)]
struct TreeEntry {
    #[serde(rename = "type")]
    kind: String,
    oid: String,
    #[serde(default)]
    size: u64,
    path: String,
    lfs: Option<LfsEntry>,
}

#[derive(Deserialize)]
struct LfsEntry {
    oid: String,
    size: u64,
}

impl TreeEntry {
    /// `None` for folders, and for files whose hash isn't one.
    fn file(self) -> Option<RemoteFile> {
        let (oid, size) = self.lfs.map_or((self.oid, self.size), |lfs| (lfs.oid, lfs.size));
        let hash = Hash::parse(&oid)?;
        (self.kind == "file").then_some(RemoteFile { name: self.path, size, hash })
    }
}

impl Hub {
    /// The files of a repository at a revision.
    ///
    /// # Errors
    /// [`HubError`] says whether it is missing, closed, or out of reach.
    pub async fn listing(&self, id: &RepoId, revision: &str) -> Result<Listing, HubError> {
        self.online(format!("looking up {id}"))?;
        let url = self.api(&["api", "models", id.owner(), id.name(), "revision", revision]);
        let (info, _) = self.json::<ModelAnswer>(id, &url).await.map_err(|error| match error {
            HubError::Status { status: 404, .. } => {
                HubError::NoRevision { id: id.to_string(), revision: one_line(revision) }
            }
            error => error,
        })?;
        let is_gated = info.is_gated();
        let wrong = |what: &str| HubError::Answer { host: host(&url), what: what.into() };
        let commit =
            info.sha.filter(|commit| is_commit(commit)).ok_or_else(|| wrong("it names no commit"))?;

        let mut files = Vec::new();
        let mut page = self.api(&["api", "models", id.owner(), id.name(), "tree", &commit]);
        page.set_query(Some("recursive=true"));
        let mut next = Some(page);
        while let Some(url) = next {
            let (entries, more) = self.json::<Vec<TreeEntry>>(id, &url).await?;
            // A page that leads on without having anything would never end.
            next = more.filter(|_| !entries.is_empty());
            files.extend(entries.into_iter().filter_map(TreeEntry::file));
            if files.len() > MAX_FILES {
                return Err(wrong("it lists more files than any model has"));
            }
        }
        Ok(Listing {
            id: id.clone(),
            commit,
            files,
            licence: info.tags.iter().find_map(|tag| tag.strip_prefix("license:")).map(one_line),
            is_gated,
            downloads: info.downloads,
        })
    }

    /// Models whose name has these words, the most fetched first.
    ///
    /// # Errors
    /// As [`Hub::listing`].
    pub async fn search(&self, words: &str, limit: usize) -> Result<Vec<Found>, HubError> {
        self.online("a search")?;
        let mut url = self.api(&["api", "models"]);
        let limit_text = limit.to_string();
        url.query_pairs_mut().extend_pairs([
            ("search", words),
            ("sort", "downloads"),
            ("limit", &limit_text),
        ]);
        let nobody = RepoId::parse("models/search").expect("it has the form of an id");
        let (models, _) = self.json::<Vec<ModelAnswer>>(&nobody, &url).await?;
        let found = models.into_iter().take(limit).map(|model| Found {
            id: one_line(&model.id),
            downloads: model.downloads,
            is_gated: model.is_gated(),
        });
        Ok(found.collect())
    }

    /// Bytes `range.0` up to, not including, `range.1` of a file of a listing.
    ///
    /// # Errors
    /// As [`Hub::listing`].
    pub async fn head(
        &self,
        listing: &Listing,
        file: &RemoteFile,
        range: (u64, u64),
    ) -> Result<Vec<u8>, HubError> {
        self.online(format!("looking into {}", listing.id))?;
        if range.0 >= range.1 {
            return Ok(Vec::new());
        }
        let url = self.http.file_url(&listing.id, &listing.commit, &file.name);
        let most = usize::try_from(range.1 - range.0).unwrap_or(usize::MAX).min(MAX_ANSWER_BYTES);
        let mut patience = Patience::short(&self.options.pace);
        loop {
            match self.body(&listing.id, &url, Some(range), most).await {
                // A server without ranges sends the beginning of the file, whatever it is asked for.
                Ok((bytes, answer)) if answer.status().as_u16() == 206 || range.0 == 0 => return Ok(bytes),
                Ok(_) => {
                    let what = "it can't send a part of a file".into();
                    return Err(HubError::Answer { host: host(&url), what });
                }
                Err(failure) => tokio::time::sleep(patience.wait(failure)?).await,
            }
        }
    }

    fn api(&self, path: &[&str]) -> Url {
        let mut url = self.options.endpoint.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// An answer of the Hub, and where it goes on.
    async fn json<T: for<'a> Deserialize<'a>>(
        &self,
        id: &RepoId,
        url: &Url,
    ) -> Result<(T, Option<Url>), HubError> {
        let mut patience = Patience::short(&self.options.pace);
        loop {
            let failure = match self.body(id, url, None, MAX_ANSWER_BYTES).await {
                Ok((bytes, response)) => match serde_json::from_slice(&bytes) {
                    Ok(answer) => return Ok((answer, self.next_page(url, &response))),
                    Err(_) => Failure::passing(HubError::Answer {
                        host: host(url),
                        what: "it isn't what a Hub says".into(),
                    }),
                },
                Err(failure) => failure,
            };
            tokio::time::sleep(patience.wait(failure)?).await;
        }
    }

    /// At most `most` bytes of a body.
    async fn body(
        &self,
        id: &RepoId,
        url: &Url,
        range: Option<(u64, u64)>,
        most: usize,
    ) -> Result<(Vec<u8>, reqwest::Response), Failure> {
        let Answer { mut response, address } = self.http.get(id, url, range).await?;
        let promised = response.content_length();
        let mut bytes = Vec::new();
        while bytes.len() < most {
            let chunk = response.chunk().await;
            match chunk.map_err(|error| Failure::passing(connection(&error, &address)))? {
                Some(chunk) => bytes.extend_from_slice(&chunk[..chunk.len().min(most - bytes.len())]),
                None if range.is_some() || promised.is_some_and(|n| n > bytes.len() as u64) => {
                    let why = format!("it ended after {} bytes", bytes.len());
                    return Err(Failure::passing(HubError::Connection { host: host(&address), why }));
                }
                None => break,
            }
        }
        Ok((bytes, response))
    }

    /// Only on the same server: the token goes along.
    fn next_page(&self, url: &Url, response: &reqwest::Response) -> Option<Url> {
        let link = response.headers().get(LINK)?.to_str().ok()?;
        let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
        let next = url.join(next.split_once('<')?.1.split_once('>')?.0).ok()?;
        (next.origin() == self.options.endpoint.origin()).then_some(next)
    }
}
