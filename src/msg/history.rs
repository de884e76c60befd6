//! Kept conversations: what a face asks for, and what it is told.

use std::time::Duration;

use crate::chat::conversation::{Answered, Conversation, Figures, Node, NodeId, Summary};

use super::{ConversationId, MAX_DRAFTS, TurnId, TurnStats};

/// A kept conversation's number, as people type it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoredId(pub i64);

#[derive(Debug, Clone, PartialEq)]
pub enum HistoryCommand {
    /// Keeps a message; the first one makes the conversation. The node's parent was kept before. `node` is how
    /// the face numbers it.
    Add {
        conversation: ConversationId,
        node: NodeId,
        what: Node,
        system: Option<String>,
    },
    /// What this turn gives becomes the text of this answer, at least once a second while it is written.
    Follow {
        turn: TurnId,
        conversation: ConversationId,
        node: NodeId,
        answered: Answered,
    },
    /// The branch that is looked at now.
    SetHead {
        conversation: ConversationId,
        head: Option<NodeId>,
    },
    SetSystem {
        conversation: ConversationId,
        system: Option<String>,
    },
    /// What the model doesn't read, and what it reads in its place.
    SetReading {
        conversation: ConversationId,
        left_out: Vec<NodeId>,
        summary: Option<Summary>,
    },
    /// Names an open conversation.
    Title {
        conversation: ConversationId,
        title: String,
    },
    /// Those in which all of these words occur; all conversations if there are none. The newest first.
    Find {
        query: String,
    },
    /// What a person asked lately, in all conversations. Answered by `Prompts`.
    Prompts,
    /// Loads a conversation, the latest if none is named. Answered by `Loaded`.
    Load {
        conversation: ConversationId,
        stored: Option<StoredId>,
    },
    Rename {
        stored: StoredId,
        title: String,
    },
    /// It can be taken back for a while.
    Delete {
        stored: StoredId,
    },
    Undelete {
        stored: StoredId,
    },
}

impl HistoryCommand {
    /// Whether somebody waits for what comes of it; the others only keep what is said.
    pub fn is_question(&self) -> bool {
        match self {
            Self::Title { .. }
            | Self::Find { .. }
            | Self::Load { .. }
            | Self::Rename { .. }
            | Self::Delete { .. }
            | Self::Undelete { .. } => true,
            // Nobody misses earlier prompts that aren't there.
            Self::Prompts
            | Self::Add { .. }
            | Self::Follow { .. }
            | Self::SetHead { .. }
            | Self::SetSystem { .. }
            | Self::SetReading { .. } => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum HistoryEvent {
    /// The conversation has a number now.
    Kept {
        conversation: ConversationId,
        stored: StoredId,
    },
    Found {
        query: String,
        found: Vec<Found>,
    },
    /// The latest last.
    Prompts(Vec<String>),
    Loaded {
        conversation: ConversationId,
        stored: StoredId,
        loaded: Box<Conversation>,
    },
    Renamed {
        stored: StoredId,
        title: String,
    },
    Deleted {
        stored: StoredId,
        title: String,
    },
    Undeleted {
        stored: StoredId,
        title: String,
    },
    /// What was asked for last can't be done; a sentence.
    Refused {
        message: String,
    },
    /// From now on nothing is kept, and why; a sentence.
    Off {
        message: String,
    },
}

/// A kept conversation in a list. Its texts are untrusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub stored: StoredId,
    pub title: String,
    /// Local time of the last change: `2026-11-30 18:25`.
    pub changed: String,
    pub n_messages: usize,
    /// Where the words occur, in one line.
    pub excerpt: Option<String>,
}

impl From<&TurnStats> for Figures {
    fn from(stats: &TurnStats) -> Self {
        let trimmed = |counts: &[u32]| {
            let n = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
            counts[..n].to_vec()
        };
        Self {
            prompt_tokens: stats.prompt_tokens,
            cached_tokens: stats.cached_tokens,
            restored_tokens: stats.restored_tokens,
            image_tokens: stats.image_tokens,
            completion_tokens: stats.completion_tokens,
            thinking_tokens: stats.thinking_tokens,
            thinking_was_cut: stats.thinking_was_cut,
            prefill_ms: milliseconds(stats.prefill_time),
            first_token_ms: stats.time_to_first_token.map(milliseconds),
            decode_ms: milliseconds(stats.decode_time),
            seed: stats.seed,
            steps: stats.drafts.steps,
            drafted: trimmed(&stats.drafts.drafted),
            accepted: trimmed(&stats.drafts.accepted),
        }
    }
}

/// As far as they were kept.
impl From<&Figures> for TurnStats {
    fn from(figures: &Figures) -> Self {
        let mut stats = Self {
            prompt_tokens: figures.prompt_tokens,
            cached_tokens: figures.cached_tokens,
            restored_tokens: figures.restored_tokens,
            image_tokens: figures.image_tokens,
            completion_tokens: figures.completion_tokens,
            thinking_tokens: figures.thinking_tokens,
            thinking_was_cut: figures.thinking_was_cut,
            prefill_time: Duration::from_millis(figures.prefill_ms),
            time_to_first_token: figures.first_token_ms.map(Duration::from_millis),
            decode_time: Duration::from_millis(figures.decode_ms),
            seed: figures.seed,
            ..Self::default()
        };
        stats.drafts.steps = figures.steps;
        for position in 0..MAX_DRAFTS {
            stats.drafts.drafted[position] = figures.drafted.get(position).copied().unwrap_or(0);
            stats.drafts.accepted[position] = figures.accepted.get(position).copied().unwrap_or(0);
        }
        stats
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_survive_being_kept() {
        let mut stats = TurnStats {
            prompt_tokens: 21,
            completion_tokens: 9,
            time_to_first_token: Some(Duration::from_millis(620)),
            decode_time: Duration::from_millis(1500),
            seed: u64::MAX,
            ..TurnStats::default()
        };
        stats.drafts.note(3, 2);
        let json = serde_json::to_string(&Figures::from(&stats)).unwrap();
        let back = TurnStats::from(&serde_json::from_str::<Figures>(&json).unwrap());
        // Which of the latest steps was how is for the live view only.
        stats.drafts.recent = Default::default();
        assert_eq!(back, stats);
    }
}
