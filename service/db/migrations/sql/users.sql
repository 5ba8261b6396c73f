-- Datasets whose unit of privacy is a user with several records, and that name groups of records.

ALTER TABLE dataset
    ADD COLUMN num_train_records BIGINT,
    ADD COLUMN records_per_unit BIGINT DEFAULT 1 NOT NULL,
    ADD COLUMN group_column TEXT;
-- Every unit that is there is a record.
UPDATE dataset SET num_train_records = num_train;
ALTER TABLE dataset ALTER COLUMN num_train_records SET NOT NULL;
