//! The list over the chat: what its keys do.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::chat::Role;
use crate::msg::HistoryCommand;
use crate::sanitize::one_line;
use crate::tui::effect::Effect;
use crate::tui::list::{self, Item, Kind, List, What};
use crate::tui::state::State;
use crate::tui::theme::Tone;

use super::{history, notify, turns};

/// Shows kept conversations in which these words occur.
pub fn open_history(state: &mut State, words: &str) -> Vec<Effect> {
    state.list = Some(List::new(Kind::History, words));
    find(state)
}

fn find(state: &State) -> Vec<Effect> {
    match &state.list {
        Some(list) if list.kind == Kind::History => {
            vec![history::send(HistoryCommand::Find { query: list.filter.clone() })]
        }
        _ => Vec::new(),
    }
}

/// Shows the ends of all branches, by the first message in which they differ from what is shown.
pub fn open_branches(state: &mut State) {
    let leaves = state.chat.leaves();
    if leaves.len() < 2 {
        let text = "There is one branch only · /edit N and /regen begin others";
        notify(state, Tone::Faint, text, 5);
        return;
    }
    let chat = &state.chat;
    let items = leaves.into_iter().filter_map(|leaf| {
        let fork = chat.fork(leaf);
        let at = chat.node(fork.unwrap_or(leaf))?;
        let who = if at.message.role == Role::User { "You" } else { "Assistant" };
        let text = at.message.plain_text();
        // Answers may be long; a row shows the beginning.
        let beginning: String = text.trim().chars().take(200).collect();
        let n_messages = std::iter::successors(Some(leaf), |id| chat.node(*id)?.parent).count();
        Some(Item {
            what: What::Branch(leaf),
            text: format!("{who}: {}", one_line(&beginning)),
            facts: format!("{n_messages} messages"),
            excerpt: None,
            is_current: fork.is_none(),
        })
    });
    let items = items.collect();
    state.list = Some(List { items: Some(items), ..List::new(Kind::Branches, "") });
}

/// Shows the themes; each one is tried out while the cursor is on it.
pub fn open_themes(state: &mut State) {
    let item = |name: &String| Item {
        what: What::Theme,
        text: name.clone(),
        facts: String::new(),
        excerpt: None,
        is_current: *name == state.theme,
    };
    let items: Vec<Item> = state.themes.iter().map(item).collect();
    let selected = items.iter().position(|item| item.is_current).unwrap_or(0);
    state.list = Some(List { items: Some(items), selected, ..List::new(Kind::Themes, "") });
}

/// Keys of the list of themes change what is tried out.
pub fn key(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    let before = tried_out(state);
    let mut effects = list_key(state, key);
    let after = tried_out(state);
    match (before, after) {
        (Some(before), Some(after)) if before != after => effects.push(Effect::Theme(after)),
        (Some(_), None) if effects.is_empty() => effects.push(Effect::Theme(state.theme.clone())),
        _ => {}
    }
    effects
}

/// Closes it, whatever it is for.
pub fn close(state: &mut State) -> Vec<Effect> {
    let was_tried_out = tried_out(state).is_some();
    state.list = None;
    if was_tried_out { vec![Effect::Theme(state.theme.clone())] } else { Vec::new() }
}

fn tried_out(state: &State) -> Option<String> {
    let list = state.list.as_ref().filter(|list| list.kind == Kind::Themes)?;
    Some(list.current().map_or_else(|| state.theme.clone(), |item| item.text.clone()))
}

fn list_key(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    let page = list::room(list::frame(state.width, state.height)).height.max(1);
    let page = isize::from(i16::try_from(page).unwrap_or(i16::MAX));
    let Some(list) = &mut state.list else { return Vec::new() };
    if list.renaming.is_some() {
        return rename_key(state, key);
    }
    let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
    let control = key.modifiers == KeyModifiers::CONTROL;
    match key.code {
        KeyCode::Esc => state.list = None,
        KeyCode::Char('b') if control => state.list = None,
        KeyCode::Up => list.move_by(-1),
        KeyCode::Down => list.move_by(1),
        KeyCode::PageUp => list.move_by(-page),
        KeyCode::PageDown => list.move_by(page),
        KeyCode::Home => list.move_by(isize::MIN),
        KeyCode::End => list.move_by(isize::MAX),
        KeyCode::Enter => return choose(state),
        KeyCode::Char('r') if control && list.kind == Kind::History => {
            list.renaming = list.current().map(|item| item.text.clone());
        }
        KeyCode::Char('u') if control && list.kind == Kind::History => return history::undelete(state),
        KeyCode::Delete if list.kind == Kind::History => {
            if let Some(&Item { what: What::Kept(stored), .. }) = list.current() {
                return vec![history::send(HistoryCommand::Delete { stored })];
            }
        }
        KeyCode::Backspace if list.filter.pop().is_some() => return filtered(state),
        KeyCode::Char(c) if plain => {
            list.filter.push(c);
            return filtered(state);
        }
        _ => {}
    }
    Vec::new()
}

fn filtered(state: &mut State) -> Vec<Effect> {
    if let Some(list) = &mut state.list {
        list.selected = 0;
    }
    find(state)
}

fn rename_key(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    let Some(list) = &mut state.list else { return Vec::new() };
    let Some(title) = &mut list.renaming else { return Vec::new() };
    match key.code {
        KeyCode::Esc => list.renaming = None,
        KeyCode::Backspace => drop(title.pop()),
        KeyCode::Char('u') if key.modifiers == KeyModifiers::CONTROL => title.clear(),
        KeyCode::Char(c) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => title.push(c),
        KeyCode::Enter if !title.trim().is_empty() => {
            let title = title.trim().to_owned();
            list.renaming = None;
            if let Some(&Item { what: What::Kept(stored), .. }) = list.current() {
                return vec![history::send(HistoryCommand::Rename { stored, title })];
            }
        }
        _ => {}
    }
    Vec::new()
}

fn choose(state: &mut State) -> Vec<Effect> {
    let Some(item) = state.list.as_ref().and_then(List::current).cloned() else { return Vec::new() };
    state.list = None;
    match item.what {
        What::Theme => choose_theme(state, item.text),
        _ if item.is_current => Vec::new(),
        What::Kept(stored) => history::load(state, Some(stored)),
        What::Branch(leaf) => turns::switch(state, leaf),
    }
}

pub fn choose_theme(state: &mut State, name: String) -> Vec<Effect> {
    let shown = one_line(&name);
    notify(state, Tone::Faint, format!("Theme {shown} · in a shell: loquat config set ui.theme {shown}"), 6);
    state.theme.clone_from(&name);
    vec![Effect::Theme(name)]
}

pub fn move_by(state: &mut State, rows: isize) {
    if let Some(list) = &mut state.list {
        list.move_by(rows);
    }
}
