//! A conversation as plain data. Knows nothing of files, models or terminals.

pub mod conversation;
pub mod export;
pub mod message;
pub mod openai;
pub mod picture;
pub mod reference;
pub mod splitter;
pub mod stop;

pub use conversation::{Answered, Conversation, Node, NodeId};
pub use message::{Channel, Message, Part, Role, ToolCall};
pub use picture::{Detail, Picture, PictureSource};
