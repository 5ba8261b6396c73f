ALTER TABLE study ADD COLUMN finish_requested boolean NOT NULL DEFAULT false;
