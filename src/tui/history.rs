//! The prompts of this run, for recalling them with Up and Down.

/// Older ones are forgotten beyond this many.
const CAPACITY: usize = 500;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptHistory {
    prompts: Vec<String>,
    /// Which prompt is in the draft, while browsing.
    at: Option<usize>,
}

impl PromptHistory {
    pub fn push(&mut self, prompt: String) {
        self.at = None;
        if self.prompts.last() == Some(&prompt) {
            return;
        }
        if self.prompts.len() == CAPACITY {
            self.prompts.remove(0);
        }
        self.prompts.push(prompt);
    }

    pub fn is_browsing(&self) -> bool {
        self.at.is_some()
    }

    pub fn stop_browsing(&mut self) {
        self.at = None;
    }

    /// The prompt before the one in the draft, if there is one.
    pub fn previous(&mut self) -> Option<&str> {
        let at = self.at.unwrap_or(self.prompts.len()).checked_sub(1)?;
        self.at = Some(at);
        self.prompts.get(at).map(String::as_str)
    }

    /// The prompt after the one in the draft; empty after the newest one, nothing when not browsing.
    pub fn next(&mut self) -> Option<&str> {
        let at = self.at? + 1;
        self.at = (at < self.prompts.len()).then_some(at);
        Some(self.prompts.get(at).map_or("", String::as_str))
    }
}
