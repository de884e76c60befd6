//! Everything the engine needs to see: a picture's size and key from its header, its features when they are
//! wanted.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::Tensor;
use sha2::{Digest, Sha256};

use super::super::cache::TokenKey;
use super::super::config::{ConfigError, ModelConfig};
use super::super::device::OpenDevice;
use super::super::model::{Loader, WeightsError};
use super::super::prompt::pictures::{IMAGE_PAD, Seen, VIDEO_PAD};
use super::super::tokenizer::Tokenizer;
use super::super::weights::Checkpoint;
use super::clip;
use super::encoder::Encoder;
use super::features::Features;
use super::file::{self, PictureFileError};
use super::preprocess::{self, PictureError, Pixels};
use super::processor_config::ProcessorConfig;
use crate::chat::{Detail, Message, Part, Picture};

/// Prefixes that the tower's tensors have in released and in converted files.
const PREFIXES: [&str; 3] = ["model.visual.", "visual.", "vision_tower."];
/// Clips whose times are remembered; each costs a few bytes, and decoding the file to forget it.
const MAX_KNOWN_CLIPS: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum EyesError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

/// What is wrong with one of a conversation's pictures.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    #[error("{name}: {error}")]
    File { name: String, error: PictureFileError },
    #[error("{name}: {error}")]
    Picture { name: String, error: PictureError },
}

/// A picture of the conversation, looked at but not encoded.
pub struct Looked {
    pub seen: Seen,
    name: String,
    bytes: Arc<[u8]>,
    detail: Detail,
}

impl Looked {
    fn is_clip(&self) -> bool {
        self.seen.times.is_some()
    }
}

pub struct Eyes {
    pub encoder: Encoder,
    pub processor: ProcessorConfig,
    features: Features,
    known_clips: HashMap<TokenKey, Seen>,
    pads: [u32; 2],
}

impl Eyes {
    /// The tower of a model that has one, and whose tokenizer has a place for pictures.
    ///
    /// # Errors
    /// If the files of the tower are incomplete or contradict each other.
    pub fn open(
        dir: &Path,
        config: &ModelConfig,
        checkpoint: &Checkpoint,
        tokenizer: &Tokenizer,
        device: &OpenDevice,
    ) -> Result<Option<Self>, EyesError> {
        let prefix = PREFIXES
            .into_iter()
            .find(|prefix| checkpoint.contains(&format!("{prefix}patch_embed.proj.weight")));
        // A text-only export may keep the config of the whole.
        let (Some(vision), Some(prefix)) = (&config.vision, prefix) else { return Ok(None) };
        let (Some(image), Some(video)) = (tokenizer.token_id(IMAGE_PAD), tokenizer.token_id(VIDEO_PAD))
        else {
            return Ok(None);
        };
        let mut processor = ProcessorConfig::open(dir, vision)?;
        // A group without its pads; a time of ten seconds or more takes a token more.
        let group = tokenizer.encode("<0.0 seconds><|vision_start|><|vision_end|>");
        processor.clip.time_tokens = group.map_or(0, |ids| ids.len());
        let loader = Loader::new(checkpoint, device, prefix);
        Ok(Some(Self {
            encoder: Encoder::load(vision, processor.layout.clone(), &loader, device)?,
            processor,
            features: Features::default(),
            known_clips: HashMap::new(),
            pads: [image, video],
        }))
    }

    /// Whether a token stands for a part of a picture.
    pub fn is_pad(&self, id: u32) -> bool {
        self.pads.contains(&id)
    }

    /// Looks at all pictures and clips of a conversation, in order.
    ///
    /// # Errors
    /// [`LookError`] about the first that can't be used.
    pub fn look_at(&mut self, messages: &[Message]) -> Result<Vec<Looked>, LookError> {
        let parts = messages.iter().flat_map(|message| &message.parts);
        parts
            .filter_map(|part| match part {
                Part::Text(_) | Part::Call(_) => None,
                Part::Image(picture) => Some(self.look(picture, false)),
                Part::Clip(picture) => Some(self.look(picture, true)),
            })
            .collect()
    }

    fn look(&mut self, picture: &Picture, is_clip: bool) -> Result<Looked, LookError> {
        let name = || picture.name.clone();
        let bytes = file::bytes(&picture.source).map_err(|error| LookError::File { name: name(), error })?;
        let seen = match is_clip {
            false => self.look_at_still(&bytes, picture.detail),
            true => self.look_at_clip(&bytes, picture.detail),
        };
        let seen = seen.map_err(|error| LookError::Picture { name: name(), error })?;
        Ok(Looked { seen, name: name(), bytes, detail: picture.detail })
    }

    fn look_at_still(&self, bytes: &[u8], detail: Detail) -> Result<Seen, PictureError> {
        let facts = preprocess::inspect(bytes, &self.processor.image, detail)?;
        let factor = self.processor.image.factor;
        Ok(Seen {
            key: key(bytes, &format!("{}x{}", facts.model_width, facts.model_height)),
            rows: (facts.model_height / factor) as usize,
            columns: (facts.model_width / factor) as usize,
            times: None,
        })
    }

    fn look_at_clip(&mut self, bytes: &[u8], detail: Detail) -> Result<Seen, PictureError> {
        let key = key(bytes, &format!("clip {detail}"));
        if let Some(seen) = self.known_clips.get(&key) {
            return Ok(seen.clone());
        }
        let clip = self.load_clip(bytes, detail)?;
        let factor = self.processor.clip.pixels.factor as usize;
        let (rows, columns) = (clip.pixels.height() / factor, clip.pixels.width() / factor);
        let seen = Seen { key, rows, columns, times: Some(clip.times) };
        if self.known_clips.len() == MAX_KNOWN_CLIPS {
            self.known_clips.clear();
        }
        self.known_clips.insert(key, seen.clone());
        Ok(seen)
    }

    fn load_clip(&self, bytes: &[u8], detail: Detail) -> Result<clip::Clip, PictureError> {
        clip::load(bytes, &self.processor.clip, detail)
    }

    /// The pixels that the tower gets.
    ///
    /// # Errors
    /// If the file turns out to be damaged.
    pub fn pixels(&self, looked: &Looked) -> Result<Pixels, LookError> {
        let pixels = match looked.is_clip() {
            true => self.load_clip(&looked.bytes, looked.detail).map(|clip| clip.pixels),
            false => preprocess::load(&looked.bytes, &self.processor.image, looked.detail),
        };
        pixels.map_err(|error| LookError::Picture { name: looked.name.clone(), error })
    }

    /// Features that were encoded before.
    pub fn remembered(&mut self, looked: &Looked) -> Option<Tensor<2>> {
        self.features.get(looked.seen.key)
    }

    /// Encodes a picture; `step` gets the parts done and their number, and may stop it.
    ///
    /// # Errors
    /// If the file turns out to be damaged.
    pub fn encode(
        &mut self,
        looked: &Looked,
        step: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<Tensor<2>>, LookError> {
        let seen = &looked.seen;
        let merged = self.processor.layout.spatial_merge_size.pow(2);
        let total = self.encoder.n_steps(seen.slots(), seen.rows * seen.columns * merged);
        let mut done = 0;
        // Before the file is opened, which takes a while for a large one.
        if step(done, total).is_break() {
            return Ok(None);
        }
        let pixels = self.pixels(looked)?;
        let mut next = || {
            done += 1;
            step(done, total)
        };
        let features = self.encoder.encode(&pixels, &mut next, None);
        if let Some(features) = &features {
            self.features.put(looked.seen.key, features.clone());
        }
        Ok(features)
    }
}

fn key(bytes: &[u8], size: &str) -> TokenKey {
    let hash = Sha256::new().chain_update(bytes).chain_update(size).finalize();
    TokenKey::of_picture(hash[..8].try_into().expect("the hash has 32 bytes"))
}

#[cfg(test)]
mod tests;
