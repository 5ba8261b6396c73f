ALTER TABLE dataset
    ADD COLUMN approval TEXT DEFAULT 'automatic' NOT NULL,
    ADD CONSTRAINT ck_dataset_approval CHECK (approval IN ('automatic', 'required'));
