-- What is told of the audit is found by who did it, what it was done to, what was done and when. Without these a filter
-- that matches few rows reads them all: 0.6 s for a million.
CREATE INDEX ix_audit_event_at ON audit_event (at);
CREATE INDEX ix_audit_event_token_id ON audit_event (token_id, id);
CREATE INDEX ix_audit_event_target ON audit_event (target text_pattern_ops, id);
CREATE INDEX ix_audit_event_action ON audit_event (method, route, id);

-- The oldest keys are forgotten first.
CREATE INDEX ix_idempotency_key_created_at ON idempotency_key (created_at);
