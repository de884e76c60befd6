//! `loquat models search`: the table that is part of the program, and what the Hub finds.

use super::{print, table};
use crate::hub::names::RepoId;
use crate::hub::table::{Known, known};
use crate::hub::{Hub, HubError};
use crate::units::ByteSize;

/// Lines of the Hub's result.
const MAX_FOUND: usize = 20;

/// Those whose name has all the words.
pub fn known_with(words: &[String]) -> impl Iterator<Item = &'static Known> {
    let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    known().iter().filter(move |model| words.iter().all(|word| model.id.to_lowercase().contains(word)))
}

/// `loquat models search`.
///
/// # Errors
/// If the Hub can't be asked.
pub async fn search(hub: &Hub, words: &[String]) -> Result<(), HubError> {
    let rows: Vec<Vec<String>> = known_with(words)
        .map(|model| {
            vec![
                model.id.clone(),
                format!("{:>8}", ByteSize(model.bytes)),
                model.modes.join(", "),
                format!("{}", model.context),
                model.licence.clone(),
                model.formats.join(", "),
            ]
        })
        .collect();
    print(&table(&["MODEL", "SIZE", "INPUT", "CONTEXT", "LICENCE", "FORMATS"], &rows));
    if words.is_empty() {
        return Ok(());
    }
    let found = hub.search(&words.join(" "), MAX_FOUND).await?;
    let is_new = |id: &str| RepoId::parse(id).is_some() && !known().iter().any(|model| model.id == id);
    let rows: Vec<Vec<String>> = found
        .into_iter()
        .filter(|model| is_new(&model.id))
        .map(|model| {
            let downloads = model.downloads.map(|n| n.to_string()).unwrap_or_default();
            let gated = if model.is_gated { "asks to accept its terms" } else { "" };
            vec![model.id, downloads, gated.into()]
        })
        .collect();
    print(&format!("\nOn the Hub, of any family:\n{}", table(&["MODEL", "DOWNLOADS", ""], &rows)));
    Ok(())
}
