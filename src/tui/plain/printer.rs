//! What of the state hasn't been said yet. Knows nothing of terminals: it gives text, the loop prints it.

use crate::chat::{Channel, NodeId};
use crate::msg::TurnId;
use crate::tui::drafts;
use crate::tui::models;
use crate::tui::state::{Model, State};
use crate::tui::transcript::{self, Answer, Entry, Phase, Row};
use crate::tui::view;

/// Messages at the end of a conversation that are said when it goes on.
const RECENT: usize = 4;

/// Columns of pages.
const PAGE_WIDTH: usize = 76;

/// Something to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Who speaks from here on.
    Label(String),
    /// More of an answer.
    Answer(String),
    AnswerEnd,
    /// Lines of the program.
    Note(String),
}

pub struct Printer {
    /// Answers as the model wrote them; without, control characters are left out.
    is_raw: bool,
    entries: Vec<Seen>,
    /// What the person typed last: it stands there already.
    typed: String,
    model: Option<String>,
    notice: Option<String>,
    n_attached: usize,
    list_is_said: bool,
    models_are_said: bool,
    download: Option<models::DownloadState>,
    draft: String,
}

/// An entry of the transcript that was said, as far as it was there.
struct Seen {
    key: Key,
    /// Bytes of an answer that were said.
    n_bytes: usize,
    has_begun: bool,
    is_over: bool,
}

#[derive(PartialEq)]
enum Key {
    Message(NodeId),
    Note(String),
}

impl Printer {
    pub fn new(is_raw: bool) -> Self {
        Self {
            is_raw,
            entries: Vec::new(),
            typed: String::new(),
            model: None,
            notice: None,
            n_attached: 0,
            list_is_said: false,
            models_are_said: false,
            download: None,
            draft: String::new(),
        }
    }

    /// The person typed this.
    pub fn typed(&mut self, line: &str) {
        line.clone_into(&mut self.typed);
        self.notice = None;
        // The same list may be asked for again.
        (self.list_is_said, self.models_are_said) = (false, false);
    }

    /// What is new since the last time.
    pub fn news(&mut self, state: &State) -> Vec<Said> {
        let mut out = Vec::new();
        self.model(state, &mut out);
        self.transcript(state, &mut out);
        self.open(state, &mut out);
        self.attached(state, &mut out);
        let notice = state.notice.as_ref().map(|notice| notice.text.clone());
        if let Some(text) = notice.clone().filter(|_| notice != self.notice) {
            out.push(Said::Note(text));
        }
        self.notice = notice;
        // A message that came back, to be written anew.
        let draft = state.composer.text();
        if !draft.trim().is_empty() && draft != self.draft && draft.trim() != self.typed.trim() {
            out.push(Said::Note(format!("Draft, in whose place the next line is sent: {draft}")));
        }
        self.draft = draft;
        out
    }

    fn model(&mut self, state: &State, out: &mut Vec<Said>) {
        let Model::Ready(info) = &state.model else { return };
        if self.model.as_ref() != Some(&info.name) {
            out.push(Said::Note(format!(
                "{} on {}, {} tokens of context. /help lists commands, Ctrl+D or /quit ends.",
                info.name, info.device, info.context_tokens
            )));
            self.model = Some(info.name.clone());
        }
    }

    fn transcript(&mut self, state: &State, out: &mut Vec<Said>) {
        let entries: Vec<_> = state.transcript.numbered_entries().collect();
        let is_it = |seen: &Seen, message: Option<NodeId>, entry: &Entry| match (&seen.key, entry) {
            (Key::Note(said), Entry::Note { text, .. }) => said == text,
            (Key::Message(node), _) => message == Some(*node),
            (Key::Note(_), _) => false,
        };
        let known = self.entries.iter().zip(&entries);
        let n_known = known.take_while(|(seen, (message, entry))| is_it(seen, message.map(|it| it.0), entry));
        let n_known = n_known.count();
        self.entries.truncate(n_known);
        let n_skipped = (entries.len() - n_known).saturating_sub(RECENT);
        if n_skipped > 0 {
            out.push(Said::Note(format!("{n_skipped} earlier messages; /export md FILE writes them all")));
        }
        for (idx, (message, entry)) in entries.iter().enumerate() {
            if idx >= self.entries.len() {
                let key = match (message, entry) {
                    (Some((node, _)), _) => Key::Message(*node),
                    (None, Entry::Note { text, .. }) => Key::Note(text.clone()),
                    (None, _) => Key::Note(String::new()),
                };
                let is_over = idx < n_known + n_skipped;
                self.entries.push(Seen { key, n_bytes: 0, has_begun: is_over, is_over });
            }
            let number = message.map_or(0, |(_, number)| number);
            let seen = &mut self.entries[idx];
            match entry {
                Entry::Answer(answer) => grown(answer, number, self.is_raw, seen, out),
                _ if seen.is_over => {}
                Entry::User(question) => {
                    seen.is_over = true;
                    if question.raw() != self.typed.trim_end() {
                        out.push(Said::Note(format!("User [{number}]: {}", question.text.shown())));
                    }
                }
                Entry::Note { text, .. } => {
                    seen.is_over = true;
                    out.push(Said::Note(text.clone()));
                }
            }
        }
    }

    /// Lists and pages that were opened.
    fn open(&mut self, state: &State, out: &mut Vec<Said>) {
        if let Some(page) = &state.page {
            out.extend(view::page::rows(state, page, PAGE_WIDTH).iter().map(|row| Said::Note(plain(row))));
        }
        if let Some(list) = state.list.as_ref().filter(|list| list.items.is_some() && !self.list_is_said) {
            self.list_is_said = true;
            let items = list.shown();
            for (item, number) in items.iter().zip(1..) {
                let current = if item.is_current { " (this one)" } else { "" };
                let facts = if item.facts.is_empty() { "" } else { ", " };
                out.push(Said::Note(format!("{number}. {}{facts}{}{current}", item.text, item.facts)));
            }
            let text = if items.is_empty() { "There is nothing to choose." } else { CHOOSE };
            out.push(Said::Note(text.to_owned()));
        }
        if state.models.open.is_some() && state.models.machine.is_some() && !self.models_are_said {
            self.models_are_said = true;
            for (line, number) in state.models.lines().iter().zip(1..) {
                let text = match line {
                    models::Line::Model(choice) => {
                        let here = if choice.is_here() { ", here" } else { "" };
                        let verdict = choice.verdict();
                        let comma = if verdict.is_empty() { "" } else { ", " };
                        format!("{}{here}{comma}{verdict}", line.name())
                    }
                    models::Line::Named(name) => format!("download {name}"),
                    models::Line::Search(words) => format!("search the Hub for {words}"),
                };
                out.push(Said::Note(format!("{number}. {text}")));
            }
            out.push(Said::Note(CHOOSE.to_owned()));
        }
        let download = state.models.download.as_ref().map(|download| download.state.clone());
        if download != self.download {
            out.extend(state.models.download_line().map(Said::Note));
            self.download = download;
        }
    }

    fn attached(&mut self, state: &State, out: &mut Vec<Said>) {
        let ready = state.attached.iter().filter(|attached| attached.facts.is_some()).count();
        if ready > self.n_attached {
            let new = state.attached.iter().enumerate().skip(self.n_attached);
            out.extend(new.map(|(idx, attached)| Said::Note(attached.chip(idx + 1, usize::MAX))));
        }
        self.n_attached = ready;
    }
}

const CHOOSE: &str = "Type a number to choose, or an empty line.";

/// An answer, as far as it has come.
fn grown(answer: &Answer, number: usize, is_raw: bool, seen: &mut Seen, out: &mut Vec<Said>) {
    let has_ended = matches!(answer.phase, Phase::Ended(_));
    if has_ended && answer.turn == TurnId(0) && !seen.is_over {
        // Of an earlier day: nothing that was asked for now.
        (seen.is_over, seen.has_begun, seen.n_bytes) = (true, true, answer.text.raw().len());
        return out.push(Said::Note(format!("Assistant [{number}]: {}", answer.text.shown().trim())));
    }
    if seen.is_over {
        // It goes on.
        if has_ended {
            return;
        }
        (seen.is_over, seen.has_begun) = (false, false);
    }
    let text = if is_raw { answer.text.raw() } else { answer.text.shown() };
    if seen.n_bytes == 0 {
        // Models begin an answer with empty lines after their thinking.
        seen.n_bytes = text.len() - text.trim_start().len();
    }
    let more = &text[seen.n_bytes.min(text.len())..];
    if (has_ended || !more.is_empty()) && !std::mem::replace(&mut seen.has_begun, true) {
        if answer.stats.thinking_tokens > 0 {
            let cut = if answer.stats.thinking_was_cut { ", all it was given" } else { "" };
            out.push(Said::Note(format!("Thought for {} tokens{cut}.", answer.stats.thinking_tokens)));
        }
        out.push(Said::Label(format!("Assistant [{number}]: ")));
    }
    if !more.is_empty() {
        out.push(Said::Answer(more.to_owned()));
        seen.n_bytes = text.len();
    }
    if let Phase::Ended(ending) = &answer.phase {
        seen.is_over = true;
        out.push(Said::AnswerEnd);
        out.extend(transcript::ending_mark(answer, ending).map(|(_, mark)| Said::Note(mark)));
        let figures = [transcript::figures(&answer.stats), drafts::summary(&answer.stats)];
        let figures: Vec<String> = figures.into_iter().flatten().collect();
        if !figures.is_empty() {
            out.push(Said::Note(format!("({})", figures.join(" · "))));
        }
    }
}

/// A row without what only draws.
fn plain(row: &Row) -> String {
    let is_drawn = |c: char| matches!(c, '\u{2500}'..='\u{25ff}');
    let text: String = row.iter().flat_map(|(_, text)| text.chars()).filter(|c| !is_drawn(*c)).collect();
    text.trim_end().to_owned()
}

/// What takes so long.
pub fn report(state: &State) -> Option<String> {
    if let Some(line) = state.models.download_line() {
        return Some(line);
    }
    if state.model == Model::Loading {
        return Some("Loading the model…".to_owned());
    }
    state.active?;
    let answer = state.transcript.entries().rev().find_map(|entry| match entry {
        Entry::Answer(answer) => Some(answer),
        Entry::User(_) | Entry::Note { .. } => None,
    })?;
    match answer.phase {
        Phase::Waiting => Some("Waiting for the model…".to_owned()),
        Phase::Looking { picture, pictures, percent } => {
            Some(format!("Looking at picture {picture} of {pictures}, {percent} %"))
        }
        Phase::Reading { done, total } => Some(format!("Reading the prompt, {done} of {total} tokens")),
        Phase::Writing(Channel::Thinking) => {
            Some(format!("Thinking, {} tokens so far", answer.stats.thinking_tokens))
        }
        // It is there to be seen.
        Phase::Writing(Channel::Answer) | Phase::Ended(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::tests::play;

    /// What is printed, in pieces, when the script is played piece by piece.
    fn said(is_raw: bool, scripts: &[&str]) -> String {
        let mut run = play("");
        let mut printer = Printer::new(is_raw);
        let mut text = String::new();
        printer.news(&run.state);
        for script in scripts {
            if let Some(line) = script.strip_suffix("<enter>") {
                printer.typed(line);
            }
            run.play(script);
            for said in printer.news(&run.state) {
                match said {
                    Said::Label(label) => text.push_str(&label),
                    Said::Answer(more) => text.push_str(&more),
                    Said::AnswerEnd => text.push('\n'),
                    Said::Note(line) => text.push_str(&format!("{line}\n")),
                }
            }
            run.state.page = None;
        }
        text
    }

    #[test]
    fn an_answer_is_said_as_it_comes_and_once() {
        let text = said(false, &["hi<enter>", "~start(9)", "~delta(Hel)", "~delta(lo\u{1b}[1m.)", "~finish"]);
        assert!(text.starts_with("Assistant [2]: Hello.\n("), "{text}");
        assert_eq!(text.matches("Hello").count(), 1);
        // Whoever pipes it gets it as it was written.
        assert!(said(true, &["hi<enter>", "~start(9)", "~delta(a\u{1b}[1m)"]).contains("a\u{1b}[1m"));
    }

    #[test]
    fn thinking_is_told_and_a_stop_too() {
        let text = said(false, &["hi<enter>", "~start(9)", "~think(hm)", "~delta(Ok)", "<esc> ~cancelled"]);
        assert!(text.starts_with("Thought for 2 tokens.\nAssistant [2]: Ok\n[stopped]\n"), "{text}");
    }

    #[test]
    fn lists_are_numbered_and_notices_said_once() {
        let text = said(false, &["/persona off<enter>", "/preset<enter>", "<esc>", "/nonsense<enter>"]);
        assert!(text.contains("No command /nonsense"), "{text}");
        assert_eq!(text.matches("No persona, from the next message").count(), 1, "{text}");
    }

    #[test]
    fn another_branch_is_said_anew() {
        let text = said(false, &["one<enter>", "~start(9) ~delta(1) ~finish", "/undo<enter>"]);
        assert!(text.contains("the next line is sent: one"), "{text}");
    }
}
