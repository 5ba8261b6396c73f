ALTER TABLE study ADD COLUMN resting boolean NOT NULL DEFAULT false;
