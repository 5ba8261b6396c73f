"""Verification of an exported ledger by anyone: no database, no service, only the document."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from service import text
from service.ledger import journal, renyi
from service.ledger.notes import BASELINE_NOTE, RESTORED_NOTE, count_restored
from service.ledger.schemas import (
    EXPORT_SCHEMA,
    AdmissionRule,
    Cap,
    ChainReport,
    Entry,
    Head,
    Reservation,
    Scope,
)
from service.statements.check import Check
from service.statements.composed import composed
from service.statements.verify import MALFORMED, TOLERANCE, check_signature
from tan_core.accounting import SEARCH_NOTES, SearchAccounting

_MALFORMED = (*MALFORMED, RecursionError)


class _Search(BaseModel):
    """What the export says of searches, or of baselines, that are in no figure of it."""

    model_config = ConfigDict(frozen=True)

    unaccounted: int
    note: str | None


class _Restored(BaseModel):
    """What the export says of backups that somebody went on with."""

    model_config = ConfigDict(frozen=True)

    backups: int
    note: str | None


class _Exported(BaseModel):
    """What an export holds beside its signature."""

    model_config = ConfigDict(frozen=True)

    dataset: str | None = None
    scope: Scope
    head: Head
    caps: list[Cap]
    reservations: list[Reservation]
    entries: list[Entry]
    search: _Search | None = None
    """None: the export is of before it said so."""
    baselines: _Search | None = None
    """The same of models that were trained without privacy."""
    restored: _Restored | None = None
    """None: the export is of before it said so; its journal says it all the same."""


def verify_export(document: Mapping[str, Any], *, key_id: str | None = None) -> list[Check]:
    """What was checked and whether it holds. Good exports have no bad check.

    Args:
        document: as ``GET /datasets/{name}/ledger/export`` answers.
        key_id: of the service's key where it is known from elsewhere, or all of that key in base64: an identifier has 64 of
            its bits. Without it the signature only shows that the document is unchanged since whoever holds the enclosed
            key signed it.
    """
    if document.get("schema") != EXPORT_SCHEMA:
        return [Check("format", False, f"expected a ledger of schema {EXPORT_SCHEMA!r}")]
    return [
        Check("format", True, EXPORT_SCHEMA),
        *check_signature(document, key_id),
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
    good = (
        (
            *_check_dataset(ledger),
            _check_search(ledger),
            _check_baselines(ledger),
            _check_restored(ledger),
            *_check_budget(ledger),
        )
        if report.is_valid
        else ()
    )
    return [_chain(report), *good]


def _check_dataset(ledger: _Exported) -> list[Check]:
    """Nothing where it is called as its journal says; or where that is of before journals said what for."""
    opened = json.loads(ledger.entries[0].body).get("registration")
    if opened is None or opened.get("dataset") == ledger.dataset:
        return []
    said = (
        f"it is called {ledger.dataset!r:.40}, its journal is that of {opened.get('dataset')!r:.40}"
    )
    return [Check("dataset", False, said)]


def _check_search(ledger: _Exported) -> Check:
    """What stands beside every epsilon here: how many searches are in none of them.

    The journal's entries say it of each study since they have it, and the document may not say less.
    """
    modes = [held.search_accounting for held in ledger.reservations if not held.is_outside]
    by_journal = {
        held.study_id
        for held in ledger.reservations
        if held.search_accounting == SearchAccounting.DECLARED_UNACCOUNTED
    }
    stated = ledger.search.unaccounted if ledger.search else 0
    count = max(stated, len(by_journal))
    note = SEARCH_NOTES[SearchAccounting.DECLARED_UNACCOUNTED]
    said = (
        f"{note} of {count} {'study' if count == 1 else 'studies'}" if count else "none unaccounted"
    )
    if silent := modes.count(None):
        said += f"; {silent} of {len(modes)} reservations are of before the journal said it"
    is_less = ledger.search is not None and stated < len(by_journal)
    if is_less:
        said = f"{said}, of which the document says {stated}"
    is_silent = bool(stated) and ledger.search is not None and ledger.search.note != note
    return Check("search", not (is_less or is_silent), said)


def _check_baselines(ledger: _Exported) -> Check:
    """The same of models that were trained on the private data without privacy."""
    by_journal = len({held.study_id for held in ledger.reservations if held.baseline})
    stated = ledger.baselines
    count = max(by_journal, stated.unaccounted if stated else 0)
    if not count:
        return Check("baselines", True, "none unaccounted")
    said = f"{BASELINE_NOTE}, of {count} {'study' if count == 1 else 'studies'}"
    if stated is not None and (stated.unaccounted < by_journal or stated.note != BASELINE_NOTE):
        return Check("baselines", False, f"{said}; the document says {stated.unaccounted}")
    return Check("baselines", True, said)


def _check_restored(ledger: _Exported) -> Check:
    """Whether entries may be missing: the journal says it, and the document may not say less."""
    count = count_restored(
        json.loads(entry.body)
        for entry in ledger.entries
        if entry.kind == "attest" and entry.reservation_id is None
    )
    stated = ledger.restored
    if count == 0 and (stated is None or stated.backups == 0):
        return Check("restored backups", True, "none was accepted")
    times = "once" if count == 1 else f"{count} times"
    said = f"accepted {times}: {RESTORED_NOTE}"
    if stated is not None and (stated.backups, stated.note) != (count, RESTORED_NOTE):
        return Check("restored backups", False, f"{said}; the document says {stated.backups}")
    return Check("restored backups", True, said)


def _chain(report: ChainReport) -> Check:
    whole = f"{report.num_entries} entries up to hash {report.head.hash}"
    return Check("hash chain", report.is_valid, report.fault or whole)


def _check_budget(ledger: _Exported) -> list[Check]:
    """Epsilon of what is committed and of what was charged, by dp-accounting alone, against the budget.

    Where plans may depend on earlier outputs that epsilon is no bound: what is committed must pass the
    filter's too, whose divergences the journal's check has computed again.
    """
    scope = ledger.scope
    committed = [(held.event, held.committed_steps) for held in ledger.reservations]
    charged = [(held.event, held.charged_steps) for held in ledger.reservations]
    found = [
        _check_epsilon("epsilon committed", scope, lambda: composed(committed, scope)),
        _check_epsilon("epsilon charged", scope, lambda: composed(charged, scope)),
    ]
    if scope.admission is AdmissionRule.RENYI_FILTER:
        found.append(_check_epsilon("epsilon by the filter", scope, lambda: _filtered(ledger)))
    return found


def _check_epsilon(name: str, scope: Scope, compute: Callable[[], float]) -> Check:
    """Whether it is within the budget, and what it is."""
    try:
        epsilon = compute()
    except _MALFORMED as error:
        return Check(name, False, f"it cannot be computed: {error}")
    said = f"{text.epsilon(epsilon)} of {scope.epsilon:g} at delta {scope.delta:g}"
    return Check(name, epsilon <= scope.epsilon * (1 + TOLERANCE), said)


def _filtered(ledger: _Exported) -> float:
    """Epsilon of what is committed, at the order that was fixed when the scope opened."""
    scope = ledger.scope
    if scope.filter_order is None:  # the best of all orders is no bound
        raise ValueError("the filter has no order")
    committed = [held.committed for held in ledger.reservations]
    return renyi.epsilon(
        [each for each in committed if each is not None],
        order=scope.filter_order,
        delta=scope.delta,
    )
