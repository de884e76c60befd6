//! Answers as text or as JSON, one flushed write per record.

use std::fs::File;
use std::io::{self, IsTerminal, Write};

use serde_json::{Value, json};

use super::answer::Answer;
use super::input;
use crate::cli::{BatchArgs, OutputForm};
use crate::msg::{Finish, TurnStats};
use crate::sanitize;

/// Version of the JSON shape.
const VERSION: u32 = 1;

pub struct Output {
    writer: Box<dyn Write>,
    one_line: bool,
    /// What the model says must not command a terminal; in a file or a pipe it stays as it is.
    is_terminal: bool,
}

impl Output {
    /// # Errors
    /// A sentence when the output file can't be made, or is one of the inputs.
    pub fn open(args: &BatchArgs) -> Result<Self, String> {
        let (writer, is_terminal): (Box<dyn Write>, bool) = match &args.output {
            Some(path) => {
                if input::reads_from(&args.inputs, path) {
                    return Err(format!(
                        "{} is both input and output; write to another file",
                        path.display()
                    ));
                }
                let file = File::create(path)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
                (Box::new(file), false)
            }
            None => (Box::new(io::stdout()), io::stdout().is_terminal()),
        };
        Ok(Self { writer, one_line: args.one_line, is_terminal })
    }

    /// Writes one record. In text form a failed one is an empty line, and standard error says why: the n-th
    /// answer stays that of the n-th record.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn write(
        &mut self,
        form: OutputForm,
        index: usize,
        id: Option<&Value>,
        answer: &Answer,
        model: &str,
    ) -> io::Result<()> {
        let line = match (form, &answer.result) {
            (OutputForm::Jsonl, _) => json(index, id, answer, model).to_string(),
            (OutputForm::Text, Err(error)) => {
                super::tell(&format!("record {}: {}", index + 1, error.message));
                String::new()
            }
            (OutputForm::Text, Ok(_)) if self.one_line => {
                answer.text.replace('\\', "\\\\").replace('\n', "\\n")
            }
            (OutputForm::Text, Ok(_)) => answer.text.clone(),
        };
        if form == OutputForm::Text && answer.result == Ok(Finish::Length) {
            super::tell(&format!("record {}: cut off at the token limit", index + 1));
        }
        let mut line = if self.is_terminal { sanitize::clean(&line) } else { line };
        line.push('\n');
        self.writer.write_all(line.as_bytes())?;
        self.writer.flush()
    }
}

/// One record of the batch contract.
pub fn json(index: usize, id: Option<&Value>, answer: &Answer, model: &str) -> Value {
    let finish = match &answer.result {
        Ok(finish) => finish,
        Err(error) => {
            return json!({
                "v": VERSION, "id": id, "index": index, "status": "error",
                "error": {"code": error.code.as_str(), "message": error.message, "retryable": false},
            });
        }
    };
    let stats = &answer.stats;
    let ms = |time: std::time::Duration| time.as_millis() as u64;
    let mut record = json!({
        "v": VERSION, "id": id, "index": index, "status": super::status(*finish), "text": answer.text,
        "finish": super::finish_reason(*finish),
        "usage": {
            "prompt": stats.prompt_tokens, "cached": stats.cached_tokens,
            "restored": stats.restored_tokens, "image": stats.image_tokens,
            "completion": stats.completion_tokens, "thinking": stats.thinking_tokens,
        },
        "time": {
            "queue_ms": ms(stats.queue_time), "prefill_ms": ms(stats.prefill_time),
            "ttft_ms": stats.time_to_first_token.map(ms), "total_ms": ms(answer.total_time),
            // One decimal is what a measurement of one answer is good for.
            "tok_s": stats.tokens_per_second().map(|speed| (speed * 10.0).round() / 10.0),
        },
        "spec": drafting(stats),
        "seed": stats.seed, "model": model,
    });
    if !answer.thinking.is_empty() {
        record["thinking"] = answer.thinking.clone().into();
    }
    record
}

/// What drafting did; null if nothing was drafted.
fn drafting(stats: &TurnStats) -> Value {
    let Some(per_step) = stats.tokens_per_step() else { return Value::Null };
    let rounded = |share: f64| (share * 1000.0).round() / 1000.0;
    let drafts = &stats.drafts;
    json!({
        "kind": "mtp", "steps": drafts.steps, "drafted": drafts.n_drafted(), "accepted": drafts.n_accepted(),
        "by_pos": drafts.by_position().map(rounded).collect::<Vec<_>>(), "tokens_per_step": rounded(per_step),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stats: TurnStats) -> Value {
        let answer = Answer {
            text: "The Loire.".into(),
            thinking: String::new(),
            result: Ok(Finish::Stop),
            stats,
            total_time: std::time::Duration::ZERO,
        };
        json(0, None, &answer, "m")
    }

    #[test]
    fn what_drafting_did_is_told() {
        let mut stats = TurnStats { completion_tokens: 8, ..TurnStats::default() };
        stats.drafts.note(3, 3);
        stats.drafts.note(0, 0);
        stats.drafts.note(3, 1);
        let expected = json!({
            "kind": "mtp", "steps": 3, "drafted": 6, "accepted": 4, "by_pos": [1.0, 0.5, 0.5],
            // One of the 8 came out of the prompt.
            "tokens_per_step": 2.333,
        });
        assert_eq!(answer(stats)["spec"], expected);
    }

    #[test]
    fn without_drafts_there_is_nothing_to_tell() {
        let mut stats = TurnStats { completion_tokens: 2, ..TurnStats::default() };
        assert_eq!(answer(stats)["spec"], Value::Null);
        stats.drafts.note(0, 0);
        assert_eq!(answer(stats)["spec"], Value::Null);
    }

    #[test]
    fn tokens_per_step_count_finished_steps_and_kept_tokens() {
        let mut stats = TurnStats::default();
        assert_eq!(stats.tokens_per_step(), None);
        stats.drafts.note(2, 2);
        // The first token, the three of the step, and one of a step that isn't over yet.
        stats.completion_tokens = 5;
        assert_eq!(stats.tokens_per_step(), Some(3.0));
        // The model stopped behind the drafts: the last step gave nothing else.
        stats.completion_tokens = 3;
        assert_eq!(stats.tokens_per_step(), Some(2.0));
        stats.completion_tokens = 0;
        assert_eq!(stats.tokens_per_step(), Some(0.0));
    }
}
