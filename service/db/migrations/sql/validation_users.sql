ALTER TABLE dataset ADD COLUMN num_validation_users bigint;
