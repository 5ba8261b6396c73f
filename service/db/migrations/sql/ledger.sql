-- The privacy ledger: an append-only journal per scope, and the state that it folds to.
--
-- Rules
--   * A scope is a protected population with its whole budget. Its head row is the one lock: every
--     function below takes it first, FOR UPDATE (ledger_lock), so READ COMMITTED is enough.
--   * An entry's hash covers the one before it:
--         hash = sha256(prev_hash || utf8('scope|seq|kind|reservation|' || body))
--     with an empty prev_hash at seq 1. The body is exact text; its floats are hexadecimal strings.
--   * Steps are charged when a segment begins, and never given back.
--   * The service's role may SELECT, and EXECUTE the SECURITY DEFINER functions; nothing else writes.
--
-- SQLSTATEs
--   TN001  the head has moved since it was read: read, price and try again
--   TN002  stale epoch: a successor has acquired the reservation
--   TN003  no such scope or reservation
--   TN004  the identifier was used before, for another request
--   TN005  the reservation is closed
--   TN006  an argument is outside its domain
--   TN007  the journal is append-only
--   TN008  no such segment, or it ended with another checkpoint

CREATE TABLE ledger_scope (
    scope_id TEXT PRIMARY KEY CHECK (scope_id ~ '^[A-Za-z0-9_.:-]{1,200}$'),
    name TEXT NOT NULL,
    unit TEXT NOT NULL,
    neighboring_relation TEXT NOT NULL
        CHECK (neighboring_relation IN ('add_or_remove_one', 'zero_out', 'replace_one')),
    epsilon TEXT NOT NULL CHECK (epsilon ~ '^0x[01]\.?[0-9a-f]*p[+-][0-9]+$'),
    delta TEXT NOT NULL CHECK (delta ~ '^0x[01]\.?[0-9a-f]*p[+-][0-9]+$')
);

CREATE TABLE ledger_head (
    scope_id TEXT PRIMARY KEY REFERENCES ledger_scope,
    seq BIGINT NOT NULL CHECK (seq >= 0),
    hash BYTEA NOT NULL
);

CREATE TABLE ledger_entry (
    scope_id TEXT NOT NULL REFERENCES ledger_scope,
    seq BIGINT NOT NULL CHECK (seq >= 1),
    kind TEXT NOT NULL
        CHECK (kind IN ('open', 'reserve', 'acquire', 'begin', 'end', 'release', 'attest')),
    reservation_id TEXT,
    body TEXT NOT NULL CHECK (json_typeof(body::json) = 'object'),
    prev_hash BYTEA NOT NULL,
    hash BYTEA NOT NULL,
    PRIMARY KEY (scope_id, seq)
);

CREATE TABLE ledger_reservation (
    reservation_id TEXT PRIMARY KEY CHECK (reservation_id ~ '^[A-Za-z0-9_.:-]{1,200}$'),
    scope_id TEXT NOT NULL REFERENCES ledger_scope,
    study_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    event TEXT NOT NULL,
    reserved_steps BIGINT NOT NULL CHECK (reserved_steps >= 1),
    charged_steps BIGINT NOT NULL DEFAULT 0 CHECK (charged_steps >= 0),
    released_steps BIGINT NOT NULL DEFAULT 0 CHECK (released_steps >= 0),
    epoch BIGINT NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    segments BIGINT NOT NULL DEFAULT 0,
    open_segment BIGINT,
    ended_segment BIGINT NOT NULL DEFAULT 0,
    checkpoint_step BIGINT NOT NULL DEFAULT 0,
    checkpoint_sha256 TEXT,
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closed')),
    CHECK (charged_steps + released_steps <= reserved_steps),
    FOREIGN KEY (scope_id, seq) REFERENCES ledger_entry
);
CREATE INDEX ledger_reservation_scope ON ledger_reservation (scope_id);
CREATE INDEX ledger_reservation_study ON ledger_reservation (study_id);

CREATE TABLE ledger_segment (
    reservation_id TEXT NOT NULL REFERENCES ledger_reservation,
    segment BIGINT NOT NULL CHECK (segment >= 1),
    epoch BIGINT NOT NULL,
    request_id TEXT NOT NULL CHECK (length(request_id) BETWEEN 1 AND 200),
    start_step BIGINT NOT NULL CHECK (start_step >= 0),
    asked_steps BIGINT NOT NULL CHECK (asked_steps >= 1),
    num_steps BIGINT NOT NULL CHECK (num_steps >= 1),
    checkpoint_step BIGINT,
    checkpoint_sha256 TEXT,
    ended BOOLEAN NOT NULL DEFAULT false,
    PRIMARY KEY (reservation_id, segment),
    UNIQUE (reservation_id, request_id)
);

-- What an accountant of some version made of the journal up to an entry. Derived, so not chained.
CREATE TABLE ledger_evaluation (
    evaluation_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    accountant TEXT NOT NULL,
    version TEXT NOT NULL,
    epsilon TEXT NOT NULL,
    delta TEXT NOT NULL,
    at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (scope_id, seq) REFERENCES ledger_entry
);
CREATE INDEX ledger_evaluation_entry ON ledger_evaluation (scope_id, seq);


-- Nothing is ever edited. ALWAYS: plain triggers are skipped under session_replication_role = replica.

CREATE FUNCTION ledger_refuse() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: the ledger is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'TN007';
END
$$;

DO $$
DECLARE
    target TEXT;
    refused TEXT;
BEGIN
    FOR target, refused IN VALUES
        ('ledger_scope', 'UPDATE OR DELETE'), ('ledger_entry', 'UPDATE OR DELETE'),
        ('ledger_evaluation', 'UPDATE OR DELETE'), ('ledger_head', 'DELETE'),
        ('ledger_reservation', 'DELETE'), ('ledger_segment', 'DELETE')
    LOOP
        EXECUTE format('CREATE TRIGGER refuse_rows BEFORE %s ON %I FOR EACH ROW '
                       'EXECUTE FUNCTION ledger_refuse()', refused, target);
        EXECUTE format('CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON %I FOR EACH STATEMENT '
                       'EXECUTE FUNCTION ledger_refuse()', target);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER refuse_rows, '
                       'ENABLE ALWAYS TRIGGER refuse_truncate', target);
    END LOOP;
END
$$;


-- Helpers: called by the functions below, granted to nobody.

CREATE FUNCTION ledger_hash(
    prev_hash BYTEA, scope_id TEXT, seq BIGINT, kind TEXT, reservation_id TEXT, body TEXT
) RETURNS BYTEA
LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT sha256(prev_hash || convert_to(
        concat(scope_id, '|', seq, '|', kind, '|', reservation_id, '|', body), 'UTF8'));
$$;

CREATE FUNCTION ledger_now() RETURNS TEXT
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
$$;

-- Lock a scope's head: everything that reads state in order to write it comes after this.
-- NOTE: the advisory lock is the queue, the row lock the guard. A queue on the row itself deadlocks:
-- who waits for a lock taken in a savepoint waits for the whole transaction once the savepoint is
-- released into another; if that one is rolled back and the lock is taken again, they wait in a ring.
CREATE FUNCTION ledger_lock(p_scope TEXT) RETURNS ledger_head
LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    head ledger_head;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('ledger:' || p_scope, 0));
    SELECT * INTO head FROM ledger_head WHERE scope_id = p_scope FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no ledger scope %', quote_nullable(p_scope) USING ERRCODE = 'TN003';
    END IF;
    RETURN head;
END
$$;

-- Append an entry under the head's lock; its number.
CREATE FUNCTION ledger_append(p_scope TEXT, p_kind TEXT, p_reservation TEXT, p_body TEXT)
RETURNS BIGINT
LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    head ledger_head := ledger_lock(p_scope);
    next_hash BYTEA;
BEGIN
    next_hash := ledger_hash(head.hash, p_scope, head.seq + 1, p_kind, p_reservation, p_body);
    INSERT INTO ledger_entry (scope_id, seq, kind, reservation_id, body, prev_hash, hash)
        VALUES (p_scope, head.seq + 1, p_kind, p_reservation, p_body, head.hash, next_hash);
    UPDATE ledger_head SET seq = head.seq + 1, hash = next_hash WHERE scope_id = p_scope;
    RETURN head.seq + 1;
END
$$;

-- A reservation as it stands under its scope's lock.
CREATE FUNCTION ledger_locked_reservation(p_reservation TEXT) RETURNS ledger_reservation
LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    found_scope TEXT;
    held ledger_reservation;
BEGIN
    SELECT scope_id INTO found_scope FROM ledger_reservation WHERE reservation_id = p_reservation;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no reservation %', quote_nullable(p_reservation) USING ERRCODE = 'TN003';
    END IF;
    PERFORM ledger_lock(found_scope);
    SELECT * INTO held FROM ledger_reservation WHERE reservation_id = p_reservation;
    RETURN held;
END
$$;

-- The same, for a worker: open, and held by this very epoch.
CREATE FUNCTION ledger_held_reservation(p_reservation TEXT, p_epoch BIGINT)
RETURNS ledger_reservation
LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    held ledger_reservation := ledger_locked_reservation(p_reservation);
BEGIN
    IF held.state <> 'open' THEN
        RAISE EXCEPTION 'reservation % is closed', p_reservation USING ERRCODE = 'TN005';
    ELSIF p_epoch IS DISTINCT FROM held.epoch OR held.epoch = 0 THEN
        RAISE EXCEPTION 'reservation % is held by epoch %, not %',
            p_reservation, held.epoch, coalesce(p_epoch::text, 'null') USING ERRCODE = 'TN002';
    END IF;
    RETURN held;
END
$$;


-- What the service calls.

-- Open a scope with its whole budget; the number of its first entry. Harmless to repeat unchanged.
CREATE FUNCTION ledger_open_scope(
    p_scope TEXT, p_name TEXT, p_unit TEXT, p_neighboring_relation TEXT, p_epsilon TEXT,
    p_delta TEXT, p_actor TEXT
) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    known ledger_scope;
BEGIN
    INSERT INTO ledger_scope (scope_id, name, unit, neighboring_relation, epsilon, delta)
        VALUES (p_scope, p_name, p_unit, p_neighboring_relation, p_epsilon, p_delta)
        ON CONFLICT (scope_id) DO NOTHING;
    IF NOT FOUND THEN
        PERFORM ledger_lock(p_scope);
        SELECT * INTO known FROM ledger_scope WHERE scope_id = p_scope;
        IF (known.name, known.unit, known.neighboring_relation, known.epsilon, known.delta)
            IS DISTINCT FROM (p_name, p_unit, p_neighboring_relation, p_epsilon, p_delta) THEN
            RAISE EXCEPTION 'scope % is open already, with another budget or unit', p_scope
                USING ERRCODE = 'TN004';
        END IF;
        RETURN 1;
    END IF;
    INSERT INTO ledger_head (scope_id, seq, hash) VALUES (p_scope, 0, '');
    RETURN ledger_append(p_scope, 'open', NULL, json_build_object(
        'v', 1, 'at', ledger_now(), 'actor', p_actor, 'name', p_name, 'unit', p_unit,
        'neighboring_relation', p_neighboring_relation, 'epsilon', p_epsilon, 'delta', p_delta
    )::text);
EXCEPTION
    WHEN check_violation OR not_null_violation THEN
        RAISE EXCEPTION 'scope % is refused: %', quote_nullable(p_scope), SQLERRM
            USING ERRCODE = 'TN006';
END
$$;

-- Hold the scope until the transaction ends; the number of its last entry.
CREATE FUNCTION ledger_hold_scope(p_scope TEXT) RETURNS BIGINT
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT seq FROM ledger_lock(p_scope);
$$;

-- Hold steps of an event, if the head is still the one whose commitments were priced.
CREATE FUNCTION ledger_reserve(
    p_scope TEXT, p_expected_seq BIGINT, p_reservation TEXT, p_study TEXT, p_event TEXT,
    p_steps BIGINT, p_actor TEXT
) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    head ledger_head := ledger_lock(p_scope);
    relation TEXT;
    known ledger_reservation;
    entry BIGINT;
BEGIN
    SELECT * INTO known FROM ledger_reservation WHERE reservation_id = p_reservation;
    IF FOUND THEN
        IF (known.scope_id, known.study_id, known.event, known.reserved_steps)
            IS DISTINCT FROM (p_scope, p_study, p_event, p_steps) THEN
            RAISE EXCEPTION 'reservation % was made before, for another request', p_reservation
                USING ERRCODE = 'TN004';
        END IF;
        RETURN known.seq;
    END IF;
    IF head.seq IS DISTINCT FROM p_expected_seq THEN
        RAISE EXCEPTION 'scope % is at entry %, not %',
            p_scope, head.seq, coalesce(p_expected_seq::text, 'null') USING ERRCODE = 'TN001';
    END IF;
    SELECT neighboring_relation INTO relation FROM ledger_scope WHERE scope_id = p_scope;
    IF json_typeof(p_event::json) IS DISTINCT FROM 'object'
        OR (p_event::json ->> 'neighboring_relation') IS DISTINCT FROM relation
        OR (p_event::json ->> 'steps') IS DISTINCT FROM p_steps::text THEN
        RAISE EXCEPTION 'reservation % needs an event of % steps under %',
            quote_nullable(p_reservation), coalesce(p_steps::text, 'null'), relation
            USING ERRCODE = 'TN006';
    END IF;
    entry := ledger_append(p_scope, 'reserve', p_reservation, json_build_object(
        'v', 1, 'at', ledger_now(), 'actor', p_actor, 'study', p_study, 'steps', p_steps,
        'event', p_event::json
    )::text);
    INSERT INTO ledger_reservation
        (reservation_id, scope_id, study_id, seq, event, reserved_steps)
        VALUES (p_reservation, p_scope, p_study, entry, p_event, p_steps);
    RETURN entry;
EXCEPTION
    WHEN check_violation OR not_null_violation OR invalid_text_representation THEN
        RAISE EXCEPTION 'reservation % is refused: %', quote_nullable(p_reservation), SQLERRM
            USING ERRCODE = 'TN006';
    WHEN unique_violation THEN  -- the same identifier in another scope, at the same moment
        RAISE EXCEPTION 'reservation % was made before, for another request', p_reservation
            USING ERRCODE = 'TN004';
END
$$;

-- Hand the reservation to a new worker. What the old one began stays charged; the old one is refused.
CREATE FUNCTION ledger_acquire(p_reservation TEXT, p_epoch BIGINT) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    held ledger_reservation := ledger_locked_reservation(p_reservation);
BEGIN
    IF held.state <> 'open' THEN
        RAISE EXCEPTION 'reservation % is closed', p_reservation USING ERRCODE = 'TN005';
    ELSIF p_epoch IS NULL OR p_epoch <= held.epoch THEN
        RAISE EXCEPTION 'reservation % is held by epoch %: epoch % is not above it',
            p_reservation, held.epoch, coalesce(p_epoch::text, 'null') USING ERRCODE = 'TN002';
    END IF;
    UPDATE ledger_reservation SET epoch = p_epoch, open_segment = NULL
        WHERE reservation_id = p_reservation;
    RETURN ledger_append(held.scope_id, 'acquire', p_reservation, json_build_object(
        'v', 1, 'at', ledger_now(), 'epoch', p_epoch
    )::text);
END
$$;

-- Charge the next steps, as many as are left. The caller commits before the first of them runs.
-- (0, 0) when the reservation is used up. The same request gets the same answer, charged once.
CREATE FUNCTION ledger_begin_segment(
    p_reservation TEXT, p_epoch BIGINT, p_start_step BIGINT, p_num_steps BIGINT, p_request_id TEXT,
    OUT segment BIGINT, OUT granted BIGINT
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    held ledger_reservation := ledger_held_reservation(p_reservation, p_epoch);
    known ledger_segment;
BEGIN
    SELECT * INTO known FROM ledger_segment s
        WHERE s.reservation_id = p_reservation AND s.request_id = p_request_id;
    IF FOUND THEN
        IF (known.epoch, known.start_step, known.asked_steps)
            IS DISTINCT FROM (p_epoch, p_start_step, p_num_steps) THEN
            RAISE EXCEPTION 'request % of reservation % was made before, for other steps',
                p_request_id, p_reservation USING ERRCODE = 'TN004';
        END IF;
        segment := known.segment;
        granted := known.num_steps;
        RETURN;
    END IF;
    IF p_num_steps IS NULL OR p_num_steps < 1 OR p_start_step IS NULL OR p_start_step < 0
        OR p_request_id IS NULL THEN
        RAISE EXCEPTION 'a segment needs a start step >= 0, at least one step and a request id'
            USING ERRCODE = 'TN006';
    END IF;
    granted := least(
        p_num_steps, held.reserved_steps - held.charged_steps - held.released_steps);
    IF granted = 0 THEN
        segment := 0;
        RETURN;
    END IF;
    segment := held.segments + 1;
    INSERT INTO ledger_segment
        (reservation_id, segment, epoch, request_id, start_step, asked_steps, num_steps)
        VALUES (p_reservation, segment, p_epoch, p_request_id, p_start_step, p_num_steps, granted);
    UPDATE ledger_reservation r
        SET charged_steps = r.charged_steps + granted, segments = r.segments + 1,
            open_segment = held.segments + 1
        WHERE r.reservation_id = p_reservation;
    PERFORM ledger_append(held.scope_id, 'begin', p_reservation, json_build_object(
        'v', 1, 'at', ledger_now(), 'epoch', p_epoch, 'segment', segment,
        'start_step', p_start_step, 'num_steps', granted, 'request_id', p_request_id
    )::text);
EXCEPTION
    WHEN check_violation THEN
        RAISE EXCEPTION 'segment of reservation % is refused: %', p_reservation, SQLERRM
            USING ERRCODE = 'TN006';
END
$$;

-- Note a segment's checkpoint: where the next worker goes on. Charges nothing, frees nothing.
CREATE FUNCTION ledger_end_segment(
    p_reservation TEXT, p_epoch BIGINT, p_segment BIGINT, p_step BIGINT, p_checkpoint_sha256 TEXT
) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    held ledger_reservation := ledger_held_reservation(p_reservation, p_epoch);
    known ledger_segment;
BEGIN
    SELECT * INTO known FROM ledger_segment s
        WHERE s.reservation_id = p_reservation AND s.segment = p_segment;
    IF NOT FOUND OR known.epoch <> p_epoch THEN
        RAISE EXCEPTION 'reservation % has no segment % of epoch %', p_reservation,
            coalesce(p_segment::text, 'null'), p_epoch USING ERRCODE = 'TN008';
    ELSIF known.ended THEN
        IF (known.checkpoint_step, known.checkpoint_sha256)
            IS DISTINCT FROM (p_step, p_checkpoint_sha256) THEN
            RAISE EXCEPTION 'segment % of reservation % ended at step %, with another checkpoint',
                p_segment, p_reservation, known.checkpoint_step USING ERRCODE = 'TN008';
        END IF;
        RETURN;
    ELSIF p_step IS NULL OR p_checkpoint_sha256 IS NULL
        OR p_step NOT BETWEEN known.start_step AND known.start_step + known.num_steps THEN
        RAISE EXCEPTION 'segment % of reservation % covers steps % to %: it cannot end at %',
            p_segment, p_reservation, known.start_step, known.start_step + known.num_steps,
            coalesce(p_step::text, 'null') USING ERRCODE = 'TN006';
    END IF;
    UPDATE ledger_segment s
        SET ended = true, checkpoint_step = p_step, checkpoint_sha256 = p_checkpoint_sha256
        WHERE s.reservation_id = p_reservation AND s.segment = p_segment;
    UPDATE ledger_reservation r
        SET open_segment = nullif(r.open_segment, p_segment), ended_segment = p_segment,
            checkpoint_step = p_step, checkpoint_sha256 = p_checkpoint_sha256
        WHERE r.reservation_id = p_reservation AND r.ended_segment < p_segment;
    PERFORM ledger_append(held.scope_id, 'end', p_reservation, json_build_object(
        'v', 1, 'at', ledger_now(), 'epoch', p_epoch, 'segment', p_segment, 'step', p_step,
        'checkpoint_sha256', p_checkpoint_sha256
    )::text);
END
$$;

-- Give back the steps that never began, and close the reservation; how many. Harmless to repeat.
CREATE FUNCTION ledger_release(p_reservation TEXT, p_actor TEXT, p_reason TEXT) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    held ledger_reservation := ledger_locked_reservation(p_reservation);
    unused BIGINT := held.reserved_steps - held.charged_steps - held.released_steps;
BEGIN
    IF held.state = 'closed' THEN
        RETURN 0;
    END IF;
    UPDATE ledger_reservation r
        SET released_steps = r.released_steps + unused, state = 'closed', open_segment = NULL
        WHERE r.reservation_id = p_reservation;
    PERFORM ledger_append(held.scope_id, 'release', p_reservation, json_build_object(
        'v', 1, 'at', ledger_now(), 'actor', p_actor, 'reason', p_reason, 'released_steps', unused
    )::text);
    RETURN unused;
END
$$;

-- Bind a fact to the chain, such as the hash of released weights; the entry's number.
CREATE FUNCTION ledger_attest(p_reservation TEXT, p_note TEXT, p_actor TEXT) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    held ledger_reservation := ledger_locked_reservation(p_reservation);
BEGIN
    IF json_typeof(p_note::json) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'a note must be a JSON object' USING ERRCODE = 'TN006';
    END IF;
    RETURN ledger_append(held.scope_id, 'attest', p_reservation, json_build_object(
        'v', 1, 'at', ledger_now(), 'actor', p_actor, 'note', p_note::json
    )::text);
EXCEPTION
    WHEN invalid_text_representation THEN
        RAISE EXCEPTION 'a note must be a JSON object' USING ERRCODE = 'TN006';
END
$$;

-- Keep what an accountant computed for the journal up to an entry.
CREATE FUNCTION ledger_record_evaluation(
    p_scope TEXT, p_seq BIGINT, p_accountant TEXT, p_version TEXT, p_epsilon TEXT, p_delta TEXT
) RETURNS VOID
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
    INSERT INTO ledger_evaluation (scope_id, seq, accountant, version, epsilon, delta)
        VALUES (p_scope, p_seq, p_accountant, p_version, p_epsilon, p_delta);
$$;

-- PostgreSQL lets everybody execute new functions.
DO $$
DECLARE
    made REGPROCEDURE;
BEGIN
    FOR made IN
        SELECT oid FROM pg_proc
        WHERE proname LIKE 'ledger\_%' AND pronamespace = 'public'::regnamespace
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', made);
    END LOOP;
END
$$;
