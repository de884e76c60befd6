//! Paths in what a person types, pastes or drops: quotes, backslashes, `file://` and `~`.
//!
//! Knows nothing of the file system: whether a path leads anywhere is asked elsewhere.

use std::path::{Path, PathBuf};

use crate::chat::reference;

/// Endings of picture files. Not all can be read (HEIC can't); whoever reads the file says so.
const EXTENSIONS: [&str; 13] =
    ["png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff", "qoi", "heic", "heif", "avif", "jfif"];

/// More than this in one paste is text that happens to name files.
const MAX_PASTED: usize = 64;
const MAX_PASTED_BYTES: usize = 16 << 10;

/// Whether the name is that of a picture.
pub fn is_picture(path: &Path) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension)))
}

/// The paths of an argument list such as `a.png "b c.png" d\ e.png ~/f.png`.
///
/// # Errors
/// A sentence about a quote that isn't closed, or about an address that is not a file's.
pub fn arguments(text: &str, home: Option<&Path>) -> Result<Vec<PathBuf>, String> {
    let words = words(text).ok_or("A quote isn't closed")?;
    words.into_iter().map(|word| path(&word, home)).collect()
}

/// The readings of a paste as picture files and nothing else, the likeliest first; none for other text.
pub fn pasted(text: &str, home: Option<&Path>) -> Vec<Vec<PathBuf>> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_PASTED_BYTES {
        return Vec::new();
    }
    // Copied paths come one a line, bare; dropped ones in one line, quoted or with backslashes.
    let lines = text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    let mut readings: Vec<Vec<PathBuf>> = Vec::new();
    for words in [Some(lines), words(text)].into_iter().flatten() {
        let paths: Option<Vec<PathBuf>> =
            words.iter().map(|word| path(word, home).ok().filter(|path| is_picture(path))).collect();
        match paths {
            Some(paths) if paths.len() <= MAX_PASTED && !readings.contains(&paths) => readings.push(paths),
            _ => {}
        }
    }
    readings
}

/// One word as a path: `file://` addresses are decoded, `~/` is the home folder.
fn path(word: &str, home: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = reference::file_address(word) {
        return Ok(path);
    }
    if reference::is_remote(word) {
        return Err("Pictures from the web aren't fetched; save it to a file first".into());
    }
    match (word.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Ok(home.join(rest)),
        _ => Ok(PathBuf::from(word)),
    }
}

/// Splits as a shell does, without expanding anything; `None` if a quote isn't closed.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (_, Some(open)) if c == open => quote = None,
            // A Windows path is full of backslashes that escape nothing.
            ('\\', None | Some('"')) if !cfg!(windows) => {
                word.get_or_insert_default().push(chars.next().unwrap_or('\\'));
            }
            (_, None) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn readings(text: &str) -> Vec<Vec<String>> {
        let to_string = |path: PathBuf| path.to_str().unwrap().to_owned();
        pasted(text, Some(Path::new("/home/me")))
            .into_iter()
            .map(|paths| paths.into_iter().map(to_string).collect())
            .collect()
    }

    #[test]
    fn every_way_to_drop_a_file_is_understood() {
        for text in ["/a/b c.png", "'/a/b c.png'", "/a/b\\ c.png", "file:///a/b%20c.png", "\"/a/b c.png\" \n"]
        {
            let found = readings(text);
            assert!(found.contains(&vec!["/a/b c.png".to_owned()]), "{text}: {found:?}");
        }
        assert!(readings("'/a.png' '/b c.JPG'").contains(&vec!["/a.png".into(), "/b c.JPG".into()]));
        assert!(readings("/a.png\n/b c.webp\n").contains(&vec!["/a.png".into(), "/b c.webp".into()]));
        assert!(readings("~/x.gif").contains(&vec!["/home/me/x.gif".into()]));
    }

    #[test]
    fn other_text_stays_text() {
        for text in [
            "",
            "What is in a.png?",
            "look at a.png please",
            "https://example.org/a.png",
            "/etc/passwd",
            "fn main() {}\nlet x = \"a.png\";",
            "it's a.jpg, isn't",
        ] {
            assert_eq!(readings(text), Vec::<Vec<String>>::new(), "{text}");
        }
        // As a file name with spaces, not as 65 files.
        assert!(readings(&"a.png ".repeat(65)).iter().all(|paths| paths.len() == 1));
    }

    #[test]
    fn arguments_are_split_as_a_shell_does() {
        let paths = arguments(r#"a.png "b c.png" d\ e.png ~/f.png"#, Some(Path::new("/h"))).unwrap();
        assert_eq!(paths, ["a.png", "b c.png", "d e.png", "/h/f.png"].map(PathBuf::from));
        assert_eq!(arguments("'a.png", None), Err("A quote isn't closed".into()));
        assert!(arguments("http://x/a.png", None).unwrap_err().contains("aren't fetched"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in any::<String>()) {
            let _ = pasted(&text, None);
            let _ = arguments(&text, None);
        }

        #[test]
        fn sentences_stay_text(text in "[A-Z][a-z]{1,8}( [a-z.,'\"/\\\\]{1,9}){1,12}[.?!]") {
            prop_assert!(pasted(&text, None).is_empty());
        }
    }
}
