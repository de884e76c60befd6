//! Fetches one file: several ranges at a time, each going on where it broke off, until the content is whole and right.
//!
//! The file arrives in a [`Part`] and takes its name only when its hash is that of the listing. A server's word is
//! never taken for anything: not its status, its length, or which range it says it sends.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::try_join_all;
use reqwest::{StatusCode, Url};
use tokio::sync::Mutex;

use super::HubError;
use super::http::{Answer, Failure, Http, Patience, connection};
use super::names::{Hash, RepoId};
use super::part::Part;
use super::pull::Reporter;

/// A file as the listing has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its name in the repository, for people.
    pub name: String,
    pub url: Url,
    pub size: u64,
    pub hash: Hash,
}

/// Fetches it into the folder of blobs, under the name of its hash. What a dropped future leaves is gone on with.
///
/// # Errors
/// [`HubError`]; `Damaged` if it arrived twice and was wrong.
pub async fn fetch(
    http: &Http,
    id: &RepoId,
    blob: &Blob,
    blobs: &Path,
    report: &Reporter,
) -> Result<(), HubError> {
    for _ in 0..2 {
        let doing = "cannot write the download";
        let open = Part::open(blobs, &blob.hash, blob.size, http.pace.range_bytes);
        let part =
            Arc::new(open.map_err(|source| HubError::File { doing, path: blobs.to_owned(), source })?);
        report.found(part.done_bytes());
        let failed = |source| HubError::File { doing, path: part.path().to_owned(), source };
        let hashing = {
            let (part, hash) = (part.clone(), blob.hash.clone());
            tokio::task::spawn_blocking(move || part.hash(&hash))
        };
        let download = Download {
            http,
            id,
            blob,
            part: &part,
            report,
            address: Mutex::new(None),
            ignores_ranges: AtomicBool::new(false),
            _guard: Abandon(part.clone()),
        };
        download.run().await?;
        let hash = hashing.await.map_err(io::Error::other).and_then(|hash| hash).map_err(failed)?;
        let (part_to_finish, name) = (part.clone(), blobs.join(blob.hash.as_str()));
        if hash.as_deref() == Some(blob.hash.as_str()) {
            let finish = tokio::task::spawn_blocking(move || part_to_finish.finish(&name));
            return finish.await.map_err(io::Error::other).and_then(|done| done).map_err(failed);
        }
        part.discard().map_err(failed)?;
        report.lost(blob.size);
    }
    Err(HubError::Damaged { name: blob.name.clone() })
}

/// The thread that hashes must not wait for a download that was dropped. One that is done doesn't hear it any more.
struct Abandon(Arc<Part>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

struct Download<'a> {
    http: &'a Http,
    id: &'a RepoId,
    blob: &'a Blob,
    part: &'a Arc<Part>,
    report: &'a Reporter,
    /// Where the Hub sent us last; it may expire.
    address: Mutex<Option<Url>>,
    ignores_ranges: AtomicBool,
    _guard: Abandon,
}

/// How one request ended.
enum Fetched {
    /// What was asked for is there.
    All,
    /// The server sends the whole file, whatever it is asked for.
    NoRanges,
}

impl Download<'_> {
    async fn run(&self) -> Result<(), HubError> {
        let next = AtomicUsize::new(0);
        let workers = self.http.pace.at_once.clamp(1, self.part.n_pieces().max(1));
        try_join_all((0..workers).map(|_| self.work(&next))).await?;
        if self.ignores_ranges.load(Ordering::Relaxed) { self.whole().await } else { Ok(()) }
    }

    /// Takes one piece after the other, in order, so that the hash keeps up.
    async fn work(&self, next: &AtomicUsize) -> Result<(), HubError> {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= self.part.n_pieces() {
                return Ok(());
            }
            let mut patience = Patience::new(&self.http.pace);
            while let Some(range) = self.part.missing(piece) {
                if self.ignores_ranges.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let before = self.part.missing(piece);
                match self.request(Some(range)).await {
                    Ok(Fetched::All) => {}
                    Ok(Fetched::NoRanges) => self.ignores_ranges.store(true, Ordering::Relaxed),
                    Err(failure) => {
                        self.recover(&mut patience, failure, self.part.missing(piece) != before).await?
                    }
                }
            }
        }
    }

    /// From a server without ranges: everything in one stream, as often as it takes.
    async fn whole(&self) -> Result<(), HubError> {
        let mut patience = Patience::new(&self.http.pace);
        while self.part.done_bytes() < self.blob.size {
            let before = self.part.done_bytes();
            if let Err(failure) = self.request(None).await {
                self.recover(&mut patience, failure, self.part.done_bytes() > before).await?;
            }
        }
        Ok(())
    }

    async fn recover(
        &self,
        patience: &mut Patience<'_>,
        failure: Failure,
        moved: bool,
    ) -> Result<(), HubError> {
        if moved {
            patience.renew();
        }
        // Whatever failed may have been the address.
        *self.address.lock().await = None;
        let why = failure.error.to_string();
        let wait = patience.wait(failure)?;
        self.report.waiting_for_retry(&self.blob.name, &why, wait);
        tokio::time::sleep(wait).await;
        Ok(())
    }

    async fn request(&self, range: Option<(u64, u64)>) -> Result<Fetched, Failure> {
        let known = self.address.lock().await.clone();
        let answer = self.http.get(self.id, known.as_ref().unwrap_or(&self.blob.url), range).await?;
        if known.is_none() {
            *self.address.lock().await = Some(answer.address.clone());
        }
        let is_partial = answer.response.status() == StatusCode::PARTIAL_CONTENT;
        let (start, end) = match range {
            Some(range) if is_partial => range,
            Some((0, end)) if end == self.blob.size => (0, end),
            Some(_) => return Ok(Fetched::NoRanges),
            None => (0, self.blob.size),
        };
        self.receive(answer, start, end).await.map(|()| Fetched::All)
    }

    /// Writes the body, which begins at `start` of the file; no byte of it counts from `end` on.
    async fn receive(&self, mut answer: Answer, start: u64, end: u64) -> Result<(), Failure> {
        let mut at = start;
        while at < end {
            let chunk = answer.response.chunk().await;
            let chunk = chunk.map_err(|error| Failure::passing(connection(&error, &answer.address)))?;
            let Some(chunk) = chunk else {
                let why = format!("it ended after {} of {} bytes", at - start, end - start);
                let host = super::http::host(&answer.address);
                return Err(Failure::passing(HubError::Connection { host, why }));
            };
            let room = usize::try_from(end - at).unwrap_or(usize::MAX).min(chunk.len());
            let n_new = self.part.write(at, &chunk[..room]).map_err(|error| self.write_failed(error))?;
            at += room as u64;
            self.report.received(n_new);
            if self.part.wants_sync(n_new) {
                let part = self.part.clone();
                let synced = tokio::task::spawn_blocking(move || part.sync()).await.map_err(io::Error::other);
                synced.and_then(|done| done).map_err(|error| self.write_failed(error))?;
            }
        }
        Ok(())
    }

    /// A disk that is full or broken isn't helped by trying again.
    fn write_failed(&self, source: io::Error) -> Failure {
        let path = self.part.path();
        let folder = path.parent().unwrap_or(path).to_owned();
        Failure::last(match (source.kind(), super::space::free(&folder)) {
            (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, free) => HubError::NoSpace {
                needed: self.blob.size - self.part.done_bytes(),
                free: free.unwrap_or_default(),
                folder,
            },
            _ => HubError::File { doing: "cannot write the download", path: path.to_owned(), source },
        })
    }
}
