//! A model on a server: turns are asked of any program that speaks OpenAI's protocol (vLLM, SGLang, llama-server,
//! Ollama, or `loquat serve`), and its stream comes back as the same events that the engine's own thread sends.
//!
//! Several turns run at the same time. A server that is busy or restarting is asked again for a while, and everybody
//! waits when it says so; once text has come, nothing is asked twice.

mod stream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::stream::Reader;
use crate::engine::worker::Job;
use crate::msg::{ClipLimits, ErrorCode, Event, ModelInfo, PictureLimits, TurnError, TurnStats};
use crate::openai::request_json;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two bytes of an answer; a long prompt on a slow server takes minutes.
const SILENCE: Duration = Duration::from_secs(600);
/// How often a busy server is asked again, and the first wait; each next one is twice as long.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Between two looks at whether a turn was cancelled.
const LOOK: Duration = Duration::from_millis(50);
/// What a server is believed to hold that doesn't say.
const CONTEXT_TOKENS: usize = 32_768;
/// Requests at the same time, unless told otherwise.
pub const PARALLEL: usize = 4;

/// Which server, and what of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// For people.
    pub name: String,
    /// Up to and with `/v1`.
    pub url: String,
    /// The server's first one if `None`.
    pub model: Option<String>,
    pub key: Option<String>,
    pub parallel: Option<usize>,
    pub context_tokens: Option<usize>,
}

type Events = mpsc::Sender<(u64, Event)>;

/// As the engine's own worker, but asks a server. `number` goes with every event.
///
/// # Errors
/// If the system has no thread left.
pub fn spawn(
    options: RemoteOptions,
    number: u64,
    events: Events,
) -> std::io::Result<(std::sync::mpsc::Sender<Job>, JoinHandle<()>)> {
    let (sender, jobs) = std::sync::mpsc::channel::<Job>();
    let runtime = Handle::current();
    let thread = std::thread::Builder::new().name("remote".into()).spawn(move || {
        let server = runtime.block_on(Server::open(options));
        let (server, first) = match server {
            Ok((server, info)) => (Ok(Arc::new(server)), Event::ModelLoaded(info)),
            Err(error) => (Err(error.clone()), Event::ModelFailed { error }),
        };
        if runtime.block_on(events.send((number, first))).is_err() {
            return;
        }
        while let Ok(job) = jobs.recv() {
            let (server, events) = (server.clone(), events.clone());
            runtime.spawn(async move {
                let turn = job.turn;
                let last = match server {
                    Ok(server) => server.answer(&job, number, &events).await,
                    Err(error) => Err(error),
                };
                let last = last.unwrap_or_else(|error| Event::TurnFailed { turn, error });
                // Nobody listens any more when the session has ended.
                let _ = events.send((number, last)).await;
            });
        }
    })?;
    Ok((sender, thread))
}

struct Server {
    client: Client,
    options: RemoteOptions,
    model: String,
    /// Nothing is asked before, because the server has said that it is too busy.
    not_before: Mutex<Option<Instant>>,
}

impl Server {
    async fn open(options: RemoteOptions) -> Result<(Self, ModelInfo), TurnError> {
        let started = Instant::now();
        let client = Client::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(SILENCE).build();
        let client = client.map_err(|error| engine_error(format!("no connections can be made: {error}")))?;
        let mut server = Self {
            client,
            model: options.model.clone().unwrap_or_default(),
            options,
            not_before: Mutex::new(None),
        };
        let listed = server.models().await?;
        let models = listed["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        let wanted = models.iter().find(|model| model["id"] == server.model.as_str());
        let about = match (&server.options.model, wanted.or_else(|| models.first())) {
            (None, Some(first)) => {
                server.model = first["id"].as_str().unwrap_or_default().to_owned();
                first.clone()
            }
            (None, None) => return Err(server.missing("it lists no model; name one with `model`".into())),
            // Some servers load models that they don't list.
            (Some(_), _) => wanted.cloned().unwrap_or_default(),
        };
        let told =
            ["max_model_len", "context_length", "context_window"].iter().find_map(|key| about[*key].as_u64());
        let told = told.or_else(|| about["meta"]["n_ctx"].as_u64()).map(|tokens| tokens as usize);
        let pixels = PictureLimits { factor: 32, min_pixels: 65_536, max_pixels: 16_777_216 };
        let info = ModelInfo {
            name: server.model.clone(),
            commit: None,
            note: None,
            device: format!("remote ({})", server.options.name),
            device_note: None,
            context_tokens: server.options.context_tokens.or(told).unwrap_or(CONTEXT_TOKENS),
            thinks_by_default: true,
            // Whether it sees shows when it is asked.
            pictures: Some(pixels),
            clips: Some(ClipLimits { pixels, frames_per_slot: 2, time_tokens: 0 }),
            can_draft: false,
            parallel: server.options.parallel.unwrap_or(PARALLEL),
            load_time: started.elapsed(),
        };
        Ok((server, info))
    }

    async fn models(&self) -> Result<Value, TurnError> {
        let request = self.with_key(self.client.get(format!("{}/models", self.options.url)));
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let body = response.text().await.map_err(|error| self.unreachable(&error))?;
        match status.is_success() {
            true => serde_json::from_str(&body)
                .map_err(|_| self.missing("it doesn't speak OpenAI's protocol there".into())),
            false => Err(self.refused(status, &body)),
        }
    }

    fn with_key(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.options.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// The last event of the turn; those before it are sent.
    async fn answer(&self, job: &Job, number: u64, events: &Events) -> Result<Event, TurnError> {
        if job.options.only_count {
            return Err(TurnError {
                code: ErrorCode::BadRecord,
                message: "a remote engine can't count tokens".into(),
            });
        }
        let mut options = job.options.clone();
        // So that the same can be asked again.
        let seed = *options.sampling.seed.get_or_insert_with(fresh_seed);
        let body = request_json(&self.model, &job.messages, &options);
        let started = Instant::now();
        let mut stats = TurnStats { seed, queue_time: job.queue_time, ..TurnStats::default() };
        let _ = events.send((number, Event::TurnStarted { turn: job.turn, prompt_tokens: 0 })).await;
        let response = tokio::select! {
            response = self.ask(&body) => response?,
            () = cancelled(&job.cancel) => return Ok(Event::TurnCancelled { turn: job.turn, stats }),
        };
        let mut reader = Reader::new(started);
        let finish = tokio::select! {
            finish = reader.read(response, job.turn, number, events, &mut stats) => Some(finish),
            // Dropping the response ends the connection, and the server stops.
            () = cancelled(&job.cancel) => None,
        };
        match finish {
            None => Ok(Event::TurnCancelled { turn: job.turn, stats }),
            Some(Ok(finish)) => Ok(Event::TurnFinished { turn: job.turn, finish, stats }),
            Some(Err(why)) => Err(engine_error(format!(
                "{} broke off in the middle of the answer: {why}",
                self.options.url
            ))),
        }
    }

    async fn ask(&self, body: &Value) -> Result<Response, TurnError> {
        let mut wait = FIRST_WAIT;
        let mut tries = 0;
        loop {
            self.pause().await;
            tries += 1;
            let request = self.with_key(self.client.post(format!("{}/chat/completions", self.options.url)));
            let request = request.header("content-type", "application/json").body(body.to_string());
            let (error, retry_after) = match request.send().await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => {
                    let status = response.status();
                    let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
                    let after = header.and_then(|value| value.parse().ok()).map(Duration::from_secs);
                    let body = response.text().await.unwrap_or_default();
                    let error = self.refused(status, &body);
                    let is_busy = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
                    if !is_busy {
                        return Err(error);
                    }
                    (error, after)
                }
                Err(error) => (self.unreachable(&error), None),
            };
            if tries == TRIES {
                return Err(error);
            }
            let pause = retry_after.unwrap_or(wait).min(LONGEST_WAIT);
            wait *= 2;
            // Everybody waits: more questions would only make a busy server busier.
            let mut not_before = self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
            *not_before = not_before.max(Some(Instant::now() + pause));
        }
    }

    async fn pause(&self) {
        loop {
            let not_before = *self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
            match not_before.filter(|time| *time > Instant::now()) {
                Some(time) => tokio::time::sleep_until(time.into()).await,
                None => return,
            }
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> TurnError {
        let url = &self.options.url;
        let why = match error {
            error if error.is_connect() => "cannot be reached; is the server running?",
            error if error.is_timeout() => "didn't answer in time",
            _ => "broke off the connection",
        };
        engine_error(format!("{url} {why}"))
    }

    fn missing(&self, why: String) -> TurnError {
        TurnError {
            code: ErrorCode::ModelMissing,
            message: format!("{} can't be used: {why}", self.options.url),
        }
    }

    /// A server's refusal in our words, with its own behind them.
    fn refused(&self, status: StatusCode, body: &str) -> TurnError {
        let json: Value = serde_json::from_str(body).unwrap_or_default();
        let said = json["error"]["message"]
            .as_str()
            .or_else(|| json["message"].as_str())
            .or_else(|| json["error"].as_str());
        let said: String = said.unwrap_or(body).chars().take(500).collect();
        let is_too_long = json["error"]["code"] == "context_length_exceeded"
            || said.contains("context length")
            || said.contains("context size");
        let (code, what) = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                (ErrorCode::ModelMissing, "wants a key, or another one (`key_env`)")
            }
            StatusCode::NOT_FOUND => (ErrorCode::ModelMissing, "has no such model, or the address is wrong"),
            _ if is_too_long => (ErrorCode::TooLong, "holds no conversation as long as this"),
            status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                (ErrorCode::BadRecord, "refused the question")
            }
            _ => (ErrorCode::Engine, "is busy or failed"),
        };
        TurnError { code, message: format!("{} {what} ({status}): {said}", self.options.url) }
    }
}

fn engine_error(message: String) -> TurnError {
    TurnError { code: ErrorCode::Engine, message }
}

async fn cancelled(cancel: &AtomicBool) {
    while !cancel.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Below 2^31: some servers take no larger one.
fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33
}
