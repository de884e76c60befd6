//! Who may ask: who has the key, or without one who is on this machine and no web page.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;

use super::refusal;

pub struct Guard {
    key: Option<String>,
    /// Others can't reach the server, but a page in this machine's browser could.
    is_local: bool,
}

impl Guard {
    pub fn new(key: Option<String>, is_local: bool) -> Self {
        Self { key, is_local }
    }

    /// What to send to one who may not ask.
    pub fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(key) = &self.key {
            let given = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
            return match given {
                Some(given) if is_same(given.trim(), key) => None,
                _ => {
                    Some(refusal(StatusCode::UNAUTHORIZED, "invalid_api_key", "the key is missing or wrong"))
                }
            };
        }
        // A page of another site sends its origin; one whose name was made to lead here sends that name.
        let is_ours =
            |address: &str| is_local_name(address.split_once("://").map_or(address, |(_, rest)| rest));
        let origin_is_ours = text(header::ORIGIN).is_none_or(is_ours);
        let host_is_ours = !self.is_local || text(header::HOST).is_none_or(is_ours);
        match origin_is_ours && host_is_ours {
            true => None,
            false => Some(refusal(
                StatusCode::FORBIDDEN,
                "forbidden",
                "web pages of other sites may not ask without a key",
            )),
        }
    }
}

fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// In a time that doesn't tell how much of a guess was right.
fn is_same(given: &str, key: &str) -> bool {
    let differing = given.bytes().zip(key.bytes()).fold(0, |differing, (a, b)| differing | (a ^ b));
    given.len() == key.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(guard: &Guard, given: &[(&'static str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(*name, value.parse().unwrap());
        }
        guard.refusal(&headers).map_or(200, |response| response.status().as_u16())
    }

    #[test]
    fn without_a_key_only_this_machine_and_no_page_of_another_site() {
        let guard = Guard::new(None, true);
        for host in ["127.0.0.1:80", "localhost:8080", "[::1]:80", "localhost"] {
            assert_eq!(status(&guard, &[("host", host)]), 200, "{host}");
        }
        assert_eq!(status(&guard, &[("host", "localhost"), ("origin", "http://localhost:3000")]), 200);
        for (host, origin) in
            [("evil.example", ""), ("127.0.0.1", "https://evil.example"), ("127.0.0.1", "null")]
        {
            let headers = [("host", host), ("origin", origin)];
            assert_eq!(status(&guard, if origin.is_empty() { &headers[..1] } else { &headers }), 403);
        }
    }

    #[test]
    fn with_a_key_only_who_has_it() {
        let guard = Guard::new(Some("secret".into()), false);
        assert_eq!(status(&guard, &[("authorization", "Bearer secret"), ("host", "box.lan")]), 200);
        for wrong in ["Bearer secre", "Bearer secrets", "secret", "Bearer "] {
            assert_eq!(status(&guard, &[("authorization", wrong)]), 401, "{wrong}");
        }
        assert_eq!(status(&guard, &[]), 401);
    }
}
