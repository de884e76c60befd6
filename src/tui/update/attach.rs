//! Pictures of the draft: attaching, what the session manager says of them, taking them back.

use std::path::PathBuf;
use std::sync::Arc;

use crate::chat::{Detail, Part, Picture, PictureSource};
use crate::msg::{Command, PictureFacts, PictureId};
use crate::sanitize::{clean, one_line};
use crate::tui::attach::{Attached, Kind};
use crate::tui::commands::Region;
use crate::tui::effect::{Effect, Work};
use crate::tui::pictures::clipboard::Clip;
use crate::tui::pictures::paths;
use crate::tui::pictures::preview::Preview;
use crate::tui::state::{Model, State};
use crate::tui::theme::Tone;

use super::{insert, note, notify, queue_to_draft};

/// More pictures than one question is about.
const MAX_ATTACHED: usize = 32;

/// Whether the model can look at pictures, as far as it is known.
pub fn might_see(state: &State) -> bool {
    state.model == Model::Loading || state.sees()
}

/// The same, and says why not.
pub fn can_attach(state: &mut State) -> bool {
    let problem = match &state.model {
        Model::Failed => "There is no model to look at pictures".to_owned(),
        Model::Ready(info) if info.pictures.is_none() => blindness(&info.name),
        Model::Ready(_) | Model::Loading => return true,
    };
    notify(state, Tone::Error, problem, 8);
    false
}

/// `/image` and `/clip` with paths as typed.
pub fn typed(state: &mut State, kind: Kind, arguments: &str) -> Vec<Effect> {
    match paths::arguments(arguments, state.home.as_deref()) {
        Ok(paths) if paths.is_empty() => {
            notify(state, Tone::Error, "Which file? Such as /clip moving.gif", 8);
            Vec::new()
        }
        Ok(paths) => files(state, kind, paths),
        Err(problem) => {
            notify(state, Tone::Error, problem, 8);
            Vec::new()
        }
    }
}

pub fn files(state: &mut State, kind: Kind, paths: Vec<PathBuf>) -> Vec<Effect> {
    let detail = state.detail;
    paths.into_iter().flat_map(|path| attach(state, kind, Picture::file(path, detail))).collect()
}

pub fn clipboard(state: &mut State, clip: Result<Clip, String>) -> Vec<Effect> {
    match clip {
        Ok(Clip::Picture(bytes)) => {
            let source = PictureSource::Bytes(bytes);
            attach(state, Kind::Still, Picture { name: "clipboard".into(), source, detail: state.detail })
        }
        Ok(Clip::Files(paths)) if paths.iter().all(|path| paths::is_picture(path)) => {
            files(state, Kind::Still, paths)
        }
        Ok(Clip::Files(paths)) => {
            let names: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
            insert(state, &names.join("\n"))
        }
        Ok(Clip::Text(text)) => insert(state, &text),
        Ok(Clip::Empty) => {
            notify(state, Tone::Warning, "The clipboard holds neither a picture nor text", 5);
            Vec::new()
        }
        Err(problem) => {
            notify(state, Tone::Error, clean(&problem), 8);
            Vec::new()
        }
    }
}

/// Puts a picture to the draft and asks the session manager about it. Never sends it.
fn attach(state: &mut State, kind: Kind, what: Picture) -> Vec<Effect> {
    if !can_attach(state) {
        return Vec::new();
    }
    if state.attached.len() >= MAX_ATTACHED {
        notify(state, Tone::Error, format!("A message takes at most {MAX_ATTACHED} pictures"), 8);
        return Vec::new();
    }
    let id = next_id(state);
    let attached = Attached::new(id, kind, what);
    let effect = inspect(&attached);
    state.attached.push(attached);
    vec![effect]
}

fn blindness(model: &str) -> String {
    format!("{model} reads text only: it doesn't see pictures")
}

fn next_id(state: &mut State) -> PictureId {
    state.last_picture.0 += 1;
    state.last_picture
}

fn inspect(attached: &Attached) -> Effect {
    Effect::Send(Command::Inspect { picture: attached.id, what: attached.part() })
}

pub fn ready(state: &mut State, picture: PictureId, what: Picture, facts: PictureFacts) -> Vec<Effect> {
    let mut bytes = None;
    change(state, picture, |attached| {
        // An answer for another detail than the one wanted now is late.
        if attached.what.detail == what.detail {
            attached.what = what;
            attached.facts = Some(facts);
            bytes = attached.bytes().filter(|_| attached.preview.is_none()).cloned();
        }
    });
    match (bytes, state.picture_place()) {
        (Some(bytes), Some(place)) => vec![Effect::Work(Work::Preview { picture, bytes, place })],
        _ => Vec::new(),
    }
}

/// Makes the previews of all pictures again.
pub fn make_previews(state: &State) -> Vec<Effect> {
    let Some(place) = state.picture_place() else { return Vec::new() };
    let waiting = state.queue.iter().flat_map(|draft| &draft.attached);
    let all = state.transcript.attached().chain(waiting).chain(&state.attached);
    all.filter_map(|attached| Some((attached.id, attached.bytes()?.clone())))
        .map(|(picture, bytes)| Effect::Work(Work::Preview { picture, bytes, place }))
        .collect()
}

pub fn previewed(state: &mut State, picture: PictureId, preview: Option<Preview>) {
    change(state, picture, |attached| attached.preview = preview);
}

/// A picture that can't be sent isn't kept; the sentence says why.
pub fn refused(state: &mut State, picture: PictureId, reason: &str) {
    // A message that waits with it would be about a picture that isn't there.
    if state.queue.iter().any(|draft| draft.attached.iter().any(|attached| attached.id == picture)) {
        queue_to_draft(state);
    }
    let Some(at) = state.attached.iter().position(|attached| attached.id == picture) else { return };
    let name = one_line(&state.attached.remove(at).what.name);
    // Most reasons name the file themselves.
    let text = if reason.contains(&name) { reason.to_owned() } else { format!("{name}: {reason}") };
    note(state, Tone::Error, format!("Not attached: {text}"));
}

/// Takes pictures back that were attached while the model was loading, if it can't see them.
pub fn model_is_known(state: &mut State) {
    let Model::Ready(info) = &state.model else { return };
    if info.pictures.is_some() {
        return;
    }
    let reason = blindness(&info.name);
    if state.queue.iter().any(|draft| !draft.attached.is_empty()) {
        queue_to_draft(state);
    }
    if !state.attached.is_empty() {
        state.attached.clear();
        note(state, Tone::Error, format!("Not attached: {reason}"));
    }
}

/// The pictures of a kept message, and the questions about them.
pub fn kept(state: &mut State, parts: &[Part]) -> (Vec<Attached>, Vec<Effect>) {
    let mut attached = Vec::new();
    for part in parts {
        let (kind, what) = match part {
            Part::Text(_) | Part::Call(_) => continue,
            Part::Image(what) => (Kind::Still, what.clone()),
            Part::Clip(what) => (Kind::Clip, what.clone()),
        };
        attached.push(Attached::new(next_id(state), kind, what));
    }
    let effects = attached.iter().map(inspect).collect();
    (attached, effects)
}

/// Asks about pictures again that came back without an answer.
pub fn inspect_unknown(state: &mut State) -> Vec<Effect> {
    let mut effects = Vec::new();
    for idx in 0..state.attached.len() {
        if state.attached[idx].facts.is_none() {
            state.attached[idx].id = next_id(state);
            effects.push(inspect(&state.attached[idx]));
        }
    }
    effects
}

/// Holds for the pictures of the draft too, and for those attached later.
pub fn set_detail(state: &mut State, detail: Detail) -> Vec<Effect> {
    state.detail = detail;
    notify(state, Tone::Faint, format!("Pictures are shown to the model in detail {detail}"), 5);
    let mut effects = Vec::new();
    for attached in state.attached.iter_mut().filter(|attached| attached.what.detail != detail) {
        attached.what.detail = detail;
        attached.facts = None;
        effects.push(inspect(attached));
    }
    effects
}

/// Cuts a part out of a picture of the draft, or brings the whole back.
pub fn crop(state: &mut State, number: usize, region: Option<Region>) -> Vec<Effect> {
    let Some(idx) = number.checked_sub(1).filter(|idx| *idx < state.attached.len()) else {
        notify(state, Tone::Warning, format!("There is no picture {number} in the draft"), 5);
        return Vec::new();
    };
    let attached = &state.attached[idx];
    let whole = attached.whole.as_deref().unwrap_or(&attached.what).clone();
    let problem = match (region, &whole.source, attached.kind) {
        (_, _, Kind::Clip) => "A moving picture can't be cropped",
        (Some(region), PictureSource::Bytes(bytes), Kind::Still) => {
            let work = Work::Crop { picture: attached.id, bytes: bytes.clone(), region };
            return vec![Effect::Work(work)];
        }
        (Some(_), PictureSource::File(_) | PictureSource::Address(_), Kind::Still) => {
            "The picture is still being read"
        }
        (None, ..) if attached.whole.is_none() => "The picture is whole",
        (None, ..) => return replace(state, idx, whole, None),
    };
    notify(state, Tone::Warning, problem, 5);
    Vec::new()
}

pub fn cropped(state: &mut State, picture: PictureId, part: Result<Arc<[u8]>, String>) -> Vec<Effect> {
    // It was taken back or sent meanwhile.
    let Some(idx) = state.attached.iter().position(|it| it.id == picture) else { return Vec::new() };
    match part {
        Ok(bytes) => {
            let attached = &state.attached[idx];
            let whole = attached.whole.as_deref().unwrap_or(&attached.what).clone();
            let what = Picture {
                name: format!("part of {}", whole.name),
                source: PictureSource::Bytes(bytes),
                detail: whole.detail,
            };
            replace(state, idx, what, Some(whole.into()))
        }
        Err(problem) => {
            notify(state, Tone::Error, clean(&problem), 8);
            Vec::new()
        }
    }
}

/// Another picture in the place of one.
fn replace(state: &mut State, idx: usize, what: Picture, whole: Option<Box<Picture>>) -> Vec<Effect> {
    let attached = Attached { whole, ..Attached::new(next_id(state), Kind::Still, what) };
    let effect = inspect(&attached);
    state.attached[idx] = attached;
    vec![effect]
}

/// `/file`: has text files read for the draft.
pub fn text_files(state: &mut State, arguments: &str) -> Vec<Effect> {
    match paths::arguments(arguments, state.home.as_deref()) {
        Ok(paths) => vec![Effect::Work(Work::ReadFiles(paths))],
        Err(problem) => {
            notify(state, Tone::Error, problem, 8);
            Vec::new()
        }
    }
}

/// Puts files into the draft, each named and fenced, so that the model can tell them from what is asked.
pub fn files_read(state: &mut State, files: Result<Vec<(String, String)>, String>) -> Vec<Effect> {
    match files {
        Ok(files) => {
            for (name, text) in files {
                let fence = fence(&text);
                if !state.composer.is_empty() {
                    state.composer.newline();
                }
                let text =
                    format!("{}:\n{fence}\n{}\n{fence}\n", one_line(&name), text.trim_end_matches('\n'));
                state.composer.paste(&clean(&text));
            }
        }
        Err(problem) => notify(state, Tone::Error, clean(&problem), 8),
    }
    Vec::new()
}

/// Longer than any fence in the text.
fn fence(text: &str) -> String {
    let longest = text.lines().map(|line| line.trim_start().chars().take_while(|c| *c == '`').count()).max();
    "`".repeat(longest.unwrap_or(0).max(2) + 1)
}

pub fn clear(state: &mut State) {
    let text = match std::mem::take(&mut state.attached).len() {
        0 => "There are no pictures to take back".to_owned(),
        1 => "Picture taken back".to_owned(),
        n => format!("{n} pictures taken back"),
    };
    notify(state, Tone::Faint, text, 4);
}

/// Changes a picture wherever it is by now: in the draft, in a message that waits, or in the chat.
fn change(state: &mut State, picture: PictureId, change: impl FnOnce(&mut Attached)) {
    let waiting = state.queue.iter_mut().flat_map(|draft| &mut draft.attached);
    match state.attached.iter_mut().chain(waiting).find(|attached| attached.id == picture) {
        Some(attached) => change(attached),
        None => {
            // The conversation holds what was read, whatever happens to the file.
            if let Some((node, draft)) = state.transcript.change_attached(picture, change)
                && let Some(node) = state.chat.node_mut(node)
            {
                node.message = draft.message();
            }
        }
    }
}
