//! A conversation as a tree of messages.
//!
//! Editing a message, or asking for another answer to it, begins a branch beside the old one, so nothing that was
//! said is ever lost. The path from the first message to the *head* is what the screen shows and the model reads.
//! Nodes are numbered in the order in which they came, so a parent's number is always smaller.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Message, Part, Role};

/// A message's place in its conversation's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub parent: Option<NodeId>,
    pub message: Message,
    /// How an answer came about; `None` of a question.
    pub answered: Option<Answered>,
}

/// How an answer came about. For people and exports; nothing is computed from it again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answered {
    pub model: String,
    /// The commit of the model's repository, if it is known.
    pub revision: Option<String>,
    pub device: String,
    /// Settings that a person chose, by name; all others were the model's own.
    pub settings: Vec<(String, String)>,
    /// `None` while it is being written, and for ever if the program was killed then.
    pub ending: Option<Ending>,
    pub figures: Figures,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Finished,
    /// Cut off at the token limit.
    Length,
    Stopped,
    Failed,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub restored_tokens: usize,
    pub image_tokens: usize,
    pub completion_tokens: usize,
    pub thinking_tokens: usize,
    pub thinking_was_cut: bool,
    pub prefill_ms: u64,
    pub first_token_ms: Option<u64>,
    pub decode_ms: u64,
    pub seed: u64,
    pub steps: u32,
    /// Drafts by position.
    pub drafted: Vec<u32>,
    pub accepted: Vec<u32>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// As chosen by a person or taken from the first message.
    pub title: Option<String>,
    pub system: Option<String>,
    nodes: Vec<Node>,
    head: Option<NodeId>,
    /// What the model doesn't read, to save room.
    left_out: BTreeSet<NodeId>,
    pub summary: Option<Summary>,
}

/// What the model reads in place of older messages, as long as these are in the branch that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The last of them.
    pub until: NodeId,
    pub text: String,
}

/// Stands before a summary in the system prompt.
const SUMMARY: &str = "What was said before, summed up:";

impl Conversation {
    pub fn new(system: Option<String>) -> Self {
        Self { system, ..Self::default() }
    }

    /// A conversation as it was kept. Nodes whose parent isn't before them begin anew: the tree is then still a tree.
    pub fn restored(
        title: Option<String>,
        system: Option<String>,
        nodes: Vec<Node>,
        head: Option<NodeId>,
    ) -> Self {
        let mut conversation =
            Self { title, system, nodes: Vec::with_capacity(nodes.len()), ..Self::default() };
        for mut node in nodes {
            node.parent = node.parent.filter(|parent| conversation.node(*parent).is_some());
            conversation.nodes.push(node);
        }
        let last = conversation.nodes.len().checked_sub(1).map(|at| NodeId(at as u32));
        conversation.head = head.filter(|head| conversation.node(*head).is_some()).or(last);
        conversation
    }

    /// Puts a message below `parent`; it becomes the head.
    pub fn add(&mut self, parent: Option<NodeId>, message: Message, answered: Option<Answered>) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("memory ends before four billion messages"));
        self.nodes.push(Node { parent, message, answered });
        self.head = Some(id);
        id
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)
    }

    pub fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize)
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(at, node)| (NodeId(at as u32), node))
    }

    pub fn head(&self) -> Option<NodeId> {
        self.head
    }

    /// Goes to another branch, or before the first message.
    pub fn set_head(&mut self, head: Option<NodeId>) {
        self.head = head.filter(|head| self.node(*head).is_some());
    }

    /// From the first message to the head.
    pub fn path(&self) -> Vec<NodeId> {
        self.path_to(self.head)
    }

    fn path_to(&self, end: Option<NodeId>) -> Vec<NodeId> {
        let parent = |id: &NodeId| self.node(*id).and_then(|node| node.parent);
        let mut path: Vec<NodeId> = std::iter::successors(end, parent).collect();
        path.reverse();
        path
    }

    /// Messages below the same parent, itself among them, in the order in which they came.
    pub fn siblings(&self, id: NodeId) -> Vec<NodeId> {
        let Some(node) = self.node(id) else { return Vec::new() };
        self.nodes().filter(|(_, other)| other.parent == node.parent).map(|(id, _)| id).collect()
    }

    /// The ends of all branches, the newest first.
    pub fn leaves(&self) -> Vec<NodeId> {
        let mut has_child = vec![false; self.nodes.len()];
        for parent in self.nodes.iter().filter_map(|node| node.parent) {
            has_child[parent.0 as usize] = true;
        }
        let leaves = self.nodes().map(|(id, _)| id).filter(|id| !has_child[id.0 as usize]);
        let mut leaves: Vec<NodeId> = leaves.collect();
        leaves.reverse();
        leaves
    }

    /// Where the path to `end` leaves the path to the head: its first message that the other doesn't have.
    pub fn fork(&self, end: NodeId) -> Option<NodeId> {
        let shown = self.path();
        self.path_to(Some(end)).into_iter().find(|id| !shown.contains(id))
    }

    /// What the model reads before the message `before`, or all of it: the system prompt, which is no node, and the
    /// messages of the path. Questions without an answer are left out, because templates expect the roles to
    /// alternate, and so is what a person left out.
    pub fn messages(&self, before: Option<NodeId>) -> Vec<(Option<NodeId>, Message)> {
        let path = self.path();
        let summary = self.summary.as_ref().filter(|summary| path.contains(&summary.until));
        let summary = summary.map(|summary| format!("{SUMMARY}\n{}", summary.text));
        let system: Vec<&str> = [self.system.as_deref(), summary.as_deref()].into_iter().flatten().collect();
        let mut messages: Vec<(Option<NodeId>, Message)> = Vec::new();
        if !system.is_empty() {
            messages.push((None, Message::text(Role::System, &system.join("\n\n"))));
        }
        let drop_question = |messages: &mut Vec<(Option<NodeId>, Message)>| {
            messages.pop_if(|(_, message)| message.role == Role::User);
        };
        for id in path.into_iter().filter(|id| !self.left_out.contains(id)) {
            if before == Some(id) {
                break;
            }
            let Some(node) = self.node(id) else { continue };
            match node.message.role {
                Role::User => {
                    drop_question(&mut messages);
                    messages.push((Some(id), node.message.clone()));
                }
                Role::Assistant if says_nothing(&node.message) => drop_question(&mut messages),
                Role::Assistant | Role::System | Role::Tool => {
                    messages.push((Some(id), node.message.clone()))
                }
            }
        }
        drop_question(&mut messages);
        messages
    }

    pub fn left_out(&self) -> Vec<NodeId> {
        self.left_out.iter().copied().collect()
    }

    /// Says anew what the model doesn't read, and what it reads in its place.
    pub fn set_reading(&mut self, left_out: Vec<NodeId>, summary: Option<Summary>) {
        self.left_out = left_out.into_iter().filter(|id| self.node(*id).is_some()).collect();
        self.summary = summary.filter(|summary| self.node(summary.until).is_some());
    }

    /// The messages of the branch up to this one; none if it isn't on it.
    pub fn path_until(&self, last: NodeId) -> Vec<NodeId> {
        let mut path = self.path();
        path.truncate(path.iter().position(|id| *id == last).map_or(0, |at| at + 1));
        path
    }

    /// Whether the model doesn't read this message.
    pub fn is_left_out(&self, id: NodeId) -> bool {
        self.left_out.contains(&id)
    }

    /// Has the model read a question and its answer no more, or again. Gives what that concerns.
    pub fn leave_out(&mut self, id: NodeId, leaves_out: bool) -> Vec<NodeId> {
        let path = self.path();
        let Some(at) = path.iter().position(|on_path| *on_path == id) else { return Vec::new() };
        let is = |at: usize, role| self.node(path[at]).is_some_and(|node| node.message.role == role);
        let start = (0..=at).rev().find(|at| is(*at, Role::User)).unwrap_or(at);
        let end = (start + 1..path.len()).find(|at| is(*at, Role::User)).unwrap_or(path.len());
        for id in &path[start..end] {
            match leaves_out {
                true => self.left_out.insert(*id),
                false => self.left_out.remove(id),
            };
        }
        path[start..end].to_vec()
    }
}

/// An answer that ended before its first word.
pub fn says_nothing(message: &Message) -> bool {
    message.plain_text().is_empty() && message.reasoning.as_deref().is_none_or(str::is_empty)
}

/// What a conversation is called until a person names it: the beginning of its first message.
pub fn title_of(message: &Message) -> String {
    const CHARS: usize = 80;
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Image(_) | Part::Clip(_) | Part::Call(_) => None,
    });
    // A message may be megabytes long; its first words are enough.
    let mut line = String::new();
    for word in texts.flat_map(str::split_whitespace) {
        let space = if line.is_empty() { "" } else { " " };
        line.push_str(space);
        line.extend(word.chars().take(CHARS + 1));
        if line.chars().nth(CHARS).is_some() {
            break;
        }
    }
    match line.char_indices().nth(CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None if line.is_empty() => "(no text)".to_owned(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ask(conversation: &mut Conversation, parent: Option<NodeId>, text: &str) -> NodeId {
        conversation.add(parent, Message::text(Role::User, text), None)
    }

    fn answer(conversation: &mut Conversation, parent: NodeId, text: &str) -> NodeId {
        conversation.add(Some(parent), Message::text(Role::Assistant, text), Some(Answered::default()))
    }

    fn texts(conversation: &Conversation) -> Vec<String> {
        conversation.messages(None).iter().map(|(_, message)| message.plain_text()).collect()
    }

    #[test]
    fn another_answer_and_an_edited_question_are_branches_and_nothing_is_lost() {
        let mut chat = Conversation::new(Some("be brief".into()));
        let one = ask(&mut chat, None, "one");
        let first = answer(&mut chat, one, "1");
        let second = answer(&mut chat, one, "uno");
        assert_eq!(texts(&chat), ["be brief", "one", "uno"]);
        assert_eq!(chat.siblings(first), [first, second]);
        let edited = ask(&mut chat, None, "two");
        let last = answer(&mut chat, edited, "2");
        assert_eq!(texts(&chat), ["be brief", "two", "2"]);
        assert_eq!(chat.leaves(), [last, second, first]);
        assert_eq!(chat.fork(first), Some(one));
        chat.set_head(Some(first));
        assert_eq!(texts(&chat), ["be brief", "one", "1"]);
        assert_eq!(chat.fork(second), Some(second));
        assert_eq!(chat.len(), 5);
    }

    #[test]
    fn a_question_without_an_answer_is_not_read_again() {
        let mut chat = Conversation::default();
        let killed = ask(&mut chat, None, "killed before the answer");
        let failed = ask(&mut chat, Some(killed), "failed");
        let nothing = answer(&mut chat, failed, "");
        let good = ask(&mut chat, Some(nothing), "good");
        answer(&mut chat, good, "\u{1b}[1mraw");
        let last = chat.head();
        let open = ask(&mut chat, last, "open");
        assert_eq!(texts(&chat), ["good", "\u{1b}[1mraw"]);
        assert_eq!(chat.messages(Some(good)), []);
        assert_eq!(chat.messages(Some(open)).len(), 2);
    }

    #[test]
    fn a_question_is_left_out_with_its_answer() {
        let mut chat = Conversation::new(Some("be brief".into()));
        let one = ask(&mut chat, None, "one");
        let first = answer(&mut chat, one, "1");
        let two = ask(&mut chat, Some(first), "two");
        answer(&mut chat, two, "2");
        assert_eq!(chat.leave_out(first, true), [one, first]);
        assert_eq!(texts(&chat), ["be brief", "two", "2"]);
        chat.leave_out(one, false);
        assert_eq!(texts(&chat).len(), 5);
    }

    #[test]
    fn a_summary_is_read_in_place_of_what_is_left_out_and_in_its_branch_only() {
        let mut chat = Conversation::new(Some("be brief".into()));
        let one = ask(&mut chat, None, "one");
        let first = answer(&mut chat, one, "1");
        let two = ask(&mut chat, Some(first), "two");
        answer(&mut chat, two, "2");
        chat.leave_out(one, true);
        chat.summary = Some(Summary { until: first, text: "counting".into() });
        assert_eq!(texts(&chat), ["be brief\n\nWhat was said before, summed up:\ncounting", "two", "2"]);
        let other = ask(&mut chat, None, "other");
        answer(&mut chat, other, "?");
        assert_eq!(texts(&chat), ["be brief", "other", "?"]);
        chat.set_reading(vec![NodeId(99)], Some(Summary { until: NodeId(99), text: "x".into() }));
        assert_eq!((chat.left_out(), chat.summary), (vec![], None));
    }

    #[test]
    fn a_title_is_one_short_line() {
        let titled = |text: &str| title_of(&Message::text(Role::User, text));
        assert_eq!(titled("  What is\n\n this?\t"), "What is this?");
        assert_eq!(titled(&"漢".repeat(200)).chars().count(), 81);
        assert_eq!(titled(" \n"), "(no text)");
    }

    proptest! {
        #[test]
        fn whatever_was_kept_becomes_a_tree(parents in proptest::collection::vec(proptest::option::of(0u32..12), 0..12), head in proptest::option::of(0u32..20)) {
            let node = |parent: Option<u32>| Node {
                parent: parent.map(NodeId),
                message: Message::text(Role::User, "x"),
                answered: None,
            };
            let n_nodes = parents.len();
            let nodes = parents.into_iter().map(node).collect();
            let chat = Conversation::restored(None, None, nodes, head.map(NodeId));
            prop_assert!(chat.path().len() <= n_nodes);
            prop_assert_eq!(chat.head().is_none(), n_nodes == 0);
            prop_assert_eq!(chat.leaves().is_empty(), n_nodes == 0);
        }
    }
}
