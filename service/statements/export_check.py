"""Verification of an exported ledger by anyone: no database, no service, only the document."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from service import text
from service.ledger import journal
from service.ledger.schemas import (
    EXPORT_SCHEMA,
    Cap,
    ChainReport,
    Entry,
    Head,
    Reservation,
    Scope,
)
from service.statements.check import Check
from service.statements.verify import TOLERANCE, check_signature, epsilon_of_events

_MALFORMED = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)


class _Exported(BaseModel):
    """What an export holds beside its signature."""

    model_config = ConfigDict(frozen=True)

    scope: Scope
    head: Head
    caps: list[Cap]
    reservations: list[Reservation]
    entries: list[Entry]


def verify_export(document: Mapping[str, Any], *, key_id: str | None = None) -> list[Check]:
    """What was checked and whether it holds. Good exports have no bad check.

    Args:
        document: as ``GET /datasets/{name}/ledger/export`` answers.
        key_id: of the service's key where it is known from elsewhere; without it the signature only
            shows that the document is unchanged since whoever holds the enclosed key signed it.
    """
    if document.get("schema") != EXPORT_SCHEMA:
        return [Check("format", False, f"expected a ledger of schema {EXPORT_SCHEMA!r}")]
    return [
        Check("format", True, EXPORT_SCHEMA),
        check_signature(document, key_id),
        *_check_content(document),
    ]


def _check_content(document: Mapping[str, Any]) -> list[Check]:
    try:
        ledger = _Exported.model_validate(document)
        report = journal.verify(
            ledger.scope, ledger.head, ledger.entries, ledger.reservations, ledger.caps
        )
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        return [
            Check("hash chain", False, f"the ledger cannot be read: {place} is not as expected")
        ]
    except _MALFORMED as error:
        return [Check("hash chain", False, f"the ledger cannot be read: {type(error).__name__}")]
    return [_chain(report), *(_check_budget(ledger) if report.is_valid else ())]


def _chain(report: ChainReport) -> Check:
    whole = f"{report.num_entries} entries up to hash {report.head.hash}"
    return Check("hash chain", report.is_valid, report.fault or whole)


def _check_budget(ledger: _Exported) -> list[Check]:
    """Epsilon of what is committed and of what was charged, by dp-accounting alone, against the budget."""
    scope = ledger.scope
    budget = f"of {scope.epsilon:g} at delta {scope.delta:g}"
    found: list[Check] = []
    for name in ("committed", "charged"):
        steps = ((held.event, getattr(held, f"{name}_steps")) for held in ledger.reservations)
        try:
            epsilon = _composed(steps, scope)
        except _MALFORMED as error:
            found.append(Check(f"epsilon {name}", False, f"it cannot be computed: {error}"))
        else:
            holds = epsilon <= scope.epsilon * (1 + TOLERANCE)
            found.append(Check(f"epsilon {name}", holds, f"{text.epsilon(epsilon)} {budget}"))
    return found


def _composed(reserved: Iterable[tuple[str, int]], scope: Scope) -> float:
    """Epsilon of so many steps of each event; those of one mechanism are joined."""
    steps: dict[str, int] = {}
    for event, count in reserved:
        alone = json.dumps({**json.loads(event), "steps": 1}, sort_keys=True)
        steps[alone] = steps.get(alone, 0) + count
    events = [{**json.loads(alone), "steps": count} for alone, count in steps.items() if count]
    if not events:
        return 0.0
    return epsilon_of_events(
        events, delta=scope.delta, neighboring_relation=scope.neighboring_relation.value
    )
