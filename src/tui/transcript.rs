//! What was said in this chat, and the rows it takes on the screen.
//!
//! Each entry keeps its rows until its text, the width or the fold changes, and of an answer that grows all but
//! those of its last block, so that a new token renders one paragraph, not the chat. Everything shown has been through [`sanitize`]; answers keep
//! their raw text too, because that is what the model must read again.
//! Knows nothing of keys, time or the session.

use std::ops::Range;

use crate::chat::conversation::{self, Answered, Node};
use crate::chat::{Channel, NodeId};
use crate::msg::{Finish, PictureId, TurnId, TurnStats};
use crate::sanitize;

use super::attach::{Attached, Draft};
use super::drafts;
use super::markdown::highlight::{self, Highlights};
use super::markdown::{self, Settled};
use super::pictures::preview::Preview;
use super::theme::Tone;
use super::wrap::{display_width, drawable, wrap_line};

/// One row of the screen: pieces of text with their meanings.
pub type Row = Vec<(Tone, String)>;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript {
    entries: Vec<Cached>,
    width: usize,
    looks: Looks,
    is_settled: bool,
}

/// What of a transcript is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// The entry at the top; none if the end is in sight.
    pub first: Option<usize>,
    /// Rows that may be in sight.
    pub height: usize,
    /// Entries out of sight that are worked on, too.
    pub budget: usize,
}

/// What the rows depend on beside the text and the width.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looks {
    pub thinking_open: bool,
    /// Without Markdown.
    pub is_raw: bool,
    /// What the draft head guessed right stands out.
    pub is_tinted: bool,
    /// Opens and folds the thinking.
    pub thinking_key: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Cached {
    entry: Entry,
    /// The message in the conversation's tree, and its number on the screen; none of a note.
    message: Option<(NodeId, usize)>,
    /// The model doesn't read it.
    is_left_out: bool,
    rows: Vec<Row>,
    /// The rows are of an older text, until the next layout.
    is_stale: bool,
    /// Of an answer: rows before its text, and what of it can't change any more.
    settled: Option<(usize, Settled)>,
    /// Code blocks in it, and in all entries before it.
    n_code: usize,
    code_before: usize,
    /// Pictures by the row where they begin; the rows they cover are empty.
    previews: Vec<(usize, Preview)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    User(Question),
    Answer(Box<Answer>),
    /// Something the program says: figures, settings, an error.
    Note {
        tone: Tone,
        text: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub text: Text,
    pub attached: Vec<Attached>,
}

impl Question {
    /// The text as it was typed.
    pub fn raw(&self) -> &str {
        &self.text.raw
    }
}

/// Text as it came, and as it may be shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Text {
    raw: String,
    shown: String,
    filter: sanitize::Filter,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub turn: TurnId,
    pub thinking: Text,
    pub text: Text,
    pub phase: Phase,
    pub stats: TurnStats,
    pub guessed: Guessed,
}

/// Which parts of an answer's raw text the draft head had guessed. Known only while it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guessed {
    ranges: Vec<Range<usize>>,
    /// The latest token, and the figures with it: the next one tells whether it was a draft.
    last: Option<(Range<usize>, u32, usize)>,
}

impl Guessed {
    /// A piece of text came with these figures. Tokens of the same step are drafts, all but the last. Pieces of
    /// several tokens can't be told apart.
    fn note(&mut self, piece: Range<usize>, stats: &TurnStats) {
        let (steps, tokens) = (stats.drafts.steps, stats.completion_tokens);
        if let Some((before, steps_before, tokens_before)) = self.last.take()
            && steps == steps_before
            && tokens == tokens_before + 1
            && steps > 0
        {
            match self.ranges.last_mut().filter(|last| last.end == before.start) {
                Some(last) => last.end = before.end,
                None => self.ranges.push(before),
            }
        }
        self.last = Some((piece, steps, tokens));
    }
}

/// How far an answer has come.
#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// Handed over; the model hasn't begun.
    Waiting,
    /// The model looks at a picture of the prompt, counted from 1.
    Looking {
        picture: usize,
        pictures: usize,
        percent: usize,
    },
    /// The model reads the prompt.
    Reading {
        done: usize,
        total: usize,
    },
    /// The model writes, in one of its voices.
    Writing(Channel),
    Ended(Ending),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    Finished(Finish),
    Stopped,
    /// The reason, already cleaned.
    Failed(String),
    /// The program ended in the middle of it.
    Interrupted,
}

impl From<Draft> for Question {
    fn from(draft: Draft) -> Self {
        Self { text: Text::from(draft.text.as_str()), attached: draft.attached }
    }
}

impl Question {
    fn draft(&self) -> Draft {
        Draft { text: self.text.raw.clone(), attached: self.attached.clone() }
    }
}

impl From<&str> for Text {
    fn from(raw: &str) -> Self {
        let mut text = Self::default();
        text.push(raw);
        text
    }
}

impl Text {
    pub fn push(&mut self, raw: &str) {
        self.raw.push_str(raw);
        self.filter.push(raw, &mut self.shown);
    }

    pub fn raw(&self) -> &str {
        &self.raw
    }

    pub fn shown(&self) -> &str {
        &self.shown
    }
}

impl Answer {
    pub fn new(turn: TurnId) -> Self {
        Self {
            turn,
            thinking: Text::default(),
            text: Text::default(),
            phase: Phase::Waiting,
            stats: TurnStats::default(),
            guessed: Guessed::default(),
        }
    }

    /// Takes in what was said more.
    pub fn push(&mut self, channel: Channel, text: &str, stats: TurnStats) {
        match channel {
            Channel::Thinking => self.thinking.push(text),
            Channel::Answer => {
                let start = self.text.raw.len();
                self.text.push(text);
                self.guessed.note(start..self.text.raw.len(), &stats);
            }
        }
        (self.phase, self.stats) = (Phase::Writing(channel), stats);
    }
}

/// An answer as it was kept.
impl From<&Node> for Answer {
    fn from(node: &Node) -> Self {
        let unknown = Answered::default();
        let answered = node.answered.as_ref().unwrap_or(&unknown);
        let ending = match answered.ending {
            Some(conversation::Ending::Finished) => Ending::Finished(Finish::Stop),
            Some(conversation::Ending::Length) => Ending::Finished(Finish::Length),
            Some(conversation::Ending::Stopped) => Ending::Stopped,
            Some(conversation::Ending::Failed) => Ending::Failed("no answer".to_owned()),
            None => Ending::Interrupted,
        };
        Self {
            // No turn of this session has this number.
            turn: TurnId(0),
            thinking: Text::from(node.message.reasoning.as_deref().unwrap_or_default()),
            text: Text::from(node.message.plain_text().as_str()),
            phase: Phase::Ended(ending),
            stats: TurnStats::from(&answered.figures),
            guessed: Guessed::default(),
        }
    }
}

impl Ending {
    /// The same, as it is kept.
    pub fn kept(&self) -> Option<conversation::Ending> {
        match self {
            Self::Finished(Finish::Stop) => Some(conversation::Ending::Finished),
            Self::Finished(Finish::Length) => Some(conversation::Ending::Length),
            Self::Stopped => Some(conversation::Ending::Stopped),
            Self::Failed(_) => Some(conversation::Ending::Failed),
            Self::Interrupted => None,
        }
    }
}

impl Answer {
    /// Everything on which the rows before its text depend.
    fn thought(&self) -> (usize, usize, bool) {
        let is_thinking = matches!(self.phase, Phase::Writing(Channel::Thinking));
        (self.thinking.raw.len(), self.stats.thinking_tokens, is_thinking)
    }
}

impl Transcript {
    pub fn note(&mut self, tone: Tone, text: String) {
        self.entries.push(Cached::new(Entry::Note { tone, text }, None));
    }

    pub fn push(&mut self, node: NodeId, entry: Entry) {
        let number = self.n_messages() + 1;
        self.entries.push(Cached::new(entry, Some((node, number))));
    }

    pub fn n_messages(&self) -> usize {
        self.entries.iter().rev().find_map(|cached| cached.message).map_or(0, |(_, number)| number)
    }

    /// The message with this number.
    pub fn numbered(&self, number: usize) -> Option<(NodeId, &Entry)> {
        let found = self.entries.iter().find(|cached| cached.message.is_some_and(|(_, n)| n == number))?;
        Some((found.message?.0, &found.entry))
    }

    /// The number of a message that is shown.
    pub fn number_of(&self, node: NodeId) -> Option<usize> {
        self.entries.iter().find_map(|cached| cached.message.filter(|(id, _)| *id == node)).map(|(_, n)| n)
    }

    /// The message that the answer of a turn is.
    pub fn node_of(&self, turn: TurnId) -> Option<NodeId> {
        let is_it = |cached: &&Cached| matches!(&cached.entry, Entry::Answer(answer) if answer.turn == turn);
        self.entries.iter().rev().find(is_it)?.message.map(|(node, _)| node)
    }

    /// The pictures of a message that is shown.
    pub fn attached_of(&self, node: NodeId) -> Option<Vec<Attached>> {
        self.entries.iter().find_map(|cached| match &cached.entry {
            Entry::User(question) if cached.message.is_some_and(|(id, _)| id == node) => {
                Some(question.attached.clone())
            }
            _ => None,
        })
    }

    /// Lets an answer go on in another turn.
    pub fn go_on(&mut self, node: NodeId, turn: TurnId) {
        for cached in &mut self.entries {
            if let Entry::Answer(answer) = &mut cached.entry
                && cached.message.is_some_and(|(id, _)| id == node)
            {
                (answer.turn, answer.phase, answer.stats) = (turn, Phase::Waiting, TurnStats::default());
                cached.forget();
            }
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Nothing was said yet; notes don't count.
    pub fn is_unused(&self) -> bool {
        self.entries.iter().all(|cached| matches!(cached.entry, Entry::Note { .. }))
    }

    /// All entries; messages with their place in the tree and their number on the screen.
    pub fn numbered_entries(&self) -> impl Iterator<Item = (Option<(NodeId, usize)>, &Entry)> {
        self.entries.iter().map(|cached| (cached.message, &cached.entry))
    }

    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().map(|cached| &cached.entry)
    }

    /// Changes the answer of a turn; false if it isn't here any more.
    pub fn change(&mut self, turn: TurnId, change: impl FnOnce(&mut Answer)) -> bool {
        // The answer that grows is nearly always the last entry.
        for cached in self.entries.iter_mut().rev() {
            match &mut cached.entry {
                Entry::Answer(answer) if answer.turn == turn => {
                    let before = answer.thought();
                    change(answer);
                    cached.is_stale = true;
                    if answer.thought() != before {
                        cached.forget();
                    }
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// Changes a picture of a message; gives the message as it is then, if it is here.
    pub fn change_attached(
        &mut self,
        picture: PictureId,
        change: impl FnOnce(&mut Attached),
    ) -> Option<(NodeId, Draft)> {
        for cached in self.entries.iter_mut().rev() {
            if let Entry::User(question) = &mut cached.entry
                && let Some(attached) = question.attached.iter_mut().find(|attached| attached.id == picture)
            {
                change(attached);
                cached.is_stale = true;
                return Some((cached.message?.0, question.draft()));
            }
        }
        None
    }

    /// The pictures of all messages.
    pub fn attached(&self) -> impl Iterator<Item = &Attached> {
        self.entries().flat_map(|entry| match entry {
            Entry::User(question) => question.attached.as_slice(),
            Entry::Answer(_) | Entry::Note { .. } => &[],
        })
    }

    /// The message that an answer is to.
    pub fn question_of(&self, turn: TurnId) -> Option<Draft> {
        let is_it = |cached: &Cached| matches!(&cached.entry, Entry::Answer(answer) if answer.turn == turn);
        let at = self.entries.iter().rposition(is_it)?;
        self.entries[..at].iter().rev().find_map(|cached| match &cached.entry {
            Entry::User(question) => Some(question.draft()),
            Entry::Answer(_) | Entry::Note { .. } => None,
        })
    }

    /// Wraps what isn't wrapped yet for this width and these looks. Until then [`Self::rows`] shows older rows.
    ///
    /// When the width or the looks change, only what is in sight has to be right at once: `height` rows from the
    /// entry `first` on, or up to the end. Of the rest at most `budget` entries are wrapped in one call.
    pub fn layout(&mut self, width: usize, looks: Looks, highlights: &Highlights, sight: Sight) {
        let all = (self.width, &self.looks) != (width, &looks);
        (self.width, self.looks) = (width, looks);
        let mut code_before = 0;
        for cached in &mut self.entries {
            if all || cached.code_before != code_before {
                cached.forget();
            }
            cached.code_before = code_before;
            // How many rows and code blocks it has must be known, if only about: it is not wrapped before it is seen
            // or there is time, and until then its rows are empty.
            if cached.rows.is_empty() {
                cached.guess(width);
            }
            code_before += cached.n_code;
        }
        let looks = &self.looks;
        let wrap_rows = |entries: &mut dyn Iterator<Item = &mut Cached>| {
            let mut n_rows = 0;
            while n_rows < sight.height {
                let Some(cached) = entries.next() else { break };
                cached.refresh(width, looks, highlights);
                n_rows += cached.rows.len();
            }
        };
        // A window at the end shows what is before it, too.
        wrap_rows(&mut self.entries.iter_mut().rev());
        if let Some(first) = sight.first {
            wrap_rows(&mut self.entries.iter_mut().skip(first));
        }
        let stale = self.entries.iter_mut().rev().filter(|cached| cached.is_stale);
        stale.take(sight.budget).for_each(|cached| cached.wrap(width, looks, highlights));
        self.is_settled = self.entries.iter().all(|cached| !cached.is_stale);
    }

    /// Everything is wrapped for the present width.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Says which messages the model doesn't read.
    pub fn leave_out(&mut self, is_left_out: impl Fn(NodeId) -> bool) {
        for cached in &mut self.entries {
            let now = cached.message.is_some_and(|(node, _)| is_left_out(node));
            if cached.is_left_out != now {
                cached.is_left_out = now;
                cached.forget();
            }
        }
    }

    /// This code has its colours now: entries that have it are drawn anew.
    pub fn recolour(&mut self, done: &[highlight::Done]) {
        for cached in self.entries.iter_mut().filter(|cached| cached.n_code > 0) {
            let Entry::Answer(answer) = &cached.entry else { continue };
            // In lists and quotes its other lines stand behind something.
            if done.iter().any(|done| answer.text.shown.contains(&done.begins)) {
                cached.forget();
            }
        }
    }

    /// Rows of one entry, with the empty row that parts it from the next.
    pub fn entry_rows(&self, entry_idx: usize) -> &[Row] {
        self.entries.get(entry_idx).map(|cached| cached.rows.as_slice()).unwrap_or_default()
    }

    /// Entries at the beginning that can't change any more: an answer that has ended, and what stands before it.
    pub fn n_finished(&self) -> usize {
        let is_writing = |entry: &Entry| matches!(entry, Entry::Answer(answer) if !matches!(answer.phase, Phase::Ended(_)));
        let end = self.entries().position(is_writing).unwrap_or(self.entries.len());
        // A question waits for its answer: its pictures may still be on their way.
        let questions = self.entries[..end].iter().rev().take_while(|it| matches!(it.entry, Entry::User(_)));
        end - questions.count()
    }

    /// Rows from an entry on.
    pub fn rows_from(&self, entry_idx: usize) -> usize {
        (entry_idx..self.entries.len()).map(|idx| self.entry_rows(idx).len()).sum()
    }

    pub fn n_rows(&self) -> usize {
        (0..self.entries.len()).map(|entry_idx| self.entry_rows(entry_idx).len()).sum()
    }

    /// Pictures of which something is in sight when `height` rows from `top` on are, by the row of their
    /// beginning, counted from `top`.
    pub fn previews(&self, top: usize, height: usize) -> Vec<(i32, &Preview)> {
        let mut found = Vec::new();
        let mut first = 0;
        for (entry_idx, cached) in self.entries.iter().enumerate() {
            for (row, preview) in &cached.previews {
                let begins = first + row;
                if begins < top + height && begins + usize::from(preview.size().height) > top {
                    found.push((begins as i32 - top as i32, preview));
                }
            }
            first += self.entry_rows(entry_idx).len();
        }
        found
    }

    /// Whether this row, counted from the beginning of the chat, folds and opens thinking.
    pub fn is_thinking_head(&self, row: usize) -> bool {
        let mut first = 0;
        for (entry_idx, cached) in self.entries.iter().enumerate() {
            let n_rows = self.entry_rows(entry_idx).len();
            if row < first + n_rows {
                let thinks = matches!(&cached.entry, Entry::Answer(answer) if !answer.thinking.shown().trim().is_empty());
                // Just below the word that says who speaks.
                return thinks && row == first + 1;
            }
            first += n_rows;
        }
        false
    }

    /// The rows from `top` on, counted from the beginning of the chat.
    pub fn rows(&self, top: usize, height: usize) -> impl Iterator<Item = &Row> {
        let mut skip = top;
        let mut first = 0;
        while first < self.entries.len() && self.entry_rows(first).len() <= skip {
            skip -= self.entry_rows(first).len();
            first += 1;
        }
        (first..self.entries.len()).flat_map(|entry_idx| self.entry_rows(entry_idx)).skip(skip).take(height)
    }
}

/// Left margin of everything below the word that says who speaks.
const INDENT: usize = 2;

impl Cached {
    fn new(entry: Entry, message: Option<(NodeId, usize)>) -> Self {
        Self {
            entry,
            message,
            is_left_out: false,
            rows: Vec::new(),
            is_stale: true,
            settled: None,
            n_code: 0,
            code_before: 0,
            previews: Vec::new(),
        }
    }

    /// About as many rows and code blocks as it will have.
    fn guess(&mut self, width: usize) {
        let columns = width.saturating_sub(INDENT).max(1);
        let rows_of =
            |text: &str| text.lines().map(|line| line.len().div_ceil(columns).max(1)).sum::<usize>();
        let n_rows = match &self.entry {
            Entry::User(question) => 2 + question.attached.len() + rows_of(question.raw()),
            Entry::Answer(answer) => {
                let text = answer.text.raw();
                let fences = text.lines().filter(|line| line.trim_start().starts_with("```"));
                self.n_code = fences.count().div_ceil(2);
                3 + rows_of(text)
            }
            Entry::Note { text, .. } => 1 + rows_of(text),
        };
        self.rows = vec![Row::new(); n_rows];
        self.forget();
    }

    fn refresh(&mut self, width: usize, looks: &Looks, highlights: &Highlights) {
        if self.is_stale {
            self.wrap(width, looks, highlights);
        }
    }

    /// Nothing of the rows holds any more.
    fn forget(&mut self) {
        self.is_stale = true;
        self.settled = None;
    }

    fn wrap(&mut self, width: usize, looks: &Looks, highlights: &Highlights) {
        self.is_stale = false;
        let left_out = if self.is_left_out { "left out " } else { "" };
        let number = self.message.map(|(_, number)| format!("{left_out}[{number}]"));
        let rows = &mut self.rows;
        match &self.entry {
            Entry::User(question) => {
                rows.clear();
                self.previews.clear();
                rows.push(head(Tone::You, "You", number, width));
                for (idx, attached) in question.attached.iter().enumerate() {
                    wrap_attached(attached, idx + 1, width, rows, &mut self.previews);
                }
                wrap_text(question.text.shown(), Tone::Text, "  ", width, rows);
            }
            Entry::Answer(answer) => {
                let (before, settled) = match self.settled {
                    Some((before, settled)) => {
                        rows.truncate(before + settled.n_rows);
                        (before, settled)
                    }
                    None => {
                        rows.clear();
                        rows.push(head(Tone::Assistant, "Assistant", number, width));
                        wrap_thinking(answer, width, looks, rows);
                        (rows.len(), Settled::default())
                    }
                };
                let first_new = rows.len();
                // Models begin an answer with empty lines after their thinking.
                let text = answer.text.shown().trim_start_matches('\n').trim_end();
                let columns = width.saturating_sub(INDENT).max(1);
                if looks.is_raw || (looks.is_tinted && !answer.guessed.ranges.is_empty()) {
                    wrap_raw(answer, looks.is_tinted, width, rows);
                    wrap_ending(answer, width, rows);
                    self.n_code = markdown::code_blocks(text).len();
                    rows.push(Row::new());
                    return;
                }
                let (settled, n_code) =
                    markdown::render(text, settled, columns, before, self.code_before, highlights, rows);
                self.settled = Some((before, settled));
                self.n_code = n_code;
                for row in rows[first_new..].iter_mut().filter(|row| !row.is_empty()) {
                    row.insert(0, (Tone::Faint, " ".repeat(INDENT)));
                }
                wrap_ending(answer, width, rows);
            }
            Entry::Note { tone, text } => {
                rows.clear();
                wrap_text(text, *tone, "  ", width, rows);
            }
        }
        rows.push(Row::new());
    }
}

/// Who speaks, and on the right the number by which commands name the message.
fn head(tone: Tone, who: &str, number: Option<String>, width: usize) -> Row {
    let mut row = vec![(tone, who.to_owned())];
    let number = number.unwrap_or_default();
    let gap = width.saturating_sub(who.len() + number.len());
    if !number.is_empty() && gap > 0 {
        row.push((Tone::Faint, format!("{:gap$}{number}", "")));
    }
    row
}

fn wrap_attached(
    attached: &Attached,
    number: usize,
    width: usize,
    rows: &mut Vec<Row>,
    previews: &mut Vec<(usize, Preview)>,
) {
    let label = attached.label(number, width.saturating_sub(INDENT));
    rows.push(vec![(Tone::Faint, "  ".to_owned()), (Tone::Faint, label)]);
    if let Some(preview) = &attached.preview {
        let size = preview.size();
        // Made for a wider screen, it would be cut.
        if usize::from(size.width) + INDENT <= width {
            previews.push((rows.len(), preview.clone()));
            rows.extend((0..size.height).map(|_| Row::new()));
        }
    }
}

/// The text as it was written; what was guessed stands out.
fn wrap_raw(answer: &Answer, is_tinted: bool, width: usize, rows: &mut Vec<Row>) {
    let columns = width.saturating_sub(INDENT).max(1);
    let raw = answer.text.raw();
    let guessed = if is_tinted { answer.guessed.ranges.as_slice() } else { &[] };
    let (mut at, mut next) = (raw.len() - raw.trim_start_matches('\n').len(), 0);
    for line in raw[at..].trim_end().split('\n') {
        for wrapped in wrap_line(line, columns) {
            let end = at + wrapped.end;
            let mut from = at + wrapped.start;
            let mut row: Row = vec![(Tone::Faint, " ".repeat(INDENT))];
            while from < end {
                while guessed.get(next).is_some_and(|range| range.end <= from) {
                    next += 1;
                }
                let (tone, to) = match guessed.get(next) {
                    Some(range) if range.start <= from => (Tone::Accepted, range.end.min(end)),
                    Some(range) => (Tone::Text, range.start.min(end)),
                    None => (Tone::Text, end),
                };
                row.push((tone, drawable(&sanitize::clean(&raw[from..to]))));
                from = to;
            }
            rows.push(row);
        }
        at += line.len() + 1;
    }
}

fn wrap_thinking(answer: &Answer, width: usize, looks: &Looks, rows: &mut Vec<Row>) {
    if answer.thinking.shown().trim().is_empty() {
        return;
    }
    rows.push(thinking_head(answer, width, looks));
    if looks.thinking_open {
        wrap_text(answer.thinking.shown().trim(), Tone::Thinking, "  │ ", width, rows);
    }
}

/// What stands below an answer that has ended.
fn wrap_ending(answer: &Answer, width: usize, rows: &mut Vec<Row>) {
    let Phase::Ended(ending) = &answer.phase else { return };
    if let Some((tone, mark)) = ending_mark(answer, ending) {
        wrap_text(&mark, tone, "  ", width, rows);
    }
    if let Some(figures) = figures(&answer.stats) {
        // A narrow screen keeps the ends: how fast, how much.
        let parts: Vec<&str> = figures.split(" · ").collect();
        let figures = match parts[..] {
            [speed, .., count] if figures.chars().count() + INDENT > width => format!("{speed} · {count}"),
            _ => figures,
        };
        let room = width.saturating_sub(INDENT);
        // Beside the others where there is room, or below them; on a very narrow screen /stats has it.
        match drafts::summary(&answer.stats).filter(|summary| display_width(summary) <= room) {
            Some(summary) => {
                let all = format!("{figures} · {summary}");
                let lines = if display_width(&all) <= room { all } else { format!("{figures}\n{summary}") };
                wrap_text(&lines, Tone::Faint, "  ", width, rows);
            }
            None => wrap_text(&figures, Tone::Faint, "  ", width, rows),
        }
    }
}

fn thinking_head(answer: &Answer, width: usize, looks: &Looks) -> Row {
    let open = looks.thinking_open;
    let arrow = if open { '▾' } else { '▸' };
    let word = match answer.phase {
        Phase::Writing(Channel::Thinking) => "Thinking…",
        _ => "Thought",
    };
    let count = match answer.stats.thinking_tokens {
        0 => String::new(),
        n if answer.stats.thinking_was_cut => format!(" ({n} tok, all it was given)"),
        n => format!(" ({n} tok)"),
    };
    let head = format!("  {arrow} {word}{count}");
    let hint = format!("{} {}", looks.thinking_key, if open { "folds" } else { "opens" });
    let gap = width.saturating_sub(head.chars().count() + hint.chars().count());
    let mut row = vec![(Tone::Faint, head)];
    // The hint stands far from the text it belongs to only where there is room for it.
    if gap >= 4 && width >= 48 && !looks.thinking_key.is_empty() {
        row.push((Tone::Faint, format!("  ·  {hint}")));
    }
    row
}

/// What is said below an answer that didn't end by itself.
pub fn ending_mark(answer: &Answer, ending: &Ending) -> Option<(Tone, String)> {
    let no_answer = answer.text.shown().trim().is_empty();
    let only_thinking = no_answer && !answer.thinking.shown().trim().is_empty();
    match ending {
        Ending::Finished(Finish::Length) if only_thinking => {
            Some((Tone::Warning, "[cut off while thinking, at the token limit]".to_owned()))
        }
        Ending::Finished(Finish::Length) => Some((Tone::Warning, "[cut off at the token limit]".to_owned())),
        Ending::Finished(Finish::Stop) if only_thinking => {
            Some((Tone::Warning, "[ended while thinking, without an answer]".to_owned()))
        }
        Ending::Finished(Finish::Stop) if no_answer => Some((Tone::Faint, "[empty answer]".to_owned())),
        Ending::Finished(Finish::Stop) => None,
        Ending::Stopped => Some((Tone::Warning, "[stopped]".to_owned())),
        Ending::Failed(reason) => Some((Tone::Error, format!("Failed: {reason}"))),
        Ending::Interrupted => Some((Tone::Warning, "[interrupted · /continue goes on]".to_owned())),
    }
}

/// `41.8 tok/s · first token 0.62 s · 186 tok`, with the parts that are known.
pub fn figures(stats: &TurnStats) -> Option<String> {
    if stats.completion_tokens == 0 {
        return None;
    }
    let mut parts = Vec::new();
    if let Some(speed) = stats.tokens_per_second() {
        parts.push(format!("{speed:.1} tok/s"));
    }
    if let Some(first) = stats.time_to_first_token {
        parts.push(format!("first token {:.2} s", first.as_secs_f64()));
    }
    parts.push(format!("{} tok", stats.completion_tokens));
    Some(parts.join(" · "))
}

fn wrap_text(text: &str, tone: Tone, margin: &str, width: usize, rows: &mut Vec<Row>) {
    let columns = width.saturating_sub(margin.chars().count().max(INDENT)).max(1);
    for line in text.split('\n') {
        for range in wrap_line(line, columns) {
            let drawn = drawable(line[range].trim_end());
            rows.push(vec![(Tone::Faint, margin.to_owned()), (tone, drawn)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(text: &str) -> Entry {
        Entry::User(Draft { text: text.to_owned(), attached: Vec::new() }.into())
    }

    const EVERYTHING: Sight = Sight { first: None, height: usize::MAX, budget: usize::MAX };

    #[test]
    fn what_is_in_sight_is_wrapped_at_once_and_the_rest_bit_by_bit() {
        let mut transcript = Transcript::default();
        for n in 0..1000 {
            transcript.push(NodeId(n), user(&format!("message {n} with some words that are wrapped")));
        }
        let none = Highlights::default();
        transcript.layout(60, Looks::default(), &none, EVERYTHING);
        let mut wrapped = transcript.clone();
        wrapped.layout(20, Looks::default(), &none, EVERYTHING);
        let shown = |transcript: &Transcript, entry| transcript.entry_rows(entry).to_vec();
        for first in [None, Some(500)] {
            let mut transcript = transcript.clone();
            let sight = Sight { first, height: 30, budget: 10 };
            transcript.layout(20, Looks::default(), &none, sight);
            assert!(!transcript.is_settled());
            for entry in first.map_or(996..1000, |first| first..first + 4) {
                assert_eq!(shown(&transcript, entry), shown(&wrapped, entry), "{entry}");
            }
            assert_ne!(shown(&transcript, 0), shown(&wrapped, 0));
            while !transcript.is_settled() {
                transcript.layout(20, Looks::default(), &none, sight);
            }
            assert_eq!(transcript, wrapped);
        }
    }

    #[derive(Debug, Clone)]
    enum Change {
        Ask(String),
        Delta(bool, String),
        End,
        Width(usize),
        Fold(bool),
    }

    fn change() -> impl Strategy<Value = Change> {
        let text = "[a-d \\n漢\u{1b}\\[m👩`*#|>$-]{0,30}";
        prop_oneof![
            text.prop_map(Change::Ask),
            (any::<bool>(), text).prop_map(|(thinking, text)| Change::Delta(thinking, text)),
            Just(Change::End),
            (0usize..60).prop_map(Change::Width),
            any::<bool>().prop_map(Change::Fold),
        ]
    }

    proptest! {
        #[test]
        fn cached_rows_equal_a_full_wrap(changes in proptest::collection::vec(change(), 0..30)) {
            let (mut transcript, mut width, mut open, mut turn) = (Transcript::default(), 40, false, 0);
            for change in changes {
                match change {
                    Change::Ask(text) => {
                        turn += 1;
                        let node = NodeId(2 * turn as u32);
                        transcript.push(node, user(&text));
                        transcript.push(NodeId(node.0 + 1), Entry::Answer(Answer::new(TurnId(turn)).into()));
                    }
                    Change::Delta(thinking, text) => {
                        transcript.change(TurnId(turn), |answer| {
                            if thinking { answer.thinking.push(&text) } else { answer.text.push(&text) }
                        });
                    }
                    Change::End => {
                        transcript.change(TurnId(turn), |answer| answer.phase = Phase::Ended(Ending::Stopped));
                    }
                    Change::Width(new) => width = new,
                    Change::Fold(new) => open = new,
                }
                let looks = Looks { thinking_open: open, ..Looks::default() };
                transcript.layout(width, looks.clone(), &Highlights::default(), EVERYTHING);
                let mut fresh = Transcript::default();
                for (number, entry) in transcript.entries().enumerate() {
                    fresh.push(NodeId(number as u32 + 2), entry.clone());
                }
                fresh.layout(width, looks, &Highlights::default(), EVERYTHING);
                prop_assert_eq!(&transcript, &fresh);
                prop_assert_eq!(transcript.rows(0, usize::MAX).count(), transcript.n_rows());
            }
        }
    }
}
