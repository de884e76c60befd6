//! Turns and branches: asking, answering again, editing, going on, taking back.
//!
//! The conversation's tree is what counts; the transcript shows the path to its head.

use crate::chat::conversation::Answered;
use crate::chat::{Conversation, Message, NodeId, Part, Role};
use crate::msg::{Command, ConversationId, HistoryCommand, Think, TurnId, TurnOptions};
use crate::tui::attach::Draft;
use crate::tui::commands;
use crate::tui::effect::Effect;
use crate::tui::state::{Active, Model, State, Undo};
use crate::tui::theme::Tone;
use crate::tui::transcript::{Answer, Entry, Phase, Transcript};

use super::{attach, back_to_draft, compact, follow, history, notify, queue_to_draft, session, stop};

/// Shows the question and hands it to the session manager.
pub fn start(state: &mut State, draft: Draft) -> Vec<Effect> {
    let before = state.chat.head();
    let parent = match state.editing.take().and_then(|edited| state.chat.node(edited)) {
        Some(edited) => edited.parent,
        None => before,
    };
    state.undo.push(Undo::Sent { head: before });
    let mut effects = Vec::new();
    if parent != before {
        state.chat.set_head(parent);
        effects.extend(show(state));
    }
    let question = state.chat.add(parent, draft.message(), None);
    state.transcript.push(question, Entry::User(draft.into()));
    effects.extend(history::keep(state, question));
    effects.extend(answer(state, question, None));
    effects
}

/// Asks for an answer to a question, which is the last message shown.
fn answer(state: &mut State, question: NodeId, seed: Option<u64>) -> Vec<Effect> {
    let Some(message) = state.chat.node(question).map(|node| node.message.clone()) else { return Vec::new() };
    let conversation = state.conversation;
    let mut effects = open(state, Some(question));
    let turn = next_turn(state);
    let mut options = state.options.clone();
    options.sampling.seed = seed.or(options.sampling.seed);
    let answered = answered(state);
    let empty = Message::text(Role::Assistant, "");
    let node = state.chat.add(Some(question), empty, Some(answered.clone()));
    state.transcript.push(node, Entry::Answer(Answer::new(turn).into()));
    effects.extend(history::keep(state, node));
    effects.extend(history::change(state, HistoryCommand::Follow { turn, conversation, node, answered }));
    follow(state);
    effects.push(Effect::Send(Command::Submit { turn, conversation, message, options }));
    effects
}

/// States the conversation before a message anew, if the session manager has another one.
fn open(state: &mut State, before: Option<NodeId>) -> Vec<Effect> {
    if !std::mem::take(&mut state.out_of_step) {
        return Vec::new();
    }
    let messages = state.chat.messages(before).into_iter().map(|(_, message)| message).collect();
    vec![Effect::Send(Command::Open { conversation: state.conversation, messages })]
}

fn next_turn(state: &mut State) -> TurnId {
    let turn = TurnId(state.last_turn.0 + 1);
    state.last_turn = turn;
    state.active = Some(Active { turn, stopping: false });
    turn
}

/// What is known of an answer before its first word.
fn answered(state: &State) -> Answered {
    let (model, revision, device) = match &state.model {
        Model::Ready(info) => (info.name.clone(), info.commit.clone(), info.device.clone()),
        Model::Loading | Model::Failed => Default::default(),
    };
    let mut settings: Vec<(String, String)> = commands::values(&state.options)
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    let think = state.options.think().unwrap_or(if state.thinks() { Think::On } else { Think::Off });
    settings.push(("think".into(), think.to_string()));
    if let Some(mtp) = state.options.mtp {
        settings.push(("mtp".into(), mtp.to_string()));
    }
    Answered { model, revision, device, settings, ..Answered::default() }
}

/// Whether a turn may begin now; says why not.
fn may_begin(state: &mut State) -> bool {
    let problem = if state.active.is_some() {
        "An answer is being written · Esc stops it"
    } else if !matches!(state.model, Model::Ready(_)) {
        "There is no model to answer yet"
    } else {
        return true;
    };
    notify(state, Tone::Warning, problem, 5);
    false
}

/// Whether another branch may be shown now; says why not.
fn may_leave_branch(state: &mut State) -> bool {
    if state.active.is_some() {
        notify(state, Tone::Warning, "An answer is being written · Esc stops it", 5);
    }
    state.active.is_none()
}

/// The last question that is shown.
pub fn last_question(chat: &Conversation) -> Option<NodeId> {
    let is_question = |id: &NodeId| chat.node(*id).is_some_and(|node| node.message.role == Role::User);
    chat.path().into_iter().rev().find(is_question)
}

/// Another answer to the last question. The one before is a branch of its own.
pub fn regenerate(state: &mut State, seed: Option<u64>) -> Vec<Effect> {
    if !may_begin(state) {
        return Vec::new();
    }
    let Some(question) = last_question(&state.chat) else {
        notify(state, Tone::Warning, "Nothing to answer again yet", 5);
        return Vec::new();
    };
    state.undo.push(Undo::Head(state.chat.head()));
    state.chat.set_head(Some(question));
    let mut effects = show(state);
    effects.extend(answer(state, question, seed));
    effects
}

/// Lets the model go on with the last answer.
pub fn go_on(state: &mut State) -> Vec<Effect> {
    if !may_begin(state) {
        return Vec::new();
    }
    let last = state.chat.head().and_then(|head| Some((head, state.chat.node(head)?)));
    let problem = match last {
        Some((_, node)) if node.message.role != Role::Assistant => {
            "The last message has no answer yet · /regen"
        }
        Some((_, node)) if crate::chat::conversation::says_nothing(&node.message) => {
            "The answer hasn't begun · /regen asks again"
        }
        Some((node, _)) => {
            let conversation = state.conversation;
            let mut effects = open(state, None);
            let turn = next_turn(state);
            let answered = answered(state);
            state.transcript.go_on(node, turn);
            effects.extend(history::change(
                state,
                HistoryCommand::Follow { turn, conversation, node, answered },
            ));
            follow(state);
            // Of a form that has begun elsewhere nothing is known.
            let options = TurnOptions { form: None, ..state.options.clone() };
            effects.push(Effect::Send(Command::Continue { turn, conversation, options }));
            return effects;
        }
        None => "Nothing to go on with yet",
    };
    notify(state, Tone::Warning, problem, 5);
    Vec::new()
}

/// Puts an earlier message into the draft. What is sent then begins a branch in its place.
pub fn edit(state: &mut State, number: Option<usize>) {
    if !may_leave_branch(state) {
        return;
    }
    let node = match number {
        Some(number) => match state.transcript.numbered(number) {
            Some((node, Entry::User(_))) => Some(node),
            Some(_) => {
                notify(
                    state,
                    Tone::Warning,
                    format!("[{number}] is an answer; /edit takes a message of yours"),
                    6,
                );
                return;
            }
            None => {
                notify(state, Tone::Warning, format!("There is no message [{number}]"), 5);
                return;
            }
        },
        None => last_question(&state.chat),
    };
    let Some(node) = node else {
        notify(state, Tone::Warning, "Nothing to edit yet", 5);
        return;
    };
    let Some(draft) = draft_of(state, node) else { return };
    state.editing = Some(node);
    state.composer.set_text(&draft.text);
    state.attached = draft.attached;
    let number = state.transcript.number_of(node).unwrap_or(0);
    let text = format!("Editing [{number}]: Enter sends it as a new branch · Esc leaves it");
    notify(state, Tone::Active, text, 8);
}

/// A message that is shown, as it was written.
pub fn draft_of(state: &State, node: NodeId) -> Option<Draft> {
    let text = state.chat.node(node)?.message.plain_text();
    Some(Draft { text, attached: state.transcript.attached_of(node).unwrap_or_default() })
}

/// Shows another branch.
pub fn switch(state: &mut State, leaf: NodeId) -> Vec<Effect> {
    if !may_leave_branch(state) {
        return Vec::new();
    }
    state.undo.push(Undo::Head(state.chat.head()));
    let mut effects = go_to(state, Some(leaf));
    notify(state, Tone::Faint, "Another branch · /undo goes back", 4);
    effects.extend(attach::inspect_unknown(state));
    effects
}

fn go_to(state: &mut State, head: Option<NodeId>) -> Vec<Effect> {
    state.editing = None;
    state.chat.set_head(head);
    let mut effects = show(state);
    let conversation = state.conversation;
    effects.extend(history::change(state, HistoryCommand::SetHead { conversation, head }));
    effects
}

/// Takes back what was done last: a deletion, a change of branch, or the last message, which becomes the draft.
pub fn undo(state: &mut State) -> Vec<Effect> {
    if matches!(state.undo.last(), Some(Undo::Deleted(_))) {
        return history::undelete(state);
    }
    if !may_leave_branch(state) {
        return Vec::new();
    }
    match state.undo.pop() {
        Some(Undo::Head(head)) => {
            notify(state, Tone::Faint, "Back on the branch before", 4);
            go_to(state, head)
        }
        Some(Undo::Sent { head }) => take_back(state, head),
        Some(Undo::Reading { left_out, summary }) => {
            state.chat.set_reading(left_out, summary);
            notify(state, Tone::Faint, "The model reads what it read before", 4);
            compact::changed(state)
        }
        Some(Undo::Deleted(_)) => Vec::new(),
        None => match last_question(&state.chat) {
            Some(question) => {
                let head = state.chat.node(question).and_then(|node| node.parent);
                take_back(state, head)
            }
            None => {
                notify(state, Tone::Faint, "Nothing to take back", 4);
                Vec::new()
            }
        },
    }
}

/// Takes the last question back into the draft.
pub fn undo_question(state: &mut State) -> Vec<Effect> {
    let question = last_question(&state.chat).and_then(|question| state.chat.node(question));
    match question.map(|node| node.parent) {
        Some(head) => take_back(state, head),
        None => Vec::new(),
    }
}

/// Shows the conversation as it was before the last message, which becomes the draft.
fn take_back(state: &mut State, head: Option<NodeId>) -> Vec<Effect> {
    let draft = last_question(&state.chat).and_then(|question| draft_of(state, question));
    let mut effects = go_to(state, head);
    back_to_draft(state, draft);
    notify(state, Tone::Faint, "The message is in the draft again; its answer is kept as a branch", 5);
    effects.extend(attach::inspect_unknown(state));
    effects
}

/// Leaves the chat for another conversation.
pub fn leave(state: &mut State, next: ConversationId) -> Vec<Effect> {
    let mut effects = stop(state);
    (state.active, state.compacting) = (None, None);
    effects.push(Effect::Send(Command::Close { conversation: state.conversation }));
    state.conversation = next;
    state.stored = None;
    state.editing = None;
    state.chat = Conversation::new(state.chat.system.take());
    // Branches are of the conversation that was left; a deletion can still be taken back.
    state.undo.retain(|undo| matches!(undo, Undo::Deleted(_)));
    effects.extend(show(state));
    queue_to_draft(state);
    effects
}

/// Shows the path to the head. The session manager hears of it with the next message.
pub fn show(state: &mut State) -> Vec<Effect> {
    let before: Transcript = std::mem::take(&mut state.transcript);
    let mut effects = Vec::new();
    (state.context_used, state.last_stats) = (0, None);
    for id in state.chat.path() {
        let Some(node) = state.chat.node(id) else { continue };
        match node.message.role {
            Role::User => {
                let text = node.message.plain_text();
                let attached = match before.attached_of(id) {
                    Some(attached) => attached,
                    None => {
                        let parts: Vec<Part> = node.message.parts.clone();
                        let (attached, asked) = attach::kept(state, &parts);
                        effects.extend(asked);
                        attached
                    }
                };
                state.transcript.push(id, Entry::User(Draft { text, attached }.into()));
            }
            Role::Assistant => {
                let answer = Answer::from(node);
                state.context_used = answer.stats.context_used();
                state.last_stats = Some(answer.stats);
                state.transcript.push(id, Entry::Answer(answer.into()));
            }
            Role::System | Role::Tool => {}
        }
    }
    let chat = &state.chat;
    state.transcript.leave_out(|id| chat.is_left_out(id));
    state.out_of_step = true;
    follow(state);
    effects.extend(session::highlight(state, None));
    effects
}

/// Puts what an answer has come to into the tree.
pub fn ended(state: &mut State, turn: TurnId) {
    let Some(node) = state.transcript.node_of(turn) else { return };
    let Some(answer) = state.transcript.entries().rev().find_map(|entry| match entry {
        Entry::Answer(answer) if answer.turn == turn => Some(answer),
        _ => None,
    }) else {
        return;
    };
    let Some(kept) = state.chat.node_mut(node) else { return };
    kept.message.parts = vec![Part::Text(answer.text.raw().to_owned())];
    let thinking = answer.thinking.raw();
    kept.message.reasoning = (!thinking.is_empty()).then(|| thinking.to_owned());
    if let (Some(answered), Phase::Ended(ending)) = (&mut kept.answered, &answer.phase) {
        answered.ending = ending.kept();
        answered.figures = (&answer.stats).into();
    }
}
