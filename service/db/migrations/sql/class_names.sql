ALTER TABLE dataset ADD COLUMN classes jsonb;
