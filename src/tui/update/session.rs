//! Events of the session manager.

use std::time::Duration;

use crate::chat::Channel;
use crate::msg::{ErrorCode, Event, ModelInfo, TurnId, TurnStats};
use crate::sanitize::{clean, one_line};
use crate::tui::effect::{Effect, Work};
use crate::tui::markdown::code_blocks;
use crate::tui::notify::WORTH;
use crate::tui::state::{Model, Scroll, State};
use crate::tui::theme::Tone;
use crate::tui::transcript::{Answer, Ending, Entry, Phase};

use super::{
    attach, back_to_draft, compact, examine, history, models, note, overflow, queue_to_draft, send_queued,
    slash, turns,
};

pub fn event(state: &mut State, event: Event) -> Vec<Effect> {
    if models::self_test(state, &event) {
        return Vec::new();
    }
    if let Some(effects) = compact::event(state, &event) {
        return effects;
    }
    match event {
        Event::ModelLoaded(info) => return loaded(state, info),
        Event::ModelFailed { error } => failed(state, &error.message),
        Event::TurnStarted { turn, prompt_tokens } => {
            let total = prompt_tokens;
            grow(state, turn, |answer| {
                answer.stats.prompt_tokens = prompt_tokens;
                answer.phase = Phase::Reading { done: 0, total };
            });
        }
        Event::PrefillProgress { turn, done, total } => {
            grow(state, turn, |answer| answer.phase = Phase::Reading { done, total });
        }
        Event::Delta { turn, channel, text, stats } => {
            grow(state, turn, |answer| answer.push(channel, &text, stats));
            state.new_below = state.scroll != Scroll::Follow;
            // A fence may be complete.
            if channel == Channel::Answer && text.contains(['`', '~', '\n']) {
                return highlight(state, Some(turn));
            }
        }
        // A chat doesn't ask for them.
        Event::Tokens { .. } => {}
        Event::TurnFinished { turn, finish, stats } => {
            return end(state, turn, Ending::Finished(finish), Some(stats));
        }
        Event::TurnCancelled { turn, stats } => return end(state, turn, Ending::Stopped, Some(stats)),
        Event::TurnFailed { turn, error } => {
            let mut effects = end(state, turn, Ending::Failed(clean(&error.message)), None);
            if error.code == ErrorCode::TooLong {
                effects.extend(overflow::ask(state, turn));
            }
            return effects;
        }
        Event::PictureProgress { turn, picture, pictures, done, total } => {
            let percent = done * 100 / total.max(1);
            grow(state, turn, |answer| answer.phase = Phase::Looking { picture, pictures, percent });
        }
        Event::PictureReady { picture, what, facts } => return attach::ready(state, picture, what, facts),
        Event::History(event) => return history::event(state, event),
        Event::PictureRefused { picture, error } => attach::refused(state, picture, &error.message),
        Event::Examined { examination, prompt } => return examine::examined(state, examination, prompt),
        Event::Models(event) => return models::event(state, event),
    }
    Vec::new()
}

/// The session manager is gone; nothing more will come.
pub fn closed(state: &mut State) {
    if let Some(active) = state.active {
        end(state, active.turn, Ending::Failed("the session ended".to_owned()), None);
    }
    if state.model != Model::Failed {
        state.model = Model::Failed;
        queue_to_draft(state);
        note(state, Tone::Error, "The session ended unexpectedly. Quit (Ctrl+D) and start again.");
    }
}

fn loaded(state: &mut State, info: ModelInfo) -> Vec<Effect> {
    if let Some(text) = &info.note {
        note(state, Tone::Text, text.clone());
    }
    if let Some(text) = &info.device_note {
        note(state, Tone::Warning, text.clone());
    }
    state.model = Model::Ready(ModelInfo {
        name: one_line(&info.name),
        device: one_line(&info.device),
        // Shown once, just now.
        note: None,
        device_note: None,
        ..info
    });
    attach::model_is_known(state);
    slash::model_is_known(state);
    [models::remember(state), models::try_out(state), send_queued(state)].concat()
}

fn failed(state: &mut State, reason: &str) {
    state.model = Model::Failed;
    state.models.chosen = None;
    queue_to_draft(state);
    let text = format!(
        "The model can't be used: {reason}\nChoose another one with /model, or quit with Ctrl+D and start again with a complete model folder (--model)."
    );
    note(state, Tone::Error, text);
}

/// Has code highlighted that wasn't yet: of one answer, while it grows without its last block, or of all.
pub fn highlight(state: &mut State, only: Option<TurnId>) -> Vec<Effect> {
    let mut blocks = Vec::new();
    for entry in state.transcript.entries() {
        let Entry::Answer(answer) = entry else { continue };
        if only.is_some_and(|turn| turn != answer.turn) || !has_fence(answer.text.shown()) {
            continue;
        }
        let mut found = code_blocks(answer.text.shown());
        let grows = !matches!(answer.phase, Phase::Ended(_));
        if grows && !ends_with_fence(answer.text.shown()) {
            found.pop();
        }
        blocks.extend(found);
    }
    blocks.retain(|block| state.highlights.ask(block));
    if blocks.is_empty() { Vec::new() } else { vec![Effect::Work(Work::Highlight(blocks))] }
}

fn has_fence(text: &str) -> bool {
    text.contains("```") || text.contains("~~~")
}

fn ends_with_fence(text: &str) -> bool {
    let text = text.trim_end();
    text.ends_with("```") || text.ends_with("~~~")
}

fn is_active(state: &State, turn: TurnId) -> bool {
    state.active.is_some_and(|active| active.turn == turn)
}

/// Changes an answer that is being made. Events of turns that ended or left with their chat are late.
fn grow(state: &mut State, turn: TurnId, change: impl FnOnce(&mut Answer)) {
    if !is_active(state, turn) {
        return;
    }
    let mut context_used = state.context_used;
    state.transcript.change(turn, |answer| {
        change(answer);
        context_used = answer.stats.context_used();
    });
    state.context_used = context_used;
}

fn end(state: &mut State, turn: TurnId, ending: Ending, stats: Option<TurnStats>) -> Vec<Effect> {
    if !is_active(state, turn) {
        return Vec::new();
    }
    let did_fail = matches!(ending, Ending::Failed(_));
    let mut nothing_said = false;
    grow(state, turn, |answer| {
        answer.stats = stats.unwrap_or(answer.stats);
        answer.phase = Phase::Ended(ending);
        nothing_said = answer.text.raw().is_empty() && answer.thinking.raw().is_empty();
    });
    turns::ended(state, turn);
    state.active = None;
    state.last_stats = stats.or(state.last_stats);
    // Whether the session manager kept such a question is its own affair: the next turn says what holds.
    state.out_of_step |= did_fail || nothing_said;
    let mut effects = highlight(state, Some(turn));
    let took =
        stats.map_or(Duration::ZERO, |stats| stats.queue_time + stats.prefill_time + stats.decode_time);
    if !state.is_focused && took >= WORTH {
        let title = state.title().unwrap_or_default();
        let what = if did_fail { "No answer" } else { "The answer is there" };
        effects.push(Effect::Notify(format!("{what}: {title}")));
    }
    if did_fail {
        // What made this turn fail would most likely fail the next.
        queue_to_draft(state);
        // Pictures are more trouble to attach again than words to type again.
        if let Some(question) = state.transcript.question_of(turn)
            && !question.attached.is_empty()
        {
            back_to_draft(state, [question]);
            effects.extend(attach::inspect_unknown(state));
        }
    }
    effects.extend(send_queued(state));
    effects
}
