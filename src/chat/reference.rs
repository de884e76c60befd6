//! Pictures as programs name them: by a path, by a `file://` address, by a `data:` address that holds the
//! content itself, or by one of the network, which is left to those who may fetch it.

use std::path::PathBuf;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::{Detail, Picture, PictureSource};

/// Programs differ in whether they pad.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// # Errors
/// A sentence, when the reference leads to no local picture.
pub fn picture(reference: &str) -> Result<Picture, String> {
    if let Some(data) = reference.strip_prefix("data:") {
        return embedded(data);
    }
    if let Some(path) = file_address(reference) {
        return Ok(Picture::file(path, Detail::Auto));
    }
    if ["https://", "http://"].iter().any(|scheme| reference.starts_with(scheme)) {
        let name = without_query(reference)
            .rsplit('/')
            .next()
            .filter(|name| !name.is_empty())
            .unwrap_or("picture")
            .to_owned();
        let source = PictureSource::Address(reference.to_owned());
        return Ok(Picture { name, source, detail: Detail::Auto });
    }
    if is_remote(reference) {
        return Err("pictures are not fetched from such an address; save it and give its path".into());
    }
    match reference.is_empty() {
        true => Err("a picture's path is empty".into()),
        false => Ok(Picture::file(reference.into(), Detail::Auto)),
    }
}

/// The path of a `file://` address; none for anything else.
pub fn file_address(text: &str) -> Option<PathBuf> {
    let rest = text.strip_prefix("file://")?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    let decoded = percent_decoded(rest);
    // `file:///C:/a.png`
    let drive = cfg!(windows) && decoded.as_bytes().get(2) == Some(&b':');
    Some(PathBuf::from(if drive { &decoded[1..] } else { &decoded }))
}

/// Whether it is an address of something that is not a file: `https://…` and the like.
pub fn is_remote(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once("://") else { return false };
    let mut chars = scheme.chars();
    scheme != "file"
        && chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// An address up to its query, which may hold a signature.
pub fn without_query(address: &str) -> &str {
    address.split(['?', '#']).next().unwrap_or_default()
}

/// `image/png;base64,iVBO…`
fn embedded(data: &str) -> Result<Picture, String> {
    let (kind, content) = data.split_once(',').ok_or("a data: address has no content")?;
    if !kind.split(';').any(|parameter| parameter.eq_ignore_ascii_case("base64")) {
        return Err("a data: address must hold base64".into());
    }
    let content: String = content.split_ascii_whitespace().collect();
    let bytes = BASE64.decode(content).map_err(|_| "a data: address holds no valid base64")?;
    let subtype = kind.split(';').next().and_then(|kind| kind.split_once('/'));
    let name = subtype.map_or_else(|| "picture".to_owned(), |(_, subtype)| format!("picture.{subtype}"));
    Ok(Picture { name, source: PictureSource::Bytes(bytes.into()), detail: Detail::Auto })
}

fn percent_decoded(text: &str) -> String {
    let hex = |digit: u8| char::from(digit).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if let (b'%', [high, low, after @ ..]) = (first, tail)
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            bytes.push((high * 16 + low) as u8);
            rest = after;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_a_path_an_address_or_its_content() {
        let there = picture("https://example.org/x/a.png?signature=1").unwrap();
        assert_eq!(there.name, "a.png");
        assert_eq!(there.source, PictureSource::Address("https://example.org/x/a.png?signature=1".into()));
        let path = |reference| match picture(reference).unwrap().source {
            PictureSource::File(path) => path,
            other => panic!("{other:?}"),
        };
        assert_eq!(path("a b.png"), PathBuf::from("a b.png"));
        assert_eq!(path("file:///a%20b%C3%A9.png"), PathBuf::from("/a bé.png"));
        assert_eq!(path("file://localhost/100%.png"), PathBuf::from("/100%.png"));
        for data in ["data:image/png;base64,aGk=", "data:image/png;base64,aG k"] {
            let picture = picture(data).unwrap();
            assert_eq!(
                (picture.name.as_str(), picture.source),
                ("picture.png", PictureSource::Bytes((*b"hi").into()))
            );
        }
    }

    #[test]
    fn what_leads_to_no_picture_is_refused_with_a_sentence() {
        for (reference, says) in [
            ("s3://bucket/a.png", "not fetched from such an address"),
            ("data:image/png", "no content"),
            ("data:image/png,abc", "must hold base64"),
            ("data:;base64,!!", "no valid base64"),
            ("", "empty"),
        ] {
            let error = picture(reference).unwrap_err();
            assert!(error.contains(says), "{reference}: {error}");
        }
    }
}
