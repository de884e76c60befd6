//! The file picker as data: a folder, what is typed to narrow it down, and the entry under the cursor.

use std::path::{Path, PathBuf};

use ratatui::layout::Rect;

use super::pictures::files::FolderEntry;
use super::pictures::preview::Preview;

#[derive(Debug, Clone, PartialEq)]
pub struct Picker {
    pub folder: PathBuf,
    /// `None` while the folder is being read; an error is a sentence.
    pub entries: Option<Result<Vec<FolderEntry>, String>>,
    pub filter: String,
    pub selected: usize,
    /// The picture being decoded. One at a time: holding Down must not start a hundred.
    pub looking_at: Option<PathBuf>,
    pub look: Option<Look>,
}

/// What was seen of a picture file.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    pub path: PathBuf,
    pub seen: Result<Seen, String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub width: u32,
    pub height: u32,
    pub preview: Option<Preview>,
}

impl Picker {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, entries: None, filter: String::new(), selected: 0, looking_at: None, look: None }
    }

    /// The entries that fit the filter.
    pub fn shown(&self) -> Vec<&FolderEntry> {
        let filter = self.filter.to_lowercase();
        let Some(Ok(entries)) = &self.entries else { return Vec::new() };
        entries.iter().filter(|entry| entry.name.to_lowercase().contains(&filter)).collect()
    }

    pub fn current(&self) -> Option<&FolderEntry> {
        self.shown().get(self.selected).copied()
    }

    /// Moves the cursor, negative towards the first entry.
    pub fn move_by(&mut self, rows: isize) {
        let last = self.shown().len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(rows).min(last);
    }

    /// What is known of this picture, if it is the one that was looked at last.
    pub fn look_at(&self, path: &Path) -> Option<&Look> {
        self.look.as_ref().filter(|look| look.path == path)
    }
}

/// Where the parts of the picker are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PickerAreas {
    pub frame: Rect,
    pub filter: Rect,
    pub list: Rect,
    /// A small screen has only the list.
    pub preview: Option<Rect>,
    /// Size of the picture under the cursor.
    pub facts: Rect,
}

const MAX_WIDTH: u16 = 100;

impl PickerAreas {
    pub fn new(width: u16, height: u16) -> Self {
        let frame_width = width.min(MAX_WIDTH);
        let margin = u16::from(height >= 20);
        let frame = Rect {
            x: (width - frame_width) / 2,
            y: margin,
            width: frame_width,
            height: height.saturating_sub(2 * margin),
        };
        // A border and a space on both sides.
        let inner = Rect {
            x: frame.x + 2,
            y: frame.y + 1,
            width: frame.width.saturating_sub(4),
            height: frame.height.saturating_sub(2),
        };
        let row = |y| Rect { y, height: 1.min(inner.height), ..inner };
        let middle = Rect { y: inner.y + 1, height: inner.height.saturating_sub(2), ..inner };
        let has_preview = width >= 40 && height >= 12;
        let list_width = if has_preview { middle.width / 2 } else { middle.width };
        let preview_x = middle.x + list_width + 1;
        Self {
            frame,
            filter: row(inner.y),
            list: Rect { width: list_width, ..middle },
            preview: has_preview.then(|| Rect {
                x: preview_x,
                width: middle.right().saturating_sub(preview_x),
                ..middle
            }),
            facts: row(inner.bottom().saturating_sub(1)),
        }
    }
}
