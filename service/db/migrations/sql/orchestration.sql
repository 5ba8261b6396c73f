-- Who goes first, who is paused, how attempts ended, what their drivers said, and who is told.

ALTER TABLE study
    ADD COLUMN priority BIGINT DEFAULT 0 NOT NULL,
    ADD COLUMN pause_requested BOOLEAN DEFAULT false NOT NULL,
    ADD COLUMN suspended BOOLEAN DEFAULT false NOT NULL;

ALTER TABLE attempt
    ADD COLUMN pause_requested_at TIMESTAMPTZ,
    ADD COLUMN exit_code BIGINT,
    ADD COLUMN last_lines TEXT,
    ADD COLUMN log_end BIGINT DEFAULT 0 NOT NULL,
    ADD COLUMN log_closed BOOLEAN DEFAULT false NOT NULL;

-- What drivers said before today is not asked for again.
UPDATE attempt SET log_closed = true WHERE state <> 'live';

CREATE INDEX ix_attempt_log_open ON attempt (submission_id) WHERE NOT log_closed;

CREATE TABLE log_chunk (
    submission_id TEXT NOT NULL,
    start BIGINT NOT NULL,
    text TEXT NOT NULL,
    CONSTRAINT pk_log_chunk PRIMARY KEY (submission_id, start),
    CONSTRAINT fk_log_chunk_submission_id_attempt FOREIGN KEY (submission_id) REFERENCES attempt (submission_id)
);

CREATE TABLE webhook_delivery (
    id TEXT NOT NULL,
    study_id TEXT NOT NULL,
    event TEXT NOT NULL,
    target TEXT NOT NULL,
    host TEXT NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    tries BIGINT DEFAULT 0 NOT NULL,
    answer TEXT,
    next_try_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    finished_at TIMESTAMPTZ,
    CONSTRAINT pk_webhook_delivery PRIMARY KEY (id),
    CONSTRAINT fk_webhook_delivery_study_id_study FOREIGN KEY (study_id) REFERENCES study (id),
    CONSTRAINT uq_webhook_delivery_study_id UNIQUE (study_id, event, target),
    CONSTRAINT ck_webhook_delivery_state CHECK (state in ('pending','delivered','given_up'))
);
CREATE INDEX ix_webhook_delivery_due ON webhook_delivery (next_try_at) WHERE state = 'pending';
CREATE INDEX ix_webhook_delivery_created_at ON webhook_delivery (created_at);
-- What was worth a message lately.
CREATE INDEX ix_event_state_at ON event (at) WHERE kind = 'state';
