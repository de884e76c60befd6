//! Messages: who said what, in which parts.

use super::picture::Picture;

/// Who a message is from. The names are those of the chat templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One piece of a message's content, in the order the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(String),
    Image(Picture),
    /// A moving picture: the model sees its frames with their times.
    Clip(Picture),
    /// A tool that the assistant asks for.
    Call(ToolCall),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Tells calls of one answer apart.
    pub id: String,
    pub name: String,
    /// A JSON object.
    pub arguments: serde_json::Value,
}

/// One message. Thinking is kept apart from the answer, because templates drop the thinking of
/// earlier turns and the interface folds it away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub role: Role,
    pub parts: Vec<Part>,
    pub reasoning: Option<String>,
}

impl Message {
    pub fn text(role: Role, text: &str) -> Self {
        Self { role, parts: vec![Part::Text(text.to_owned())], reasoning: None }
    }

    /// The text parts joined; pictures are left out.
    pub fn plain_text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                Part::Image(_) | Part::Clip(_) | Part::Call(_) => None,
            })
            .collect()
    }

    pub fn pictures_mut(&mut self) -> impl Iterator<Item = &mut Picture> {
        self.parts.iter_mut().filter_map(|part| match part {
            Part::Image(picture) | Part::Clip(picture) => Some(picture),
            Part::Text(_) | Part::Call(_) => None,
        })
    }

    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            Part::Text(_) | Part::Image(_) | Part::Clip(_) => None,
        })
    }

    /// Its pictures and clips, in order.
    pub fn pictures(&self) -> impl Iterator<Item = &Picture> {
        self.parts.iter().filter_map(|part| match part {
            Part::Image(picture) | Part::Clip(picture) => Some(picture),
            Part::Text(_) | Part::Call(_) => None,
        })
    }
}

/// Which of its two voices the model is using.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    Thinking,
    Answer,
}
