-- What users may edit of a study, and idempotency keys for every request that stores something.

ALTER TABLE study
    ADD COLUMN tags JSONB DEFAULT '[]'::jsonb NOT NULL,
    ADD COLUMN archived BOOLEAN DEFAULT false NOT NULL,
    ADD COLUMN version BIGINT DEFAULT 0 NOT NULL;

-- Keys that are there were all used to submit studies; their digests were of another form and stay.
ALTER TABLE idempotency_key
    ADD COLUMN operation TEXT DEFAULT 'submit_study' NOT NULL,
    ADD COLUMN dataset TEXT CONSTRAINT fk_idempotency_key_dataset_dataset REFERENCES dataset (name),
    ALTER COLUMN study_id DROP NOT NULL,
    ADD CONSTRAINT ck_idempotency_key_subject CHECK (num_nonnulls(study_id, dataset) = 1);
-- Each tenant has keys of its own.
UPDATE idempotency_key SET key = 'local:' || key;
