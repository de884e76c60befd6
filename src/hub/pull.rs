//! Brings a model here: what is needed of it is looked up, what is missing is fetched, and then it has its place in the
//! cache. Says how it goes, and can be dropped at any time.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::api::{Listing, RemoteFile};
use super::cache::{Cache, Installed};
use super::download::{self, Blob};
use super::lock::Lock;
use super::names::{ModelRef, is_safe_path};
use super::select::{self, NoChoice, Wanted};
use super::{Hub, HubError, part, space};
use crate::sanitize::one_line;

/// Between two notices about bytes: ten a second are smooth.
const NOTICE_EVERY: Duration = Duration::from_millis(100);
/// The rate is that of about so long.
const RATE_SPAN: Duration = Duration::from_secs(5);

/// What a download says while it goes on.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// What it is about: the commit, and how many bytes there are, of which how many are here already.
    Begun {
        commit: String,
        files: usize,
        total_bytes: u64,
        licence: Option<String>,
    },
    Progress(Progress),
    /// Another process fetches this file; it is waited for.
    Waiting {
        file: String,
    },
    /// Something failed that may pass.
    Retrying {
        file: String,
        why: String,
        wait: Duration,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Progress {
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// Of the last seconds; 0 until something arrived.
    pub bytes_per_second: f64,
}

impl Progress {
    /// How long the rest takes at this rate.
    pub fn remaining(&self) -> Option<Duration> {
        let left = self.total_bytes.saturating_sub(self.done_bytes) as f64;
        Duration::try_from_secs_f64(left / self.bytes_per_second).ok()
    }
}

/// Counts bytes and tells of them, not too often.
pub struct Reporter {
    tell: Box<dyn Fn(Notice) + Send + Sync>,
    counts: Mutex<Counts>,
}

struct Counts {
    progress: Progress,
    /// Bytes and time since the rate was last looked at.
    fresh_bytes: u64,
    since: Instant,
    told: Option<Instant>,
}

impl Reporter {
    pub fn new(tell: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        let counts =
            Counts { progress: Progress::default(), fresh_bytes: 0, since: Instant::now(), told: None };
        Self { tell: Box::new(tell), counts: Mutex::new(counts) }
    }

    fn begin(&self, total_bytes: u64) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).progress.total_bytes = total_bytes;
    }

    /// Bytes that were here already.
    pub fn found(&self, bytes: u64) {
        self.change(|counts| counts.progress.done_bytes += bytes);
    }

    pub fn received(&self, bytes: u64) {
        self.change(|counts| {
            counts.progress.done_bytes += bytes;
            counts.fresh_bytes += bytes;
            let span = counts.since.elapsed();
            if span >= NOTICE_EVERY {
                let rate = counts.fresh_bytes as f64 / span.as_secs_f64();
                let old = counts.progress.bytes_per_second;
                let weight = (span.as_secs_f64() / RATE_SPAN.as_secs_f64()).min(1.0);
                counts.progress.bytes_per_second =
                    if old == 0.0 { rate } else { old + weight * (rate - old) };
                (counts.fresh_bytes, counts.since) = (0, Instant::now());
            }
        });
    }

    /// Bytes that were wrong.
    pub fn lost(&self, bytes: u64) {
        self.change(|counts| counts.progress.done_bytes = counts.progress.done_bytes.saturating_sub(bytes));
    }

    pub fn waiting_for_retry(&self, file: &str, why: &str, wait: Duration) {
        (self.tell)(Notice::Retrying { file: one_line(file), why: one_line(why), wait });
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut counts);
        let is_whole = counts.progress.done_bytes >= counts.progress.total_bytes;
        if is_whole || counts.told.is_none_or(|told| told.elapsed() >= NOTICE_EVERY) {
            counts.told = Some(Instant::now());
            let progress = counts.progress;
            drop(counts);
            (self.tell)(Notice::Progress(progress));
        }
    }
}

impl Hub {
    /// Fetches what is missing of a model, and says where it is.
    ///
    /// # Errors
    /// [`HubError`]; what arrived is kept for the next try.
    pub async fn pull(&self, model: &ModelRef, report: &Reporter) -> Result<Installed, HubError> {
        self.online(format!("downloading {model}"))?;
        let cache = self.cache()?;
        let listing = self.listing(&model.id, &model.revision).await?;
        let pull = Pull { hub: self, cache: &cache, listing: &listing, report };
        let wanted = listing.choose(model.quant.as_deref())?;
        let files = self.needed(&listing, &wanted).await?;
        pull.check_space(&files)?;
        let total_bytes = files.iter().map(|file| file.size).sum();
        report.begin(total_bytes);
        (report.tell)(Notice::Begun {
            commit: listing.commit.clone(),
            files: files.len(),
            total_bytes,
            licence: listing.licence.clone(),
        });
        for file in files {
            pull.fetch(file).await?;
        }
        cache.set_ref(&model.id, &model.revision, &listing.commit)?;
        cache.find(model).ok_or_else(|| HubError::NothingUsable { id: model.id.to_string() })
    }

    /// The files that a model needs, small ones first: an index says which ones the weights are.
    ///
    /// # Errors
    /// [`HubError`], also for a listing without them or with names that are not safe.
    pub async fn needed<'a>(
        &self,
        listing: &'a Listing,
        wanted: &Wanted,
    ) -> Result<Vec<&'a RemoteFile>, HubError> {
        let mut files = listing.named(&wanted.names())?;
        if let Wanted::Safetensors { index: Some(index), .. } = wanted {
            let index = listing.named(&[index.as_str()])?.remove(0);
            let bytes = self.small_file(listing, index).await?;
            let shards = select::shards(&bytes);
            let shards = shards.ok_or_else(|| HubError::Damaged { name: select::INDEX.into() })?;
            files.extend(listing.named(&shards.iter().map(String::as_str).collect::<Vec<_>>())?);
        }
        Ok(files)
    }

    /// The content of a file, from the cache if it is there.
    async fn small_file(&self, listing: &Listing, file: &RemoteFile) -> Result<Vec<u8>, HubError> {
        let is_right = |bytes: &Vec<u8>| part::hash_of_bytes(bytes, &file.hash) == file.hash.as_str();
        let here =
            self.cache().ok().map(|cache| cache.snapshot(&listing.id, &listing.commit).join(&file.name));
        let here = here.filter(|path| fs::metadata(path).is_ok_and(|meta| meta.len() == file.size));
        if let Some(bytes) = here.and_then(|path| fs::read(path).ok()).filter(is_right) {
            return Ok(bytes);
        }
        for _ in 0..2 {
            let bytes = self.head(listing, file, (0, file.size)).await?;
            if is_right(&bytes) {
                return Ok(bytes);
            }
        }
        Err(HubError::Damaged { name: one_line(&file.name) })
    }
}

impl Listing {
    /// What of it is needed.
    ///
    /// # Errors
    /// If there is nothing to run, or if it isn't clear what is meant.
    pub fn choose(&self, quant: Option<&str>) -> Result<Wanted, HubError> {
        let id = self.id.to_string();
        let clean = |names: Vec<String>| names.iter().map(|name| one_line(name)).collect();
        select::choose(&self.names(), quant).map_err(|none| match none {
            NoChoice::Nothing => HubError::NothingUsable { id },
            NoChoice::NoQuant(names) if names.is_empty() => HubError::NothingUsable { id },
            NoChoice::Several(names) => HubError::Several { id, names: clean(names) },
            NoChoice::NoQuant(names) => {
                HubError::NoQuant { id, quant: quant.unwrap_or_default().to_owned(), names: clean(names) }
            }
        })
    }
}

impl Listing {
    /// Files by name. This is where a server's names come in.
    fn named(&self, names: &[&str]) -> Result<Vec<&RemoteFile>, HubError> {
        let id = || self.id.to_string();
        let file = |name: &&str| {
            if !is_safe_path(name) {
                return Err(HubError::UnsafeName { id: id(), name: one_line(name) });
            }
            self.file(name).ok_or_else(|| HubError::Missing { id: id(), name: one_line(name) })
        };
        names.iter().map(file).collect()
    }
}

struct Pull<'a> {
    hub: &'a Hub,
    cache: &'a Cache,
    listing: &'a Listing,
    report: &'a Reporter,
}

impl Pull<'_> {
    fn is_here(&self, file: &RemoteFile) -> bool {
        self.cache.has(&self.listing.id, &self.listing.commit, &file.name, &file.hash, file.size)
    }

    fn check_space(&self, files: &[&RemoteFile]) -> Result<(), HubError> {
        let blobs = self.cache.blobs(&self.listing.id);
        let missing = files.iter().filter(|file| !self.is_here(file));
        let left =
            |file: &&RemoteFile| file.size.saturating_sub(part::bytes_left(&blobs, &file.hash, file.size));
        let bytes: u64 = missing.map(left).fold(0, u64::saturating_add);
        let needed = bytes.saturating_add(space::margin(bytes));
        match space::free(self.cache.root()) {
            Some(free) if bytes > 0 && needed > free => {
                Err(HubError::NoSpace { folder: self.cache.root().to_owned(), needed, free })
            }
            _ => Ok(()),
        }
    }

    /// Has the file at its place in the snapshot, by whoever fetches it.
    async fn fetch(&self, file: &RemoteFile) -> Result<(), HubError> {
        let (id, commit, report) = (&self.listing.id, &self.listing.commit, self.report);
        let blobs = self.cache.blobs(id);
        if self.is_here(file) {
            report.found(file.size);
        } else {
            make_folder(&blobs)?;
            let path = self.cache.lock(id, &file.hash);
            let waiting = || (report.tell)(Notice::Waiting { file: one_line(&file.name) });
            let lock = Lock::take(&path, self.hub.options.pace.lock_poll, waiting).await;
            let _lock =
                lock.map_err(|source| HubError::File { doing: "cannot lock", path: path.clone(), source })?;
            // Whoever had the lock may have fetched it.
            if self.is_here(file) {
                report.found(file.size);
            } else {
                let blob = Blob {
                    name: one_line(&file.name),
                    url: self.hub.http.file_url(id, commit, &file.name),
                    size: file.size,
                    hash: file.hash.clone(),
                };
                download::fetch(&self.hub.http, id, &blob, &blobs, report).await?;
            }
        }
        self.cache.link(id, commit, &file.name, &file.hash)
    }
}

fn make_folder(folder: &PathBuf) -> Result<(), HubError> {
    fs::create_dir_all(folder).map_err(|source| HubError::File {
        doing: "cannot make",
        path: folder.clone(),
        source,
    })
}
