"""Faults seeded into the ledger's SQL: each one must be found by the state machine.

``python -m tests.mutants`` applies them one at a time to a scratch database.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A fault: in the body of ``function``, ``old`` becomes ``new``."""

    name: str
    function: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "steps are not charged when they begin", "ledger_begin_segment",
        "charged_steps = r.charged_steps + granted", "charged_steps = r.charged_steps",
    ),
    Mutant(
        "more steps are granted than are left", "ledger_begin_segment",
        "held.reserved_steps - held.charged_steps - held.released_steps", "p_num_steps",
    ),
    Mutant(
        "a request that is sent again is charged again", "ledger_begin_segment",
        "AND s.request_id = p_request_id", "AND s.request_id = p_request_id || '-'",
    ),
    Mutant(
        "a charge is not in the journal", "ledger_begin_segment",
        "'num_steps', granted", "'num_steps', 0",
    ),
    Mutant(
        "a zombie may write", "ledger_held_reservation",
        "p_epoch IS DISTINCT FROM held.epoch OR held.epoch = 0", "false",
    ),
    Mutant(
        "a closed reservation may be charged", "ledger_held_reservation",
        "held.state <> 'open'", "false",
    ),
    Mutant(
        "two workers hold one epoch", "ledger_acquire",
        "p_epoch <= held.epoch", "p_epoch < held.epoch",
    ),
    Mutant(
        "a segment ends with a checkpoint from beyond it", "ledger_end_segment",
        "p_step NOT BETWEEN known.start_step AND known.start_step + known.num_steps", "false",
    ),
    Mutant(
        "a segment that ended may end otherwise", "ledger_end_segment",
        "IS DISTINCT FROM (p_step, p_checkpoint_sha256)",
        "IS DISTINCT FROM (p_step, p_checkpoint_sha256) AND false",
    ),
    Mutant(
        "a successor starts anew and not at the checkpoint", "ledger_end_segment",
        "AND r.ended_segment < p_segment", "AND false",
    ),
    Mutant(
        "release refunds steps that began", "ledger_release",
        "held.reserved_steps - held.charged_steps - held.released_steps",
        "held.reserved_steps - held.released_steps",
    ),
    Mutant(
        "release leaves the reservation open", "ledger_release",
        "state = 'closed', open_segment", "open_segment",
    ),
    Mutant(
        "a scope may be opened again with more", "ledger_open_scope",
        "(p_name, p_unit, p_neighboring_relation, p_epsilon, p_delta, p_admission) THEN",
        "(p_name, p_unit, p_neighboring_relation, p_epsilon, p_delta, p_admission) AND false THEN",
    ),
    Mutant(
        "the head that was priced does not matter", "ledger_reserve",
        "head.seq IS DISTINCT FROM p_expected_seq", "false",
    ),
    Mutant(
        "an identifier may be used for another request", "ledger_reserve",
        "IS DISTINCT FROM (p_scope, p_study, p_tenant, p_event, p_steps)",
        "IS DISTINCT FROM (p_scope, p_study, p_tenant, p_event, p_steps) AND false",
    ),
    Mutant(
        "the database believes every client", "ledger_reserve",
        "PERFORM ledger_check_worth(scope, p_tenant, found_divergences, p_steps);", "",
    ),
    Mutant(
        "only what was charged counts", "ledger_holds",
        "reserved_steps - released_steps", "charged_steps",
    ),
    Mutant(
        "what is asked for does not count", "ledger_holds",
        "UNION ALL SELECT p_divergences, p_steps", "UNION ALL SELECT p_divergences, 0::bigint",
    ),
    Mutant(
        "the budget is a tenth larger", "ledger_holds",
        "ELSE p_epsilon END", "ELSE 1.1 * p_epsilon END",
    ),
    Mutant(
        "a cap counts every tenant", "ledger_holds",
        "p_tenant IS NULL OR tenant = p_tenant", "true",
    ),
    Mutant(
        "caps are not asked", "ledger_check_worth",
        "tenant IN (p_tenant, '*')", "false",
    ),
    Mutant(
        "a cap of nothing admits what costs next to nothing", "ledger_check_worth",
        "ledger_float(cap.epsilon) <= 0 OR ", "",
    ),
    Mutant(
        "a cap of all counts nobody", "ledger_check_worth",
        "nullif(cap.tenant, '*')", "cap.tenant",
    ),
    Mutant(
        "a cap may be above the budget", "ledger_set_cap",
        "OR wanted > ledger_float(total)", "",
    ),
    Mutant(
        "a cap that is set again stays as it was", "ledger_set_cap",
        "DO UPDATE SET epsilon = p_epsilon, seq = entry", "DO NOTHING",
    ),
    Mutant(
        "delta is left out of what epsilon is worth", "ledger_worth",
        "ln(delta * renyi_order)", "ln(renyi_order)",
    ),
    Mutant(
        "a divergence is of the order below", "ledger_divergence",
        "SELECT renyi_order * CASE", "SELECT (renyi_order - 1) * CASE",
    ),
    Mutant(
        "a float has the inverse power", "ledger_float",
        "2.0::float8 ^ parts[3]::float8", "2.0::float8 ^ -parts[3]::float8",
    ),
    Mutant(
        "an entry does not hold on to the one before it", "ledger_append",
        "ledger_hash(head.hash,", "ledger_hash('',",
    ),
    Mutant(
        "the hash leaves the body out", "ledger_hash",
        "'|', reservation_id, '|', body", "'|', reservation_id, '|'",
    ),
    Mutant(
        "nobody waits for who writes in a scope", "ledger_lock",
        "PERFORM pg_advisory_xact_lock(hashtextextended('ledger:' || p_scope, 0));\n"
        "    SELECT * INTO head FROM ledger_head WHERE scope_id = p_scope FOR UPDATE;",
        "SELECT * INTO head FROM ledger_head WHERE scope_id = p_scope;",
    ),
    Mutant(
        "who holds a scope keeps nobody out", "ledger_hold_scope",
        "FROM ledger_lock(p_scope)", "FROM ledger_head WHERE scope_id = p_scope",
    ),
    Mutant(
        "a reservation is read before its scope is locked", "ledger_locked_reservation",
        "PERFORM ledger_lock(found_scope);", "",
    ),
    Mutant(
        "who takes another's place moves no more than who comes", "ledger_divergences",
        "sigma := sigma / 2;", "",
    ),
    Mutant(
        "some orders are missing", "ledger_orders",
        "14, 16, 18, ", "",
    ),
    Mutant(
        "a divergence is in the journal as half of it", "ledger_hex",
        "- 1023)", "- 1024)",
    ),
    Mutant(
        "an entry has the time at which its transaction began", "ledger_now",
        "clock_timestamp()", "now()",
    ),
    Mutant(
        "an entry has the time of its client's zone", "ledger_now",
        " AT TIME ZONE 'UTC'", "",
    ),
    Mutant(
        "a fact is of no reservation", "ledger_attest",
        "'attest', p_reservation,", "'attest', NULL,",
    ),
    Mutant(
        "a fact of a scope is not told", "ledger_attest_scope",
        "'note', p_note::json", "'note', json_build_object()",
    ),
    Mutant(
        "an evaluation has delta for epsilon", "ledger_record_evaluation",
        "p_epsilon, p_delta);", "p_delta, p_epsilon);",
    ),
    Mutant(
        "an evaluation of a reservation is of all", "ledger_record_evaluation",
        "p_seq, p_reservation,", "p_seq, NULL,",
    ),
    Mutant(
        "the journal may be edited", "ledger_refuse",
        "RAISE EXCEPTION", "RETURN NEW; RAISE EXCEPTION",
    ),
)  # fmt: skip
