//! The file picker: what its keys do, and what comes back about folders and pictures.

use std::path::{Path, PathBuf};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::tui::attach::Kind;
use crate::tui::effect::{Effect, Place, Work};
use crate::tui::picker::{Look, Picker, PickerAreas};
use crate::tui::pictures::files::FolderEntry;
use crate::tui::pictures::graphics::Protocol;
use crate::tui::state::State;

use super::attach;

pub fn open(state: &mut State) -> Vec<Effect> {
    if !attach::can_attach(state) {
        return Vec::new();
    }
    let folder = state.picker_folder.clone();
    enter(state, folder)
}

fn enter(state: &mut State, folder: PathBuf) -> Vec<Effect> {
    state.picker = Some(Picker::new(folder.clone()));
    vec![Effect::Work(Work::ListFolder(folder))]
}

pub fn key(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    let areas = PickerAreas::new(state.width, state.height);
    let page = isize::from(i16::try_from(areas.list.height.max(1)).unwrap_or(i16::MAX));
    let Some(picker) = &mut state.picker else { return Vec::new() };
    let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
    match key.code {
        KeyCode::Esc => state.picker = None,
        KeyCode::Char('o') if key.modifiers == KeyModifiers::CONTROL => state.picker = None,
        KeyCode::Up => picker.move_by(-1),
        KeyCode::Down => picker.move_by(1),
        KeyCode::PageUp => picker.move_by(-page),
        KeyCode::PageDown => picker.move_by(page),
        KeyCode::Home => picker.move_by(isize::MIN),
        KeyCode::End => picker.move_by(isize::MAX),
        KeyCode::Enter | KeyCode::Tab => return choose(state),
        KeyCode::Backspace if picker.filter.pop().is_some() => picker.selected = 0,
        KeyCode::Backspace | KeyCode::Left => {
            if let Some(parent) = picker.folder.parent().map(Path::to_owned) {
                return enter(state, parent);
            }
        }
        KeyCode::Char(c) if plain => {
            picker.filter.push(c);
            picker.selected = 0;
        }
        _ => {}
    }
    look_at_current(state)
}

/// Opens a folder, or attaches a picture.
fn choose(state: &mut State) -> Vec<Effect> {
    let Some(picker) = &state.picker else { return Vec::new() };
    let Some(entry) = picker.current() else { return Vec::new() };
    let path = entry.path.clone();
    if entry.is_folder {
        return enter(state, path);
    }
    state.picker_folder = picker.folder.clone();
    state.picker = None;
    attach::files(state, Kind::Still, vec![path])
}

pub fn move_by(state: &mut State, rows: isize) -> Vec<Effect> {
    if let Some(picker) = &mut state.picker {
        picker.move_by(rows);
    }
    look_at_current(state)
}

/// The preview was made for another size.
pub fn resized(state: &mut State) -> Vec<Effect> {
    if let Some(picker) = &mut state.picker {
        picker.look = None;
    }
    look_at_current(state)
}

pub fn listed(state: &mut State, folder: &Path, entries: Result<Vec<FolderEntry>, String>) -> Vec<Effect> {
    match &mut state.picker {
        Some(picker) if picker.folder == folder => picker.entries = Some(entries),
        _ => return Vec::new(),
    }
    look_at_current(state)
}

pub fn looked(state: &mut State, look: Look) -> Vec<Effect> {
    let Some(picker) = &mut state.picker else { return Vec::new() };
    if picker.looking_at.as_ref() == Some(&look.path) {
        picker.looking_at = None;
    }
    picker.look = Some(look);
    look_at_current(state)
}

/// Asks for the picture under the cursor, if there is room to show it and no other is being decoded.
fn look_at_current(state: &mut State) -> Vec<Effect> {
    let Some(area) = PickerAreas::new(state.width, state.height).preview else { return Vec::new() };
    let graphics = state.graphics;
    let Some(picker) = &mut state.picker else { return Vec::new() };
    let Some(path) = picker.current().filter(|entry| !entry.is_folder).map(|entry| entry.path.clone()) else {
        return Vec::new();
    };
    let wanted = graphics.protocol != Protocol::Off && picker.look_at(&path).is_none();
    if !wanted || picker.looking_at.is_some() {
        return Vec::new();
    }
    picker.looking_at = Some(path.clone());
    let place = Place { graphics, columns: area.width, rows: area.height };
    vec![Effect::Work(Work::LookAt { path, place })]
}
