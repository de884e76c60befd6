//! `loquat serve`: answers programs on this machine over HTTP, as OpenAI's API does.
//!
//! A request becomes a turn of the session like any other; `serve/desk.rs` hands its events back. Whoever can connect
//! could ask: so it listens on this machine only, unless told otherwise together with a key, and doesn't answer web
//! pages that a browser shows (`serve/guard.rs`). A request can't name files of this machine.

mod answer;
mod desk;
mod guard;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::watch;

use self::desk::{Desk, Ready};
use self::guard::Guard;
use crate::batch::{Outcome, tell};
use crate::chat::{Message, PictureSource};
use crate::cli::ServeArgs;
use crate::msg::TurnOptions;
use crate::openai::{self, ChatRequest};
use crate::session::Session;
use crate::settings::Settings;
use crate::signals;

/// Pictures come inside of requests.
const MAX_BODY_BYTES: usize = 64 << 20;
/// Names a key without showing it to everybody who lists processes.
const KEY_VARIABLE: &str = "LOQUAT_SERVE_KEY";

/// What every request needs.
struct Api {
    desk: Desk,
    ready: watch::Receiver<Ready>,
    guard: Guard,
    /// What a request doesn't say.
    defaults: TurnOptions,
    system: Option<String>,
    started: u64,
}

/// # Errors
/// When the server fails after it has begun.
pub async fn serve(session: Session, settings: &Settings, args: &ServeArgs) -> io::Result<Outcome> {
    let address = SocketAddr::new(args.host, args.port);
    let guard = match key(args.key_file.as_deref()) {
        Ok(None) if !args.host.is_loopback() => {
            tell(&format!(
                "{} can be reached by others, so a key is needed: set {KEY_VARIABLE}, or give --key-file FILE",
                args.host
            ));
            return Ok(Outcome::Usage);
        }
        Ok(key) => Guard::new(key, args.host.is_loopback()),
        Err(why) => {
            tell(&why);
            return Ok(Outcome::Usage);
        }
    };
    let listener = match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            tell(&format!("cannot listen on {address}: {error}; --port takes another port"));
            return Ok(Outcome::Usage);
        }
    };
    tell(&format!("serving at http://{}/v1; Ctrl+C stops", listener.local_addr()?));
    let mut signals = signals::listen();
    let (desk, clerk, mut ready) = Desk::open(session, args.queue);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let api = Arc::new(Api {
        desk,
        ready: ready.clone(),
        guard,
        defaults: settings.turn.clone(),
        system: settings.system.clone(),
        started: now,
    });
    let router = Router::new()
        .route("/health", get(health))
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(models))
        .route("/v1/chat/completions", post(chat))
        .fallback(nothing_here)
        .with_state(api);
    let server = axum::serve(listener, router);
    // A model that can't be used, or a signal. Answers that are being written are cut off, as by every Ctrl+C.
    let outcome = tokio::select! {
        result = server.into_future() => result.map(|()| Outcome::Done),
        Some(signal) = signals.recv() => Ok(Outcome::Signal(signal)),
        error = failure(&mut ready) => {
            tell(&error.message);
            Ok(Outcome::of_code(error.code))
        }
    };
    // With it goes the session, which is waited for.
    clerk.abort();
    outcome
}

async fn failure(ready: &mut watch::Receiver<Ready>) -> crate::msg::TurnError {
    loop {
        if let Ready::Failed(error) = &*ready.borrow_and_update() {
            return error.clone();
        }
        if ready.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// # Errors
/// A sentence about a file without a key.
fn key(file: Option<&Path>) -> Result<Option<String>, String> {
    let text = match file {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
        None => match std::env::var(KEY_VARIABLE) {
            Ok(key) if !key.is_empty() => key,
            _ => return Ok(None),
        },
    };
    match text.trim() {
        "" => Err("the key is empty".into()),
        key => Ok(Some(key.to_owned())),
    }
}

async fn health(State(api): State<Arc<Api>>) -> Response {
    match &*api.ready.borrow() {
        Ready::Yes(_) => json_response(StatusCode::OK, &json!({"status": "ok"})),
        Ready::Loading => {
            json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "loading the model"}))
        }
        Ready::Failed(error) => refusal(StatusCode::SERVICE_UNAVAILABLE, error.code.as_str(), &error.message),
    }
}

async fn models(State(api): State<Arc<Api>>, request: Request) -> Response {
    if let Some(response) = api.guard.refusal(request.headers()) {
        return response;
    }
    let ready = api.ready.borrow().clone();
    let Ready::Yes(model) = ready else { return loading() };
    let object = json!({"id": model.name, "object": "model", "created": api.started, "owned_by": "loquat"});
    match request.uri().path().strip_prefix("/v1/models/") {
        None => json_response(StatusCode::OK, &json!({"object": "list", "data": [object]})),
        Some(name) if name.replace("%2F", "/") == model.name => json_response(StatusCode::OK, &object),
        Some(_) => refusal(StatusCode::NOT_FOUND, "model_not_found", "there is no such model here"),
    }
}

async fn chat(State(api): State<Arc<Api>>, request: Request) -> Response {
    if let Some(response) = api.guard.refusal(request.headers()) {
        return response;
    }
    let Ok(body) = to_bytes(request.into_body(), MAX_BODY_BYTES).await else {
        let message = format!("the request is longer than {} MiB, or was cut off", MAX_BODY_BYTES >> 20);
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, "bad_record", &message);
    };
    let bad = |why: &str| refusal(StatusCode::BAD_REQUEST, "bad_record", why);
    let request = match serde_json::from_slice::<Value>(&body) {
        Ok(json) => ChatRequest::from_json(&json),
        Err(error) => return bad(&format!("the request is not valid JSON: {error}")),
    };
    let mut request = match request {
        Ok(request) => request,
        Err(why) => return bad(&why),
    };
    // Whoever may ask may not therefore read this machine's files.
    let is_file = |message: &Message| message.pictures().any(|p| matches!(p.source, PictureSource::File(_)));
    if request.messages.iter().any(is_file) {
        return bad("pictures must be data: addresses");
    }
    let is_elsewhere =
        |message: &Message| message.pictures().any(|p| matches!(p.source, PictureSource::Address(_)));
    if request.messages.iter().any(is_elsewhere) {
        return bad("pictures are not fetched from the network; send them as data: addresses");
    }
    let ready = api.ready.borrow().clone();
    let Ready::Yes(model) = ready else { return loading() };
    if let Some(system) = &api.system
        && request.messages[0].role != crate::chat::Role::System
    {
        request.messages.insert(0, Message::text(crate::chat::Role::System, system));
    }
    request.options = with_defaults(request.options, &api.defaults);
    answer::answer(&api.desk, request, &model).await
}

/// What the request doesn't say is as the command line says.
fn with_defaults(own: TurnOptions, other: &TurnOptions) -> TurnOptions {
    let (sampling, others) = (&own.sampling, &other.sampling);
    TurnOptions {
        sampling: sampling.or(others),
        max_tokens: own.max_tokens.or(other.max_tokens),
        thinking: own.thinking.or(other.thinking),
        max_thinking: if own.thinking.is_some() { &own } else { other }.max_thinking,
        mtp: own.mtp.or(other.mtp),
        ..own
    }
}

async fn nothing_here() -> Response {
    refusal(
        StatusCode::NOT_FOUND,
        "not_found",
        "there is nothing here; /v1/models, /v1/chat/completions and /health are what this server has",
    )
}

fn loading() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "loading", "the model is being loaded; ask again in a moment")
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
    let mut response = json_response(status, &openai::error(kind, code, message));
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn json_response(status: StatusCode, json: &Value) -> Response {
    let mut response = Response::new(Body::from(json.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
