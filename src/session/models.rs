//! Models for a face: which there are, whether they would fit, and one download at a time. What takes time happens
//! beside the manager and reports to it.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::{Done, speed};
use crate::catalog::{self, fit, here, resolve};
use crate::engine::built_in;
use crate::engine::generate::LoadOptions;
use crate::engine::ram;
use crate::hub::names::{ModelRef, RepoId};
use crate::hub::options::HubOptions;
use crate::hub::pull::{Notice, Reporter};
use crate::hub::table::{Known, known};
use crate::hub::{HubError, space};
use crate::msg::{DownloadProgress, Judgement, Machine, ModelCommand, ModelEvent, ModelRow, Verdict};
use crate::sanitize::one_line;

/// Lines of a search's result.
const MAX_FOUND: usize = 20;

/// What goes on beside the manager.
pub struct Models {
    load: LoadOptions,
    chores: mpsc::UnboundedSender<Done>,
    download: Option<AbortHandle>,
    /// Models that were asked for. Each is looked for on a thread of its own, so answers may come in another order.
    asked: u64,
}

impl Models {
    pub fn new(load: LoadOptions, chores: mpsc::UnboundedSender<Done>) -> Self {
        Self { load, chores, download: None, asked: 0 }
    }

    /// Begins what was asked for.
    pub fn command(&mut self, command: ModelCommand) {
        match command {
            ModelCommand::List => self.beside(list),
            ModelCommand::Context(tokens) => self.load.context_tokens = Some(tokens as usize),
            ModelCommand::Judge(name) => self.beside(move |load, tell| {
                let judgement = judge(load, &name);
                tell(ModelEvent::Judged { name, judgement });
            }),
            ModelCommand::Search(words) => self.beside(move |_, tell| {
                let found = search(&words);
                tell(ModelEvent::Found { words, found });
            }),
            ModelCommand::Download(name) => self.download(name),
            ModelCommand::StopDownload => self.stop_download(),
            ModelCommand::Load(name) => {
                self.asked += 1;
                let (chores, asked) = (self.chores.clone(), self.asked);
                tokio::task::spawn_blocking(move || {
                    let path = find(&name);
                    // Nobody listens any more when the session has ended.
                    let _ = chores.send(Done::ModelFound { asked, name, path });
                });
            }
        }
    }

    /// Whether this is the model that was asked for last.
    pub fn is_latest(&self, asked: u64) -> bool {
        asked == self.asked
    }

    /// How to load the model at `dir`.
    pub fn load_options(&self, dir: PathBuf) -> LoadOptions {
        LoadOptions { dir, is_default: false, ..self.load.clone() }
    }

    /// Runs on a thread of its own: looking at files and devices takes a while.
    fn beside(&self, work: impl FnOnce(&LoadOptions, &dyn Fn(ModelEvent)) + Send + 'static) {
        let (load, chores) = (self.load.clone(), self.chores.clone());
        tokio::task::spawn_blocking(move || {
            work(&load, &|event| {
                let _ = chores.send(Done::Models(event));
            });
        });
    }

    fn stop_download(&mut self) {
        if let Some(download) = self.download.take() {
            download.abort();
        }
    }

    fn download(&mut self, name: String) {
        self.stop_download();
        let chores = self.chores.clone();
        let task = tokio::spawn(async move {
            let event = match fetch(&name, chores.clone()).await {
                Ok(()) => ModelEvent::Downloaded { name },
                Err(error) => ModelEvent::DownloadFailed { name, why: error.to_string() },
            };
            let _ = chores.send(Done::Models(event));
        });
        self.download = Some(task.abort_handle());
    }
}

async fn fetch(name: &str, chores: mpsc::UnboundedSender<Done>) -> Result<(), HubError> {
    let model = ModelRef::parse(name).ok_or_else(|| HubError::Name(name.to_owned()))?;
    let hub = catalog::hub()?;
    let (named, progress) = (name.to_owned(), Mutex::new(DownloadProgress::default()));
    let reporter = Reporter::new(move |notice| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        note(&mut progress, &notice);
        let event = ModelEvent::Downloading { name: named.clone(), progress: progress.clone() };
        let _ = chores.send(Done::Models(event));
    });
    hub.pull(&model, &reporter).await.map(|_| ())
}

fn note(progress: &mut DownloadProgress, notice: &Notice) {
    match notice {
        Notice::Begun { total_bytes, .. } => progress.total_bytes = *total_bytes,
        Notice::Progress(now) => {
            *progress = DownloadProgress {
                done_bytes: now.done_bytes,
                total_bytes: now.total_bytes,
                bytes_per_second: now.bytes_per_second as u64,
                seconds_left: now.remaining().map(|left| left.as_secs()),
                note: None,
            }
        }
        Notice::Waiting { .. } => progress.note = Some("another window is downloading it".into()),
        Notice::Retrying { why, wait, .. } => {
            progress.note = Some(format!("{why}; trying again in {} s", wait.as_secs_f32().ceil()));
        }
    }
}

fn machine() -> Machine {
    let options = HubOptions::from_environment().ok();
    let folder = options.as_ref().and_then(|options| options.cache.clone());
    Machine {
        memory_bytes: ram::available(),
        disk_bytes: folder.as_deref().and_then(space::free),
        bandwidth_bytes: Some(crate::engine::ram::bandwidth()),
        folder: folder.map(|folder| one_line(&folder.display().to_string())),
        offline: options.is_some_and(|options| options.offline),
    }
}

/// First what is known at once, then the verdicts, the smallest model first.
fn list(load: &LoadOptions, tell: &dyn Fn(ModelEvent)) {
    let here = here::here();
    let machine = machine();
    let mut models: Vec<ModelRow> = here
        .iter()
        .map(|model| ModelRow {
            name: model.name.clone(),
            bytes: Some(model.bytes),
            store: Some(model.store.into()),
            about: String::new(),
        })
        .collect();
    let is_here = |known: &Known| here.iter().any(|model| model.name == known.id);
    models.extend(known().iter().filter(|known| !is_here(known)).map(row));
    let names: Vec<(String, bool)> =
        models.iter().map(|model| (model.name.clone(), model.store.is_some())).collect();
    let offline = machine.offline;
    tell(ModelEvent::Listed { machine, models });

    let mut too_big: Option<Judgement> = None;
    for (name, is_here) in names {
        if !is_here && offline {
            break;
        }
        // The table is in order of size: what is larger than one that is too big is not asked about.
        let judgement = match &too_big {
            Some(judgement) if !is_here => {
                Ok(Judgement { download_bytes: 0, needs_bytes: 0, terms: Vec::new(), ..judgement.clone() })
            }
            _ => judge(load, &name),
        };
        if let Ok(judgement @ Judgement { verdict: Verdict::TooBig, .. }) = &judgement
            && !is_here
        {
            too_big = Some(judgement.clone());
        }
        // Without a connection each would fail after a long wait.
        let is_last = judgement.is_err() && !is_here;
        tell(ModelEvent::Judged { name, judgement });
        if is_last {
            break;
        }
    }
}

fn row(known: &Known) -> ModelRow {
    ModelRow {
        name: known.id.clone(),
        bytes: Some(known.bytes),
        store: None,
        about: format!("{} · {}", known.modes.join(", "), known.licence),
    }
}

fn search(words: &str) -> Result<Vec<ModelRow>, String> {
    let hub = catalog::hub().map_err(|error| error.to_string())?;
    let found =
        Handle::current().block_on(hub.search(words, MAX_FOUND)).map_err(|error| error.to_string())?;
    let models = found.into_iter().filter(|model| RepoId::parse(&model.id).is_some());
    let row = |model: crate::hub::api::Found| ModelRow {
        name: model.id,
        bytes: None,
        store: None,
        about: if model.is_gated { "asks to accept its terms".into() } else { String::new() },
    };
    Ok(models.map(row).collect())
}

fn judge(load: &LoadOptions, name: &str) -> Result<Judgement, String> {
    let fit = match resolve::named(name.as_ref()) {
        resolve::Named::Hub(model) => {
            let hub = catalog::hub().map_err(|error| error.to_string())?;
            Handle::current().block_on(fit::fit(&hub, &model, load)).map_err(|error| error.to_string())?
        }
        _ => fit::Fit {
            download_bytes: 0,
            inspection: fit::look(load, find(name)?).map_err(|error| error.to_string())?,
        },
    };
    let judgement = fit.judgement();
    Ok(Judgement { tokens_per_second: speed::estimate(&fit.inspection), ..judgement })
}

/// Where a model is that is here.
fn find(name: &str) -> Result<PathBuf, String> {
    let hub = catalog::hub().map_err(|error| error.to_string())?;
    let found = Handle::current().block_on(resolve::resolve(&hub, name.as_ref(), None));
    let path = found.map_err(|error| error.to_string())?;
    // Loading would say so too, but the present model would be gone by then.
    match path.exists() || built_in::is_built_in(&path) {
        true => Ok(path),
        false => Err("there is no model of this name, and no folder or file".into()),
    }
}
