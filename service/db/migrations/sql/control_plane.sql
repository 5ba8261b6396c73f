-- The control plane's state tables, as service/db/tables.py maps them; a test compares the two.

CREATE TABLE dataset (
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    path TEXT,
    label TEXT NOT NULL,
    features JSONB,
    content_sha256 TEXT NOT NULL,
    num_classes BIGINT NOT NULL,
    shape JSONB NOT NULL,
    num_train BIGINT NOT NULL,
    num_validation BIGINT NOT NULL,
    num_test BIGINT NOT NULL,
    split_seed BIGINT DEFAULT 0 NOT NULL,
    unit TEXT NOT NULL,
    public BOOLEAN NOT NULL,
    allowed_modes JSONB NOT NULL,
    waiver TEXT,
    scope_id TEXT,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    CONSTRAINT pk_dataset PRIMARY KEY (name),
    CONSTRAINT uq_dataset_content_sha256 UNIQUE (content_sha256)
);

CREATE TABLE dataset_file (
    sha256 TEXT NOT NULL,
    dataset TEXT NOT NULL,
    CONSTRAINT pk_dataset_file PRIMARY KEY (sha256),
    CONSTRAINT fk_dataset_file_dataset_dataset FOREIGN KEY(dataset) REFERENCES dataset (name)
);
CREATE INDEX ix_dataset_file_dataset ON dataset_file (dataset);

CREATE TABLE study (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    spec JSONB NOT NULL,
    plan JSONB NOT NULL,
    dataset TEXT NOT NULL,
    search_dataset TEXT NOT NULL,
    search_accounting TEXT NOT NULL,
    cancel_requested BOOLEAN DEFAULT false NOT NULL,
    promote_requested BOOLEAN DEFAULT false NOT NULL,
    promoted_trial BIGINT,
    prediction JSONB,
    error JSONB,
    reservation_id TEXT,
    statement JSONB,
    charged_epsilon DOUBLE PRECISION,
    event_seq BIGINT DEFAULT 0 NOT NULL,
    lease_owner TEXT,
    lease_until TIMESTAMPTZ,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    CONSTRAINT pk_study PRIMARY KEY (id),
    CONSTRAINT ck_study_state CHECK (state in ('queued','simulating','awaiting_approval','training','completed','failed','cancelled')),
    CONSTRAINT fk_study_dataset_dataset FOREIGN KEY(dataset) REFERENCES dataset (name),
    CONSTRAINT fk_study_search_dataset_dataset FOREIGN KEY(search_dataset) REFERENCES dataset (name)
);
CREATE INDEX ix_study_created_at ON study (created_at);
CREATE INDEX ix_study_state ON study (state);

CREATE TABLE event (
    study_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data JSONB NOT NULL,
    at TIMESTAMPTZ DEFAULT now() NOT NULL,
    CONSTRAINT pk_event PRIMARY KEY (study_id, seq),
    CONSTRAINT fk_event_study_id_study FOREIGN KEY(study_id) REFERENCES study (id)
);

CREATE TABLE idempotency_key (
    key TEXT NOT NULL,
    request_sha256 TEXT NOT NULL,
    study_id TEXT NOT NULL,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    CONSTRAINT pk_idempotency_key PRIMARY KEY (key),
    CONSTRAINT fk_idempotency_key_study_id_study FOREIGN KEY(study_id) REFERENCES study (id)
);

CREATE TABLE run (
    id TEXT NOT NULL,
    study_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    assignment JSONB NOT NULL,
    step BIGINT DEFAULT 0 NOT NULL,
    steps BIGINT DEFAULT 0 NOT NULL,
    steps_per_second DOUBLE PRECISION,
    checkpoint JSONB,
    progress_attempt BIGINT DEFAULT 0 NOT NULL,
    result JSONB,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    finished_at TIMESTAMPTZ,
    CONSTRAINT pk_run PRIMARY KEY (id),
    CONSTRAINT uq_run_study_id UNIQUE (study_id, kind),
    CONSTRAINT ck_run_kind CHECK (kind in ('search','private')),
    CONSTRAINT ck_run_state CHECK (state in ('active','succeeded','failed','cancelled')),
    CONSTRAINT fk_run_study_id_study FOREIGN KEY(study_id) REFERENCES study (id)
);
CREATE INDEX ix_run_study_id ON run (study_id);

CREATE TABLE trial (
    study_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    state TEXT NOT NULL,
    params JSONB NOT NULL,
    scores JSONB NOT NULL,
    value DOUBLE PRECISION,
    reason TEXT,
    attempt BIGINT NOT NULL,
    started_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    updated_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    finished_at TIMESTAMPTZ,
    CONSTRAINT pk_trial PRIMARY KEY (study_id, number),
    CONSTRAINT ck_trial_state CHECK (state in ('running','completed','pruned','diverged','failed','interrupted')),
    CONSTRAINT fk_trial_study_id_study FOREIGN KEY(study_id) REFERENCES study (id)
);

CREATE TABLE attempt (
    run_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    retryable BOOLEAN DEFAULT true NOT NULL,
    submission_id TEXT NOT NULL,
    submitted_at TIMESTAMPTZ,
    heartbeat_at TIMESTAMPTZ,
    stop_requested_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    finished_at TIMESTAMPTZ,
    CONSTRAINT pk_attempt PRIMARY KEY (run_id, number),
    CONSTRAINT ck_attempt_state CHECK (state in ('live','succeeded','failed','cancelled','lost')),
    CONSTRAINT fk_attempt_run_id_run FOREIGN KEY(run_id) REFERENCES run (id),
    CONSTRAINT uq_attempt_submission_id UNIQUE (submission_id)
);
CREATE UNIQUE INDEX uq_attempt_live ON attempt (run_id) WHERE state = 'live';

-- Wakes every listener that streams the study's events; the rows themselves are read by number.
CREATE FUNCTION event_notify() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    PERFORM pg_notify('tan_event', NEW.study_id);
    RETURN NULL;
END
$$;

CREATE TRIGGER event_notify AFTER INSERT ON event
    FOR EACH ROW EXECUTE FUNCTION event_notify();
