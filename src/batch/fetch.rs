//! Pictures that records name by an address of the network, with `--allow-net`.

use std::time::Duration;

use reqwest::{Client, Url};

use crate::chat::PictureSource;
use crate::chat::reference::without_query;
use crate::msg::{ErrorCode, TurnError};

/// Larger files are no pictures.
const MAX_BYTES: usize = 64 << 20;
/// For the connection, and for each piece of the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The content of what is at an address.
///
/// # Errors
/// With the code `Engine` if another try may succeed.
pub async fn fetch(client: &Client, address: &str) -> Result<PictureSource, TurnError> {
    // What stands in a query is nobody's business.
    let plain = without_query(address);
    let failed = |why: String, code| TurnError { code, message: format!("{plain}: {why}") };
    let url = Url::parse(address).map_err(|_| failed("it is no address".into(), ErrorCode::ImageMissing))?;
    let broken = |error: reqwest::Error| {
        let why = match error.is_connect() {
            true => "the server can't be reached".into(),
            false => format!("it can't be fetched: {}", error.without_url()),
        };
        failed(why, ErrorCode::Engine)
    };
    let mut response = client.get(url).send().await.map_err(broken)?;
    if !response.status().is_success() {
        let code = match response.status().is_server_error() {
            true => ErrorCode::Engine,
            false => ErrorCode::ImageMissing,
        };
        return Err(failed(format!("the server has no picture there ({})", response.status()), code));
    }
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(broken)? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_BYTES {
            let why = format!("it is larger than {} MiB", MAX_BYTES >> 20);
            return Err(failed(why, ErrorCode::ImageUnreadable));
        }
    }
    Ok(PictureSource::Bytes(bytes.into()))
}

/// # Errors
/// If the system's certificates can't be used.
pub fn client() -> reqwest::Result<Client> {
    Client::builder()
        .user_agent(concat!("loquat/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(PATIENCE)
        .read_timeout(PATIENCE)
        .build()
}
