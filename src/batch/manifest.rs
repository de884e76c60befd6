//! Everything that is needed to run a batch again: the model, the settings, and each record with its seed, its prompt
//! and its answer as token ids.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::answer::Answer;
use super::output::Written;
use crate::chat::{Message, PictureSource};
use crate::msg::{ModelInfo, TurnOptions};
use crate::openai::request_json;
use crate::settings::Settings;
use crate::units::hex;

const VERSION: u32 = 1;

pub struct Manifest {
    path: PathBuf,
    json: Value,
    records: Vec<Value>,
}

impl Manifest {
    /// Written at once, so that a wrong name doesn't show after an hour. Of the manifest that an earlier run has left
    /// there, the records are kept.
    ///
    /// # Errors
    /// A sentence, if the file can't be written.
    pub fn begin(
        path: &Path,
        earlier: Option<&Value>,
        settings: &Settings,
        plan: Value,
        model: &ModelInfo,
    ) -> Result<Self, String> {
        let dir = settings.load.dir.to_string_lossy();
        let json = json!({
            "v": VERSION, "program": {"name": "loquat", "version": env!("CARGO_PKG_VERSION")},
            "model": {
                "name": model.name, "commit": model.commit, "device": model.device,
                // The built-in one has a name that no file system has.
                "path": if dir.starts_with('\u{1}') { "demo" } else { &*dir },
            },
            "settings": plan,
        });
        let records = earlier.and_then(|earlier| earlier["records"].as_array().cloned()).unwrap_or_default();
        let manifest = Self { path: path.to_owned(), json, records };
        manifest.save(false)?;
        Ok(manifest)
    }

    pub fn note(&mut self, written: &Written, messages: &[Message], options: &TurnOptions, answer: &Answer) {
        let mut messages = messages.to_vec();
        let mut hashes = Vec::new();
        for picture in messages.iter_mut().flat_map(Message::pictures_mut) {
            if let PictureSource::File(path) = &mut picture.source {
                // A replay may begin in another folder.
                *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
                hashes.push(fs::read(&*path).ok().map(|bytes| hex(&Sha256::digest(bytes))));
            }
        }
        let mut record = json!({
            "index": written.index, "id": written.id, "key": written.key,
            "request": request_json(written.model, &messages, options), "pictures": hashes,
        });
        match &answer.result {
            Ok(finish) => {
                record["status"] = super::status(*finish).into();
                record["seed"] = answer.stats.seed.into();
                record["text"] = answer.text.as_str().into();
                record["tokens"] = answer.tokens.iter().map(|token| token.id).collect();
                record["total_ms"] = (answer.total_time.as_millis() as u64).into();
            }
            Err(error) => record["status"] = error.code.as_str().into(),
        }
        self.records.push(record);
    }

    /// # Errors
    /// A sentence, if the file can't be written.
    pub fn end(&self, is_finished: bool) -> Result<(), String> {
        self.save(is_finished)
    }

    fn save(&self, is_finished: bool) -> Result<(), String> {
        let mut json = self.json.clone();
        json["finished"] = is_finished.into();
        json["records"] = self.records.as_slice().into();
        let write = || {
            let mut name = self.path.clone().into_os_string();
            name.push(".new");
            let mut file = File::create(&name)?;
            file.write_all(format!("{json:#}\n").as_bytes())?;
            file.sync_all()?;
            fs::rename(&name, &self.path)
        };
        write().map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

/// Reads a manifest; `None` if there is no such file.
///
/// # Errors
/// A sentence, if it is something else.
pub fn read(path: &Path) -> Result<Option<Value>, String> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let json: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    match json["v"] == VERSION && json["records"].is_array() {
        true => Ok(Some(json)),
        false => Err(format!("{} is no manifest of a batch of this version", path.display())),
    }
}
