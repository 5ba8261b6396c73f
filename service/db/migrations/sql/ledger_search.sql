-- How a study's search touches the private data, in the journal: an epsilon without it is half the truth.
--
-- Entries that are there say nothing of it and stay valid; their reservations have null.

ALTER TABLE ledger_reservation ADD COLUMN search_accounting TEXT CHECK (search_accounting IN (
    'public_proxy', 'accounted', 'private_selection', 'disjoint_split', 'declared_unaccounted'));

-- Hold steps of an event, if the budget holds them. Under pld only at the head that was priced.
DROP FUNCTION ledger_reserve(TEXT, BIGINT, TEXT, TEXT, TEXT, TEXT, BIGINT, TEXT);
CREATE FUNCTION ledger_reserve(
    p_scope TEXT, p_expected_seq BIGINT, p_reservation TEXT, p_study TEXT, p_tenant TEXT,
    p_event TEXT, p_steps BIGINT, p_actor TEXT, p_search_accounting TEXT DEFAULT NULL
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
            OR known.search_accounting IS DISTINCT FROM p_search_accounting THEN
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
        'search_accounting', p_search_accounting, 'steps', p_steps, 'event', p_event::json,
        'divergences', (SELECT json_agg(ledger_hex(one) ORDER BY place)
            FROM unnest(found_divergences) WITH ORDINALITY AS every (one, place))
    )::text);
    INSERT INTO ledger_reservation
        (reservation_id, scope_id, study_id, tenant, seq, event, reserved_steps, divergences,
            search_accounting)
        VALUES (p_reservation, p_scope, p_study, p_tenant, entry, p_event, p_steps,
            found_divergences, p_search_accounting);
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
REVOKE ALL ON FUNCTION ledger_reserve(TEXT, BIGINT, TEXT, TEXT, TEXT, TEXT, BIGINT, TEXT, TEXT)
    FROM PUBLIC;
