"""The ledger's SQL: queries, and calls of the only functions that may write."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from sqlalchemy import Row, RowMapping, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from service.ledger.errors import BY_SQLSTATE, UnknownReservationError
from service.ledger.names import OUTSIDE
from service.ledger.notes import (
    RESTORED,
    baseline_note,
    outside_reason,
    restored_note,
    search_note,
)
from service.ledger.schemas import (
    Beside,
    Cap,
    Commitment,
    Entry,
    Evaluation,
    Head,
    Reservation,
    Scope,
    Segment,
)
from tan_core.accounting import SearchAccounting
from tan_core.mechanism import Mechanism

_ENTRY = (
    "SELECT seq, kind, reservation_id, body, encode(prev_hash, 'hex') AS prev_hash,"
    " encode(hash, 'hex') AS hash FROM ledger_entry WHERE scope_id = :scope "
)
_RESERVATION = f"""
SELECT held.*, CASE WHEN starts_with(held.reservation_id, '{OUTSIDE}') THEN (
    SELECT body FROM ledger_entry AS attested WHERE attested.reservation_id = held.reservation_id
    AND attested.scope_id = held.scope_id AND attested.kind = 'attest' ORDER BY attested.seq LIMIT 1) END AS attested
FROM ledger_reservation AS held WHERE """  # noqa: S608 - our own words
IS_RESTORED = f"""
EXISTS (SELECT FROM ledger_entry AS accepted
    WHERE accepted.scope_id = held.scope_id AND accepted.seq > held.seq
    AND accepted.kind = 'attest' AND accepted.reservation_id IS NULL
    AND CAST(accepted.body AS json) -> 'note' -> '{RESTORED}' IS NOT NULL
    AND NOT EXISTS (SELECT FROM ledger_entry AS released
        WHERE released.scope_id = held.scope_id AND released.reservation_id = held.reservation_id
        AND released.kind = 'release' AND released.seq < accepted.seq))
"""  # noqa: S608 - our own words
"""Whether ``held``, a reservation, was open when somebody went on with a restored backup: charges may be lost."""


class Charged(NamedTuple):
    """What a reservation was charged."""

    steps: int
    is_restored: bool
    """Whether that may lack steps: see :data:`IS_RESTORED`."""


class Missing(NamedTuple):
    """An entry that is not where it was."""

    scope_id: str
    is_known: bool
    """Whether there is such a scope at all."""


async def call(session: AsyncSession, function: str, *arguments: object) -> Row[Any]:
    """The row that a ledger function answers; its refusals become our errors.

    A refusal leaves the transaction as it was: the call has a savepoint of its own.
    """
    names = [f"a{index}" for index in range(len(arguments))]
    statement = text(f"SELECT * FROM {function}({', '.join(f':{name}' for name in names)})")  # noqa: S608 - our own names
    async with _translated(), session.begin_nested():
        answer = await session.execute(statement, dict(zip(names, arguments, strict=True)))
        return answer.one()


@asynccontextmanager
async def _translated() -> AsyncGenerator[None]:
    try:
        yield
    except DBAPIError as error:
        refusal = BY_SQLSTATE.get(getattr(error.orig, "sqlstate", None) or "")
        if refusal is None:
            raise
        raise refusal(_message(error)) from error


def _message(error: DBAPIError) -> str:
    diagnosis = getattr(error.orig, "diag", None)
    return getattr(diagnosis, "message_primary", None) or str(error.orig)


async def datasets(session: AsyncSession) -> Sequence[str]:
    """Names of the datasets that have a budget."""
    query = text("SELECT name FROM dataset WHERE scope_id IS NOT NULL ORDER BY name")
    return (await session.scalars(query)).all()


async def scope(session: AsyncSession, scope_id: str) -> Scope:
    """A scope and its budget."""
    query = text("SELECT * FROM ledger_scope WHERE scope_id = :scope")
    row = (await session.execute(query, {"scope": scope_id})).mappings().one_or_none()
    if row is None:
        raise UnknownReservationError(f"no ledger scope {scope_id!r}")
    return _scope(row)


def _scope(row: RowMapping) -> Scope:
    floats = {name: float.fromhex(row[name]) for name in ("epsilon", "delta")}
    order = row["filter_order"]
    return Scope.model_validate(
        {**row, **floats, "filter_order": None if order is None else float.fromhex(order)}
    )


async def scopes(session: AsyncSession, scope_ids: Sequence[str]) -> dict[str, Scope]:
    """These scopes and their budgets, by identifier."""
    query = text("SELECT * FROM ledger_scope WHERE scope_id = ANY(:scopes)")
    rows = (await session.execute(query, {"scopes": list(scope_ids)})).mappings()
    return {row["scope_id"]: _scope(row) for row in rows}


async def caps(session: AsyncSession, scope_id: str) -> list[Cap]:
    """The limits of tenants within a scope, by tenant."""
    query = text(
        "SELECT tenant, epsilon, seq FROM ledger_cap WHERE scope_id = :scope ORDER BY tenant"
    )
    rows = await session.execute(query, {"scope": scope_id})
    return [Cap(tenant=row.tenant, epsilon=float.fromhex(row.epsilon), seq=row.seq) for row in rows]


async def head(session: AsyncSession, scope_id: str) -> Head:
    """The number and hash of a scope's last entry."""
    query = text("SELECT seq, encode(hash, 'hex') AS hash FROM ledger_head WHERE scope_id = :scope")
    row = (await session.execute(query, {"scope": scope_id})).mappings().one_or_none()
    if row is None:
        raise UnknownReservationError(f"no ledger scope {scope_id!r}")
    return Head.model_validate(dict(row))


async def reservation(session: AsyncSession, reservation_id: str) -> Reservation:
    """One reservation as it stands."""
    query = text(_RESERVATION + "reservation_id = :id")
    row = (await session.execute(query, {"id": reservation_id})).mappings().one_or_none()
    if row is None:
        raise UnknownReservationError(f"no reservation {reservation_id!r}")
    return _reservation(row)


def _reservation(row: RowMapping) -> Reservation:
    """A row with the reason that is attested of it. Read here: JSON of anybody's hand may be none that SQL takes."""
    attested = row["attested"]
    note = None if attested is None else json.loads(attested).get("note")
    return Reservation.model_validate({**row, "reason": outside_reason(note)})


async def of_study(session: AsyncSession, study_id: str) -> list[Reservation]:
    """Every reservation of a study, in the order of their making: those that were replaced, and those of its search."""
    query = text(_RESERVATION + "study_id = :study ORDER BY seq")
    rows = (await session.execute(query, {"study": study_id})).mappings()
    return [_reservation(row) for row in rows]


async def reservations(session: AsyncSession, scope_id: str) -> list[Reservation]:
    """Every reservation of a scope, in the order of their making."""
    query = text(_RESERVATION + "scope_id = :scope ORDER BY seq")
    rows = (await session.execute(query, {"scope": scope_id})).mappings()
    return [_reservation(row) for row in rows]


async def segments(session: AsyncSession, scope_id: str) -> list[Segment]:
    """Every segment that was charged to a scope."""
    query = text(
        "SELECT * FROM ledger_segment WHERE reservation_id IN"
        " (SELECT reservation_id FROM ledger_reservation WHERE scope_id = :scope)"
    )
    rows = (await session.execute(query, {"scope": scope_id})).mappings().all()
    return await asyncio.to_thread(lambda: [Segment.model_validate(dict(row)) for row in rows])


async def commitments(session: AsyncSession, scope_id: str) -> list[Commitment]:
    """What a scope has committed, by mechanism: thousands of reservations may be of a few."""
    query = text(
        "SELECT CAST(CAST(event AS jsonb) - 'steps' AS text) AS event,"
        " CAST(sum(reserved_steps - released_steps) AS bigint) AS committed_steps,"
        " CAST(sum(charged_steps) AS bigint) AS charged_steps"
        " FROM ledger_reservation WHERE scope_id = :scope GROUP BY 1 ORDER BY 1"
    )
    rows = (await session.execute(query, {"scope": scope_id})).mappings()
    return [Commitment.model_validate(dict(row)) for row in rows]


async def committed_before(session: AsyncSession, scope_id: str, seq: int) -> list[Mechanism]:
    """What a scope had committed when an entry was written."""
    query = text(
        "SELECT CAST(CAST(event AS jsonb) - 'steps' AS text) AS event, CAST(sum(reserved_steps -"
        " CASE WHEN given_back.seq IS NULL THEN 0 ELSE released_steps END) AS bigint) AS committed_steps,"
        " 0 AS charged_steps FROM ledger_reservation AS held LEFT JOIN ledger_entry AS given_back"
        " ON given_back.reservation_id = held.reservation_id AND given_back.scope_id = held.scope_id"
        " AND given_back.kind = 'release' AND given_back.seq < :seq"
        " WHERE held.scope_id = :scope AND held.seq < :seq GROUP BY 1 ORDER BY 1"
    )
    rows = (await session.execute(query, {"scope": scope_id, "seq": seq})).mappings()
    sums = [Commitment.model_validate(dict(row)) for row in rows]
    return [part for each in sums for part in each.of(each.committed_steps)]


async def unaccounted_searches(session: AsyncSession, scope_id: str) -> int:
    """Studies that declared their search on the scope's data unaccounted, whatever became of them.

    By the journal, whose entries once did not say; and by the studies, whose rows may be edited.
    """
    query = text(
        "SELECT count(*) FROM ("
        " SELECT study_id FROM ledger_reservation"
        "  WHERE scope_id = :scope AND search_accounting = :mode"
        " UNION SELECT study.id FROM study JOIN dataset ON dataset.name = study.dataset"
        "  WHERE dataset.scope_id = :scope AND study.search_accounting = :mode) AS searched"
    )
    mode = SearchAccounting.DECLARED_UNACCOUNTED.value
    return await session.scalar(query, {"scope": scope_id, "mode": mode}) or 0


async def unaccounted_baselines(session: AsyncSession, scope_id: str) -> int:
    """Studies that train a model on the scope's data without privacy, whatever became of them.

    By the journal, and by the studies themselves, as searches are counted.
    """
    query = text(
        "SELECT count(*) FROM ("
        " SELECT study_id FROM ledger_reservation WHERE scope_id = :scope AND baseline"
        " UNION SELECT study.id FROM study JOIN dataset ON dataset.name = study.dataset"
        "  WHERE dataset.scope_id = :scope"
        "   AND study.spec -> 'evaluation' ->> 'baseline' = 'true') AS compared"
    )
    return await session.scalar(query, {"scope": scope_id}) or 0


async def restored_backups(session: AsyncSession, scope_id: str) -> int:
    """How often somebody went on with a database that was restored from an older backup."""
    query = text(
        "SELECT count(*) FROM ledger_entry WHERE scope_id = :scope AND kind = 'attest'"
        " AND reservation_id IS NULL"
        " AND CAST(body AS json) -> 'note' -> CAST(:fact AS text) IS NOT NULL"
    )
    return await session.scalar(query, {"scope": scope_id, "fact": RESTORED}) or 0


async def beside(session: AsyncSession, scope_id: str) -> Beside:
    """What has to be said beside every epsilon of a scope."""
    unaccounted = await unaccounted_searches(session, scope_id)
    baselines = await unaccounted_baselines(session, scope_id)
    restored = await restored_backups(session, scope_id)
    return Beside(
        unaccounted_searches=unaccounted,
        search_note=search_note(unaccounted),
        unaccounted_baselines=baselines,
        baseline_note=baseline_note(baselines),
        restored_backups=restored,
        restored_note=restored_note(restored),
    )


async def is_known_tenant(session: AsyncSession, tenant: str) -> bool:
    """Whether a token that was not revoked, or a study, is of this tenant."""
    query = text(
        "SELECT EXISTS (SELECT FROM api_token WHERE tenant = :tenant AND revoked_at IS NULL)"
        " OR EXISTS (SELECT FROM study WHERE tenant = :tenant)"
    )
    return bool(await session.scalar(query, {"tenant": tenant}))


async def charged(session: AsyncSession, reservation_ids: Sequence[str]) -> dict[str, Charged]:
    """What each of these reservations was charged."""
    query = text(
        f"SELECT reservation_id, charged_steps, {IS_RESTORED} AS is_restored"  # noqa: S608 - our own words
        " FROM ledger_reservation AS held WHERE reservation_id = ANY(:ids)"
    )
    rows = await session.execute(query, {"ids": list(reservation_ids)})
    return {row.reservation_id: Charged(row.charged_steps, row.is_restored) for row in rows}


async def entries(
    session: AsyncSession, scope_id: str, *, last: int | None = None, until: int | None = None
) -> list[Entry]:
    """The scope's journal up to entry ``until``, oldest first: all of it, or the ``last`` of it."""
    before = "" if until is None else "AND seq <= :until "
    query = text(f"{_ENTRY}{before}ORDER BY seq DESC LIMIT :last")
    asked = {"scope": scope_id, "last": last, **({} if until is None else {"until": until})}
    rows = (await session.execute(query, asked)).mappings().all()
    # A whole journal may be long: not for the loop that answers everybody.
    return await asyncio.to_thread(_entries, rows)


def _entries(rows: Sequence[RowMapping]) -> list[Entry]:
    return [Entry.model_validate(dict(row)) for row in reversed(rows)]


async def entry(session: AsyncSession, scope_id: str, seq: int) -> Entry:
    """One entry of a scope's journal."""
    query = text(_ENTRY + "AND seq = :seq")
    row = (await session.execute(query, {"scope": scope_id, "seq": seq})).mappings()
    return Entry.model_validate(dict(row.one()))


async def find_entry(session: AsyncSession, scope_id: str, seq: int) -> Entry | None:
    """One entry of a scope's journal, if there is such a scope and entry."""
    query = text(_ENTRY + "AND seq = :seq")
    row = (await session.execute(query, {"scope": scope_id, "seq": seq})).mappings().one_or_none()
    return None if row is None else Entry.model_validate(dict(row))


async def first_missing(session: AsyncSession, marks: Mapping[str, Head]) -> Missing | None:
    """The first of these entries that is not in its journal, by scope; None where all are.

    In one query: it is asked again and again, of every scope there is.
    """
    query = text(
        "SELECT scope_id, EXISTS (SELECT FROM ledger_scope WHERE scope_id = mark.scope_id) AS is_known"
        " FROM unnest(CAST(:scopes AS text[]), CAST(:seqs AS bigint[]), CAST(:hashes AS text[]))"
        "  AS mark (scope_id, seq, hash)"
        " WHERE NOT EXISTS (SELECT FROM ledger_entry AS entry WHERE entry.scope_id = mark.scope_id"
        "  AND entry.seq = mark.seq AND encode(entry.hash, 'hex') = mark.hash)"
        " ORDER BY scope_id LIMIT 1"
    )
    heads = marks.values()
    asked = {
        "scopes": list(marks),
        "seqs": [mark.seq for mark in heads],
        "hashes": [mark.hash for mark in heads],
    }
    row = (await session.execute(query, asked)).one_or_none()
    return None if row is None else Missing(row.scope_id, row.is_known)


async def last_entry_of(session: AsyncSession, reservation_id: str) -> Entry:
    """The newest entry about a reservation."""
    held = await reservation(session, reservation_id)
    query = text(_ENTRY + "AND reservation_id = :id ORDER BY seq DESC LIMIT 1")
    row = (await session.execute(query, {"scope": held.scope_id, "id": reservation_id})).mappings()
    return Entry.model_validate(dict(row.one()))


async def evaluations(session: AsyncSession, scope_id: str) -> Sequence[Evaluation]:
    """What was computed for the scope's entries, in order."""
    query = text("SELECT * FROM ledger_evaluation WHERE scope_id = :scope ORDER BY evaluation_id")
    rows = (await session.execute(query, {"scope": scope_id})).mappings()
    return [
        Evaluation.model_validate(
            {**row, **{name: float.fromhex(row[name]) for name in ("epsilon", "delta")}}
        )
        for row in rows
    ]
