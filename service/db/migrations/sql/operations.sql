-- What operations need.

-- What the orchestrators tell the API's /metrics: an API replica meets them in the database only.

CREATE TABLE orchestrator_pulse (
    owner TEXT NOT NULL,
    started_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    ticked_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    ticks BIGINT NOT NULL,
    tick_seconds DOUBLE PRECISION NOT NULL,
    last_tick_seconds DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_orchestrator_pulse PRIMARY KEY (owner)
);

-- The newest entry about a reservation is read with every study: without this, through the whole journal.
CREATE INDEX ledger_entry_reservation ON ledger_entry (reservation_id, seq);
