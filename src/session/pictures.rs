//! Reading pictures' files beside the session: what an attached picture costs, and the content of those that a
//! message names.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::chat::{Message, Part, Picture, PictureSource};
use crate::engine::vision::{clip, file, preprocess};
use crate::msg::{ClipLimits, ErrorCode, Event, PictureFacts, PictureId, PictureLimits, TurnError};

/// The content of files, by path.
pub type Files = HashMap<PathBuf, Arc<[u8]>>;

/// What the model sees, as far as it sees.
#[derive(Debug, Clone, Copy)]
pub struct Sight {
    pub pictures: PictureLimits,
    pub clips: ClipLimits,
}

/// Answers `Command::Inspect`. Blocks while it reads.
pub fn inspect(picture: PictureId, what: Part, sight: Option<Sight>) -> Event {
    match look(&what, sight) {
        Ok((what, facts)) => Event::PictureReady { picture, what, facts },
        Err(error) => Event::PictureRefused { picture, error },
    }
}

fn look(what: &Part, sight: Option<Sight>) -> Result<(Picture, PictureFacts), TurnError> {
    let (Part::Image(picture) | Part::Clip(picture)) = what else {
        let message = "text is not a picture".to_owned();
        return Err(TurnError { code: ErrorCode::ImageUnreadable, message });
    };
    let refused = |code, why: String| TurnError { code, message: format!("{}: {why}", picture.name) };
    let sight = sight.ok_or_else(|| {
        refused(ErrorCode::ImageUnreadable, "this model doesn't see pictures; choose one that does".into())
    })?;
    let bytes = file::bytes(&picture.source).map_err(|error| refused(error.code(), error.to_string()))?;
    let facts = match what {
        Part::Clip(_) => clip::inspect(&bytes, &sight.clips, picture.detail),
        _ => preprocess::inspect(&bytes, &sight.pictures, picture.detail),
    };
    let facts = facts.map_err(|error| refused(ErrorCode::ImageUnreadable, error.to_string()))?;
    Ok((Picture { source: PictureSource::Bytes(bytes), ..picture.clone() }, facts))
}

/// Whether some picture is still only named.
pub fn names_files<'a>(messages: impl IntoIterator<Item = &'a Message>) -> bool {
    messages.into_iter().flat_map(Message::pictures).any(|p| matches!(p.source, PictureSource::File(_)))
}

/// The files that `messages` name. Blocks while it reads.
///
/// # Errors
/// About the first that can't be read.
pub fn read(messages: &[Message]) -> Result<Files, TurnError> {
    let mut files = Files::new();
    for picture in messages.iter().flat_map(Message::pictures) {
        if let PictureSource::File(path) = &picture.source {
            let bytes = file::bytes(&picture.source).map_err(|error| TurnError {
                code: error.code(),
                message: format!("{}: {error}", picture.name),
            })?;
            files.insert(path.clone(), bytes);
        }
    }
    Ok(files)
}

/// Puts the content in the place of the names.
pub fn fill(messages: &mut [Message], files: &Files) {
    for picture in messages.iter_mut().flat_map(Message::pictures_mut) {
        if let PictureSource::File(path) = &picture.source
            && let Some(bytes) = files.get(path)
        {
            picture.source = PictureSource::Bytes(bytes.clone());
        }
    }
}
