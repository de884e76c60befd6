//! Tables: columns as wide as they need to be, as far as there is room.

use pulldown_cmark::Alignment;

use crate::tui::theme::Tone;
use crate::tui::transcript::Row;
use crate::tui::wrap::display_width;

use super::{Spans, wrap_spans};

/// Between two columns.
const GAP: &str = " │ ";
/// Narrower columns are broken in nearly every word.
const MIN_COLUMN: usize = 6;

pub struct Table {
    alignments: Vec<Alignment>,
    /// Cells by row; the first row is the head.
    pub rows: Vec<Vec<Spans>>,
}

impl Table {
    pub fn new(alignments: Vec<Alignment>) -> Self {
        Self { alignments, rows: Vec::new() }
    }

    pub fn render(&self, width: usize) -> Vec<Row> {
        let n_columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        if n_columns == 0 {
            return Vec::new();
        }
        match self.widths(n_columns, width) {
            Some(widths) => self.as_grid(&widths),
            None => self.as_records(width),
        }
    }

    /// The widths of the columns; `None` if there is no room for so many.
    fn widths(&self, n_columns: usize, width: usize) -> Option<Vec<usize>> {
        let mut widths: Vec<usize> = (0..n_columns)
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(cell_width).max().unwrap_or(0).max(1)
            })
            .collect();
        let room = width.checked_sub((n_columns - 1) * display_width(GAP))?;
        let least: usize = widths.iter().map(|width| *width.min(&MIN_COLUMN)).sum();
        if least > room {
            return None;
        }
        // The widest give first.
        while widths.iter().sum::<usize>() > room {
            let excess = widths.iter().sum::<usize>() - room;
            let widest = widths.iter().copied().max()?;
            let next =
                widths.iter().copied().filter(|width| *width < widest).max().unwrap_or(0).max(MIN_COLUMN);
            let n_widest = widths.iter().filter(|width| **width == widest).count();
            let step = (widest - next).min(excess.div_ceil(n_widest)).max(1);
            let mut left = excess;
            for width in widths.iter_mut().filter(|width| **width == widest) {
                let taken = step.min(left);
                *width -= taken;
                left -= taken;
            }
        }
        Some(widths)
    }

    fn as_grid(&self, widths: &[usize]) -> Vec<Row> {
        let mut out = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            let cells: Vec<Vec<Row>> = widths
                .iter()
                .enumerate()
                .map(|(column, width)| {
                    row.get(column).map_or_else(Vec::new, |cell| wrap_spans(&toned(cell, at == 0), *width))
                })
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
            for line in 0..height {
                let mut drawn = Row::new();
                for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
                    if column > 0 {
                        drawn.push((Tone::Faint, GAP.to_owned()));
                    }
                    let content = cell.get(line).cloned().unwrap_or_default();
                    drawn.extend(self.aligned(content, column, *width));
                }
                while drawn.pop_if(|(_, text)| text.trim().is_empty()).is_some() {}
                out.push(drawn);
            }
            if at == 0 {
                let lines: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                out.push(vec![(Tone::Faint, lines.join("─┼─"))]);
            }
        }
        out
    }

    fn aligned(&self, content: Row, column: usize, width: usize) -> Row {
        let used: usize = content.iter().map(|(_, text)| display_width(text)).sum();
        let gap = width.saturating_sub(used);
        let before = match self.alignments.get(column) {
            Some(Alignment::Right) => gap,
            Some(Alignment::Center) => gap / 2,
            _ => 0,
        };
        let space = |columns: usize| (Tone::Text, " ".repeat(columns));
        [vec![space(before)], content, vec![space(gap - before)]].concat()
    }

    /// On a screen too narrow for its columns: each row as lines of names and values.
    fn as_records(&self, width: usize) -> Vec<Row> {
        let (Some(head), rows) = (self.rows.first(), self.rows.iter().skip(1)) else { return Vec::new() };
        let mut out = Vec::new();
        for (at, row) in rows.enumerate() {
            if at > 0 {
                out.push(Row::new());
            }
            for (column, cell) in row.iter().enumerate() {
                let mut spans = head.get(column).map_or_else(Spans::new, |name| toned(name, true));
                spans.push((Tone::Faint, ": ".to_owned()));
                spans.extend(cell.iter().cloned());
                out.extend(wrap_spans(&spans, width));
            }
        }
        out
    }
}

fn cell_width(cell: &Spans) -> usize {
    let text: String = cell.iter().map(|(_, text)| text.as_str()).collect();
    text.split('\n').map(display_width).max().unwrap_or(0)
}

/// Names of columns are strong.
fn toned(cell: &Spans, is_head: bool) -> Spans {
    let tone = |tone| if is_head && tone == Tone::Text { Tone::Strong } else { tone };
    cell.iter().map(|(own, text)| (tone(*own), text.clone())).collect()
}
