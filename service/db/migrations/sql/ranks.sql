ALTER TABLE attempt ADD COLUMN ranks bigint;
