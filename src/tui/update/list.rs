//! The list over the chat: what its keys do.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::chat::Role;
use crate::msg::{HistoryCommand, SamplingOptions};
use crate::sanitize::one_line;
use crate::tui::commands;
use crate::tui::effect::{Effect, Work};
use crate::tui::keymap::{self, Action, When};
use crate::tui::list::{self, Item, Kind, List, What};
use crate::tui::state::State;
use crate::tui::theme::Tone;

use super::{completion, history, keys, notify, overflow, slash, turns};

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
            is_current: fork.is_none(),
            ..Item::plain()
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
        is_current: *name == state.theme,
        ..Item::plain()
    };
    let items: Vec<Item> = state.themes.iter().map(item).collect();
    let selected = items.iter().position(|item| item.is_current).unwrap_or(0);
    state.list = Some(List { items: Some(items), selected, ..List::new(Kind::Themes, "") });
}

/// Shows what was asked before, the latest first.
pub fn open_prompts(state: &mut State) {
    let prompts = state.history.prompts().iter().enumerate().rev();
    let item = |(idx, prompt): (usize, &String)| Item {
        what: What::Prompt(idx),
        // A prompt may be megabytes long; a row shows its beginning.
        text: one_line(&prompt.chars().take(400).collect::<String>()),
        ..Item::plain()
    };
    let items = prompts.map(item).collect();
    // What is typed already is what is looked for.
    let draft = state.composer.first_line();
    let filter = if state.composer.n_lines() == 1 && !draft.starts_with('/') { draft } else { "" };
    state.list = Some(List { items: Some(items), ..List::new(Kind::Prompts, filter) });
}

/// Shows everything that can be done, with its key.
pub fn open_palette(state: &mut State) {
    let moves_caret = |binding: &keymap::Binding| matches!(binding.action, Action::Edit(_));
    let actions = keymap::BINDINGS.iter().enumerate().filter(|(_, it)| it.when != When::Transcript);
    let actions = actions.filter(|(_, it)| !moves_caret(it)).map(|(idx, binding)| Item {
        what: What::Action(binding.action),
        text: binding.help.to_owned(),
        facts: state.keymap.label(idx, 2),
        ..Item::plain()
    });
    let commands = commands::COMMANDS.iter().map(|spec| Item {
        what: What::Command,
        text: format!("/{}  {}", spec.name, spec.help),
        facts: spec.arguments.to_owned(),
        ..Item::plain()
    });
    let items = commands.chain(actions).collect();
    state.list = Some(List { items: Some(items), ..List::new(Kind::Palette, "") });
}

/// Shows system prompts by name.
pub fn open_personas(state: &mut State) {
    let item = |(name, text): &(String, String)| Item {
        what: What::Persona,
        text: name.clone(),
        facts: one_line(&text.chars().take(60).collect::<String>()),
        is_current: state.persona.as_ref() == Some(name),
        ..Item::plain()
    };
    let items: Vec<Item> = state.personas.iter().map(item).collect();
    if items.is_empty() {
        let text =
            "No personas yet: [personas.NAME] system = \"…\" in the settings (loquat config edit) makes one";
        return notify(state, Tone::Warning, text, 8);
    }
    state.list = Some(List { items: Some(items), ..List::new(Kind::Personas, "") });
}

/// Shows sampling presets.
pub fn open_presets(state: &mut State) {
    let item = |(name, sampling): &(String, SamplingOptions)| Item {
        what: What::Preset,
        text: name.clone(),
        facts: commands::sampling_text(sampling),
        is_current: *sampling == SamplingOptions { seed: sampling.seed, ..state.options.sampling.clone() },
        ..Item::plain()
    };
    let items = state.presets.iter().map(item).collect();
    state.list = Some(List { items: Some(items), ..List::new(Kind::Presets, "") });
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
    let room = state.room();
    let Some(list) = &mut state.list else { return Vec::new() };
    let page = list::room(list.frame(room)).height.max(1);
    let page = isize::from(i16::try_from(page).unwrap_or(i16::MAX));
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
        // As in shells: the same key again goes on to the match before.
        KeyCode::Char('r') if control && list.kind == Kind::Prompts => list.move_by(1),
        KeyCode::Char('p') if control && list.kind == Kind::Palette => state.list = None,
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

pub fn filtered(state: &mut State) -> Vec<Effect> {
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
        What::Persona => slash::take_persona(state, &item.text),
        What::Preset => {
            slash::take_preset(state, &item.text);
            Vec::new()
        }
        What::Action(action) => {
            let effects = keys::act(state, action);
            [effects, completion::refresh(state)].concat()
        }
        What::Command => {
            let name = item.text.split_whitespace().next().unwrap_or_default();
            state.composer.set_text(&format!("{name} "));
            completion::refresh(state)
        }
        What::Prompt(idx) => {
            let prompt = state.history.prompts().get(idx).cloned().unwrap_or_default();
            state.history.stop_browsing();
            state.composer.set_text(&prompt);
            Vec::new()
        }
        What::WayOut(way_out) => overflow::take(state, way_out),
        _ if item.is_current => Vec::new(),
        What::Kept(stored) => history::load(state, Some(stored)),
        What::Branch(leaf) => turns::switch(state, leaf),
    }
}

pub fn choose_theme(state: &mut State, name: String) -> Vec<Effect> {
    notify(state, Tone::Faint, format!("Theme {}", one_line(&name)), 4);
    state.theme.clone_from(&name);
    let kept = Effect::Work(Work::Keep { setting: "ui.theme", value: name.clone() });
    vec![Effect::Theme(name), kept]
}

pub fn move_by(state: &mut State, rows: isize) {
    if let Some(list) = &mut state.list {
        list.move_by(rows);
    }
}
