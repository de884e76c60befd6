//! One block to rows: containers (lists, quotes) put their marks before every row of what is in them.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Parser, Tag, TagEnd};

use crate::sanitize::clean;
use crate::tui::theme::Tone;
use crate::tui::transcript::Row;
use crate::tui::wrap::{display_width, drawable, shorten, wrap_line};

use super::highlight::Highlights;
use super::table::Table;
use super::{Spans, math, options, wrap_spans};

/// Below this many columns code has no frame.
const FRAMED: usize = 24;
/// What is left for text, however deep the containers are.
const MIN_TEXT: usize = 8;

#[derive(Default)]
pub struct Made {
    pub rows: Vec<Row>,
    pub n_code: usize,
}

/// The rows of one block. `code_before` code blocks stand before it in the chat.
pub fn block(source: &str, width: usize, code_before: usize, highlights: &Highlights) -> Made {
    let mut renderer = Renderer {
        source,
        width,
        code_before,
        highlights,
        made: Made::default(),
        containers: Vec::new(),
        lists: Vec::new(),
        spans: Spans::new(),
        strong: 0,
        emphasis: 0,
        struck: 0,
        link: None,
        heading: None,
        code: None,
        table: None,
        wants_gap: false,
        math_until: 0,
    };
    let mut parsed = false;
    for (event, range) in Parser::new_ext(source, options()).into_offset_iter() {
        parsed = true;
        renderer.event(event, range);
    }
    renderer.flush();
    if !parsed && !source.trim().is_empty() {
        // Definitions of links: nothing to the parser, but somebody wrote them.
        renderer.spans.push((Tone::Faint, clean(source.trim())));
        renderer.flush();
    }
    renderer.made
}

/// The first word behind a fence.
pub fn language(kind: &CodeBlockKind) -> String {
    match kind {
        CodeBlockKind::Fenced(info) => {
            let word = info.split([' ', ',', '{']).next().unwrap_or_default();
            clean(word)
        }
        CodeBlockKind::Indented => String::new(),
    }
}

struct Container {
    /// Stands before its first row: the mark of a list's item.
    first: Option<(Tone, String)>,
    /// Stands before all others.
    rest: (Tone, String),
}

struct Renderer<'a> {
    source: &'a str,
    width: usize,
    code_before: usize,
    highlights: &'a Highlights,
    made: Made,
    containers: Vec<Container>,
    /// The number of the next item of each open list; none of one with bullets.
    lists: Vec<Option<u64>>,
    /// Text of the paragraph that is open.
    spans: Spans,
    strong: usize,
    emphasis: usize,
    struck: usize,
    /// Address of the open link, and where its text begins among the spans.
    link: Option<(String, usize)>,
    heading: Option<HeadingLevel>,
    /// Language and text of the open code block.
    code: Option<(String, String)>,
    table: Option<Table>,
    /// A block ended, and the next one is parted from it.
    wants_gap: bool,
    /// Events up to here are a part of mathematics that is drawn already.
    math_until: usize,
}

impl Renderer<'_> {
    fn event(&mut self, event: Event, range: Range<usize>) {
        let is_drawn = range.start < self.math_until;
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            _ if is_drawn => {}
            Event::Text(text) => self.text(&text, &range),
            Event::Code(text) => self.push(Tone::Code, &text),
            Event::InlineMath(text) => self.push(Tone::Math, &math::readable(&text)),
            Event::DisplayMath(text) => self.display_math(&text),
            Event::Html(text) | Event::InlineHtml(text) => self.html(&text),
            // Models don't wrap lines: where they begin a new one, as in a poem, they mean it.
            Event::SoftBreak | Event::HardBreak => self.push(self.tone(), "\n"),
            Event::Rule => {
                self.gap();
                let columns = self.room().min(40);
                self.row(vec![(Tone::Faint, "─".repeat(columns))]);
                self.wants_gap = true;
            }
            Event::TaskListMarker(done) => self.push(Tone::Marker, if done { "☑ " } else { "☐ " }),
            Event::FootnoteReference(name) => self.push(Tone::Faint, &format!("[{name}]")),
        }
    }

    fn start(&mut self, tag: Tag) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                self.heading = Some(level);
            }
            Tag::BlockQuote(_) => {
                self.flush();
                self.gap();
                let bar = (Tone::Faint, "│ ".to_owned());
                self.containers.push(Container { first: None, rest: bar });
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.gap();
                self.code = Some((language(&kind), String::new()));
            }
            Tag::List(first) => {
                // The text of a tight item stands right above the list in it.
                if self.flush() {
                    self.wants_gap = false;
                }
                self.gap();
                self.lists.push(first);
            }
            Tag::Item => {
                self.gap();
                self.item();
            }
            Tag::Table(alignments) => {
                self.gap();
                self.table = Some(Table::new(alignments));
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::TableCell => self.spans.clear(),
            Tag::Emphasis => self.emphasis += 1,
            Tag::Strong => self.strong += 1,
            Tag::Strikethrough => self.struck += 1,
            Tag::Link { dest_url, .. } => self.link = Some((clean(&dest_url), self.spans.len())),
            Tag::Image { .. } => self.push(Tone::Faint, "[picture: "),
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.flush();
                self.wants_gap = true;
            }
            TagEnd::Heading(_) => {
                self.flush();
                self.heading = None;
                self.wants_gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.containers.pop();
                self.wants_gap = true;
            }
            TagEnd::CodeBlock => {
                self.code_rows();
                self.wants_gap = true;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.wants_gap |= self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                // An empty item has its mark all the same.
                if self.containers.last().is_some_and(|item| item.first.is_some()) {
                    self.row(Row::new());
                }
                self.containers.pop();
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    for row in table.render(self.room()) {
                        self.row(row);
                    }
                }
                self.wants_gap = true;
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Emphasis => self.emphasis = self.emphasis.saturating_sub(1),
            TagEnd::Strong => self.strong = self.strong.saturating_sub(1),
            TagEnd::Strikethrough => self.struck = self.struck.saturating_sub(1),
            TagEnd::Link => self.end_link(),
            TagEnd::Image => self.push(Tone::Faint, "]"),
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    fn item(&mut self) {
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number += 1;
                mark
            }
            // Each level has its own mark, as far as there are any.
            _ => ["• ", "◦ ", "▪ "][self.lists.len().saturating_sub(1) % 3].to_owned(),
        };
        let hanging = " ".repeat(display_width(&mark));
        let first = Some((Tone::Marker, mark));
        self.containers.push(Container { first, rest: (Tone::Text, hanging) });
    }

    fn text(&mut self, text: &str, range: &Range<usize>) {
        if let Some((_, code)) = &mut self.code {
            code.push_str(text);
            return;
        }
        // `\(x\)` and `\[x\]`: to Markdown these are escaped brackets.
        let is_escaped = self.source[..range.start].ends_with('\\');
        let close = match text.chars().next() {
            Some('(') if is_escaped => "\\)",
            Some('[') if is_escaped => "\\]",
            _ => return self.push(self.tone(), text),
        };
        let inside = range.start + 1;
        match self.source[inside..].find(close) {
            Some(len) => {
                self.math_until = inside + len + close.len();
                let formula = self.source[inside..inside + len].to_owned();
                match close {
                    "\\]" => self.display_math(&formula),
                    _ => self.push(Tone::Math, &math::readable(&formula)),
                }
            }
            None => self.push(self.tone(), text),
        }
    }

    /// On lines of its own, set off.
    fn display_math(&mut self, formula: &str) {
        if !self.spans.is_empty() {
            self.push(Tone::Math, "\n");
        }
        let lines = math::readable_lines(formula);
        for (at, line) in lines.iter().enumerate() {
            let newline = if at > 0 { "\n" } else { "" };
            self.push(Tone::Math, &format!("{newline}    {line}"));
        }
        self.push(Tone::Math, "\n");
    }

    /// Only what breaks a line means something here.
    fn html(&mut self, html: &str) {
        let tag = html.trim().to_ascii_lowercase();
        match tag.as_str() {
            "<br>" | "<br/>" | "<br />" => self.push(self.tone(), "\n"),
            _ => self.push(Tone::Faint, html),
        }
    }

    fn tone(&self) -> Tone {
        match self.heading {
            Some(_) => return Tone::Heading,
            None if self.link.is_some() => return Tone::Link,
            None => {}
        }
        match (self.strong > 0, self.emphasis > 0) {
            _ if self.struck > 0 => Tone::Struck,
            (true, true) => Tone::StrongEmphasis,
            (true, false) => Tone::Strong,
            (false, true) => Tone::Emphasis,
            (false, false) => Tone::Text,
        }
    }

    /// Entities can write any character, so text is cleaned only here.
    fn push(&mut self, tone: Tone, text: &str) {
        let text = clean(text);
        match self.spans.last_mut() {
            Some((last, before)) if *last == tone => before.push_str(&text),
            _ => self.spans.push((tone, text)),
        }
    }

    /// An address that the text doesn't say itself stands behind it: nobody should follow a link unseen.
    fn end_link(&mut self) {
        let Some((address, first)) = self.link.take() else { return };
        let text: String = self.spans.iter().skip(first).map(|(_, text)| text.as_str()).collect();
        let says_it = address.is_empty() || text.contains(&address) || address == format!("mailto:{text}");
        if !says_it {
            self.push(Tone::Faint, &format!(" ({address})"));
        }
    }

    /// Rows of the text that is open; false if there was none.
    fn flush(&mut self) -> bool {
        if self.table.is_some() {
            return false;
        }
        let mut spans = std::mem::take(&mut self.spans);
        if let Some((_, last)) = spans.last_mut() {
            last.truncate(last.trim_end().len());
        }
        if spans.iter().all(|(_, text)| text.trim().is_empty()) {
            return false;
        }
        if let Some(level) = self.heading.filter(|level| *level > HeadingLevel::H2) {
            // Shape tells the deeper levels apart, not size.
            spans.insert(0, (Tone::Faint, format!("{} ", "›".repeat(level as usize - 2))));
        }
        for row in wrap_spans(&spans, self.room()) {
            self.row(row);
        }
        if self.heading == Some(HeadingLevel::H1) {
            let width = spans.iter().map(|(_, text)| display_width(text)).sum::<usize>();
            self.row(vec![(Tone::Heading, "═".repeat(width.min(self.room())))]);
        }
        true
    }

    fn code_rows(&mut self) {
        let Some((language, code)) = self.code.take() else { return };
        self.made.n_code += 1;
        let number = self.code_before + self.made.n_code;
        let width = self.room();
        let code = clean(&code);
        let is_framed = width >= FRAMED;
        let room = if is_framed { width - 4 } else { width };
        let lines: Vec<Row> = match self.highlights.get(&language, &code) {
            Some(lines) => lines.iter().flat_map(|line| wrap_code(line, room)).collect(),
            None => {
                let code = code.strip_suffix('\n').unwrap_or(&code);
                let plain = |line: &str| vec![(Tone::CodeText, line.to_owned())];
                code.split('\n').flat_map(|line| wrap_code(&plain(line), room)).collect()
            }
        };
        if !is_framed {
            for line in lines {
                self.row(line);
            }
            return;
        }
        let longest = lines.iter().map(row_width).max().unwrap_or(0);
        let name = if language.is_empty() { "text" } else { language.as_str() };
        let head = shorten(&format!("{number} {name}"), room.saturating_sub(2));
        let hint = format!("/copy c{number}");
        let wanted = (display_width(&head) + hint.len() + 4).max(longest);
        let inner = wanted.min(room);
        let has_hint = display_width(&head) + hint.len() + 4 <= inner;
        let hint = if has_hint { format!(" {hint} ") } else { String::new() };
        let line = (inner + 2).saturating_sub(display_width(&head) + 2 + hint.len() + usize::from(has_hint));
        let edge = if has_hint { "─╮" } else { "╮" };
        self.row(vec![(Tone::CodeFrame, format!("╭ {head} {}{hint}{edge}", "─".repeat(line)))]);
        for mut line in lines {
            let gap = inner.saturating_sub(row_width(&line)) + 1;
            line.insert(0, (Tone::CodeFrame, "│ ".to_owned()));
            line.push((Tone::CodeFrame, format!("{:gap$}│", "")));
            self.row(line);
        }
        self.row(vec![(Tone::CodeFrame, format!("╰{}╯", "─".repeat(inner + 2)))]);
    }

    /// Columns inside of the containers.
    fn room(&self) -> usize {
        let taken: usize = self.containers.iter().map(|container| display_width(&container.rest.1)).sum();
        self.width.saturating_sub(taken).max(MIN_TEXT.min(self.width)).max(1)
    }

    /// An empty row, if something stands above that the next block is to be parted from.
    fn gap(&mut self) {
        if std::mem::take(&mut self.wants_gap) && !self.made.rows.is_empty() {
            let mut row: Row = self.containers.iter().map(|container| container.rest.clone()).collect();
            while row.pop_if(|(_, text)| text.trim().is_empty()).is_some() {}
            self.made.rows.push(row);
        }
    }

    fn row(&mut self, content: Row) {
        let marks = self.containers.iter_mut();
        let mut row: Row =
            marks.map(|container| container.first.take().unwrap_or_else(|| container.rest.clone())).collect();
        row.extend(content);
        self.made.rows.push(row);
    }
}

fn row_width(row: &Row) -> usize {
    row.iter().map(|(_, text)| display_width(text)).sum()
}

/// A line of code in rows. Code keeps its spaces.
fn wrap_code(line: &Row, width: usize) -> Vec<Row> {
    let text: String = line.iter().map(|(_, text)| text.as_str()).collect();
    let ranges = wrap_line(&text, width);
    ranges
        .into_iter()
        .map(|range| {
            let kept = range.start + text[range.clone()].trim_end().len();
            super::cut(line, range.start..kept)
        })
        .map(|row| row.into_iter().map(|(tone, text)| (tone, drawable(&text))).collect())
        .collect()
}
