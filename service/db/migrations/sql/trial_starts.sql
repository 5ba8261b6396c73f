ALTER TABLE trial ADD COLUMN began_from jsonb;
