ALTER TABLE attempt ADD COLUMN waits_for text;
ALTER TABLE attempt ADD COLUMN waited_seconds double precision NOT NULL DEFAULT 0;
