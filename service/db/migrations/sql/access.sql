-- Who may do what: API tokens, the tenant of each study, and the audit of what was asked for.

-- Only a digest of the secret is kept: 256 random bits need no slow hash.
CREATE TABLE api_token (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    tenant TEXT NOT NULL,
    scopes JSONB NOT NULL,
    secret_sha256 TEXT NOT NULL,
    created_by TEXT,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    last_used_at TIMESTAMPTZ,
    CONSTRAINT pk_api_token PRIMARY KEY (id)
);

-- What was there before belongs to the tenant of local mode.
ALTER TABLE study ADD COLUMN tenant TEXT DEFAULT 'local' NOT NULL;
CREATE INDEX ix_study_tenant ON study (tenant, created_at);

CREATE TABLE audit_event (
    id BIGINT GENERATED ALWAYS AS IDENTITY NOT NULL,
    at TIMESTAMPTZ DEFAULT now() NOT NULL,
    token_id TEXT,
    tenant TEXT,
    address TEXT,
    method TEXT NOT NULL,
    route TEXT NOT NULL,
    target TEXT,
    status BIGINT NOT NULL,
    request_id TEXT NOT NULL,
    CONSTRAINT pk_audit_event PRIMARY KEY (id)
);

CREATE FUNCTION audit_refuse() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: the audit is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'TN007';
END
$$;

CREATE TRIGGER refuse_rows BEFORE UPDATE OR DELETE ON audit_event
    FOR EACH ROW EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON audit_event
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
-- ALWAYS: plain triggers are skipped under session_replication_role = replica.
ALTER TABLE audit_event
    ENABLE ALWAYS TRIGGER refuse_rows, ENABLE ALWAYS TRIGGER refuse_truncate;
