ALTER TABLE dataset ADD COLUMN unread_columns jsonb DEFAULT '[]' NOT NULL;
