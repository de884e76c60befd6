//! What a prompt is made of: asking the session manager, and showing what it says.

use crate::chat::{Message, NodeId, Role};
use crate::msg::{Command, ExaminationId, PromptPiece};
use crate::sanitize::{clean, one_line};
use crate::tui::attach::Draft;
use crate::tui::effect::Effect;
use crate::tui::page::{ContextMap, ContextPart, Page, PageKind};
use crate::tui::state::{Examining, Model, State, Why};
use crate::tui::theme::Tone;

use super::{note, notify, overflow};

/// Asks about the conversation as the model would read it next, with the draft if something is in it.
pub fn ask(state: &mut State, why: Why) -> Vec<Effect> {
    let mut messages = state.chat.messages(None);
    match why {
        Why::TooLong(question) => {
            messages = state.chat.messages(Some(question));
            messages.extend(state.chat.node(question).map(|node| (Some(question), node.message.clone())));
        }
        Why::Context | Why::Prompt => {
            if !state.composer.is_blank() || !state.attached.is_empty() {
                let draft = Draft { text: state.composer.text(), attached: state.attached.clone() };
                messages.push((None, draft.message()));
            }
        }
    }
    if messages.iter().all(|(_, message)| message.role == Role::System) {
        notify(state, Tone::Faint, "Nothing was said yet: the context is empty", 4);
        return Vec::new();
    }
    state.last_examination.0 += 1;
    let examination = state.last_examination;
    let (nodes, messages): (Vec<Option<NodeId>>, Vec<Message>) = messages.into_iter().unzip();
    state.examining = Some(Examining { id: examination, why, nodes });
    let thinking = state.options.thinking;
    vec![Effect::Send(Command::Examine { examination, messages, thinking })]
}

pub fn examined(
    state: &mut State,
    examination: ExaminationId,
    prompt: Result<Vec<PromptPiece>, String>,
) -> Vec<Effect> {
    let Some(examining) = state.examining.take_if(|it| it.id == examination) else { return Vec::new() };
    let pieces = match prompt {
        Ok(pieces) => pieces,
        Err(why) => {
            note(state, Tone::Error, format!("The prompt can't be looked at: {}", clean(&why)));
            return Vec::new();
        }
    };
    match examining.why {
        Why::Prompt => state.page = Some(Page::new(PageKind::Prompt(pieces))),
        Why::Context => {
            let parts = parts(state, &examining.nodes, pieces).into_iter().map(|(_, part)| part).collect();
            let limit = limit(state);
            state.page = Some(Page::new(PageKind::Context(ContextMap { parts, limit })));
        }
        Why::TooLong(question) => {
            let parts = parts(state, &examining.nodes, pieces);
            return overflow::counted(state, question, &parts);
        }
    }
    Vec::new()
}

/// Most tokens that a prompt and its answer may have together.
pub fn limit(state: &State) -> usize {
    match &state.model {
        Model::Ready(info) => info.context_tokens,
        Model::Loading | Model::Failed => 0,
    }
}

/// The pieces of a prompt by the messages that they are.
fn parts(
    state: &State,
    nodes: &[Option<NodeId>],
    pieces: Vec<PromptPiece>,
) -> Vec<(Option<NodeId>, ContextPart)> {
    let n_system = usize::from(state.chat.system.is_some());
    let part = |(idx, piece): (usize, PromptPiece)| {
        let node = nodes.get(idx).copied().flatten();
        let message = node.and_then(|node| state.chat.node(node)).map(|node| &node.message);
        let number = node.and_then(|node| state.transcript.number_of(node));
        let number = number.map(|number| format!("[{number}] ")).unwrap_or_default();
        let (who, text, pictures) = match message {
            Some(message) => {
                let who = if message.role == Role::User { "You" } else { "Assistant" };
                let attached = node.and_then(|node| state.transcript.attached_of(node)).unwrap_or_default();
                (format!("{number}{who}"), message.plain_text(), attached)
            }
            None if idx < n_system => {
                let name = state.persona.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
                (format!("System prompt{name}"), state.chat.system.clone().unwrap_or_default(), Vec::new())
            }
            None if idx < nodes.len() => ("Draft".to_owned(), state.composer.text(), state.attached.clone()),
            None => ("Beginning of the answer".to_owned(), String::new(), Vec::new()),
        };
        // Each picture is one token of the text.
        let tokens: usize = pictures.iter().filter_map(|it| it.facts).map(|facts| facts.tokens).sum();
        let beginning: String = text.trim_start().chars().take(100).collect();
        let part = ContextPart {
            who,
            beginning: one_line(&beginning),
            text_tokens: piece.tokens.saturating_sub(pictures.len()),
            picture_tokens: tokens,
        };
        (node, part)
    };
    pieces.into_iter().enumerate().map(part).collect()
}
