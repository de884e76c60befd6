//! Markdown as models write it, to rows of the screen.
//!
//! A text is a sequence of blocks (paragraphs, lists, tables, …), each rendered from its own lines alone. All but
//! the last can't change any more when text is appended, so a streaming answer renders only its tail again; the
//! result is the same however the text was cut. Knows nothing of colours and the state.

pub mod highlight;
mod math;
mod render;
mod table;

use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::theme::Tone;
use super::transcript::Row;
use super::wrap::{drawable, wrap_line};
use highlight::{Block, Highlights};

/// Where in a text its last block begins, and what was made of everything before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    pub bytes: usize,
    pub n_rows: usize,
    pub n_code: usize,
}

/// Pieces of text with their meanings, before they are wrapped.
type Spans = Vec<(Tone, String)>;

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS | Options::ENABLE_MATH
}

/// Appends the rows of `text` from `settled` on to `rows`, which hold those of everything before. `rows_before` of
/// them are not of this text; `code_before` code blocks stand before it in the chat.
pub fn render(
    text: &str,
    settled: Settled,
    width: usize,
    rows_before: usize,
    code_before: usize,
    highlights: &Highlights,
    rows: &mut Vec<Row>,
) -> (Settled, usize) {
    let mut last = settled;
    let mut n_code = settled.n_code;
    let tail = text.get(settled.bytes..).unwrap_or_default();
    let blocks = blocks(tail);
    // As long as its first line isn't complete, a block may turn out to belong to the one before.
    let is_certain = blocks.last().is_some_and(|block| tail[block.clone()].contains('\n'));
    let n_certain = blocks.len().saturating_sub(if is_certain { 1 } else { 2 });
    for (idx, block) in blocks.into_iter().enumerate() {
        if idx == n_certain {
            last = Settled { bytes: settled.bytes + block.start, n_rows: rows.len() - rows_before, n_code };
        }
        let mut made = render::block(&tail[block], width, code_before + n_code, highlights);
        // What renders to nothing, such as a comment, takes no empty row either.
        if !made.rows.is_empty() {
            if rows.len() > rows_before {
                rows.push(Row::new());
            }
            rows.append(&mut made.rows);
        }
        n_code += made.n_code;
    }
    (last, n_code)
}

/// The lines of each block.
fn blocks(text: &str) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let mut depth = 0;
    let mut open_end = 0;
    // Up to where there is text, or the mark of an item: what a container has behind that is no part of it.
    let mut text_end = 0;
    for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
        let begins = depth == 0;
        let line = text[..range.start].rfind('\n').map_or(0, |newline| newline + 1);
        if begins {
            // A list reaches over definitions behind it, which stand on their own if an empty line parts them. They go
            // with the lines right below them, as in a text that begins there.
            let above = directly_above(text, line);
            if above < line && above >= text_end {
                open_end = open_end.min(above);
                if let Some(last) = blocks.last_mut() {
                    last.end = last.end.min(above);
                }
            }
            // Definitions of links are no blocks to the parser. They belong to the next one: its first line may
            // still become a part of them.
            let start = match text[open_end..line.max(open_end)].find(|c: char| !c.is_whitespace()) {
                Some(at) => text[..open_end + at].rfind('\n').map_or(0, |newline| newline + 1).max(open_end),
                None => line.max(open_end),
            };
            blocks.push(start..range.end);
        }
        match event {
            Event::Start(Tag::Item) => text_end = text_end.max(range.start + 1),
            Event::Start(_) => {}
            Event::End(TagEnd::CodeBlock | TagEnd::Table | TagEnd::HtmlBlock | TagEnd::Heading(_)) => {
                text_end = text_end.max(range.end);
            }
            Event::End(_) => {}
            _ => text_end = text_end.max(range.end),
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
        open_end = open_end.max(range.end);
        // The end that a block begins with may be too early: a list's, before lines that go on lazily.
        if let Some(last) = blocks.last_mut() {
            last.end = last.end.max(open_end);
        }
    }
    let start = blocks.last().map_or(0, |last| last.end);
    if let Some(at) = text[start..].find(|c: char| !c.is_whitespace()) {
        let line = text[..start + at].rfind('\n').map_or(0, |newline| newline + 1);
        blocks.push(line.max(start)..text.len());
    }
    blocks
}

/// Where the lines begin that stand above this one without an empty line between.
fn directly_above(text: &str, line: usize) -> usize {
    let mut start = line;
    for above in text[..line].split_inclusive('\n').rev().take_while(|above| !above.trim().is_empty()) {
        start -= above.len();
    }
    start
}

/// The code blocks of a text, without their fences.
pub fn code_blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for event in Parser::new_ext(text, options()) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                open = Some(Block { language: render::language(&kind), code: String::new() });
            }
            Event::Text(text) => {
                if let Some(block) = &mut open {
                    block.code.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            _ => {}
        }
    }
    blocks
}

/// Wraps spans as one text.
fn wrap_spans(spans: &[(Tone, String)], width: usize) -> Vec<Row> {
    let text: String = spans.iter().map(|(_, text)| text.as_str()).collect();
    let mut rows = Vec::new();
    let mut line_start = 0;
    for line in text.split('\n') {
        for range in wrap_line(line, width) {
            let kept = range.start + line[range.clone()].trim_end().len();
            rows.push(cut(spans, line_start + range.start..line_start + kept));
        }
        line_start += line.len() + 1;
    }
    rows
}

/// The spans of a part of their text, as they are drawn.
fn cut(spans: &[(Tone, String)], part: Range<usize>) -> Row {
    let mut row = Row::new();
    let mut start = 0;
    for (tone, text) in spans {
        let range = part.start.max(start)..part.end.min(start + text.len());
        if range.start < range.end {
            row.push((*tone, drawable(&text[range.start - start..range.end - start])));
        }
        start += text.len();
    }
    row
}

#[cfg(test)]
mod tests;
