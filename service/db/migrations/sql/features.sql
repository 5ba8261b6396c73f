ALTER TABLE run ADD COLUMN features jsonb;
