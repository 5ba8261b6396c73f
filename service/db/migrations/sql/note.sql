ALTER TABLE study ADD COLUMN note text;
