//! Kept conversations: telling the session what to keep, and what it says about it.

use crate::chat::NodeId;
use crate::msg::{Command, ConversationId, Found, HistoryCommand, HistoryEvent, StoredId};
use crate::sanitize::{clean, one_line};
use crate::tui::effect::Effect;
use crate::tui::list::{Item, Kind, What};
use crate::tui::state::{State, Undo};
use crate::tui::theme::Tone;

use super::{list, new_chat, note, notify, turns};

pub fn send(command: HistoryCommand) -> Effect {
    Effect::Send(Command::History(command))
}

/// Has a message of the open conversation kept.
pub fn keep(state: &State, node: NodeId) -> Vec<Effect> {
    let Some(what) = state.chat.node(node).filter(|_| state.keeps_chats).cloned() else { return Vec::new() };
    let system = state.chat.system.clone();
    vec![send(HistoryCommand::Add { conversation: state.conversation, node, what, system })]
}

/// A change of the open conversation, if it is kept.
pub fn change(state: &State, command: HistoryCommand) -> Vec<Effect> {
    if state.keeps_chats && !state.chat.is_empty() { vec![send(command)] } else { Vec::new() }
}

/// Asks for a kept conversation, the latest if none is named. The chat stays as it is until it is here.
pub fn load(state: &mut State, stored: Option<StoredId>) -> Vec<Effect> {
    state.last_conversation = ConversationId(state.last_conversation.0 + 1);
    state.loading = Some(state.last_conversation);
    vec![send(HistoryCommand::Load { conversation: state.last_conversation, stored })]
}

pub fn rename(state: &mut State, title: &str) -> Vec<Effect> {
    if state.stored.is_none() {
        notify(state, Tone::Warning, "This conversation isn't kept, so it has no name", 5);
        return Vec::new();
    }
    let title = title.to_owned();
    vec![send(HistoryCommand::Title { conversation: state.conversation, title })]
}

pub fn undelete(state: &mut State) -> Vec<Effect> {
    let deleted = state.undo.iter().rposition(|undo| matches!(undo, Undo::Deleted(_)));
    match deleted.map(|at| state.undo.remove(at)) {
        Some(Undo::Deleted(stored)) => vec![send(HistoryCommand::Undelete { stored })],
        _ => {
            notify(state, Tone::Faint, "Nothing was deleted", 4);
            Vec::new()
        }
    }
}

pub fn event(state: &mut State, event: HistoryEvent) -> Vec<Effect> {
    match event {
        HistoryEvent::Kept { conversation, stored } => {
            if conversation == state.conversation {
                state.stored = Some(stored);
            }
        }
        HistoryEvent::Prompts(prompts) => state.history.begin_with(prompts),
        HistoryEvent::Found { query, found } => show_found(state, &query, found),
        HistoryEvent::Loaded { conversation, stored, loaded } => {
            // Something else was asked for meanwhile.
            if state.loading != Some(conversation) {
                return Vec::new();
            }
            state.loading = None;
            let effects = turns::leave(state, conversation);
            state.stored = Some(stored);
            state.chat = *loaded;
            notify(state, Tone::Faint, "The conversation goes on where it was", 4);
            return [effects, turns::show(state)].concat();
        }
        HistoryEvent::Renamed { stored, title } => {
            if state.stored == Some(stored) {
                state.chat.title = Some(title.clone());
            }
            notify(state, Tone::Faint, format!("Called: {}", one_line(&title)), 4);
            return look_again(state);
        }
        HistoryEvent::Deleted { stored, title } => {
            state.undo.push(Undo::Deleted(stored));
            let mut effects = if state.stored == Some(stored) { new_chat(state) } else { Vec::new() };
            notify(state, Tone::Faint, format!("Deleted: {} · /undo takes it back", one_line(&title)), 8);
            effects.extend(look_again(state));
            return effects;
        }
        HistoryEvent::Undeleted { title, .. } => {
            notify(state, Tone::Faint, format!("Back again: {}", one_line(&title)), 5);
            return look_again(state);
        }
        HistoryEvent::Refused { message } => {
            state.loading = None;
            if let Some(list) = &mut state.list {
                list.items.get_or_insert_default();
            }
            notify(state, Tone::Error, clean(&message), 8);
        }
        HistoryEvent::Off { message } => {
            state.keeps_chats = false;
            note(
                state,
                Tone::Error,
                format!("From now on this chat is not kept: {message}\n/export md writes it to a file."),
            );
        }
    }
    Vec::new()
}

/// The list shows what holds now.
fn look_again(state: &mut State) -> Vec<Effect> {
    match &state.list {
        Some(list) if list.kind == Kind::History => {
            vec![send(HistoryCommand::Find { query: list.filter.clone() })]
        }
        _ => Vec::new(),
    }
}

fn show_found(state: &mut State, query: &str, found: Vec<Found>) {
    let here = state.stored;
    let Some(list) = state.list.as_mut().filter(|list| list.kind == Kind::History && list.filter == query)
    else {
        return;
    };
    let item = |found: Found| Item {
        what: What::Kept(found.stored),
        text: one_line(&found.title),
        facts: format!("{} messages · {} · {}", found.n_messages, one_line(&found.changed), found.stored.0),
        excerpt: found.excerpt.map(|excerpt| one_line(&excerpt)),
        is_current: here == Some(found.stored),
    };
    list.items = Some(found.into_iter().map(item).collect());
    list.move_by(0);
}

/// `/resume` and `/history`.
pub fn resume(state: &mut State, stored: Option<StoredId>) -> Vec<Effect> {
    match stored {
        Some(_) => load(state, stored),
        None => list::open_history(state, ""),
    }
}
