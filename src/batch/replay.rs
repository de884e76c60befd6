//! `loquat replay`: asks again what a manifest has written down, and says where answers differ.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::{Value, json};

use super::answer::{Answer, Client, Interrupted};
use super::{Outcome, manifest, tell};
use crate::cli::ReplayArgs;
use crate::msg::{Command, Mtp};
use crate::openai::ChatRequest;
use crate::session::Session;

/// # Errors
/// A sentence, if there is no manifest.
pub fn read(path: &Path) -> Result<Value, String> {
    manifest::read(path)?.ok_or_else(|| format!("cannot open {}: it doesn't exist", path.display()))
}

/// # Errors
/// When standard output can't be written.
pub async fn replay(session: Session, manifest: &Value, args: &ReplayArgs) -> io::Result<Outcome> {
    let mut client = match Client::connect(session).await {
        Ok(client) => client,
        Err(error) => {
            tell(&error.message);
            return Ok(Outcome::of_error(&error));
        }
    };
    let model = client.model();
    for (what, now) in [("name", Some(&model.name)), ("commit", model.commit.as_ref())] {
        let before = manifest["model"][what].as_str();
        if before != now.map(String::as_str) {
            tell(&format!(
                "the model's {what} was {}, now it is {}",
                before.unwrap_or("unknown"),
                now.map_or("unknown", |now| now)
            ));
        }
    }
    let is_fresh = manifest["settings"]["deterministic"] == true;
    let (mut n_same, mut n_other) = (0, 0);
    for record in manifest["records"].as_array().into_iter().flatten() {
        // What failed then has nothing to be compared with.
        if record["seed"].is_null() {
            continue;
        }
        let found = match ask(&mut client, record, is_fresh).await {
            Ok(answer) => difference(record, &answer),
            Err(Ask::Bad(why)) => Some(why),
            Err(Ask::Interrupted(Interrupted(signal))) => return Ok(Outcome::Signal(signal)),
        };
        n_same += usize::from(found.is_none());
        n_other += usize::from(found.is_some());
        let name =
            if record["id"].is_null() { record["index"].to_string() } else { record["id"].to_string() };
        let line = match args.json {
            true => json!({"id": record["id"], "index": record["index"], "same": found.is_none(), "difference": found}).to_string(),
            false => format!("{name}: {}", found.as_deref().unwrap_or("the same")),
        };
        match writeln!(io::stdout(), "{}", crate::sanitize::clean(&line)) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Outcome::Done),
            other => other?,
        }
    }
    tell(&format!("{n_same} the same, {n_other} different"));
    Ok(if n_other == 0 { Outcome::Done } else { Outcome::SomeFailed })
}

enum Ask {
    Bad(String),
    Interrupted(Interrupted),
}

async fn ask(client: &mut Client, record: &Value, is_fresh: bool) -> Result<Answer, Ask> {
    let request = ChatRequest::from_json(&record["request"]);
    let ChatRequest { mut messages, mut options, .. } =
        request.map_err(|why| Ask::Bad(format!("can't be asked: {why}")))?;
    options.sampling.seed = record["seed"].as_u64();
    options.logprobs = Some(0);
    options.is_fresh = is_fresh;
    if is_fresh {
        options.mtp = Some(Mtp::Off);
    }
    let conversation = client.new_conversation();
    let question = messages.pop().expect("a request has messages");
    client.send(Command::Open { conversation, messages }).await;
    let go_on = |_, _: &str| ControlFlow::Continue(());
    let answer = client.ask(conversation, question, options, go_on).await;
    client.send(Command::Close { conversation }).await;
    answer.map_err(Ask::Interrupted)
}

/// Where the answers part, by tokens if both have them.
fn difference(record: &Value, answer: &Answer) -> Option<String> {
    if let Err(error) = &answer.result {
        return Some(format!("failed: {}", error.message));
    }
    let before: Vec<u64> =
        record["tokens"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    if !before.is_empty() && !answer.tokens.is_empty() {
        let now: Vec<u64> = answer.tokens.iter().map(|token| u64::from(token.id)).collect();
        let same = before.iter().zip(&now).take_while(|(before, now)| before == now).count();
        let is_same = same == before.len() && same == now.len();
        let at = |ids: &[u64]| ids.get(same).map_or("the end".to_owned(), |id| format!("token id {id}"));
        return (!is_same)
            .then(|| format!("differs at token {}: {} was {}", same + 1, at(&now), at(&before)));
    }
    let before = record["text"].as_str().unwrap_or_default();
    let same = before.chars().zip(answer.text.chars()).take_while(|(before, now)| before == now).count();
    (before != answer.text).then(|| format!("differs at character {}", same + 1))
}
