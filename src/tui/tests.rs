//! What a person sees and what the session manager is told, through one driver.

mod chat;
mod commands;
mod composer;
mod context;
mod drafts;
mod history;
mod models;
mod pictures;
mod properties;
mod screens;
mod themes;

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::chat::Channel;
use crate::chat::{Picture, PictureSource};
use crate::msg::{
    Command, ErrorCode, Event, Finish, Found, HistoryEvent, ModelInfo, PictureFacts, PictureId,
    PictureLimits, PromptPiece, StoredId, TurnError, TurnStats,
};

use super::effect::{Effect, Work};
use super::msg::{Done, Msg};
use super::pictures::clipboard::Clip;
use super::pictures::files::FolderEntry;
use super::state::{State, TuiSettings};
use super::theme::Theme;
use super::update::update;
use super::view;

/// A state played from a script, with everything it asked for.
pub struct Run {
    pub state: State,
    pub effects: Vec<Effect>,
    stats: TurnStats,
}

/// Plays a script on a screen of 80x24 with a loaded model. `<name>` is a key, `~name(argument)` an event,
/// everything else is typed; spaces around keys and events part them.
///
/// Events: `~start(TOKENS)`, `~prefill(DONE/TOTAL)`, `~think(TEXT)`, `~delta(TEXT)`, `~finish`, `~length`,
/// `~cancelled`, `~failed(REASON)`, `~loaded`, `~note(TEXT)`, `~nomodel(REASON)`, `~closed`, `~wait(MS)`,
/// `~resize(WxH)`, `~paste(TEXT)`. About pictures: `~sees` loads a model that sees, `~ready(WxH FULL)` and
/// `~refused(REASON)` answer for the oldest picture that waits, `~looking(DONE/TOTAL)`, `~found(FILES)`,
/// About kept conversations: `~kept(NUMBER)`, `~history(NUMBER TITLE; …)` answers the last search, `~deleted(NUMBER TITLE)`,
/// `~renamed(NUMBER TITLE)`, `~no(REASON)`, `~off(REASON)`.
/// `~edited(TEXT)` comes back from the editor, `~prompts(A; B)` from earlier runs; `~counted(N N …)` are the tokens of a
/// prompt's pieces, `~toolong` fails a turn so.
/// `~listed(NAMES)` (folders end in `/`), `~files(PATHS)` and `~nofiles` answer for a paste, `~clip(TEXT)`. Each delta is two tokens that took 50 ms. `~steps(DRAFTED/ACCEPTED …)` is
/// a delta of steps of 40 ms each, with a word for each of their tokens.
pub fn play(script: &str) -> Run {
    play_on(80, 24, &format!("~loaded {script}"))
}

pub fn play_on(width: u16, height: u16, script: &str) -> Run {
    play_with(TuiSettings::default(), width, height, script)
}

pub fn play_with(settings: TuiSettings, width: u16, height: u16, script: &str) -> Run {
    let state = State::new(settings, width, height);
    let mut run = Run { state, effects: Vec::new(), stats: TurnStats::default() };
    run.play(script);
    run
}

impl Run {
    pub fn play(&mut self, script: &str) {
        let mut rest = script;
        while !rest.is_empty() {
            if let Some((name, after)) = rest.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
                self.message(Msg::Key(key(name)));
                rest = after.trim_start();
            } else if let Some(event) = rest.strip_prefix('~') {
                let end = event.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(event.len());
                let (name, after) = event.split_at(end);
                let (argument, after) = after
                    .strip_prefix('(')
                    .map_or(("", after), |inner| inner.split_once(')').expect("a closing parenthesis"));
                self.event(name, argument);
                rest = after.trim_start();
            } else {
                let end = rest.find(['<', '~']).unwrap_or(rest.len());
                for c in rest[..end].trim_end().chars() {
                    self.message(Msg::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)));
                }
                rest = &rest[end..];
            }
        }
    }

    pub fn message(&mut self, message: Msg) {
        self.effects.extend(update(&mut self.state, message));
    }

    pub fn sent(&self) -> Vec<&Command> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Send(command) => Some(command),
                _ => None,
            })
            .collect()
    }

    /// The oldest picture that the session manager was asked about and hasn't answered for.
    fn waiting_picture(&self) -> (PictureId, Picture) {
        let state = &self.state;
        let waiting = state.queue.iter().flat_map(|draft| &draft.attached);
        let all = state.transcript.attached().chain(waiting).chain(&state.attached);
        let attached = all.filter(|attached| attached.facts.is_none()).min_by_key(|attached| attached.id);
        let attached = attached.expect("a picture that waits");
        (attached.id, attached.what.clone())
    }

    /// Does the work that was asked for last, if it needs nothing but what it was given.
    pub fn work(&mut self) {
        let Some(Effect::Work(work)) = self.effects.pop() else { panic!("no work was asked for last") };
        self.message(Msg::Done(super::work::work(work, std::path::Path::new("/nowhere"))));
    }

    /// The texts of the submitted messages.
    pub fn submitted(&self) -> Vec<String> {
        self.sent()
            .into_iter()
            .filter_map(|command| match command {
                Command::Submit { message, .. } => Some(message.plain_text()),
                _ => None,
            })
            .collect()
    }

    pub fn screen(&mut self) -> String {
        self.screen_in(Theme::new(true))
    }

    pub fn screen_in(&mut self, theme: Theme) -> String {
        self.state.layout();
        let backend = TestBackend::new(self.state.width, self.state.height);
        let mut terminal = Terminal::new(backend).unwrap();
        terminal.draw(|frame| view::draw(frame, &self.state, theme)).unwrap();
        let buffer = terminal.backend().buffer();
        let mut screen = String::new();
        for y in 0..buffer.area.height {
            let mut row = String::new();
            let mut skip = 0;
            for x in 0..buffer.area.width {
                // The cells behind a wide character hold nothing of their own.
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                let symbol = buffer[(x, y)].symbol();
                skip = unicode_width::UnicodeWidthStr::width(symbol).saturating_sub(1);
                row.push_str(symbol);
            }
            screen.push_str(row.trim_end());
            screen.push('\n');
        }
        screen
    }

    fn event(&mut self, name: &str, argument: &str) {
        let turn = self.state.last_turn;
        let number = |text: &str| text.parse::<usize>().unwrap();
        let stats = self.stats;
        let message = match name {
            "loaded" => Msg::Session(Event::ModelLoaded(model(None))),
            "note" => Msg::Session(Event::ModelLoaded(model(Some(argument)))),
            "nomodel" => Msg::Session(Event::ModelFailed { error: error(argument) }),
            "start" => {
                self.stats = TurnStats {
                    prompt_tokens: number(argument),
                    time_to_first_token: Some(Duration::from_millis(620)),
                    ..TurnStats::default()
                };
                Msg::Session(Event::TurnStarted { turn, prompt_tokens: number(argument) })
            }
            "prefill" => {
                let (done, total) = argument.split_once('/').unwrap();
                Msg::Session(Event::PrefillProgress { turn, done: number(done), total: number(total) })
            }
            "think" | "delta" => {
                let channel = if name == "think" { Channel::Thinking } else { Channel::Answer };
                self.stats.completion_tokens += 2;
                self.stats.thinking_tokens += if name == "think" { 2 } else { 0 };
                self.stats.decode_time += Duration::from_millis(50);
                let text = argument.replace("\\n", "\n").replace("\\e", "\u{1b}");
                Msg::Session(Event::Delta { turn, channel, text, stats: self.stats })
            }
            "steps" => {
                // The first token comes out of the prompt.
                let mut n_tokens = usize::from(self.stats.completion_tokens == 0);
                for step in argument.split(' ') {
                    let (drafted, accepted) = step.split_once('/').unwrap();
                    self.stats.drafts.note(number(drafted), number(accepted));
                    self.stats.decode_time += Duration::from_millis(40);
                    n_tokens += number(accepted) + 1;
                }
                self.stats.completion_tokens += n_tokens;
                let (channel, text) = (Channel::Answer, "word ".repeat(n_tokens));
                Msg::Session(Event::Delta { turn, channel, text, stats: self.stats })
            }
            "finish" => Msg::Session(Event::TurnFinished { turn, finish: Finish::Stop, stats }),
            "length" => Msg::Session(Event::TurnFinished { turn, finish: Finish::Length, stats }),
            "cancelled" => Msg::Session(Event::TurnCancelled { turn, stats }),
            "failed" => Msg::Session(Event::TurnFailed { turn, error: error(argument) }),
            "sees" => Msg::Session(Event::ModelLoaded(seeing_model())),
            "ready" => {
                let (size, full) = argument.split_once(' ').unwrap();
                let (width, height) = size.split_once('x').unwrap();
                let (picture, mut what) = self.waiting_picture();
                what.source = PictureSource::Bytes(tiny_picture());
                let facts = PictureFacts {
                    width: width.parse().unwrap(),
                    height: height.parse().unwrap(),
                    model_width: 1152,
                    model_height: 864,
                    frames: 1,
                    tokens: 972,
                    full_tokens: number(full),
                };
                Msg::Session(Event::PictureReady { picture, what, facts })
            }
            "refused" => {
                let (picture, _) = self.waiting_picture();
                Msg::Session(Event::PictureRefused { picture, error: error(argument) })
            }
            "kept" => history(HistoryEvent::Kept {
                conversation: self.state.conversation,
                stored: StoredId(number(argument) as i64),
            }),
            "history" => {
                let query = self.state.list.as_ref().map(|list| list.filter.clone()).unwrap_or_default();
                let found = argument.split("; ").filter(|one| !one.is_empty()).map(|one| {
                    let (stored, title) = numbered(one);
                    let excerpt = (!query.is_empty()).then(|| format!("…about {query} and more…"));
                    Found { stored, title, changed: "2026-11-30 18:25".into(), n_messages: 4, excerpt }
                });
                let found = found.collect();
                history(HistoryEvent::Found { query, found })
            }
            "deleted" => {
                let (stored, title) = numbered(argument);
                history(HistoryEvent::Deleted { stored, title })
            }
            "renamed" => {
                let (stored, title) = numbered(argument);
                history(HistoryEvent::Renamed { stored, title })
            }
            "no" => history(HistoryEvent::Refused { message: argument.to_owned() }),
            "off" => history(HistoryEvent::Off { message: argument.to_owned() }),
            "looking" => {
                let (done, total) = argument.split_once('/').unwrap();
                let (done, total) = (number(done), number(total));
                Msg::Session(Event::PictureProgress { turn, picture: 1, pictures: 2, done, total })
            }
            "found" => Msg::Done(Done::FilesFound(argument.split(' ').map(str::to_owned).collect())),
            "listed" => {
                let folder = self.state.picker.as_ref().unwrap().folder.clone();
                let entry = |name: &str| FolderEntry {
                    path: folder.join(name.trim_end_matches('/')),
                    name: name.trim_end_matches('/').to_owned(),
                    is_folder: name.ends_with('/'),
                    n_bytes: 2_123_456,
                };
                let entries = Ok(argument.split(' ').filter(|name| !name.is_empty()).map(entry).collect());
                Msg::Done(Done::FolderListed { folder, entries })
            }
            "files" | "nofiles" => {
                let Some(Effect::Work(Work::CheckPaste { text, .. })) = self.effects.last() else {
                    panic!("no paste was to be checked last");
                };
                let files = (name == "files").then(|| argument.split(' ').map(Into::into).collect());
                Msg::Done(Done::PasteChecked { text: text.clone(), files })
            }
            "clip" => Msg::Done(Done::Clipboard(Ok(Clip::Text(argument.to_owned())))),
            "edited" => Msg::Done(Done::Written(Ok(argument.replace("\\n", "\n")))),
            "prompts" => {
                let prompts = argument.split("; ").map(str::to_owned).collect();
                history(HistoryEvent::Prompts(prompts))
            }
            // The tokens of each piece of the prompt that was asked about.
            "counted" => {
                let examination = self.state.last_examination;
                let piece = |tokens: &str| PromptPiece {
                    text: format!("<|im_start|>…\n{tokens} tokens"),
                    tokens: number(tokens),
                };
                let prompt = Ok(argument.split(' ').map(piece).collect());
                Msg::Session(Event::Examined { examination, prompt })
            }
            "toolong" => {
                let message = "The prompt has 40000 tokens, the context holds 32768".to_owned();
                Msg::Session(Event::TurnFailed {
                    turn,
                    error: TurnError { code: ErrorCode::TooLong, message },
                })
            }
            "closed" => Msg::SessionClosed,
            "wait" => Msg::Tick(self.state.now + Duration::from_millis(number(argument) as u64)),
            "paste" => Msg::Paste(argument.replace("\\n", "\r").replace("\\e", "\u{1b}")),
            "resize" => {
                let (width, height) = argument.split_once('x').unwrap();
                Msg::Resize { width: width.parse().unwrap(), height: height.parse().unwrap() }
            }
            other => panic!("no event {other}"),
        };
        self.message(message);
    }
}

fn history(event: HistoryEvent) -> Msg {
    Msg::Session(Event::History(event))
}

fn numbered(text: &str) -> (StoredId, String) {
    let (number, title) = text.split_once(' ').unwrap();
    (StoredId(number.parse().unwrap()), title.to_owned())
}

fn seeing_model() -> ModelInfo {
    let pictures = PictureLimits { factor: 32, min_pixels: 65_536, max_pixels: 16_777_216 };
    ModelInfo { pictures: Some(pictures), ..model(None) }
}

/// A picture file of 8x4 pixels.
pub fn tiny_picture() -> std::sync::Arc<[u8]> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let image = image::RgbImage::from_fn(8, 4, |x, y| image::Rgb([x as u8 * 30, y as u8 * 60, 90]));
    image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner().into()
}

fn model(device_note: Option<&str>) -> ModelInfo {
    ModelInfo {
        name: "Qwen3.5-0.8B".into(),
        commit: None,
        device: "CPU".into(),
        note: None,
        device_note: device_note.map(str::to_owned),
        context_tokens: 32_768,
        thinks_by_default: true,
        pictures: None,
        clips: None,
        can_draft: true,
        parallel: 1,
        load_time: Duration::from_millis(1200),
    }
}

fn error(message: &str) -> TurnError {
    TurnError { code: ErrorCode::Engine, message: message.replace("\\e", "\u{1b}") }
}

/// `enter`, `esc`, `up`, … or a letter, after `c-` (Ctrl), `a-` (Alt), `s-` (Shift).
fn key(name: &str) -> KeyEvent {
    let (mut modifiers, mut name) = (KeyModifiers::NONE, name);
    while let Some((prefix, rest)) = name.split_once('-') {
        modifiers |= match prefix {
            "c" => KeyModifiers::CONTROL,
            "a" => KeyModifiers::ALT,
            "s" => KeyModifiers::SHIFT,
            other => panic!("no modifier {other}"),
        };
        name = rest;
    }
    let code = match name {
        "enter" => KeyCode::Enter,
        "esc" => KeyCode::Esc,
        "up" => KeyCode::Up,
        "down" => KeyCode::Down,
        "left" => KeyCode::Left,
        "right" => KeyCode::Right,
        "home" => KeyCode::Home,
        "end" => KeyCode::End,
        "pgup" => KeyCode::PageUp,
        "pgdn" => KeyCode::PageDown,
        "tab" => KeyCode::Tab,
        "bs" => KeyCode::Backspace,
        "space" => KeyCode::Char(' '),
        "del" => KeyCode::Delete,
        "f1" => KeyCode::F(1),
        "f2" => KeyCode::F(2),
        letter => KeyCode::Char(letter.chars().next().expect("a key name")),
    };
    KeyEvent::new(code, modifiers)
}
