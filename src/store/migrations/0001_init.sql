-- Conversations, each a tree of messages.

CREATE TABLE conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: people write these numbers down
    title TEXT NOT NULL,
    is_named INTEGER NOT NULL DEFAULT 0,  -- a person chose the title
    system TEXT,
    head INTEGER,                         -- the message that was looked at last
    created_ms INTEGER NOT NULL,          -- since 1970, UTC
    changed_ms INTEGER NOT NULL,
    deleted_ms INTEGER                    -- NULL unless it was deleted; it can be taken back for a while
);

CREATE INDEX conversations_by_change ON conversations (changed_ms);

CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- a parent's is always smaller
    conversation INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    parent INTEGER REFERENCES messages (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    thinking TEXT,
    answered TEXT,                        -- JSON: how an answer came about
    created_ms INTEGER NOT NULL
);

CREATE INDEX messages_of_conversation ON messages (conversation, id);
CREATE INDEX messages_by_parent ON messages (parent);

-- The content of a picture is a file named by its SHA-256.
CREATE TABLE pictures (
    message INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,                   -- image or clip
    name TEXT NOT NULL,
    detail TEXT NOT NULL,
    sha256 TEXT,                          -- NULL if its file was gone when the message was kept
    PRIMARY KEY (message, position)
) WITHOUT ROWID;

-- Trigrams find any part of a word, also in languages that write no spaces.
CREATE VIRTUAL TABLE messages_text USING fts5 (
    text, content = 'messages', content_rowid = 'id', tokenize = 'trigram remove_diacritics 1'
);

CREATE TRIGGER messages_added AFTER INSERT ON messages BEGIN
    INSERT INTO messages_text (rowid, text) VALUES (new.id, new.text);
END;

CREATE TRIGGER messages_removed AFTER DELETE ON messages BEGIN
    INSERT INTO messages_text (messages_text, rowid, text) VALUES ('delete', old.id, old.text);
END;

CREATE TRIGGER messages_changed AFTER UPDATE OF text ON messages WHEN old.text IS NOT new.text BEGIN
    INSERT INTO messages_text (messages_text, rowid, text) VALUES ('delete', old.id, old.text);
    INSERT INTO messages_text (rowid, text) VALUES (new.id, new.text);
END;
