//! Pictures that records name by an address of the network, with `--allow-net`.

use std::time::Duration;

use reqwest::{Client, Url};

use crate::chat::{Picture, PictureSource};

/// Larger files are no pictures.
const MAX_BYTES: usize = 64 << 20;
/// For the connection, and for each piece of the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Puts the content in the place of the address.
///
/// # Errors
/// A sentence.
pub async fn fetch(client: &Client, picture: &mut Picture) -> Result<(), String> {
    let PictureSource::Address(address) = &picture.source else { return Ok(()) };
    // An address may hold a signature in its query, which is nobody's business.
    let plain = address.split(['?', '#']).next().unwrap_or_default().to_owned();
    let failed = |why: String| format!("{plain}: {why}");
    let url = Url::parse(address).map_err(|_| failed("it is no address".into()))?;
    let broken = |error: reqwest::Error| failed(format!("it can't be fetched: {}", error.without_url()));
    let mut response = client.get(url).send().await.map_err(broken)?;
    if !response.status().is_success() {
        return Err(failed(format!("the server has no picture there ({})", response.status())));
    }
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(broken)? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_BYTES {
            return Err(failed(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
        }
    }
    picture.source = PictureSource::Bytes(bytes.into());
    Ok(())
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
