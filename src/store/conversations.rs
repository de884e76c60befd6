//! Conversations and their messages: adding, changing, loading, deleting.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, TransactionBehavior};

use crate::chat::conversation::{Answered, Conversation, Node, NodeId, Summary, title_of};
use crate::chat::{Detail, Message, Part, Picture, Role};
use crate::msg::StoredId;

use super::{Store, StoreError, now_ms};

/// How long a deleted conversation can be taken back.
const KEEP_DELETED_MS: i64 = 30 * 24 * 3600 * 1000;

/// A message to be added.
pub struct NewMessage<'a> {
    /// The row of the message that it follows.
    pub parent: Option<i64>,
    pub message: &'a Message,
    pub answered: Option<&'a Answered>,
}

/// A conversation as it was kept, with the rows of its nodes in the order of their numbers.
#[derive(Debug)]
pub struct Kept {
    pub stored: StoredId,
    pub conversation: Conversation,
    pub rows: Vec<i64>,
}

impl Store {
    /// Begins a conversation; its title comes from its first message.
    ///
    /// # Errors
    /// `Damaged` and `Database`.
    pub fn begin(&self, first: &Message, system: Option<&str>) -> Result<StoredId, StoreError> {
        let now = now_ms();
        self.db
            .execute(
                "INSERT INTO conversations (title, system, created_ms, changed_ms) VALUES (?1, ?2, ?3, ?3)",
                (title_of(first), system, now),
            )
            .map_err(|error| self.failed(error))?;
        Ok(StoredId(self.db.last_insert_rowid()))
    }

    /// Adds a message and looks at it from now on; says its row.
    ///
    /// # Errors
    /// `Damaged`, `Database`, and `Folder` for a picture that can't be kept.
    pub fn add(&mut self, conversation: StoredId, new: &NewMessage) -> Result<i64, StoreError> {
        let mut pictures = Vec::new();
        for part in &new.message.parts {
            let (kind, picture) = match part {
                Part::Text(_) | Part::Call(_) => continue,
                Part::Image(picture) => ("image", picture),
                Part::Clip(picture) => ("clip", picture),
            };
            let sha256 = self
                .keep_picture(picture)
                .map_err(|source| StoreError::Folder { path: self.folder.join("pictures"), source })?;
            pictures.push((kind, picture, sha256));
        }
        let path = self.path();
        let failed = |error| super::database_error(&path, error);
        let transaction =
            self.db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        transaction
            .prepare_cached(
                "INSERT INTO messages (conversation, parent, role, text, thinking, answered, created_ms) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )
            .and_then(|mut insert| {
                insert.execute((
                    conversation.0,
                    new.parent,
                    new.message.role.as_str(),
                    new.message.plain_text(),
                    new.message.reasoning.as_deref(),
                    new.answered.map(json),
                    now_ms(),
                ))
            })
            .map_err(failed)?;
        let row = transaction.last_insert_rowid();
        for (position, (kind, picture, sha256)) in pictures.iter().enumerate() {
            transaction
                .execute(
                    "INSERT INTO pictures (message, position, kind, name, detail, sha256) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    (row, position as i64, *kind, &picture.name, picture.detail.to_string(), sha256),
                )
                .map_err(failed)?;
        }
        transaction
            .execute(
                "UPDATE conversations SET head = ?2, changed_ms = ?3, deleted_ms = NULL WHERE id = ?1",
                (conversation.0, row, now_ms()),
            )
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(row)
    }

    /// Writes what an answer has come to.
    ///
    /// # Errors
    /// `Damaged` and `Database`.
    pub fn grow(
        &self,
        row: i64,
        text: &str,
        thinking: Option<&str>,
        answered: &Answered,
    ) -> Result<(), StoreError> {
        self.db
            .prepare_cached("UPDATE messages SET text = ?2, thinking = ?3, answered = ?4 WHERE id = ?1")
            .and_then(|mut update| update.execute((row, text, thinking, json(answered))))
            .map_err(|error| self.failed(error))?;
        if answered.ending.is_some() {
            self.tidy_log()?;
        }
        Ok(())
    }

    /// Moves the log into the database, as far as nobody reads it.
    fn tidy_log(&self) -> Result<(), StoreError> {
        let moved = self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        moved.map_err(|error| self.failed(error))
    }

    /// # Errors
    /// `Damaged` and `Database`.
    pub fn set_head(&self, conversation: StoredId, head: Option<i64>) -> Result<(), StoreError> {
        self.change(conversation, "UPDATE conversations SET head = ?2 WHERE id = ?1", &head)
    }

    /// # Errors
    /// `Damaged` and `Database`.
    pub fn set_system(&self, conversation: StoredId, system: Option<&str>) -> Result<(), StoreError> {
        self.change(conversation, "UPDATE conversations SET system = ?2 WHERE id = ?1", &system)
    }

    /// Keeps which messages the model doesn't read, and what it reads in their place: a text that stands for those up
    /// to a row.
    ///
    /// # Errors
    /// `Damaged` and `Database`.
    pub fn set_reading(
        &self,
        conversation: StoredId,
        left_out: &[i64],
        summary: Option<(i64, String)>,
    ) -> Result<(), StoreError> {
        let left_out = (!left_out.is_empty()).then(|| json(&left_out));
        let summary = summary.map(|summary| json(&summary));
        self.change(conversation, "UPDATE conversations SET left_out = ?2 WHERE id = ?1", &left_out)?;
        self.change(conversation, "UPDATE conversations SET summary = ?2 WHERE id = ?1", &summary)
    }

    /// # Errors
    /// `Unknown`, `Damaged` and `Database`.
    pub fn rename(&self, conversation: StoredId, title: &str) -> Result<(), StoreError> {
        self.change(conversation, "UPDATE conversations SET title = ?2, is_named = 1 WHERE id = ?1", &title)
    }

    /// Deletes a conversation so that it can be taken back; says its title.
    ///
    /// # Errors
    /// `Unknown`, `Damaged` and `Database`.
    pub fn delete(&self, conversation: StoredId) -> Result<String, StoreError> {
        let title = self.title(conversation, false)?;
        let sql = "UPDATE conversations SET deleted_ms = ?2 WHERE id = ?1";
        self.change(conversation, sql, &now_ms())?;
        Ok(title)
    }

    /// Takes a deletion back; says the title.
    ///
    /// # Errors
    /// `Unknown`, `Damaged` and `Database`.
    pub fn undelete(&self, conversation: StoredId) -> Result<String, StoreError> {
        let title = self.title(conversation, true)?;
        let sql = "UPDATE conversations SET deleted_ms = ?2 WHERE id = ?1";
        self.change(conversation, sql, &None::<i64>)?;
        Ok(title)
    }

    /// Removes for good what was deleted long ago, and what didn't change for so many days.
    ///
    /// # Errors
    /// `Damaged` and `Database`.
    pub fn purge(&self, keep_days: Option<u32>) -> Result<(), StoreError> {
        const DAY_MS: i64 = 24 * 60 * 60 * 1000;
        let failed = |error| self.failed(error);
        let before = now_ms() - KEEP_DELETED_MS;
        let unchanged_since = keep_days.map_or(i64::MIN, |days| now_ms() - i64::from(days) * DAY_MS);
        let times = [before, unchanged_since];
        let mut names = self
            .db
            .prepare(
                "SELECT DISTINCT p.sha256 FROM pictures AS p JOIN messages AS m ON m.id = p.message \
                 JOIN conversations AS c ON c.id = m.conversation \
                 WHERE (c.deleted_ms < ?1 OR c.changed_ms < ?2) AND p.sha256 IS NOT NULL",
            )
            .map_err(failed)?;
        let pictures = names.query_map(times, |row| row.get(0)).map_err(failed)?;
        let pictures = pictures.collect::<Result<Vec<String>, _>>().map_err(failed)?;
        let sql = "DELETE FROM conversations WHERE deleted_ms < ?1 OR changed_ms < ?2";
        self.db.execute(sql, times).map_err(failed)?;
        self.remove_pictures(&pictures);
        Ok(())
    }

    /// The conversation that changed last.
    ///
    /// # Errors
    /// `Empty`, `Damaged` and `Database`.
    pub fn latest(&self) -> Result<StoredId, StoreError> {
        let sql =
            "SELECT id FROM conversations WHERE deleted_ms IS NULL ORDER BY changed_ms DESC, id DESC LIMIT 1";
        let id = self.db.query_row(sql, [], |row| row.get(0)).optional();
        id.map_err(|error| self.failed(error))?.map(StoredId).ok_or(StoreError::Empty)
    }

    /// Whether a conversation is there, without reading it.
    ///
    /// # Errors
    /// `Unknown` if it isn't, `Damaged` and `Database`.
    pub fn check(&self, stored: StoredId) -> Result<(), StoreError> {
        self.title(stored, false).map(drop)
    }

    /// # Errors
    /// `Unknown`, `Damaged` and `Database`.
    pub fn load(&self, stored: StoredId) -> Result<Kept, StoreError> {
        let title = self.title(stored, false)?;
        let failed = |error| self.failed(error);
        type Whole = (Option<String>, Option<i64>, Option<String>, Option<String>);
        let sql = "SELECT system, head, left_out, summary FROM conversations WHERE id = ?1";
        let (system, head, left_out, summary): Whole = self
            .db
            .query_row(sql, [stored.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .map_err(failed)?;
        let mut pictures = self.pictures_of(stored).map_err(failed)?;
        let mut statement = self
            .db
            .prepare(
                "SELECT id, parent, role, text, thinking, answered FROM messages WHERE conversation = ?1 ORDER BY id",
            )
            .map_err(failed)?;
        let mut read = statement.query([stored.0]).map_err(failed)?;
        let (mut rows, mut nodes, mut numbers) = (Vec::new(), Vec::new(), HashMap::new());
        while let Some(row) = read.next().map_err(failed)? {
            let mut column = || -> rusqlite::Result<_> {
                let id: i64 = row.get(0)?;
                let parent: Option<i64> = row.get(1)?;
                let role: String = row.get(2)?;
                let text: String = row.get(3)?;
                let thinking: Option<String> = row.get(4)?;
                let answered: Option<String> = row.get(5)?;
                let mut parts = pictures.remove(&id).unwrap_or_default();
                parts.push(Part::Text(text));
                let message = Message { role: role_of(&role), parts, reasoning: thinking };
                // What a newer program wrote differently is left out rather than the whole answer.
                let answered = answered.map(|json| serde_json::from_str(&json).unwrap_or_default());
                let parent = parent.and_then(|parent| numbers.get(&parent).copied());
                numbers.insert(id, NodeId(u32::try_from(rows.len()).unwrap_or(u32::MAX)));
                rows.push(id);
                nodes.push(Node { parent, message, answered });
                Ok(())
            };
            column().map_err(failed)?;
        }
        let head = head.and_then(|head| numbers.get(&head).copied());
        let mut conversation = Conversation::restored(Some(title), system, nodes, head);
        // What a newer program wrote differently is read in full.
        let left_out: Vec<i64> =
            left_out.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
        let summary: Option<(i64, String)> = summary.and_then(|json| serde_json::from_str(&json).ok());
        let node = |row: &i64| numbers.get(row).copied();
        let summary = summary.and_then(|(row, text)| Some(Summary { until: node(&row)?, text }));
        conversation.set_reading(left_out.iter().filter_map(node).collect(), summary);
        Ok(Kept { stored, conversation, rows })
    }

    fn pictures_of(&self, stored: StoredId) -> rusqlite::Result<HashMap<i64, Vec<Part>>> {
        let mut statement = self.db.prepare(
            "SELECT p.message, p.kind, p.name, p.detail, p.sha256 FROM pictures AS p \
             JOIN messages AS m ON m.id = p.message WHERE m.conversation = ?1 ORDER BY p.message, p.position",
        )?;
        let mut pictures: HashMap<i64, Vec<Part>> = HashMap::new();
        let mut rows = statement.query([stored.0])?;
        while let Some(row) = rows.next()? {
            let (kind, detail): (String, String) = (row.get(1)?, row.get(3)?);
            let sha256: Option<String> = row.get(4)?;
            let picture = Picture {
                name: row.get(2)?,
                source: self.picture_source(sha256.as_deref()),
                detail: detail.parse().unwrap_or(Detail::Auto),
            };
            let part = if kind == "clip" { Part::Clip(picture) } else { Part::Image(picture) };
            pictures.entry(row.get(0)?).or_default().push(part);
        }
        Ok(pictures)
    }

    fn title(&self, conversation: StoredId, is_deleted: bool) -> Result<String, StoreError> {
        let sql = "SELECT title FROM conversations WHERE id = ?1 AND (deleted_ms IS NOT NULL) = ?2";
        let title = self.db.query_row(sql, (conversation.0, is_deleted), |row| row.get(0)).optional();
        title.map_err(|error| self.failed(error))?.ok_or(StoreError::Unknown(conversation))
    }

    fn change(
        &self,
        conversation: StoredId,
        sql: &str,
        value: &dyn rusqlite::ToSql,
    ) -> Result<(), StoreError> {
        let changed = self.db.execute(sql, rusqlite::params![conversation.0, value]);
        match changed.map_err(|error| self.failed(error))? {
            0 => Err(StoreError::Unknown(conversation)),
            _ => Ok(()),
        }
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain numbers and texts are JSON")
}

fn role_of(name: &str) -> Role {
    match name {
        "system" => Role::System,
        "user" => Role::User,
        "tool" => Role::Tool,
        _ => Role::Assistant,
    }
}
