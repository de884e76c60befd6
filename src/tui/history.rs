//! What was asked before, in this run and in earlier ones, for recalling it.

/// Older ones are forgotten beyond this many.
const CAPACITY: usize = 500;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptHistory {
    prompts: Vec<String>,
    /// Which prompt is in the draft, while browsing.
    at: Option<usize>,
}

impl PromptHistory {
    pub fn prompts(&self) -> &[String] {
        &self.prompts
    }

    /// What was asked in earlier runs, the latest last, comes before what was asked in this one.
    pub fn begin_with(&mut self, mut earlier: Vec<String>) {
        earlier.retain(|prompt| !self.prompts.contains(prompt));
        let before = earlier.len();
        earlier.append(&mut self.prompts);
        self.prompts = earlier;
        self.at = self.at.map(|at| at + before);
        let too_many = self.prompts.len().saturating_sub(CAPACITY);
        self.prompts.drain(..too_many);
        self.at = self.at.map(|at| at.saturating_sub(too_many));
    }

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
