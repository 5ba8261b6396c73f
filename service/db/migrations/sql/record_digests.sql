-- Which records a dataset holds, by keyed digests: two budgets that the same people are in are found.
-- Datasets of before have none, and are compared with none.

ALTER TABLE dataset ADD COLUMN overlap JSONB;

CREATE TABLE dataset_digests (
    dataset TEXT NOT NULL,
    key_id TEXT NOT NULL,
    digests BYTEA NOT NULL,
    CONSTRAINT pk_dataset_digests PRIMARY KEY (dataset),
    CONSTRAINT fk_dataset_digests_dataset_dataset FOREIGN KEY(dataset) REFERENCES dataset (name)
);
