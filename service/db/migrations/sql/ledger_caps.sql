-- Rényi accounting inside the database, admission by it, and caps of tenants.
--
-- Rules
--   * The database computes the Rényi divergences of an event itself: no client is believed.
--   * admission = 'renyi_filter': at one order, fixed when the scope opens, the divergences of all that is
--     committed stay below what the budget is worth there. Valid where plans depend on earlier outputs
--     (Feldman and Zrnic 2021). One order and not the best of many: the best of k costs k times delta.
--   * admission = 'pld': the service composes and reserves against the head it priced (TN001). Whatever it
--     says, some order must stay below what the wall is worth, a fifth above the budget or 1 where that is
--     more (Rényi bounds are that much looser for a small epsilon): the guard against a wrong client.
--     Events without a Rényi bound (batches with a cap, a replaced unit) stand outside the wall.
--   * A tenant's cap is a second, lower epsilon within the scope, at the scope's delta.
--
-- SQLSTATE
--   TN009  the budget or the tenant's cap does not hold it, by Rényi divergences


-- Helpers: floats as they stand in the journal, divergences, caps.

CREATE FUNCTION ledger_float(p_hex TEXT) RETURNS DOUBLE PRECISION
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    parts TEXT[] := regexp_match(p_hex, '^0x([01])\.?([0-9a-f]{0,13})p([+-][0-9]{1,4})$');
BEGIN
    IF parts IS NULL OR parts[3]::int NOT BETWEEN -1022 AND 1023 THEN
        RAISE EXCEPTION 'not a hexadecimal float: %', quote_literal(left(p_hex, 60))
            USING ERRCODE = 'TN006';
    END IF;
    RETURN (parts[1]::float8 + ('x' || rpad(parts[2], 13, '0'))::bit(52)::bigint / 2.0::float8 ^ 52)
        * 2.0::float8 ^ parts[3]::float8;
END
$$;

-- The inverse, for x >= 0.
CREATE FUNCTION ledger_hex(x DOUBLE PRECISION) RETURNS TEXT
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT CASE WHEN x = 0 THEN '0x0.0p+0' ELSE concat(
        '0x1.', right(bits, 13), 'p', CASE WHEN exponent >= 0 THEN '+' END, exponent) END
    FROM (SELECT encode(float8send(x), 'hex')) AS sent (bits),
        LATERAL (SELECT ('x0' || left(bits, 3))::bit(16)::int - 1023) AS power (exponent);
$$;

CREATE FUNCTION ledger_orders() RETURNS DOUBLE PRECISION[]
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT ARRAY[
        1.0625, 1.125, 1.1875, 1.25, 1.375, 1.5, 1.625, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.25, 3.5, 3.75,
        4, 4.5, 5, 5.5, 6, 6.5, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 28, 32, 36, 40, 48, 56,
        64, 80, 96, 128, 160, 192, 256, 384, 512
    ]::float8[];
$$;

-- Rényi divergence of one Poisson-sampled Gaussian step, rounded up; null above order 60 sigma, where it
-- is of no use. With L(t) = 1 - q + q exp(t / sigma - 1 / (2 sigma^2)) it is
--     log E[L(t)^order] / (order - 1),  t standard normal (Mironov, Talwar and Zhang 2019),
-- by the trapezoid rule: the integrand is analytic within pi sigma of the real axis, so its error at this
-- step is far below that of rounding, which the last term covers.
CREATE FUNCTION ledger_divergence(
    q DOUBLE PRECISION, sigma DOUBLE PRECISION, renyi_order DOUBLE PRECISION
) RETURNS DOUBLE PRECISION
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, public, pg_temp
AS $$
    WITH grid (step) AS (SELECT least(0.25, sigma / 4)),
    point (t, loss) AS (
        SELECT i * step, i * step / sigma - 1 / (2 * sigma * sigma)
        FROM grid, generate_series(
            floor(-10 / step)::bigint,
            ceil((least(renyi_order / sigma, 60) + 10) / step)::bigint) AS i
    ),
    term (logarithm) AS (  -- exp of less than -300 would only underflow
        SELECT renyi_order * CASE
            WHEN loss > 0 THEN loss + ln(q + (1 - q) * exp(greatest(-loss, -300)))
            ELSE ln(1 - q + q * exp(greatest(loss, -300))) END - t * t / 2
        FROM point
    ),
    largest (logarithm) AS (SELECT max(logarithm) FROM term)
    SELECT CASE WHEN renyi_order <= 60 * sigma THEN (greatest(max(largest.logarithm)
        + ln(sum(exp(greatest(term.logarithm - largest.logarithm, -300))) * max(step) / sqrt(2 * pi())),
        0) * (1 + 1e-12) + 1e-12) / (renyi_order - 1) END
    FROM term, largest, grid;
$$;

-- Divergences of one step of an event at every order; null where no bound is known.
CREATE FUNCTION ledger_divergences(p_event JSON) RETURNS DOUBLE PRECISION[]
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    q DOUBLE PRECISION := ledger_float(p_event ->> 'sampling_rate');
    sigma DOUBLE PRECISION := ledger_float(p_event ->> 'noise_multiplier');
    replaced BOOLEAN := p_event ->> 'neighboring_relation' = 'replace_one';
BEGIN
    IF q IS NULL OR sigma IS NULL OR q <= 0 OR q > 1 OR sigma <= 0 THEN
        RAISE EXCEPTION 'an event needs a sampling rate in (0, 1] and a noise multiplier above 0'
            USING ERRCODE = 'TN006';
    ELSIF p_event ->> 'sampling' IS DISTINCT FROM 'poisson' OR (replaced AND q < 1) THEN
        RETURN NULL;
    END IF;
    IF replaced THEN
        sigma := sigma / 2;
    END IF;
    RETURN ARRAY(  -- an order that is of no use is not integrated: a small sigma has millions of points
        SELECT CASE WHEN renyi_order <= 60 * sigma THEN ledger_divergence(q, sigma, renyi_order) END
        FROM unnest(ledger_orders()) WITH ORDINALITY AS known (renyi_order, place) ORDER BY place);
END
$$;

-- What an epsilon is worth at an order (Canonne, Kamath and Steinke 2020, proposition 12).
CREATE FUNCTION ledger_worth(
    epsilon DOUBLE PRECISION, delta DOUBLE PRECISION, renyi_order DOUBLE PRECISION
) RETURNS DOUBLE PRECISION
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT epsilon - ln(1 - 1 / renyi_order) + ln(delta * renyi_order) / (renyi_order - 1);
$$;


-- The tables' new parts. What is there already is admitted by pld, and belongs to the local tenant.

ALTER TABLE ledger_scope
    ADD COLUMN admission TEXT DEFAULT 'pld' NOT NULL CHECK (admission IN ('pld', 'renyi_filter')),
    ADD COLUMN filter_order TEXT,
    ADD CHECK ((filter_order IS NOT NULL) = (admission = 'renyi_filter'));

ALTER TABLE ledger_reservation
    ADD COLUMN tenant TEXT DEFAULT 'local' NOT NULL,
    ADD COLUMN divergences DOUBLE PRECISION[];
UPDATE ledger_reservation SET divergences = ledger_divergences(event::json);

ALTER TABLE ledger_evaluation ADD COLUMN reservation_id TEXT REFERENCES ledger_reservation;

CREATE TABLE ledger_cap (
    scope_id TEXT NOT NULL REFERENCES ledger_scope,
    tenant TEXT NOT NULL CHECK (tenant ~ '^[A-Za-z0-9_.-]{1,100}$'),
    epsilon TEXT NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (scope_id, tenant),
    FOREIGN KEY (scope_id, seq) REFERENCES ledger_entry
);
CREATE TRIGGER refuse_rows BEFORE DELETE ON ledger_cap
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON ledger_cap
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();
ALTER TABLE ledger_cap
    ENABLE ALWAYS TRIGGER refuse_rows, ENABLE ALWAYS TRIGGER refuse_truncate;

ALTER TABLE ledger_entry
    DROP CONSTRAINT ledger_entry_kind_check,
    ADD CONSTRAINT ledger_entry_kind_check
        CHECK (kind IN ('open', 'reserve', 'acquire', 'begin', 'end', 'release', 'attest', 'cap'));


-- Whether divergences added to those that are committed stay below an epsilon; of one tenant, or of all.
CREATE FUNCTION ledger_holds(
    scope ledger_scope, p_tenant TEXT, p_epsilon DOUBLE PRECISION, p_divergences DOUBLE PRECISION[],
    p_steps BIGINT
) RETURNS BOOLEAN
LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp
AS $$
    WITH committed AS (
        SELECT divergences, reserved_steps - released_steps AS steps FROM ledger_reservation
        WHERE scope_id = scope.scope_id AND (p_tenant IS NULL OR tenant = p_tenant)
            AND divergences IS NOT NULL
        UNION ALL SELECT p_divergences, p_steps
    )
    SELECT coalesce(bool_or(spent * (1 + 1e-12) <= ledger_worth(
        CASE scope.admission WHEN 'pld' THEN greatest(1.2 * p_epsilon, p_epsilon + 1)
            ELSE p_epsilon END,
        ledger_float(scope.delta), renyi_order)), false)
    FROM (
        SELECT known.renyi_order, count(*) = count(divergences[place])
            AS is_known, sum(steps * divergences[place]) AS spent
        FROM committed, unnest(ledger_orders()) WITH ORDINALITY AS known (renyi_order, place)
        WHERE scope.filter_order IS NULL OR renyi_order = ledger_float(scope.filter_order)
        GROUP BY known.renyi_order
    ) AS at_order
    WHERE is_known;
$$;

-- Refuse what the scope's budget or its tenant's cap does not hold, under the head's lock.
CREATE FUNCTION ledger_check_worth(
    scope ledger_scope, p_tenant TEXT, p_divergences DOUBLE PRECISION[], p_steps BIGINT
) RETURNS VOID
LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    cap TEXT;
BEGIN
    IF p_divergences IS NULL THEN
        IF scope.admission = 'renyi_filter' THEN
            RAISE EXCEPTION 'scope % admits by a Rényi filter: accepted is Poisson sampling under '
                'add_or_remove_one or zero_out', scope.scope_id USING ERRCODE = 'TN006';
        END IF;
        RETURN;
    END IF;
    IF NOT ledger_holds(scope, NULL, ledger_float(scope.epsilon), p_divergences, p_steps) THEN
        RAISE EXCEPTION 'the budget of scope % does not hold it', scope.scope_id
            USING ERRCODE = 'TN009';
    END IF;
    SELECT epsilon INTO cap FROM ledger_cap
        WHERE scope_id = scope.scope_id AND tenant = p_tenant;
    IF FOUND AND NOT ledger_holds(scope, p_tenant, ledger_float(cap), p_divergences, p_steps) THEN
        RAISE EXCEPTION 'the cap of tenant % in scope % does not hold it', p_tenant, scope.scope_id
            USING ERRCODE = 'TN009';
    END IF;
END
$$;


-- What the service calls.

-- Open a scope with its whole budget and its rule of admission. Harmless to repeat unchanged.
DROP FUNCTION ledger_open_scope(TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT);
CREATE FUNCTION ledger_open_scope(
    p_scope TEXT, p_name TEXT, p_unit TEXT, p_neighboring_relation TEXT, p_epsilon TEXT,
    p_delta TEXT, p_admission TEXT, p_actor TEXT
) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    known ledger_scope;
    chosen TEXT;  -- where a budget is worth most steps of a Gaussian mechanism
BEGIN
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
        RETURN 1;
    END IF;
    INSERT INTO ledger_head (scope_id, seq, hash) VALUES (p_scope, 0, '');
    RETURN ledger_append(p_scope, 'open', NULL, json_build_object(
        'v', 1, 'at', ledger_now(), 'actor', p_actor, 'name', p_name, 'unit', p_unit,
        'neighboring_relation', p_neighboring_relation, 'epsilon', p_epsilon, 'delta', p_delta,
        'admission', p_admission, 'filter_order', chosen
    )::text);
EXCEPTION
    WHEN check_violation OR not_null_violation THEN
        RAISE EXCEPTION 'scope % is refused: %', quote_nullable(p_scope), SQLERRM
            USING ERRCODE = 'TN006';
END
$$;

-- Hold steps of an event, if the budget holds them. Under pld only at the head that was priced.
DROP FUNCTION ledger_reserve(TEXT, BIGINT, TEXT, TEXT, TEXT, BIGINT, TEXT);
CREATE FUNCTION ledger_reserve(
    p_scope TEXT, p_expected_seq BIGINT, p_reservation TEXT, p_study TEXT, p_tenant TEXT,
    p_event TEXT, p_steps BIGINT, p_actor TEXT
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
            IS DISTINCT FROM (p_scope, p_study, p_tenant, p_event, p_steps) THEN
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
        'steps', p_steps, 'event', p_event::json,
        'divergences', (SELECT json_agg(ledger_hex(one) ORDER BY place)
            FROM unnest(found_divergences) WITH ORDINALITY AS every (one, place))
    )::text);
    INSERT INTO ledger_reservation
        (reservation_id, scope_id, study_id, tenant, seq, event, reserved_steps, divergences)
        VALUES (p_reservation, p_scope, p_study, p_tenant, entry, p_event, p_steps,
            found_divergences);
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

-- Limit a tenant to a lower epsilon within the scope; the entry that says so. Harmless to repeat.
CREATE FUNCTION ledger_set_cap(p_scope TEXT, p_tenant TEXT, p_epsilon TEXT, p_actor TEXT)
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
    IF wanted IS NULL OR wanted <= 0 OR wanted > ledger_float(total) THEN
        RAISE EXCEPTION 'a cap in scope % is above 0 and at most its whole budget', p_scope
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

-- Bind a fact about the whole scope to the chain, such as that a backup was restored.
CREATE FUNCTION ledger_attest_scope(p_scope TEXT, p_note TEXT, p_actor TEXT) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    IF json_typeof(p_note::json) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'a note must be a JSON object' USING ERRCODE = 'TN006';
    END IF;
    RETURN ledger_append(p_scope, 'attest', NULL, json_build_object(
        'v', 1, 'at', ledger_now(), 'actor', p_actor, 'note', p_note::json
    )::text);
EXCEPTION
    WHEN invalid_text_representation THEN
        RAISE EXCEPTION 'a note must be a JSON object' USING ERRCODE = 'TN006';
END
$$;

-- Keep what an accountant computed of a reservation's charges, or of all, up to an entry.
DROP FUNCTION ledger_record_evaluation(TEXT, BIGINT, TEXT, TEXT, TEXT, TEXT);
CREATE FUNCTION ledger_record_evaluation(
    p_scope TEXT, p_seq BIGINT, p_reservation TEXT, p_accountant TEXT, p_version TEXT,
    p_epsilon TEXT, p_delta TEXT
) RETURNS VOID
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
    INSERT INTO ledger_evaluation
        (scope_id, seq, reservation_id, accountant, version, epsilon, delta)
        VALUES (p_scope, p_seq, p_reservation, p_accountant, p_version, p_epsilon, p_delta);
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
