//! The list of files behind an `@`.

use std::path::Path;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent};

use crate::tui::attach::Kind;
use crate::tui::completion::{Completion, Files, matches};
use crate::tui::effect::{Effect, Work};
use crate::tui::pictures::paths;
use crate::tui::state::State;

use super::attach;

/// Offers files for the word at the caret, after whatever may have changed it.
pub fn refresh(state: &mut State) -> Vec<Effect> {
    // An earlier prompt may end in such a word; Up goes on to the one before it, not through a list.
    let word = state.composer.at_word().filter(|_| !state.history.is_browsing());
    let Some(word) = word.map(str::to_owned) else {
        // Files come and go: the next `@` looks again.
        state.files = Files::Unknown;
        state.completion = None;
        state.completion_closed = false;
        return Vec::new();
    };
    if state.completion_closed {
        return Vec::new();
    }
    let mut effects = Vec::new();
    let matches = match &state.files {
        Files::Found(files) => matches(files, &word),
        Files::Searching => Vec::new(),
        Files::Unknown => {
            state.files = Files::Searching;
            effects.push(Effect::Work(Work::FindFiles));
            Vec::new()
        }
    };
    let searching = state.files == Files::Searching;
    let same = state.completion.as_ref().filter(|before| before.word == word);
    let selected = same.map_or(0, |before| before.selected).min(matches.len().saturating_sub(1));
    state.completion = Some(Completion { word, matches, selected, searching });
    effects
}

pub fn found(state: &mut State, files: Vec<String>) -> Vec<Effect> {
    if state.files == Files::Searching {
        state.files = Files::Found(Arc::new(files));
    }
    refresh(state)
}

/// Keys of the list; `None` for those that it has no use for.
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
        KeyCode::Up => {
            completion.selected = completion.selected.checked_sub(1).unwrap_or(n_matches - 1);
            Some(Vec::new())
        }
        KeyCode::Down => {
            completion.selected = (completion.selected + 1) % n_matches;
            Some(Vec::new())
        }
        KeyCode::Tab | KeyCode::Enter => {
            let path = completion.matches[completion.selected].clone();
            Some(accept(state, &path))
        }
        _ => None,
    }
}

/// A picture is attached; the path of another file takes the word's place.
fn accept(state: &mut State, path: &str) -> Vec<Effect> {
    state.history.stop_browsing();
    let mut effects = Vec::new();
    if paths::is_picture(Path::new(path)) && attach::might_see(state) {
        state.composer.replace_at_word("");
        effects = attach::files(state, Kind::Still, vec![path.into()]);
    } else {
        state.composer.replace_at_word(&format!("{path} "));
    }
    effects.extend(refresh(state));
    effects
}
