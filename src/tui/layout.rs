//! Where things are on the screen: pure geometry, shared by the update (pages, wrap widths) and the view.

use ratatui::layout::Rect;

use super::composer::MAX_ROWS;

/// Below this the screen says only that it is too small.
pub const MIN_WIDTH: u16 = 20;
pub const MIN_HEIGHT: u16 = 6;
/// Below this many columns the header keeps only what matters most.
pub const WIDE: u16 = 60;
/// Longer lines are hard to read; the rest of a wide screen stays empty.
const MAX_TEXT_WIDTH: u16 = 120;
const MAX_CHIP_ROWS: usize = 4;
/// Enough to recognise a picture by.
const PICTURE_COLUMNS: u16 = 40;
const PICTURE_ROWS: u16 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Areas {
    pub header: Rect,
    pub rule: Option<Rect>,
    pub transcript: Rect,
    pub status: Rect,
    /// How drafting goes.
    pub spec: Option<Rect>,
    pub queue: Option<Rect>,
    /// The pictures of the draft, one a row as far as there is room.
    pub chips: Option<Rect>,
    pub composer: Rect,
    pub framed: bool,
}

impl Areas {
    /// Where the draft's text is.
    pub fn draft(&self) -> Rect {
        let area = self.composer;
        match self.framed {
            true => Rect {
                x: area.x + 2,
                y: area.y + 1,
                width: area.width.saturating_sub(4),
                height: area.height.saturating_sub(2),
            },
            false => Rect { x: area.x + 2, width: area.width.saturating_sub(2), ..area },
        }
    }
}

impl Areas {
    /// The areas for a draft of `draft_rows` rows; `None` if the screen is too small.
    pub fn new(
        width: u16,
        height: u16,
        draft_rows: usize,
        has_queue: bool,
        n_chips: usize,
        has_spec: bool,
    ) -> Option<Self> {
        let (framed, composer_height) = composer(width, height, draft_rows)?;
        let queue_height = u16::from(has_queue && height >= 8);
        let rule_height = u16::from(height >= 14);
        let room = height - 2 - rule_height - queue_height - composer_height;
        // Some of the chat stays in sight, on a small screen one row of it.
        let kept = if height >= 14 { 4 } else { 1 };
        let chips_height = (n_chips.min(MAX_CHIP_ROWS) as u16).min(room.saturating_sub(kept));
        let room = room - chips_height;
        // Nice to see, and the first to go.
        let spec_height = u16::from(has_spec && width >= WIDE && height >= 14 && room > kept);
        let transcript_height = room - spec_height;

        let row = |y, height| Rect { x: 0, y, width, height };
        let transcript_y = 1 + rule_height;
        let status_y = transcript_y + transcript_height;
        let queue_y = status_y + 1 + spec_height;
        Some(Self {
            header: row(0, 1),
            rule: (rule_height > 0).then(|| row(1, 1)),
            transcript: Rect {
                x: 1,
                y: transcript_y,
                width: (width - 2).min(MAX_TEXT_WIDTH),
                height: transcript_height,
            },
            status: row(status_y, 1),
            spec: (spec_height > 0).then(|| row(status_y + 1, 1)),
            queue: (queue_height > 0).then(|| row(queue_y, 1)),
            chips: (chips_height > 0).then(|| row(queue_y + queue_height, chips_height)),
            composer: row(height - composer_height, composer_height),
            framed,
        })
    }

    /// The areas of a chat whose finished part isn't drawn, from their first row on: `rows` of transcript, as far as the
    /// screen has room.
    pub fn inline(
        width: u16,
        height: u16,
        rows: usize,
        draft_rows: usize,
        has_queue: bool,
        n_chips: usize,
        has_spec: bool,
    ) -> Option<Self> {
        let (framed, composer_height) = composer(width, height, draft_rows)?;
        let mut y = 0;
        // The last row stays free of what is drawn again, so that the terminal doesn't scroll for nothing.
        let mut left = height - 1 - composer_height;
        let mut take = |wanted: u16| {
            let taken = wanted.min(left);
            left -= taken;
            taken
        };
        let (header, status) = (take(1), take(1));
        let queue = take(u16::from(has_queue));
        let chips = take(n_chips.min(MAX_CHIP_ROWS) as u16);
        let spec = take(u16::from(has_spec && width >= WIDE && height >= 14));
        let transcript = take(u16::try_from(rows).unwrap_or(u16::MAX));
        let mut next = |height: u16| {
            let area = Rect { x: 0, y, width, height };
            y += height;
            area
        };
        let transcript = next(transcript);
        let transcript = Rect { x: 1, width: (width - 2).min(MAX_TEXT_WIDTH), ..transcript };
        let (header, status) = (next(header), next(status));
        Some(Self {
            header,
            rule: None,
            transcript,
            status,
            spec: (spec > 0).then(|| next(spec)),
            queue: (queue > 0).then(|| next(queue)),
            chips: (chips > 0).then(|| next(chips)),
            composer: next(composer_height),
            framed,
        })
    }
}

/// Whether a draft of `draft_rows` rows has a frame, and its height with it; `None` if the screen is too small.
fn composer(width: u16, height: u16, draft_rows: usize) -> Option<(bool, u16)> {
    let framed = is_framed(height);
    let frame_rows = if framed { 2 } else { 0 };
    let draft_rows = draft_rows.clamp(1, max_draft_rows(height)) as u16;
    (width >= MIN_WIDTH && height >= MIN_HEIGHT).then_some((framed, draft_rows + frame_rows))
}

/// Columns of the draft.
pub fn draft_width(width: u16, height: u16) -> usize {
    // A frame and a space on both sides, or a prompt mark and a space.
    let taken = if is_framed(height) { 4 } else { 2 };
    usize::from(width.saturating_sub(taken)).max(1)
}

/// Rows the draft may take before it scrolls: at most a third of the screen.
pub fn max_draft_rows(height: u16) -> usize {
    usize::from(height / 3).clamp(1, MAX_ROWS)
}

/// Columns and rows for a picture in a transcript of this width; none on a screen too small for pictures.
pub fn picture_room(width: u16, height: u16) -> Option<(u16, u16)> {
    let columns = width.saturating_sub(4).min(PICTURE_COLUMNS);
    let rows = (height / 3).min(PICTURE_ROWS);
    (columns >= 16 && rows >= 4).then_some((columns, rows))
}

fn is_framed(height: u16) -> bool {
    height >= 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_areas_fill_every_screen_without_overlap() {
        for height in MIN_HEIGHT..60 {
            for draft_rows in [0, 1, 3, 10, 1000] {
                for (has_queue, n_chips) in [(false, 0), (true, 0), (true, 1), (false, 3), (true, 50)] {
                    let has_spec = n_chips != 3;
                    let areas = Areas::new(WIDE, height, draft_rows, has_queue, n_chips, has_spec).unwrap();
                    assert!(areas.spec.is_none() || (has_spec && areas.transcript.height >= 4));
                    let parts = [
                        Some(areas.header),
                        areas.rule,
                        Some(areas.transcript),
                        Some(areas.status),
                        areas.spec,
                        areas.queue,
                        areas.chips,
                        Some(areas.composer),
                    ];
                    let mut y = 0;
                    for part in parts.into_iter().flatten() {
                        assert_eq!(part.y, y);
                        assert!(part.height >= 1, "height {height}, draft {draft_rows}");
                        y += part.height;
                    }
                    assert_eq!(y, height);
                }
            }
        }
    }

    #[test]
    fn the_line_about_drafts_is_the_first_to_go() {
        let has_spec = |width, height, n_chips| {
            Areas::new(width, height, 1, true, n_chips, true).unwrap().spec.is_some()
        };
        assert!(has_spec(WIDE, 14, 0) && has_spec(WIDE, 24, 4));
        assert!(!has_spec(WIDE - 1, 24, 0) && !has_spec(WIDE, 13, 0));
        assert!(!has_spec(WIDE, 14, 4), "pictures of the draft matter more");
    }
}
