//! The choice of models as data: what there is, what would fit, the download that goes on, and the self-test of a model
//! that was just fetched.

use ratatui::layout::Rect;

use crate::msg::{DownloadProgress, Judgement, Machine, ModelRow, TurnId, Verdict};
use crate::units::ByteSize;

/// What is known about models; the list is open or not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Models {
    pub open: Option<ModelList>,
    /// `None` until the session manager has looked.
    pub machine: Option<Machine>,
    pub rows: Vec<Choice>,
    /// The context for which verdicts are, once a person chose one.
    pub context_tokens: Option<u32>,
    /// What the last search didn't find, or why.
    pub searched: Option<String>,
    pub download: Option<Download>,
    /// The model that is being put to work, if it was just fetched: it is to be tried out.
    pub try_out: bool,
    /// The model that a person chose, until it is loaded: the next start begins with it.
    pub chosen: Option<String>,
    pub self_test: Option<SelfTest>,
}

/// The list on the screen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelList {
    pub filter: String,
    /// By name, because verdicts move rows.
    pub selected: Option<String>,
    /// It came by itself because no model was named: typing goes on to the chat.
    pub is_welcome: bool,
    pub shows_details: bool,
}

/// A model with what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub row: ModelRow,
    /// `None` while it isn't known; an error is a sentence.
    pub judgement: Option<Result<Judgement, String>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Download {
    pub name: String,
    pub progress: DownloadProgress,
    pub state: DownloadState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadState {
    Running,
    Paused,
    Failed(String),
}

/// One question to a new model, beside the chat.
#[derive(Debug, Clone, PartialEq)]
pub struct SelfTest {
    pub turn: TurnId,
    pub answer: String,
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq)]
pub enum Line<'a> {
    Model(&'a Choice),
    /// What was typed may be a model's full name.
    Named(&'a str),
    /// Looks on the Hub for what was typed.
    Search(&'a str),
}

impl Line<'_> {
    pub fn name(&self) -> &str {
        match self {
            Self::Model(choice) => &choice.row.name,
            Self::Named(name) => name,
            Self::Search(_) => "",
        }
    }
}

impl Choice {
    pub fn is_here(&self) -> bool {
        self.row.store.is_some()
    }

    /// The best first: what is here, then the largest that fits, then what would fit with less context.
    fn rank(&self) -> (u8, u8, u64) {
        let bytes = self.row.bytes.unwrap_or_default();
        let (verdict, size) = match self.judgement.as_ref().map(|judged| judged.as_ref().map(|it| it.verdict))
        {
            Some(Ok(Verdict::Fits { .. })) => (0, u64::MAX - bytes),
            Some(Ok(Verdict::FitsAt { .. })) => (1, u64::MAX - bytes),
            None | Some(Ok(Verdict::Unknown)) => (2, bytes),
            Some(Err(_)) => (3, bytes),
            Some(Ok(Verdict::TooBig)) => (4, bytes),
        };
        (u8::from(!self.is_here()), verdict, size)
    }

    /// The verdict in a few words.
    pub fn verdict(&self) -> String {
        match &self.judgement {
            None => String::new(),
            Some(Err(why)) => why.clone(),
            Some(Ok(judged)) => {
                let speed = judged.tokens_per_second.filter(|_| judged.verdict != Verdict::TooBig);
                let speed = speed.map(|speed| format!(" · ~{speed} tok/s")).unwrap_or_default();
                format!("{}{speed}", judged.words())
            }
        }
    }
}

impl Models {
    /// The lines of the open list, in order.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let Some(list) = &self.open else { return Vec::new() };
        let words: Vec<String> = list.filter.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let fits = |choice: &&Choice| {
            let name = choice.row.name.to_lowercase();
            words.iter().all(|word| name.contains(word.as_str()))
        };
        let mut choices: Vec<&Choice> = self.rows.iter().filter(fits).collect();
        choices.sort_by_key(|choice| choice.rank());
        let typed = list.filter.trim();
        let is_listed = choices.iter().any(|choice| choice.row.name == typed);
        let mut lines: Vec<Line> = choices.into_iter().map(Line::Model).collect();
        if !typed.is_empty() {
            if is_name(typed) && !is_listed {
                lines.push(Line::Named(typed));
            }
            lines.push(Line::Search(typed));
        }
        lines
    }

    pub fn selected_idx(&self) -> usize {
        let wanted = self.open.as_ref().and_then(|list| list.selected.as_deref());
        let idx = wanted.and_then(|wanted| self.lines().iter().position(|line| line.name() == wanted));
        idx.unwrap_or_default()
    }

    /// Moves the cursor, negative towards the first line.
    pub fn move_by(&mut self, rows: isize) {
        let lines = self.lines();
        let last = lines.len().saturating_sub(1);
        let idx = self.selected_idx().saturating_add_signed(rows).min(last);
        let name = lines.get(idx).map(|line| line.name().to_owned());
        if let Some(list) = &mut self.open {
            list.selected = name;
        }
    }

    pub fn choice(&self, name: &str) -> Option<&Choice> {
        self.rows.iter().find(|choice| choice.row.name == name)
    }

    /// One line about the download, if there is one.
    pub fn download_line(&self) -> Option<String> {
        let Download { name, progress, state } = self.download.as_ref()?;
        let bytes = match progress.total_bytes {
            0 => String::new(),
            total => format!(" {} of {}", ByteSize(progress.done_bytes), ByteSize(total)),
        };
        Some(match state {
            DownloadState::Running => {
                let rate = match (&progress.note, progress.bytes_per_second, progress.seconds_left) {
                    (Some(note), ..) => format!(" · {note}"),
                    (None, 0, _) => String::new(),
                    (None, rate, None) => format!(" · {}/s", ByteSize(rate)),
                    (None, rate, Some(left)) => format!(" · {}/s · {} left", ByteSize(rate), time(left)),
                };
                format!("downloading {name}{bytes}{rate}")
            }
            DownloadState::Paused => format!("paused: {name}{bytes}"),
            DownloadState::Failed(why) => format!("{name}: {why}"),
        })
    }
}

/// `OWNER/NAME`, perhaps with more; the session manager reads it for good.
fn is_name(text: &str) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    parts.len() >= 2 && parts.iter().all(|part| !part.is_empty()) && !text.contains(char::is_whitespace)
}

fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// Where the parts of the list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelAreas {
    pub frame: Rect,
    pub facts: Rect,
    pub filter: Rect,
    pub list: Rect,
    pub bottom: Rect,
}

impl ModelAreas {
    /// Over the chat: what is being typed stays in sight. `None` if there is no room.
    ///
    /// The first `note_rows` rows stay in sight, as far as the list has room without them.
    pub fn new(transcript: Rect, note_rows: usize) -> Option<Self> {
        const MIN_HEIGHT: u16 = 6;
        const GOOD_HEIGHT: u16 = 10;
        if transcript.height < MIN_HEIGHT {
            return None;
        }
        let kept = u16::try_from(note_rows).unwrap_or(u16::MAX);
        let kept = kept.min(transcript.height.saturating_sub(GOOD_HEIGHT));
        let frame = Rect { y: transcript.y + kept, height: transcript.height - kept, ..transcript };
        let inner = Rect {
            x: frame.x + 2,
            y: frame.y + 1,
            width: frame.width.saturating_sub(4),
            height: frame.height - 2,
        };
        let row = |y| Rect { y, height: 1, ..inner };
        Some(Self {
            frame,
            facts: row(inner.y),
            filter: row(inner.y + 1),
            list: Rect { y: inner.y + 2, height: inner.height.saturating_sub(3), ..inner },
            bottom: row(inner.bottom().saturating_sub(1)),
        })
    }
}
