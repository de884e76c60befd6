//! Two answers to the same question side by side.

use crate::chat::Role;
use crate::tui::effect::Effect;
use crate::tui::page::{Compared, Page, PageKind};
use crate::tui::state::State;
use crate::tui::theme::Tone;
use crate::tui::transcript::Entry;

use super::{notify, turns};

/// Shows an answer beside another one to the same question: that with this number, or the last one.
pub fn open(state: &mut State, number: Option<usize>) {
    let node = match number {
        Some(number) => match state.transcript.numbered(number) {
            Some((node, Entry::Answer(_))) => Some(node),
            _ => {
                notify(state, Tone::Warning, format!("[{number}] is no answer"), 5);
                return;
            }
        },
        None => state
            .chat
            .path()
            .into_iter()
            .rev()
            .find(|id| state.chat.node(*id).is_some_and(|node| node.message.role == Role::Assistant)),
    };
    let Some(node) = node else {
        notify(state, Tone::Warning, "There is no answer yet", 5);
        return;
    };
    let answers = state.chat.siblings(node);
    let Some(right) = answers.iter().position(|id| *id == node).filter(|_| answers.len() > 1) else {
        notify(state, Tone::Warning, "There is one answer only · /regen asks for another one", 5);
        return;
    };
    // Beside the one before it; the first beside the second.
    let left = right.checked_sub(1).unwrap_or(1);
    state.page = Some(Page::new(PageKind::Compare(Compared { answers, left, right })));
}

/// Enter on two answers: the conversation goes on with the right one.
pub fn take(state: &mut State) -> Option<Vec<Effect>> {
    let Some(Page { what: PageKind::Compare(compared), .. }) = &state.page else { return None };
    let chosen = compared.answers[compared.right];
    state.page = None;
    if state.chat.path().contains(&chosen) {
        return Some(Vec::new());
    }
    // What was said after that answer last.
    let leaf = state.chat.leaves().into_iter().find(|leaf| {
        std::iter::successors(Some(*leaf), |id| state.chat.node(*id)?.parent).any(|id| id == chosen)
    });
    Some(turns::switch(state, leaf.unwrap_or(chosen)))
}
