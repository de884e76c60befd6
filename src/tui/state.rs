//! Everything the interface knows, as plain data. The update changes it, the view reads it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ratatui::layout::Rect;

use crate::chat::conversation::{Summary, title_of};
use crate::chat::{Conversation, Detail, NodeId};
use crate::msg::{
    ConversationId, ExaminationId, ModelInfo, PictureId, SamplingOptions, StoredId, TurnId, TurnOptions,
    TurnStats,
};

use super::attach::{Attached, Draft};
use super::completion::{Completion, Files};
use super::composer::Composer;
use super::drafts::SpecView;
use super::effect::Place;
use super::history::PromptHistory;
use super::keymap::{Action, Keymap, Preset, Press};
use super::layout::{self, Areas};
use super::list::List;
use super::markdown::highlight::Highlights;
use super::models::{ModelList, Models};
use super::notify::Notify;
use super::page::Page;
use super::persona::Facts;
use super::picker::Picker;
use super::pictures::graphics::{Environment, Graphics, Images, Protocol};
use super::theme::Tone;
use super::transcript::{Entry, Looks, Sight, Transcript};
use super::vim::Vim;

/// Time between two pictures of the busy mark.
pub const FRAME: Duration = Duration::from_millis(100);

/// Messages out of sight that are wrapped for one drawing, after the width has changed. A few milliseconds.
const ENTRIES_A_FRAME: usize = 60;

/// Time between two steps of a slide.
const SLIDE_FRAME: Duration = Duration::from_millis(16);

/// What the interface starts with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TuiSettings {
    pub defaults: TurnOptions,
    pub system: Option<String>,
    pub detail: Detail,
    /// Pictures in the terminal.
    pub images: Images,
    /// Where relative paths begin.
    pub folder: PathBuf,
    /// What `~` stands for.
    pub home: Option<PathBuf>,
    /// Nobody has named a model: others are offered.
    pub offers_models: bool,
    /// Whether the session keeps conversations.
    pub keeps_chats: bool,
    /// The kept conversation to begin with, the latest if none is named.
    pub resume: Option<Option<StoredId>>,
    /// A theme's name, or `auto`.
    pub theme: String,
    /// Where the person's own themes are.
    pub themes_folder: Option<PathBuf>,
    pub keymap: Keymap,
    /// What is finished goes into the terminal's scrollback.
    pub inline: bool,
    /// The mouse's wheel and clicks are for the chat.
    pub mouse: bool,
    /// Pages slide.
    pub smooth: bool,
    pub spec_view: SpecView,
    /// System prompts by name.
    pub personas: Vec<(String, String)>,
    /// The persona to begin with, if the system prompt is one.
    pub persona: Option<String>,
    pub facts: Facts,
    pub presets: Vec<(String, SamplingOptions)>,
    pub overflow: Overflow,
    pub notify: Notify,
}

/// What is done with a prompt that is longer than the context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Shows the numbers and asks.
    #[default]
    Ask,
    Error,
    /// Leaves out as much of the beginning as is needed.
    DropOldest,
}

/// How a chat is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// On the whole screen.
    #[default]
    Full,
    /// Below what the terminal shows already; what is done stays in its scrollback.
    Inline,
    /// Line by line.
    Plain,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "full" => Ok(Self::Full),
            "inline" => Ok(Self::Inline),
            "plain" => Ok(Self::Plain),
            _ => Err("expected full, inline or plain".into()),
        }
    }
}

impl FromStr for Overflow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ask" => Ok(Self::Ask),
            "error" => Ok(Self::Error),
            "drop-oldest" => Ok(Self::DropOldest),
            _ => Err("expected ask, error or drop-oldest".into()),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Time since the start, as the last tick told it.
    pub now: Duration,
    pub width: u16,
    pub height: u16,
    /// Something on the screen changed since the last drawing.
    pub dirty: bool,
    pub model: Model,
    /// When the present model began to load.
    pub loading_since: Duration,
    pub models: Models,
    pub conversation: ConversationId,
    pub last_conversation: ConversationId,
    /// Everything that was said, in all branches. An answer's text comes in when it has ended.
    pub chat: Conversation,
    pub keeps_chats: bool,
    /// The conversation's number in the history, once it has one.
    pub stored: Option<StoredId>,
    /// The conversation that was asked for and isn't here yet.
    pub loading: Option<ConversationId>,
    /// The message whose place the draft is to take.
    pub editing: Option<NodeId>,
    /// What can be taken back, the newest last.
    pub undo: Vec<Undo>,
    /// The session manager doesn't have this conversation as the transcript shows it.
    pub out_of_step: bool,
    pub transcript: Transcript,
    pub highlights: Highlights,
    /// The answer being made.
    pub active: Option<Active>,
    pub last_turn: TurnId,
    /// Messages that wait for the answer being made, or for the model.
    pub queue: VecDeque<Draft>,
    pub composer: Composer,
    /// Pictures that go with the draft.
    pub attached: Vec<Attached>,
    pub last_picture: PictureId,
    /// For the pictures attached from now on.
    pub detail: Detail,
    pub files: Files,
    /// Files offered for the `@` word at the caret.
    pub completion: Option<Completion>,
    /// The person closed it; it stays closed until the word ends.
    pub completion_closed: bool,
    pub picker: Option<Picker>,
    pub list: Option<List>,
    pub theme: String,
    /// The names of all themes.
    pub themes: Vec<String>,
    /// Where the picker opens.
    pub picker_folder: PathBuf,
    pub home: Option<PathBuf>,
    pub graphics: Graphics,
    pub history: PromptHistory,
    pub options: TurnOptions,
    pub context_used: usize,
    /// Figures of the last answer that ended.
    pub last_stats: Option<TurnStats>,
    pub scroll: Scroll,
    /// Text arrived below what is in sight.
    pub new_below: bool,
    pub thinking_open: bool,
    pub spec_view: SpecView,
    /// Answers are shown as they were written.
    pub is_raw: bool,
    /// Rows that a slide still has to go, negative towards the beginning.
    pub slide: isize,
    pub smooth: bool,
    pub page: Option<Page>,
    pub keymap: Keymap,
    /// The first of two keys was pressed.
    pub begun: Option<Press>,
    /// The next key says what is copied.
    pub copies: bool,
    pub focus: Focus,
    /// Letters may be commands.
    pub vim: Option<Vim>,
    /// Drafts that were put aside, the latest last.
    pub stash: Vec<Draft>,
    pub personas: Vec<(String, String)>,
    pub persona: Option<String>,
    /// What was given with its name.
    pub persona_vars: BTreeMap<String, String>,
    /// What personas can name; the model's part of it comes with the model.
    pub facts: Facts,
    pub presets: Vec<(String, SamplingOptions)>,
    /// The file whose schema holds for the answers.
    pub schema: Option<String>,
    pub overflow: Overflow,
    /// The terminal's window has the keyboard, as far as it tells.
    pub is_focused: bool,
    pub last_examination: ExaminationId,
    pub examining: Option<Examining>,
    pub compacting: Option<Compacting>,
    pub notice: Option<Notice>,
    /// Until then a second Ctrl+C quits.
    pub quit_armed_until: Option<Duration>,
    pub mouse: bool,
    /// In a chat whose finished part is in the terminal's scrollback: the entries that are there.
    pub n_printed: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Model {
    Loading,
    Ready(ModelInfo),
    /// Why it can't be used is a note in the transcript.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Active {
    pub turn: TurnId,
    /// The person asked to stop it.
    pub stopping: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scroll {
    /// The newest text is in sight.
    Follow,
    /// This row of this entry is at the top. An entry keeps its place when others are re-wrapped.
    At { entry_idx: usize, row_idx: usize },
}

/// What `/undo` takes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Another branch was shown, or begun; this was the head before.
    Head(Option<NodeId>),
    /// A message was sent; this was the head before.
    Sent {
        head: Option<NodeId>,
    },
    Deleted(StoredId),
    /// The model read other messages before.
    Reading {
        left_out: Vec<NodeId>,
        summary: Option<Summary>,
    },
}

/// A summary that the model writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacting {
    pub turn: TurnId,
    /// The last message that it stands for.
    pub until: NodeId,
    pub n_messages: usize,
    /// As far as it has come.
    pub n_tokens: usize,
    pub text: String,
}

/// Where keys go while nothing is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    Draft,
    Transcript,
}

/// A prompt that the session manager was asked about.
#[derive(Debug, Clone, PartialEq)]
pub struct Examining {
    pub id: ExaminationId,
    pub why: Why,
    /// Which message each part of it is; none of the system prompt and of the draft.
    pub nodes: Vec<Option<NodeId>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// To show what fills the context.
    Context,
    /// To show what the model reads.
    Prompt,
    /// It didn't fit; this is the question.
    TooLong(NodeId),
}

/// A sentence in the status line, for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub tone: Tone,
    pub text: String,
    pub until: Duration,
}

impl State {
    /// Whether a model is there that sees pictures.
    pub fn sees(&self) -> bool {
        matches!(&self.model, Model::Ready(info) if info.pictures.is_some())
    }

    /// What the conversation is called.
    pub fn title(&self) -> Option<String> {
        let first = || self.chat.nodes().next().map(|(_, first)| title_of(&first.message));
        self.chat.title.clone().or_else(first)
    }

    pub fn new(settings: TuiSettings, width: u16, height: u16) -> Self {
        let mut state = Self {
            now: Duration::ZERO,
            width,
            height,
            dirty: true,
            model: Model::Loading,
            loading_since: Duration::ZERO,
            models: Models {
                open: settings.offers_models.then(|| ModelList { is_welcome: true, ..ModelList::default() }),
                ..Models::default()
            },
            conversation: ConversationId(1),
            last_conversation: ConversationId(1),
            chat: Conversation::new(settings.system),
            keeps_chats: settings.keeps_chats,
            stored: None,
            loading: None,
            editing: None,
            undo: Vec::new(),
            out_of_step: true,
            transcript: Transcript::default(),
            highlights: Highlights::default(),
            active: None,
            last_turn: TurnId(0),
            queue: VecDeque::new(),
            composer: Composer::default(),
            attached: Vec::new(),
            last_picture: PictureId(0),
            detail: settings.detail,
            files: Files::Unknown,
            completion: None,
            completion_closed: false,
            picker: None,
            list: None,
            theme: settings.theme,
            themes: Vec::new(),
            picker_folder: settings.folder,
            home: settings.home,
            graphics: Graphics::unasked(settings.images, Environment::default()),
            history: PromptHistory::default(),
            options: settings.defaults,
            context_used: 0,
            last_stats: None,
            scroll: Scroll::Follow,
            new_below: false,
            thinking_open: false,
            spec_view: settings.spec_view,
            is_raw: false,
            slide: 0,
            smooth: settings.smooth,
            page: None,
            vim: (settings.keymap.preset == Preset::Vim).then(Vim::default),
            keymap: settings.keymap,
            begun: None,
            copies: false,
            focus: Focus::Draft,
            stash: Vec::new(),
            personas: settings.personas,
            persona: settings.persona,
            persona_vars: BTreeMap::new(),
            facts: settings.facts,
            presets: settings.presets,
            schema: None,
            overflow: settings.overflow,
            is_focused: true,
            last_examination: ExaminationId(0),
            examining: None,
            compacting: None,
            notice: None,
            quit_armed_until: None,
            mouse: settings.mouse,
            n_printed: settings.inline.then_some(0),
        };
        state.layout();
        state
    }

    /// Wraps what changed. The loop calls it before drawing, so that many messages cost one wrapping.
    pub fn layout(&mut self) {
        self.composer.set_width(layout::draft_width(self.width, self.height));
        if let Some(areas) = self.areas() {
            let width = usize::from(areas.transcript.width);
            let looks = Looks {
                thinking_open: self.thinking_open,
                is_raw: self.is_raw,
                is_tinted: self.spec_view == SpecView::Tint,
                thinking_key: self.keymap.hint(Action::ToggleThinking),
            };
            let first = match self.scroll {
                Scroll::Follow => None,
                Scroll::At { entry_idx, .. } => Some(entry_idx),
            };
            let height = usize::from(areas.transcript.height) + 1;
            let sight = Sight { first, height, budget: ENTRIES_A_FRAME };
            self.transcript.layout(width, looks, &self.highlights, sight);
        }
    }

    pub fn areas(&self) -> Option<Areas> {
        let draft_rows = self.composer.n_rows(layout::max_draft_rows(self.height));
        let (has_queue, n_chips) = (!self.queue.is_empty(), self.attached.len());
        let has_spec = self.spec_view != SpecView::Off && self.drafting().is_some();
        if let Some(n_printed) = self.n_printed.filter(|_| !self.has_overlay()) {
            // A list above the draft needs rows to be drawn over.
            let offers =
                self.completion.as_ref().map_or(0, |it| it.matches.len().min(8) + usize::from(it.searching));
            let rows = self.transcript.rows_from(n_printed).max(offers);
            return Areas::inline(self.width, self.height, rows, draft_rows, has_queue, n_chips, has_spec);
        }
        Areas::new(self.width, self.height, draft_rows, has_queue, n_chips, has_spec)
    }

    /// Something covers the chat.
    pub fn has_overlay(&self) -> bool {
        self.page.is_some() || self.list.is_some() || self.picker.is_some() || self.models.open.is_some()
    }

    /// The figures of the newest answer, if something was drafted for it.
    pub fn drafting(&self) -> Option<&TurnStats> {
        let stats = self.transcript.entries().rev().find_map(|entry| match entry {
            Entry::Answer(answer) => Some(&answer.stats),
            Entry::User(_) | Entry::Note { .. } => None,
        })?;
        (stats.drafts.n_drafted() > 0).then_some(stats)
    }

    /// The room for a picture in the transcript, if pictures are drawn and the screen has any.
    pub fn picture_place(&self) -> Option<Place> {
        let areas = self.areas().filter(|_| self.graphics.protocol != Protocol::Off)?;
        let (columns, rows) = layout::picture_room(areas.transcript.width, self.height)?;
        Some(Place { graphics: self.graphics, columns, rows })
    }

    /// The first transcript row in sight, for this many rows of screen.
    pub fn top_row(&self, height: usize) -> usize {
        let last_top = self.transcript.n_rows().saturating_sub(height);
        if let Some(n_printed) = self.n_printed.filter(|_| !self.has_overlay()) {
            // What was printed can be scrolled back to by the terminal.
            return last_top.max(self.transcript.n_rows() - self.transcript.rows_from(n_printed));
        }
        match self.scroll {
            Scroll::Follow => last_top,
            Scroll::At { entry_idx, row_idx } => {
                let before: usize = (0..entry_idx).map(|idx| self.transcript.entry_rows(idx).len()).sum();
                let rows = self.transcript.entry_rows(entry_idx).len();
                (before + row_idx.min(rows.saturating_sub(1))).min(last_top)
            }
        }
    }

    /// Where lists and pages are: between the header and the draft, on a small screen everywhere.
    pub fn room(&self) -> Rect {
        const HIGH: u16 = 20;
        let whole = Rect { x: 0, y: 0, width: self.width, height: self.height };
        match self.areas() {
            Some(areas) if self.height >= HIGH && areas.composer.y >= HIGH / 2 => {
                Rect { y: 1, height: areas.composer.y - 1, ..whole }
            }
            _ => whole,
        }
    }

    /// Rows of what the program said before anything else was said, which a list must not hide.
    pub fn note_rows(&self) -> usize {
        if self.transcript.is_unused() { self.transcript.n_rows() } else { 0 }
    }

    /// Whether the next answer begins with thinking, as far as it is known.
    pub fn thinks(&self) -> bool {
        let by_default = matches!(&self.model, Model::Ready(info) if info.thinks_by_default);
        self.options.thinking.unwrap_or(by_default)
    }

    /// Something moves on the screen although nothing happens.
    pub fn is_animating(&self) -> bool {
        self.active.is_some() || self.model == Model::Loading
    }

    /// When the next tick is needed; never, if nothing waits for time to pass.
    pub fn next_tick(&self) -> Option<Duration> {
        let frame = self.is_animating().then(|| FRAME * (frame_idx(self.now) + 1));
        let notice = self.notice.as_ref().map(|notice| notice.until);
        let slide = (self.slide != 0 || !self.transcript.is_settled()).then(|| self.now + SLIDE_FRAME);
        [frame, notice, slide, self.quit_armed_until].into_iter().flatten().min()
    }
}

/// Which picture of the busy mark to show.
pub fn frame_idx(now: Duration) -> u32 {
    u32::try_from(now.as_millis() / FRAME.as_millis()).unwrap_or(0)
}
