//! A list over the chat to choose from: kept conversations, the branches of this one, or themes.

use ratatui::layout::Rect;

use crate::chat::NodeId;
use crate::msg::StoredId;

#[derive(Debug, Clone, PartialEq)]
pub struct List {
    pub kind: Kind,
    /// What is typed to narrow it down.
    pub filter: String,
    /// `None` while they are being looked for.
    pub items: Option<Vec<Item>>,
    pub selected: usize,
    /// The new title of the selected conversation, while it is typed.
    pub renaming: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    History,
    Branches,
    Themes,
}

/// One line to choose, already cleaned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub what: What,
    pub text: String,
    /// Stands on the right.
    pub facts: String,
    /// Where the words that are looked for occur.
    pub excerpt: Option<String>,
    /// It is what is shown now.
    pub is_current: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Kept(StoredId),
    Branch(NodeId),
    /// The text is its name.
    Theme,
}

impl List {
    pub fn new(kind: Kind, filter: &str) -> Self {
        Self { kind, filter: filter.to_owned(), items: None, selected: 0, renaming: None }
    }

    /// The items that fit the filter. Kept conversations come already chosen by what is in them.
    pub fn shown(&self) -> Vec<&Item> {
        let filter = self.filter.to_lowercase();
        let fits = |item: &&Item| self.kind == Kind::History || item.text.to_lowercase().contains(&filter);
        self.items.iter().flatten().filter(fits).collect()
    }

    pub fn current(&self) -> Option<&Item> {
        self.shown().get(self.selected).copied()
    }

    /// Moves the cursor, negative towards the first item.
    pub fn move_by(&mut self, rows: isize) {
        let last = self.shown().len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(rows).min(last);
    }
}

const MAX_WIDTH: u16 = 100;

/// The frame of the list.
pub fn frame(width: u16, height: u16) -> Rect {
    let frame_width = width.min(MAX_WIDTH);
    let margin = u16::from(height >= 20);
    let x = (width - frame_width) / 2;
    Rect { x, y: margin, width: frame_width, height: height.saturating_sub(2 * margin) }
}

/// The room for items in a frame: below the filter.
pub fn room(frame: Rect) -> Rect {
    Rect {
        x: frame.x + 2,
        y: frame.y + 2,
        width: frame.width.saturating_sub(4),
        height: frame.height.saturating_sub(3),
    }
}
