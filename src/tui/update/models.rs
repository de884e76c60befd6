//! The choice of models: what its keys do, and what comes back from the session manager.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::chat::{Detail, Message, Part, Picture, PictureSource, Role};
use crate::msg::{
    Command, ConversationId, DownloadProgress, Event, ModelCommand, ModelEvent, TurnId, TurnOptions,
};
use crate::sanitize::{clean, one_line};
use crate::tui::effect::{Effect, Work};
use crate::tui::models::{Choice, Download, DownloadState, Line, ModelAreas, ModelList, SelfTest};
use crate::tui::state::{Model, State};
use crate::tui::theme::Tone;
use crate::tui::transcript::figures;

use super::{note, notify};

/// A red disc on white.
const PICTURE: &[u8] = include_bytes!("../../../assets/self-test.png");
/// The conversation of the self-test, which no chat has.
const SELF_TEST: ConversationId = ConversationId(u64::MAX);
const SELF_TEST_TOKENS: usize = 48;

fn ask(command: ModelCommand) -> Effect {
    Effect::Send(Command::Models(command))
}

/// Opens the list; what it shows comes as it is found.
pub fn open(state: &mut State, filter: &str) -> Vec<Effect> {
    state.models.open = Some(ModelList { filter: filter.to_owned(), ..ModelList::default() });
    vec![ask(ModelCommand::List)]
}

/// Keys of the list; `None` for those that belong to the chat behind it.
pub fn key(state: &mut State, key: KeyEvent) -> Option<Vec<Effect>> {
    let areas = state.areas().and_then(|areas| ModelAreas::new(areas.transcript, state.note_rows()));
    let page = areas.map_or(1, |areas| areas.list.height.max(1)) as isize;
    let list = state.models.open.as_mut()?;
    let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
    match key.code {
        KeyCode::Esc => {
            state.models.open = None;
            // It was told.
            state.models.download.take_if(|download| matches!(download.state, DownloadState::Failed(_)));
        }
        KeyCode::Up => state.models.move_by(-1),
        KeyCode::Down => state.models.move_by(1),
        KeyCode::PageUp => state.models.move_by(-page),
        KeyCode::PageDown => state.models.move_by(page),
        KeyCode::Tab => list.shows_details = !list.shows_details,
        KeyCode::F(3) => return Some(next_context(state)),
        KeyCode::F(4) => {
            let text = "In a shell: loquat config set models_folder DIR · holds from the next start";
            notify(state, Tone::Active, text, 10);
        }
        KeyCode::Delete => return Some(cancel(state)),
        KeyCode::Enter => return Some(choose(state)),
        // Whoever types wants to chat.
        KeyCode::Char(_) | KeyCode::Backspace if list.is_welcome && plain => {
            state.models.open = None;
            return None;
        }
        KeyCode::Backspace => {
            list.filter.pop();
            list.selected = None;
        }
        KeyCode::Char(c) if plain => {
            list.filter.push(c);
            list.selected = None;
        }
        _ => return None,
    }
    Some(Vec::new())
}

/// Other verdicts, for the next size of context. Models that are loaded from now on get it, also after the next start.
fn next_context(state: &mut State) -> Vec<Effect> {
    const SIZES: [u32; 7] = [4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144];
    let now = state.models.context_tokens.unwrap_or(32_768);
    let next = SIZES.into_iter().find(|size| *size > now).unwrap_or(SIZES[0]);
    state.models.context_tokens = Some(next);
    state.models.rows.iter_mut().for_each(|choice| choice.judgement = None);
    let kept = Effect::Work(Work::Keep { setting: "context", value: next.to_string() });
    vec![ask(ModelCommand::Context(next)), ask(ModelCommand::List), kept]
}

/// Uses what is here, fetches what isn't, and pauses what is on its way.
fn choose(state: &mut State) -> Vec<Effect> {
    let idx = state.models.selected_idx();
    let lines = state.models.lines();
    let (name, is_here) = match lines.get(idx) {
        None => return Vec::new(),
        Some(Line::Search(words)) => {
            let words = (*words).to_owned();
            state.models.searched = Some(format!("searching for {words}…"));
            return vec![ask(ModelCommand::Search(words))];
        }
        Some(Line::Named(name)) => ((*name).to_owned(), false),
        Some(Line::Model(choice)) => (choice.row.name.clone(), choice.is_here()),
    };
    if is_here {
        state.models.open = None;
        state.models.try_out = false;
        state.models.chosen = Some(name.clone());
        return vec![ask(ModelCommand::Load(name))];
    }
    match &mut state.models.download {
        Some(download) if download.name == name && download.state == DownloadState::Running => {
            download.state = DownloadState::Paused;
            vec![ask(ModelCommand::StopDownload)]
        }
        _ => {
            let progress = match &state.models.download {
                Some(download) if download.name == name => download.progress.clone(),
                _ => DownloadProgress::default(),
            };
            let download = Download { name: name.clone(), progress, state: DownloadState::Running };
            state.models.download = Some(download);
            vec![ask(ModelCommand::Download(name))]
        }
    }
}

/// What arrived stays on the disk.
fn cancel(state: &mut State) -> Vec<Effect> {
    match state.models.download.take() {
        Some(download) if download.state == DownloadState::Running => {
            notify(state, Tone::Faint, "Download cancelled; it would go on where it was", 5);
            vec![ask(ModelCommand::StopDownload)]
        }
        _ => Vec::new(),
    }
}

pub fn event(state: &mut State, event: ModelEvent) -> Vec<Effect> {
    match event {
        ModelEvent::Listed { machine, models } => {
            state.models.machine = Some(machine);
            let known = std::mem::take(&mut state.models.rows);
            let judged = |name: &str| known.iter().find(|choice| choice.row.name == name)?.judgement.clone();
            state.models.rows =
                models.into_iter().map(|row| Choice { judgement: judged(&row.name), row }).collect();
        }
        ModelEvent::Judged { name, judgement } => {
            let judgement = judgement.map_err(|why| one_line(&why));
            if let Some(choice) = state.models.rows.iter_mut().find(|choice| choice.row.name == name) {
                choice.judgement = Some(judgement);
            }
        }
        ModelEvent::Found { words, found } => match found {
            Err(why) => state.models.searched = Some(one_line(&why)),
            Ok(rows) => {
                let n = rows.len();
                for row in rows {
                    if state.models.choice(&row.name).is_none() {
                        state.models.rows.push(Choice { row, judgement: None });
                    }
                }
                let words = one_line(&words);
                state.models.searched = Some(match n {
                    0 => format!("the Hub knows no model like {words}"),
                    n => format!("{n} found on the Hub for {words}"),
                });
            }
        },
        ModelEvent::Downloading { name, progress } => {
            if let Some(download) = running(state, &name) {
                download.progress = progress;
            }
        }
        ModelEvent::DownloadFailed { name, why } => {
            let why = one_line(&why);
            if let Some(download) = running(state, &name) {
                download.state = DownloadState::Failed(why.clone());
                note(
                    state,
                    Tone::Error,
                    format!(
                        "{name} was not downloaded: {why}\nWhat arrived is kept: /model goes on with it."
                    ),
                );
            }
        }
        ModelEvent::Downloaded { name } => return downloaded(state, name),
        ModelEvent::Loading { name } => {
            state.model = Model::Loading;
            state.loading_since = state.now;
            notify(state, Tone::Faint, format!("Changing to {}", one_line(&name)), 3);
        }
        ModelEvent::NotHere { why, .. } => {
            state.models.chosen = None;
            note(state, Tone::Error, one_line(&why));
        }
    }
    Vec::new()
}

fn running<'a>(state: &'a mut State, name: &str) -> Option<&'a mut Download> {
    state.models.download.as_mut().filter(|it| it.name == name && it.state == DownloadState::Running)
}

/// It takes over at once, unless an answer is being made: then that is for the person to say.
fn downloaded(state: &mut State, name: String) -> Vec<Effect> {
    if running(state, &name).is_none() {
        return Vec::new();
    }
    state.models.download = None;
    if let Some(choice) = state.models.rows.iter_mut().find(|choice| choice.row.name == name) {
        choice.row.store = Some("Hub cache".into());
    }
    if state.active.is_some() || !state.queue.is_empty() {
        note(state, Tone::Text, format!("{name} is here. /model changes to it."));
        return Vec::new();
    }
    state.models.open = None;
    state.models.try_out = true;
    state.models.chosen = Some(name.clone());
    vec![ask(ModelCommand::Load(name))]
}

/// The model that a person chose and that works is what the next start begins with.
pub fn remember(state: &mut State) -> Vec<Effect> {
    let chosen = state.models.chosen.take();
    chosen.map(|value| Effect::Work(Work::Keep { setting: "model", value })).into_iter().collect()
}

/// A model that was just fetched answers one question, so that everybody knows that it works, and how fast.
pub fn try_out(state: &mut State) -> Vec<Effect> {
    if !std::mem::take(&mut state.models.try_out) {
        return Vec::new();
    }
    let turn = TurnId(state.last_turn.0 + 1);
    state.last_turn = turn;
    state.models.self_test = Some(SelfTest { turn, answer: String::new() });
    let mut parts = Vec::new();
    let question = match state.sees() {
        true => {
            let source = PictureSource::Bytes(PICTURE.into());
            parts.push(Part::Image(Picture { name: "self-test.png".into(), source, detail: Detail::Low }));
            "What is in this picture? Answer in one short sentence."
        }
        false => "What is the capital of France? Answer in one short sentence.",
    };
    parts.push(Part::Text(question.into()));
    let message = Message { role: Role::User, parts, reasoning: None };
    let options =
        TurnOptions { max_tokens: Some(SELF_TEST_TOKENS), thinking: Some(false), ..TurnOptions::default() };
    vec![
        Effect::Send(Command::Open { conversation: SELF_TEST, messages: Vec::new() }),
        Effect::Send(Command::Submit { turn, conversation: SELF_TEST, message, options }),
    ]
}

/// Takes in what the self-test says; false for events of other turns.
pub fn self_test(state: &mut State, event: &Event) -> bool {
    let Some(test) = &mut state.models.self_test else { return false };
    match event {
        Event::Delta { turn, text, .. } if *turn == test.turn => test.answer.push_str(text),
        Event::TurnFinished { turn, stats, .. } if *turn == test.turn => {
            let text = format!(
                "Self-test: {}\n{}\nThe model works. F1 shows keys and commands, /model other models, Ctrl+O attaches a picture.",
                clean(test.answer.trim()),
                figures(stats).unwrap_or_default(),
            );
            state.models.self_test = None;
            note(state, Tone::Faint, text);
        }
        Event::TurnCancelled { turn, .. } if *turn == test.turn => state.models.self_test = None,
        Event::TurnFailed { turn, error } if *turn == test.turn => {
            let text = format!("Self-test: the model doesn't answer: {}", error.message);
            state.models.self_test = None;
            note(state, Tone::Error, text);
        }
        Event::TurnStarted { turn, .. }
        | Event::PrefillProgress { turn, .. }
        | Event::PictureProgress { turn, .. }
            if *turn == test.turn => {}
        _ => return false,
    }
    true
}
