-- What else read the private data, in the journal: baselines without privacy. And caps that freeze a ledger.
--
--   * A cap of 0 refuses whatever is asked: Rényi divergences of very little would pass it.
--   * The tenant '*' is all of them together.
--
-- Entries that are there say nothing of baselines and stay valid; their reservations have null.

ALTER TABLE ledger_reservation ADD COLUMN baseline BOOLEAN;

-- What a scope's own attestations say is asked of every account.
CREATE INDEX ix_ledger_entry_of_scope ON ledger_entry (scope_id)
    WHERE kind = 'attest' AND reservation_id IS NULL;

ALTER TABLE ledger_cap
    DROP CONSTRAINT ledger_cap_tenant_check,
    ADD CONSTRAINT ledger_cap_tenant_check CHECK (tenant = '*' OR tenant ~ '^[A-Za-z0-9_.-]{1,100}$');

-- Refuse what the scope's budget or a cap in it does not hold, under the head's lock.
CREATE OR REPLACE FUNCTION ledger_check_worth(
    scope ledger_scope, p_tenant TEXT, p_divergences DOUBLE PRECISION[], p_steps BIGINT
) RETURNS VOID
LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    cap ledger_cap;
    whose TEXT;
BEGIN
    IF p_divergences IS NULL AND scope.admission = 'renyi_filter' THEN
        RAISE EXCEPTION 'scope % admits by a Rényi filter: accepted is Poisson sampling under '
            'add_or_remove_one or zero_out', scope.scope_id USING ERRCODE = 'TN006';
    END IF;
    IF p_divergences IS NOT NULL
        AND NOT ledger_holds(scope, NULL, ledger_float(scope.epsilon), p_divergences, p_steps) THEN
        RAISE EXCEPTION 'the budget of scope % does not hold it', scope.scope_id
            USING ERRCODE = 'TN009';
    END IF;
    FOR cap IN SELECT * FROM ledger_cap
        WHERE scope_id = scope.scope_id AND tenant IN (p_tenant, '*') ORDER BY tenant
    LOOP
        IF ledger_float(cap.epsilon) <= 0 OR p_divergences IS NOT NULL
            AND NOT ledger_holds(scope, nullif(cap.tenant, '*'), ledger_float(cap.epsilon),
                p_divergences, p_steps) THEN
            whose := CASE cap.tenant WHEN '*' THEN 'all tenants' ELSE 'tenant ' || cap.tenant END;
            RAISE EXCEPTION 'the cap of % in scope % does not hold it', whose, scope.scope_id
                USING ERRCODE = 'TN009';
        END IF;
    END LOOP;
END
$$;

-- Limit a tenant, or all of them together, to a lower epsilon within the scope; the entry that says so. Harmless to repeat.
CREATE OR REPLACE FUNCTION ledger_set_cap(p_scope TEXT, p_tenant TEXT, p_epsilon TEXT, p_actor TEXT)
RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    wanted DOUBLE PRECISION := ledger_float(p_epsilon);
    total TEXT;
    known ledger_cap;
    entry BIGINT;
BEGIN
    PERFORM ledger_lock(p_scope);
    SELECT epsilon INTO total FROM ledger_scope WHERE scope_id = p_scope;
    IF wanted IS NULL OR wanted < 0 OR wanted > ledger_float(total) THEN
        RAISE EXCEPTION 'a cap in scope % is at least 0 and at most its whole budget', p_scope
            USING ERRCODE = 'TN006';
    END IF;
    SELECT * INTO known FROM ledger_cap WHERE scope_id = p_scope AND tenant = p_tenant;
    IF FOUND AND known.epsilon = p_epsilon THEN
        RETURN known.seq;
    END IF;
    entry := ledger_append(p_scope, 'cap', NULL, json_build_object(
        'v', 1, 'at', ledger_now(), 'actor', p_actor, 'tenant', p_tenant, 'epsilon', p_epsilon
    )::text);
    INSERT INTO ledger_cap (scope_id, tenant, epsilon, seq)
        VALUES (p_scope, p_tenant, p_epsilon, entry)
        ON CONFLICT (scope_id, tenant) DO UPDATE SET epsilon = p_epsilon, seq = entry;
    RETURN entry;
EXCEPTION
    WHEN check_violation OR not_null_violation THEN
        RAISE EXCEPTION 'the cap of tenant % is refused: %', quote_nullable(p_tenant), SQLERRM
            USING ERRCODE = 'TN006';
END
$$;

-- Hold steps of an event, if the budget holds them. Under pld only at the head that was priced.
DROP FUNCTION ledger_reserve(TEXT, BIGINT, TEXT, TEXT, TEXT, TEXT, BIGINT, TEXT, TEXT);
CREATE FUNCTION ledger_reserve(
    p_scope TEXT, p_expected_seq BIGINT, p_reservation TEXT, p_study TEXT, p_tenant TEXT,
    p_event TEXT, p_steps BIGINT, p_actor TEXT, p_search_accounting TEXT DEFAULT NULL,
    p_baseline BOOLEAN DEFAULT NULL
) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    found_divergences DOUBLE PRECISION[] := ledger_divergences(p_event::json);  -- before the lock
    head ledger_head := ledger_lock(p_scope);
    scope ledger_scope;
    known ledger_reservation;
    entry BIGINT;
BEGIN
    SELECT * INTO known FROM ledger_reservation WHERE reservation_id = p_reservation;
    IF FOUND THEN
        IF (known.scope_id, known.study_id, known.tenant, known.event, known.reserved_steps)
            IS DISTINCT FROM (p_scope, p_study, p_tenant, p_event, p_steps)
            OR known.search_accounting IS DISTINCT FROM p_search_accounting
            OR known.baseline IS DISTINCT FROM p_baseline THEN
            RAISE EXCEPTION 'reservation % was made before, for another request', p_reservation
                USING ERRCODE = 'TN004';
        END IF;
        RETURN known.seq;
    END IF;
    SELECT * INTO scope FROM ledger_scope WHERE scope_id = p_scope;
    IF scope.admission = 'pld' AND head.seq IS DISTINCT FROM p_expected_seq THEN
        RAISE EXCEPTION 'scope % is at entry %, not %',
            p_scope, head.seq, coalesce(p_expected_seq::text, 'null') USING ERRCODE = 'TN001';
    END IF;
    IF p_tenant IS NULL OR p_steps IS NULL OR p_steps < 1
        OR (p_event::json ->> 'neighboring_relation')
            IS DISTINCT FROM scope.neighboring_relation
        OR (p_event::json ->> 'steps') IS DISTINCT FROM p_steps::text THEN
        RAISE EXCEPTION 'reservation % needs a tenant and an event of % steps under %',
            quote_nullable(p_reservation), coalesce(p_steps::text, 'null'),
            scope.neighboring_relation USING ERRCODE = 'TN006';
    END IF;
    PERFORM ledger_check_worth(scope, p_tenant, found_divergences, p_steps);
    entry := ledger_append(p_scope, 'reserve', p_reservation, json_build_object(
        'v', 1, 'at', ledger_now(), 'actor', p_actor, 'study', p_study, 'tenant', p_tenant,
        'search_accounting', p_search_accounting, 'baseline', p_baseline, 'steps', p_steps, 'event', p_event::json,
        'divergences', (SELECT json_agg(ledger_hex(one) ORDER BY place)
            FROM unnest(found_divergences) WITH ORDINALITY AS every (one, place))
    )::text);
    INSERT INTO ledger_reservation
        (reservation_id, scope_id, study_id, tenant, seq, event, reserved_steps, divergences,
            search_accounting, baseline)
        VALUES (p_reservation, p_scope, p_study, p_tenant, entry, p_event, p_steps,
            found_divergences, p_search_accounting, p_baseline);
    RETURN entry;
EXCEPTION
    WHEN check_violation OR not_null_violation THEN
        RAISE EXCEPTION 'reservation % is refused: %', quote_nullable(p_reservation), SQLERRM
            USING ERRCODE = 'TN006';
    WHEN unique_violation THEN  -- the same identifier in another scope, at the same moment
        RAISE EXCEPTION 'reservation % was made before, for another request', p_reservation
            USING ERRCODE = 'TN004';
END
$$;

-- PostgreSQL lets everybody execute new functions.
REVOKE ALL ON FUNCTION ledger_reserve(TEXT, BIGINT, TEXT, TEXT, TEXT, TEXT, BIGINT, TEXT, TEXT, BOOLEAN)
    FROM PUBLIC;
