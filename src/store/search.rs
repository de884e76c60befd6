//! Lists of conversations: all of them, or those in which words occur.

use rusqlite::{Row, params_from_iter};

use crate::msg::{Found, StoredId};

use super::{Store, StoreError};

/// More than anybody looks through; a search narrows it down.
const LIMIT: usize = 500;
/// Shorter words have no trigram.
const TRIGRAM: usize = 3;
/// Characters around the first hit.
const EXCERPT: usize = 60;

const COLUMNS: &str = "c.id, c.title, \
    strftime('%Y-%m-%d %H:%M', c.changed_ms / 1000, 'unixepoch', 'localtime'), \
    (SELECT count(*) FROM messages AS m WHERE m.conversation = c.id)";

/// More than anybody looks through.
const MAX_PROMPTS: i64 = 500;

impl Store {
    /// Conversations in which every one of the words occurs, in a message or in the title; all if there are no
    /// words. The one that changed last comes first.
    ///
    /// # Errors
    /// `Damaged` and `Database`.
    pub fn find(&self, query: &str) -> Result<Vec<Found>, StoreError> {
        let words: Vec<&str> = query.split_whitespace().collect();
        let mut conditions = String::new();
        let mut values = Vec::new();
        for word in &words {
            let pattern = like(word);
            let in_text = match word.chars().count() >= TRIGRAM {
                true => {
                    values.push(phrase(word));
                    format!(
                        "SELECT m.conversation FROM messages_text JOIN messages AS m ON m.id = messages_text.rowid \
                         WHERE messages_text MATCH ?{}",
                        values.len()
                    )
                }
                false => {
                    values.push(pattern.clone());
                    format!("SELECT conversation FROM messages WHERE text LIKE ?{} ESCAPE '\\'", values.len())
                }
            };
            values.push(pattern);
            conditions.push_str(&format!(
                " AND (c.id IN ({in_text}) OR c.title LIKE ?{} ESCAPE '\\')",
                values.len()
            ));
        }
        let sql = format!(
            "SELECT {COLUMNS} FROM conversations AS c WHERE c.deleted_ms IS NULL{conditions} \
             ORDER BY c.changed_ms DESC, c.id DESC LIMIT {LIMIT}"
        );
        let failed = |error| self.failed(error);
        let mut statement = self.db.prepare(&sql).map_err(failed)?;
        let rows = statement.query_map(params_from_iter(&values), found).map_err(failed)?;
        let mut all = rows.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        if let Some(word) = words.first() {
            for found in &mut all {
                found.excerpt = self.excerpt(found.stored, word).map_err(failed)?;
            }
        }
        Ok(all)
    }

    /// What a person asked lately, each once, the latest last.
    ///
    /// # Errors
    /// `Damaged` and `Database`.
    pub fn prompts(&self) -> Result<Vec<String>, StoreError> {
        let failed = |error| self.failed(error);
        let mut statement = self
            .db
            .prepare(
                "SELECT m.text FROM messages AS m JOIN conversations AS c ON c.id = m.conversation \
                 WHERE m.role = 'user' AND m.text <> '' AND c.deleted_ms IS NULL \
                 GROUP BY m.text ORDER BY max(m.id) DESC LIMIT ?1",
            )
            .map_err(failed)?;
        let rows = statement.query_map([MAX_PROMPTS], |row| row.get(0)).map_err(failed)?;
        let mut prompts = rows.collect::<Result<Vec<String>, _>>().map_err(failed)?;
        prompts.reverse();
        Ok(prompts)
    }

    /// Where a word occurs first in a conversation.
    fn excerpt(&self, stored: StoredId, word: &str) -> rusqlite::Result<Option<String>> {
        let mut statement = self.db.prepare_cached(
            "SELECT text FROM messages WHERE conversation = ?1 AND text LIKE ?2 ESCAPE '\\' ORDER BY id LIMIT 1",
        )?;
        let mut texts = statement.query_map((stored.0, like(word)), |row| row.get::<_, String>(0))?;
        Ok(texts.next().transpose()?.map(|text| around(&text, word)))
    }
}

fn found(row: &Row) -> rusqlite::Result<Found> {
    Ok(Found {
        stored: StoredId(row.get(0)?),
        title: row.get(1)?,
        changed: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
        n_messages: row.get::<_, i64>(3)?.max(0) as usize,
        excerpt: None,
    })
}

/// A pattern for `LIKE … ESCAPE '\'` that finds exactly these characters.
fn like(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}

/// A phrase for `MATCH`: in quotes nothing is an operator.
fn phrase(word: &str) -> String {
    format!("\"{}\"", word.replace('"', "\"\""))
}

/// The text around the first occurrence of a word, in one line.
fn around(text: &str, word: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Lower case may be longer, so positions are counted in characters.
    let (chars, lower) = (line.chars().count(), line.to_lowercase());
    let at = lower.find(&word.to_lowercase()).map_or(0, |at| lower[..at].chars().count());
    let first = at.saturating_sub(EXCERPT / 2).min(chars);
    let excerpt: String = line.chars().skip(first).take(EXCERPT + word.chars().count()).collect();
    let before = if first > 0 { "…" } else { "" };
    let after = if first + excerpt.chars().count() < chars { "…" } else { "" };
    format!("{before}{excerpt}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_line_around_the_word() {
        assert_eq!(around("one\n  two three", "TWO"), "one two three");
        let long = format!("{} needle {}", "word ".repeat(50), "漢字 ".repeat(50));
        let excerpt = around(&long, "needle");
        assert!(
            excerpt.starts_with('…') && excerpt.ends_with('…') && excerpt.contains("needle"),
            "{excerpt}"
        );
        assert!(excerpt.chars().count() <= EXCERPT + 8);
        assert_eq!(around("İİİ x", "x"), "İİİ x");
    }
}
