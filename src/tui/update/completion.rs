//! The list of what could be meant by the word that is being typed: files, commands, and what commands take.

use std::path::Path;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent};

use crate::msg::SamplingOptions;
use crate::sanitize::one_line;
use crate::tui::attach;
use crate::tui::commands::{COMMANDS, sampling_text};
use crate::tui::completion::{Completion, Files, Kind, Offer, arguments, commands, files};
use crate::tui::effect::{Effect, Work};
use crate::tui::pictures::paths;
use crate::tui::state::State;

/// Offers what fits, after whatever may have changed the draft.
pub fn refresh(state: &mut State) -> Vec<Effect> {
    // An earlier prompt may end in such a word; Up goes on to the one before it, not through a list.
    let is_browsing = state.history.is_browsing();
    if let Some(word) = state.composer.at_word().filter(|_| !is_browsing).map(str::to_owned) {
        return offer_files(state, word);
    }
    // Files come and go: the next `@` looks again.
    state.files = Files::Unknown;
    let typed = if is_browsing { None } else { typed_command(state) };
    let Some((kind, word, matches)) = typed else {
        state.completion = None;
        state.completion_closed = false;
        return Vec::new();
    };
    if !state.completion_closed {
        offer(state, kind, word, matches, false);
    }
    Vec::new()
}

fn offer_files(state: &mut State, word: String) -> Vec<Effect> {
    if state.completion_closed {
        return Vec::new();
    }
    let mut effects = Vec::new();
    let matches = match &state.files {
        Files::Found(found) => files(found, &word),
        Files::Searching => Vec::new(),
        Files::Unknown => {
            state.files = Files::Searching;
            effects.push(Effect::Work(Work::FindFiles));
            Vec::new()
        }
    };
    let searching = state.files == Files::Searching;
    offer(state, Kind::File, word, matches, searching);
    effects
}

fn offer(state: &mut State, kind: Kind, word: String, matches: Vec<Offer>, searching: bool) {
    let same = state.completion.as_ref().filter(|before| (before.kind, &before.word) == (kind, &word));
    let (selected, is_chosen) = same.map_or((0, false), |before| (before.selected, before.is_chosen));
    let selected = selected.min(matches.len().saturating_sub(1));
    state.completion = Some(Completion { kind, word, matches, selected, is_chosen, searching });
}

/// What could be meant by a draft that is the beginning of a command.
fn typed_command(state: &State) -> Option<(Kind, String, Vec<Offer>)> {
    if state.composer.n_lines() > 1 || !state.attached.is_empty() && state.composer.is_empty() {
        return None;
    }
    let typed = state.composer.first_line().strip_prefix('/').filter(|typed| !typed.starts_with('/'))?;
    let Some((name, typed)) = typed.split_once(' ') else {
        return Some((Kind::Command, typed.to_owned(), commands(typed)));
    };
    let names: Vec<(String, String)> = match name {
        "theme" => state.themes.iter().map(|name| (name.clone(), String::new())).collect(),
        "persona" => state.personas.iter().map(|(name, text)| (name.clone(), one_line(text))).collect(),
        "preset" => {
            let preset = |(name, it): &(String, SamplingOptions)| (name.clone(), sampling_text(it));
            state.presets.iter().map(preset).collect()
        }
        _ => Vec::new(),
    };
    Some((Kind::Argument, typed.to_owned(), arguments(name, typed, &names)))
}

pub fn found(state: &mut State, files: Vec<String>) -> Vec<Effect> {
    if state.files == Files::Searching {
        state.files = Files::Found(Arc::new(files));
    }
    refresh(state)
}

/// Keys of the list; `None` for those that it has no use for, or that are to do what they do without it as well.
pub fn key(state: &mut State, key: KeyEvent) -> Option<Vec<Effect>> {
    let completion = state.completion.as_mut()?;
    if !key.modifiers.is_empty() {
        return None;
    }
    let n_matches = completion.matches.len();
    match key.code {
        KeyCode::Esc if n_matches > 0 || completion.searching => {
            state.completion = None;
            state.completion_closed = true;
            Some(Vec::new())
        }
        _ if n_matches == 0 => None,
        KeyCode::Up | KeyCode::Down => {
            let last = n_matches - 1;
            completion.selected = match (key.code, completion.selected) {
                (KeyCode::Up, 0) => last,
                (KeyCode::Up, idx) => idx - 1,
                (_, idx) if idx == last => 0,
                (_, idx) => idx + 1,
            };
            completion.is_chosen = true;
            Some(Vec::new())
        }
        KeyCode::Tab => Some(accept(state)),
        KeyCode::Enter => enter(state),
        _ => None,
    }
}

/// Enter takes a file. A command is taken and, unless it needs more, sent; one that was typed in full is sent as it is.
fn enter(state: &mut State) -> Option<Vec<Effect>> {
    let completion = state.completion.as_ref()?;
    let current = &completion.matches[completion.selected];
    let is_typed = completion.matches.iter().any(|offer| offer.text == completion.word);
    let may_send = match completion.kind {
        Kind::File => return Some(accept(state)),
        _ if is_typed && !completion.is_chosen => return None,
        Kind::Command => {
            let needs = COMMANDS.iter().find(|spec| spec.name == current.text).map(|spec| spec.arguments);
            needs.is_none_or(|needs| needs.is_empty() || needs.starts_with('['))
        }
        // An empty argument asks what holds; only a choice fills it in.
        Kind::Argument if completion.word.is_empty() && !completion.is_chosen => return None,
        Kind::Argument => !state.composer.first_line().starts_with("/set "),
    };
    let effects = accept(state);
    if may_send { None } else { Some(effects) }
}

fn accept(state: &mut State) -> Vec<Effect> {
    let Some(completion) = &state.completion else { return Vec::new() };
    let Some(text) = completion.matches.get(completion.selected).map(|offer| offer.text.clone()) else {
        return Vec::new();
    };
    match completion.kind {
        Kind::File => return accept_file(state, &text),
        Kind::Command => {
            let takes_none = COMMANDS.iter().any(|spec| spec.name == text && spec.arguments.is_empty());
            state.composer.set_text(&format!("/{text}{}", if takes_none { "" } else { " " }));
        }
        Kind::Argument => {
            let name = state.composer.first_line().split(' ').next().unwrap_or_default().to_owned();
            let space = if name == "/set" { " " } else { "" };
            state.composer.set_text(&format!("{name} {text}{space}"));
        }
    }
    refresh(state)
}

/// A picture is attached; the path of another file takes the word's place.
fn accept_file(state: &mut State, path: &str) -> Vec<Effect> {
    state.history.stop_browsing();
    let mut effects = Vec::new();
    if paths::is_picture(Path::new(path)) && super::attach::might_see(state) {
        state.composer.replace_at_word("");
        effects = super::attach::files(state, attach::Kind::Still, vec![path.into()]);
    } else {
        state.composer.replace_at_word(&format!("{path} "));
    }
    effects.extend(refresh(state));
    effects
}
