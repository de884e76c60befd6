//! Splits a stream of generated text into thinking and answer.
//!
//! The opening `<think>` is usually the end of the prompt, so the stream starts inside a thought and
//! only `</think>` comes. The caller looks at token ids and pushes the two tags as events: the letters
//! `</think>` inside a code block are text like any other. Knows nothing of ids or tokenizers.

use super::Channel;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Feed it in order; what it returns, merged by channel, does not depend on how the text was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splitter {
    channel: Channel,
    /// Nothing but white space came since the channel began. Only here are tags believed: further on
    /// they are what the model writes about.
    at_start: bool,
    /// Line breaks that belong to the layout of the tag before, and are still to be dropped.
    drop_newlines: usize,
}

impl Splitter {
    /// `in_thought`: whether the prompt ends inside an open thought (`prompt::starts_in_thought`).
    pub fn new(in_thought: bool) -> Self {
        let channel = if in_thought { Channel::Thinking } else { Channel::Answer };
        Self { channel, at_start: true, drop_newlines: 0 }
    }

    /// Whose text comes next.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    pub fn push_text(&mut self, text: &str) -> Vec<(Channel, String)> {
        let mut text = text;
        while self.drop_newlines > 0 && !text.is_empty() {
            match text.strip_prefix('\n') {
                Some(rest) => {
                    text = rest;
                    self.drop_newlines -= 1;
                }
                None => self.drop_newlines = 0,
            }
        }
        self.at_start &= text.chars().all(char::is_whitespace);
        match text {
            "" => Vec::new(),
            _ => vec![(self.channel, text.to_owned())],
        }
    }

    /// The model produced the token `<think>`: a thought, if it is the first thing it says.
    pub fn push_think_open(&mut self) -> Vec<(Channel, String)> {
        if !self.at_start {
            return self.push_text(OPEN);
        }
        self.enter(Channel::Thinking, 1);
        Vec::new()
    }

    /// The model produced the token `</think>`. It ends a thought; with nothing to end it is a stray
    /// tag, dropped at the start of an answer and plain text later.
    pub fn push_think_close(&mut self) -> Vec<(Channel, String)> {
        if self.channel == Channel::Answer && !self.at_start {
            return self.push_text(CLOSE);
        }
        self.enter(Channel::Answer, 2);
        Vec::new()
    }

    fn enter(&mut self, channel: Channel, drop_newlines: usize) {
        self.channel = channel;
        self.at_start = true;
        self.drop_newlines = drop_newlines;
    }
}

#[cfg(test)]
mod tests;
