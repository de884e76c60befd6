-- What the model doesn't read of a conversation.

ALTER TABLE conversations ADD COLUMN left_out TEXT; -- JSON: rows of messages
ALTER TABLE conversations ADD COLUMN summary TEXT;  -- JSON: what is read in their place, and its last row
