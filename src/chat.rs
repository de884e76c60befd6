//! A conversation as plain data. Knows nothing of files, models or terminals.

pub mod conversation;
pub mod export;
pub mod message;
pub mod openai;
pub mod picture;
pub mod reference;
pub mod splitter;

pub use conversation::{Answered, Conversation, Node, NodeId};
pub use message::{Channel, Message, Part, Role};
pub use picture::{Detail, Picture, PictureSource};
