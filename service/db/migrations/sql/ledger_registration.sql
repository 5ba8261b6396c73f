-- What a budget was opened for, in the journal's first entry: which data, whom it protects, how it is split,
-- and which searches its owner lets touch it. A row of the registry that says another thing is found.
--
-- Journals that are open say nothing of it and stay valid.

DROP FUNCTION ledger_open_scope(TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT);
CREATE FUNCTION ledger_open_scope(
    p_scope TEXT, p_name TEXT, p_unit TEXT, p_neighboring_relation TEXT, p_epsilon TEXT,
    p_delta TEXT, p_admission TEXT, p_actor TEXT, p_registration TEXT DEFAULT NULL
) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    known ledger_scope;
    chosen TEXT;  -- where a budget is worth most steps of a Gaussian mechanism
BEGIN
    IF p_registration IS NOT NULL AND json_typeof(p_registration::json) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'a registration must be a JSON object' USING ERRCODE = 'TN006';
    END IF;
    IF p_admission = 'renyi_filter' THEN
        SELECT ledger_hex(renyi_order) INTO chosen
            FROM unnest(ledger_orders()) AS renyi_order,
                ledger_worth(ledger_float(p_epsilon), ledger_float(p_delta), renyi_order) AS worth
            WHERE worth > 0 ORDER BY worth / renyi_order DESC LIMIT 1;
        IF chosen IS NULL THEN
            RAISE EXCEPTION 'scope % is refused: no Rényi order is of use for so small a budget', p_scope
                USING ERRCODE = 'TN006';
        END IF;
    END IF;
    INSERT INTO ledger_scope
        (scope_id, name, unit, neighboring_relation, epsilon, delta, admission, filter_order)
        VALUES (p_scope, p_name, p_unit, p_neighboring_relation, p_epsilon, p_delta, p_admission, chosen)
        ON CONFLICT (scope_id) DO NOTHING;
    IF NOT FOUND THEN
        PERFORM ledger_lock(p_scope);
        SELECT * INTO known FROM ledger_scope WHERE scope_id = p_scope;
        IF (known.name, known.unit, known.neighboring_relation, known.epsilon, known.delta,
                known.admission)
            IS DISTINCT FROM
            (p_name, p_unit, p_neighboring_relation, p_epsilon, p_delta, p_admission) THEN
            RAISE EXCEPTION 'scope % is open already, with another budget, unit or admission', p_scope
                USING ERRCODE = 'TN004';
        END IF;
        IF p_registration IS NOT NULL AND (
            SELECT body::json ->> 'registration' FROM ledger_entry WHERE scope_id = p_scope AND seq = 1
        ) IS DISTINCT FROM p_registration THEN
            RAISE EXCEPTION 'scope % is open already, for other data', p_scope
                USING ERRCODE = 'TN004';
        END IF;
        RETURN 1;
    END IF;
    INSERT INTO ledger_head (scope_id, seq, hash) VALUES (p_scope, 0, '');
    RETURN ledger_append(p_scope, 'open', NULL, json_build_object(
        'v', 1, 'at', ledger_now(), 'actor', p_actor, 'name', p_name, 'unit', p_unit,
        'neighboring_relation', p_neighboring_relation, 'epsilon', p_epsilon, 'delta', p_delta,
        'admission', p_admission, 'filter_order', chosen, 'registration', p_registration::json
    )::text);
EXCEPTION
    WHEN invalid_text_representation THEN
        RAISE EXCEPTION 'a registration must be a JSON object' USING ERRCODE = 'TN006';
    WHEN check_violation OR not_null_violation THEN
        RAISE EXCEPTION 'scope % is refused: %', quote_nullable(p_scope), SQLERRM
            USING ERRCODE = 'TN006';
END
$$;

-- PostgreSQL lets everybody execute new functions.
REVOKE ALL ON FUNCTION ledger_open_scope(TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT)
    FROM PUBLIC;
