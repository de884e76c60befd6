//! `/compact`: the model sums up the older part of the conversation and from then on reads that in its place. Nothing
//! that was said is changed, and `/undo` or `/compact off` has it read in full again.

use crate::chat::conversation::Summary;
use crate::chat::{Message, Role};
use crate::msg::{Command, ConversationId, Event, HistoryCommand, TurnId, TurnOptions};
use crate::sanitize::clean;
use crate::tui::effect::Effect;
use crate::tui::state::{Active, Compacting, Model, State, Undo};
use crate::tui::theme::Tone;

use super::{history, note, notify, turns};

/// The conversation in which it is asked for, which no chat has.
const SUMMARY: ConversationId = ConversationId(u64::MAX - 1);

/// A summary that is as long as what it stands for is of no use.
const MOST_TOKENS: usize = 600;

const REQUEST: &str = "Sum up our conversation so far, so that it can go on without its older part. Keep names, numbers, \
     decisions, open questions, and what I asked you to do or not to do. At most 200 words; nothing but the summary.";

/// Asks the model for a summary of all but the last question and its answer.
pub fn begin(state: &mut State) -> Vec<Effect> {
    if state.active.is_some() {
        notify(state, Tone::Warning, "An answer is being written · Esc stops it", 5);
        return Vec::new();
    }
    if !matches!(state.model, Model::Ready(_)) {
        notify(state, Tone::Warning, "There is no model to sum it up yet", 5);
        return Vec::new();
    }
    let question = turns::last_question(&state.chat);
    let messages: Vec<Message> =
        state.chat.messages(question).into_iter().map(|(_, message)| message).collect();
    let until = question.and_then(|question| state.chat.node(question)?.parent);
    let (Some(until), true) = (until, messages.iter().any(|message| message.role == Role::Assistant)) else {
        notify(state, Tone::Faint, "There is nothing older than the last question to sum up", 5);
        return Vec::new();
    };
    let turn = TurnId(state.last_turn.0 + 1);
    state.last_turn = turn;
    state.active = Some(Active { turn, stopping: false });
    let n_messages = messages.iter().filter(|message| message.role != Role::System).count();
    state.compacting = Some(Compacting { turn, until, n_messages, n_tokens: 0, text: String::new() });
    let options = TurnOptions {
        max_tokens: Some(MOST_TOKENS),
        thinking: Some(false),
        max_thinking: None,
        form: None,
        ..state.options.clone()
    };
    vec![
        Effect::Send(Command::Open { conversation: SUMMARY, messages }),
        Effect::Send(Command::Submit {
            turn,
            conversation: SUMMARY,
            message: Message::text(Role::User, REQUEST),
            options,
        }),
    ]
}

/// Takes in what comes of it; `None` for events of other turns.
pub fn event(state: &mut State, event: &Event) -> Option<Vec<Effect>> {
    let compacting = state.compacting.as_mut()?;
    let turn_of = match event {
        Event::TurnStarted { turn, .. }
        | Event::PrefillProgress { turn, .. }
        | Event::PictureProgress { turn, .. }
        | Event::Delta { turn, .. }
        | Event::TurnFinished { turn, .. }
        | Event::TurnCancelled { turn, .. }
        | Event::TurnFailed { turn, .. } => *turn,
        _ => return None,
    };
    if turn_of != compacting.turn {
        return None;
    }
    match event {
        Event::Delta { text, stats, .. } => {
            compacting.text.push_str(text);
            compacting.n_tokens = stats.completion_tokens;
        }
        Event::TurnFinished { stats, .. } => {
            let compacting = state.compacting.take()?;
            state.active = None;
            return Some(done(state, compacting, stats.prompt_tokens));
        }
        Event::TurnCancelled { .. } => {
            (state.active, state.compacting) = (None, None);
            notify(state, Tone::Faint, "Not summed up", 4);
            return Some(super::send_queued(state));
        }
        Event::TurnFailed { error, .. } => {
            (state.active, state.compacting) = (None, None);
            note(state, Tone::Error, format!("Not summed up: {}", error.message));
            return Some(super::send_queued(state));
        }
        _ => {}
    }
    Some(Vec::new())
}

fn done(state: &mut State, compacting: Compacting, read: usize) -> Vec<Effect> {
    let text = compacting.text.trim().to_owned();
    if text.is_empty() {
        notify(state, Tone::Warning, "The model had nothing to say; all is read as before", 6);
        return super::send_queued(state);
    }
    remember(state);
    for id in state.chat.path_until(compacting.until) {
        state.chat.leave_out(id, true);
    }
    let shown = format!(
        "In place of the older {} messages (about {read} tok) the model reads this from now on ({} tok); /undo or /compact off has them read in full again:\n{}",
        compacting.n_messages,
        compacting.n_tokens,
        clean(&text)
    );
    state.chat.summary = Some(Summary { until: compacting.until, text });
    let mut effects = changed(state);
    note(state, Tone::Faint, shown);
    effects.extend(super::send_queued(state));
    effects
}

/// `/compact off`.
pub fn take_back(state: &mut State) -> Vec<Effect> {
    let Some(summary) = state.chat.summary.clone() else {
        notify(state, Tone::Faint, "Nothing is summed up", 4);
        return Vec::new();
    };
    remember(state);
    state.chat.summary = None;
    for id in state.chat.path_until(summary.until) {
        state.chat.leave_out(id, false);
    }
    notify(state, Tone::Faint, "The model reads everything again", 5);
    changed(state)
}

/// Lets `/undo` come back here.
fn remember(state: &mut State) {
    let (left_out, summary) = (state.chat.left_out(), state.chat.summary.clone());
    state.undo.push(Undo::Reading { left_out, summary });
}

/// What the model reads is other than it was: on the screen, in the history, and with the next message.
pub fn changed(state: &mut State) -> Vec<Effect> {
    state.out_of_step = true;
    let chat = &state.chat;
    state.transcript.leave_out(|id| chat.is_left_out(id));
    let (left_out, summary) = (state.chat.left_out(), state.chat.summary.clone());
    let conversation = state.conversation;
    history::change(state, HistoryCommand::SetReading { conversation, left_out, summary })
}
