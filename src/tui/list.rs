//! A list over the chat to choose from: kept conversations, the branches of this one, themes, earlier prompts,
//! everything that can be done, and more.

use ratatui::layout::Rect;

use crate::chat::NodeId;
use crate::msg::StoredId;

use super::fuzzy;
use super::keymap::Action;

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
    /// What was asked before.
    Prompts,
    /// All actions and commands.
    Palette,
    Personas,
    Presets,
    /// What to do with a prompt that doesn't fit.
    TooLong,
}

impl Kind {
    /// Letters may be scattered, and the best match comes first.
    fn is_fuzzy(self) -> bool {
        matches!(self, Self::Prompts | Self::Palette)
    }
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
    /// The text is its name, here and in the three below.
    Theme,
    Persona,
    Preset,
    Command,
    Action(Action),
    /// One of the earlier prompts, by its place.
    Prompt(usize),
    WayOut(WayOut),
}

/// What can be done with a question that doesn't fit into the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayOut {
    /// Leave out the oldest messages, up to this one.
    LeaveOut(NodeId),
    /// Ask it in a new chat.
    NewChat,
    /// Back into the draft.
    Draft,
}

impl Item {
    /// Without anything but what is filled in.
    pub fn plain() -> Self {
        Self {
            what: What::Command,
            text: String::new(),
            facts: String::new(),
            excerpt: None,
            is_current: false,
        }
    }
}

impl List {
    pub fn new(kind: Kind, filter: &str) -> Self {
        Self { kind, filter: filter.to_owned(), items: None, selected: 0, renaming: None }
    }

    /// The items that fit the filter. Kept conversations come already chosen by what is in them.
    pub fn shown(&self) -> Vec<&Item> {
        if self.kind.is_fuzzy() {
            return fuzzy::ranked(&self.filter, self.items.iter().flatten(), |item| &item.text);
        }
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

impl List {
    /// The frame of the list in the room for it: as high as its items need, if their number doesn't change.
    pub fn frame(&self, room: Rect) -> Rect {
        let n_items = self.items.as_ref().map_or(0, Vec::len);
        let needed = match self.kind {
            Kind::History => u16::MAX,
            // The frame and the line to type into.
            _ => u16::try_from(n_items.max(3) + 3).unwrap_or(u16::MAX),
        };
        let width = room.width.min(MAX_WIDTH);
        let x = room.x + (room.width - width) / 2;
        Rect { x, width, height: room.height.min(needed), ..room }
    }
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
