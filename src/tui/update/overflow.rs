//! A conversation that is longer than the context: asking what to do, with the numbers, and leaving messages out.

use crate::chat::{NodeId, Role};
use crate::msg::TurnId;
use crate::tui::effect::Effect;
use crate::tui::list::{Item, Kind, List, WayOut, What};
use crate::tui::page::ContextPart;
use crate::tui::state::{Overflow, State, Why};
use crate::tui::theme::Tone;
use crate::tui::transcript::Entry;

use super::{attach, compact, examine, new_chat, notify, turns};

/// An answer should have at least this share of the context.
const ANSWER_SHARE: usize = 4;

/// A question didn't fit: has its prompt counted, unless that is to be an error.
pub fn ask(state: &mut State, turn: TurnId) -> Vec<Effect> {
    if state.overflow == Overflow::Error {
        return Vec::new();
    }
    let answer = state.transcript.node_of(turn);
    let question = answer.and_then(|answer| state.chat.node(answer)?.parent);
    match question {
        Some(question) => examine::ask(state, Why::TooLong(question)),
        None => Vec::new(),
    }
}

/// The prompt was counted: does what the settings say, or asks.
pub fn counted(state: &mut State, question: NodeId, parts: &[(Option<NodeId>, ContextPart)]) -> Vec<Effect> {
    // Something else was begun meanwhile.
    if state.active.is_some() || !state.chat.path().contains(&question) {
        return Vec::new();
    }
    let limit = examine::limit(state);
    let total: usize = parts.iter().map(|(_, part)| part.tokens()).sum();
    let wanted = limit - limit / ANSWER_SHARE;
    let (mut left, mut n_messages, mut last) = (total, 0, None);
    for (node, part) in parts {
        let Some(node) = node.filter(|node| *node != question) else { continue };
        // Questions go with their answers.
        let is_question = state.chat.node(node).is_some_and(|node| node.message.role == Role::User);
        if left <= wanted && is_question {
            break;
        }
        (left, n_messages, last) = (left - part.tokens(), n_messages + 1, Some(node));
    }
    let last = last.filter(|_| left < limit);
    if state.overflow == Overflow::DropOldest
        && let Some(last) = last
    {
        return take(state, WayOut::LeaveOut(last));
    }
    let alone: usize = parts
        .iter()
        .filter(|(node, _)| node.is_none() || *node == Some(question))
        .map(|(_, part)| part.tokens())
        .sum();
    let mut items = Vec::new();
    items.extend(last.map(|last| Item {
        what: What::WayOut(WayOut::LeaveOut(last)),
        text: format!("Leave out the oldest {n_messages} messages and answer"),
        facts: format!("{total} → {left} of {limit} tok"),
        ..Item::plain()
    }));
    if alone < limit && alone < total {
        items.push(Item {
            what: What::WayOut(WayOut::NewChat),
            text: "Ask it in a new chat".into(),
            facts: format!("{alone} of {limit} tok"),
            ..Item::plain()
        });
    }
    items.push(Item {
        what: What::WayOut(WayOut::Draft),
        text: "Put it back into the draft, to make it shorter".into(),
        facts: format!("{total} of {limit} tok"),
        ..Item::plain()
    });
    state.list = Some(List { items: Some(items), ..List::new(Kind::TooLong, "") });
    Vec::new()
}

pub fn take(state: &mut State, way_out: WayOut) -> Vec<Effect> {
    match way_out {
        WayOut::LeaveOut(last) => {
            let mut n_left_out = 0;
            for id in state.chat.path_until(last) {
                n_left_out += usize::from(!state.chat.is_left_out(id));
                state.chat.leave_out(id, true);
            }
            let mut effects = compact::changed(state);
            effects.extend(turns::regenerate(state, None));
            let text = format!("The oldest {n_left_out} messages are left out · /drop N takes one back in");
            notify(state, Tone::Warning, text, 8);
            effects
        }
        WayOut::NewChat => {
            let question = last_draft(state);
            let mut effects = turns::undo_question(state);
            state.composer.clear();
            state.attached.clear();
            effects.extend(new_chat(state));
            if let Some(question) = question {
                effects.extend(turns::start(state, question));
            }
            effects
        }
        WayOut::Draft => {
            let effects = turns::undo_question(state);
            [effects, attach::inspect_unknown(state)].concat()
        }
    }
}

fn last_draft(state: &State) -> Option<crate::tui::attach::Draft> {
    let question = turns::last_question(&state.chat)?;
    turns::draft_of(state, question)
}

/// `/drop`: the model reads a message and what belongs to it no more, or again.
pub fn drop(state: &mut State, number: usize) -> Vec<Effect> {
    let Some((node, Entry::User(_) | Entry::Answer(_))) = state.transcript.numbered(number) else {
        notify(state, Tone::Warning, format!("There is no message [{number}]"), 5);
        return Vec::new();
    };
    let leaves_out = !state.chat.is_left_out(node);
    state.chat.leave_out(node, leaves_out);
    let effects = compact::changed(state);
    let text = match leaves_out {
        true => format!("[{number}] is left out of what the model reads, with what belongs to it"),
        false => format!("The model reads [{number}] again"),
    };
    notify(state, Tone::Faint, text, 5);
    effects
}
