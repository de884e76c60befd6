//! `loquat batch --dry-run`: what a batch would read, and about how long it would take. Nothing is answered but the
//! first words of one record, for a measurement.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;

use super::answer::{Answer, Client, Interrupted};
use super::input::Source;
use super::plan::Plan;
use super::record::Record;
use super::{Outcome, tell};
use crate::chat::Message;
use crate::chat::Role;
use crate::msg::{Command, TurnError, TurnOptions};

/// Tokens of the measurement.
const PROBE_TOKENS: usize = 16;

#[derive(Default)]
struct Sums {
    n_good: usize,
    n_bad: usize,
    prompt_tokens: usize,
    longest_prompt: usize,
    /// As many as may be written.
    most_written: Option<usize>,
}

pub async fn run(client: &mut Client, plan: &Plan, source: Source) -> io::Result<Outcome> {
    match count(client, plan, source).await {
        Ok(outcome) => outcome,
        Err(Interrupted(signal)) => Ok(Outcome::Signal(signal)),
    }
}

async fn count(client: &mut Client, plan: &Plan, source: Source) -> Result<io::Result<Outcome>, Interrupted> {
    let mut items = source.read_in_background();
    let mut sums = Sums { most_written: Some(0), ..Sums::default() };
    let mut probe = None;
    let mut index = 0;
    while let Some(item) = client.unless_interrupted(items.recv()).await? {
        let (id, counted) = match item.record {
            Err(bad) => (bad.id.clone(), Err(bad.to_string())),
            Ok(mut record) => match plan.prepare(&mut record, index) {
                Err(why) => (record.id, Err(why)),
                Ok(options) => {
                    let answer = ask(client, plan, &record, options.clone()).await?;
                    sums.most_written =
                        sums.most_written.zip(options.max_tokens).map(|(sum, most)| sum + most);
                    let counted = match answer.result {
                        Ok(_) => Ok(answer.stats),
                        Err(TurnError { message, .. }) => Err(message),
                    };
                    if counted.is_ok() && probe.is_none() {
                        probe = Some((record.clone(), options));
                    }
                    (record.id, counted)
                }
            },
        };
        let line = match counted {
            Ok(stats) => {
                sums.n_good += 1;
                sums.prompt_tokens += stats.prompt_tokens;
                sums.longest_prompt = sums.longest_prompt.max(stats.prompt_tokens);
                let usage = json!({"prompt": stats.prompt_tokens, "image": stats.image_tokens});
                json!({"v": 1, "id": id, "index": index, "status": "ok", "usage": usage})
            }
            Err(message) => {
                sums.n_bad += 1;
                json!({"v": 1, "id": id, "index": index, "status": "error", "error": {"message": message}})
            }
        };
        match writeln!(io::stdout(), "{line}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Ok(Outcome::Done)),
            Err(error) => return Ok(Err(error)),
            Ok(()) => index += 1,
        }
    }
    let time = match probe {
        Some((record, options)) => estimate(client, plan, &record, options, &sums).await?,
        None => None,
    };
    tell(&sums.sentence(client.model().context_tokens, time));
    Ok(Ok(match (sums.n_good, sums.n_bad) {
        (_, 0) => Outcome::Done,
        (0, _) => Outcome::NothingReadable,
        _ => Outcome::SomeFailed,
    }))
}

async fn ask(
    client: &mut Client,
    plan: &Plan,
    record: &Record,
    options: TurnOptions,
) -> Result<Answer, Interrupted> {
    let conversation = client.new_conversation();
    let system = record.system.as_ref().or(plan.system.as_ref());
    let mut messages: Vec<Message> =
        system.map(|system| Message::text(Role::System, system)).into_iter().collect();
    messages.extend_from_slice(&record.earlier);
    client.send(Command::Open { conversation, messages }).await;
    let go_on = |_, _: &str| std::ops::ControlFlow::Continue(());
    let answer = client.ask(conversation, record.question.clone(), options, go_on).await;
    client.send(Command::Close { conversation }).await;
    answer
}

/// How long the batch would take if every answer were as long as it may be.
async fn estimate(
    client: &mut Client,
    plan: &Plan,
    record: &Record,
    options: TurnOptions,
    sums: &Sums,
) -> Result<Option<Duration>, Interrupted> {
    let options = TurnOptions { only_count: false, max_tokens: Some(PROBE_TOKENS), form: None, ..options };
    let stats = ask(client, plan, record, options).await?.stats;
    let read = stats.prefill_time.as_secs_f64() / stats.prompt_tokens.max(1) as f64;
    let (Some(speed), Some(most)) = (stats.tokens_per_second(), sums.most_written) else { return Ok(None) };
    Ok(Some(Duration::from_secs_f64(read * sums.prompt_tokens as f64 + most as f64 / speed)))
}

impl Sums {
    fn sentence(&self, context: usize, time: Option<Duration>) -> String {
        let Self { n_good, n_bad, prompt_tokens, longest_prompt, .. } = self;
        let time = match time {
            Some(time) => format!("; at most about {} on this machine", people(time)),
            None => "; give --max-tokens for an estimate of the time".into(),
        };
        format!(
            "{n_good} records can be asked and {n_bad} can't; {prompt_tokens} tokens of prompts, the longest has \
             {longest_prompt} (the context holds {context}){time}"
        )
    }
}

fn people(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s => format!("{} h", s / 3600),
    }
}
