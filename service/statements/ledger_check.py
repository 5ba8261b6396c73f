"""Whether a ledger says what a statement says of it: the entry, the mechanism, the steps, the weights."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service import text
from service.ledger.notes import count_restored
from service.ledger.schemas import ChainReport, Entry, Reservation, Scope
from service.statements.check import Check
from service.statements.composed import composed
from service.statements.verify import MALFORMED, agrees
from tan_core.accounting import SearchAccounting
from tan_core.errors import TooHardError


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the ledger says today."""

    scope: Scope
    chain: ChainReport
    """The verdict on its journal."""
    reservations: Sequence[Reservation]
    entries: Sequence[Entry]
    """As many as :func:`entries_needed` asks for, or those that there are."""

    def entry(self, seq: int) -> Entry | None:
        """The one of this number."""
        return next((entry for entry in self.entries if entry.seq == seq), None)

    def reservation(self, name: str) -> Reservation | None:
        """The one of this name."""
        return next((held for held in self.reservations if held.reservation_id == name), None)


def entries_needed(statement: Mapping[str, Any]) -> tuple[int, int]:
    """The first and the last entry of the journal that :func:`check_ledger` reads.

    All up to the one that it names, or to where it says what was charged by then.
    """
    signed = statement["ledger"]
    seq = int(signed["entry"]["seq"])
    return 1, max(seq, int(signed["head"]["seq"])) if "head" in signed else seq


def check_ledger(statement: Mapping[str, Any], known: Known) -> list[Check]:
    """What was checked against the ledger, after :func:`service.statements.verify.verify_statement`.

    Args:
        statement: one with a ``ledger``.
        known: that ledger.
    """
    chain = Check(
        "hash chain",
        known.chain.is_valid,
        known.chain.fault or f"{known.chain.num_entries} entries",
    )
    checks: list[tuple[str, Callable[[Mapping[str, Any], Known], list[Check]]]] = [
        ("ledger entry", _check_entry),
        ("weights", _check_weights),
        ("reservation", _check_reservation),
        ("search", _check_search),
        ("data", _check_data),
        ("budget", _check_budget),
        ("charged by then", _check_charged),
    ]
    return [
        chain,
        *(found for name, check in checks for found in _tried(name, check, statement, known)),
    ]


def _tried(
    name: str,
    check: Callable[[Mapping[str, Any], Known], list[Check]],
    statement: Mapping[str, Any],
    known: Known,
) -> list[Check]:
    try:
        return check(statement, known)
    except MALFORMED as error:
        return [Check(name, False, f"it cannot be compared: {type(error).__name__}: {error}")]


def _check_entry(statement: Mapping[str, Any], known: Known) -> list[Check]:
    signed = statement["ledger"]
    entry = known.entry(signed["entry"]["seq"])
    holds = (
        entry is not None
        and entry.hash == signed["entry"]["hash"]
        and entry.reservation_id == signed["reservation"]
        and known.scope.scope_id == signed["scope"]
    )
    where = f"entry {signed['entry']['seq']} of {signed['scope']}"
    said = "is the one that was signed" if holds else "is no longer the signed one"
    return [Check("ledger entry", holds, f"{where} {said}")]


def _check_weights(statement: Mapping[str, Any], known: Known) -> list[Check]:
    """The entry that is named binds the very weights, of that study and after so many steps."""
    entry = known.entry(statement["ledger"]["entry"]["seq"])
    note = json.loads(entry.body).get("note") if entry and entry.kind == "attest" else None
    if not isinstance(note, dict) or "weights_sha256" not in note:
        return [Check("weights", False, "the entry that the statement names binds none")]
    stated = {
        "weights_sha256": statement["weights"]["sha256"],
        "study": statement["study"]["id"],
        "steps": statement["steps"]["released"],
    }
    return [_compared("weights", stated, note, "as the entry binds them")]


def _check_reservation(statement: Mapping[str, Any], known: Known) -> list[Check]:
    """The mechanism that was reserved is the one that is priced, with the steps that were charged."""
    held = known.reservation(statement["ledger"]["reservation"])
    if held is None:
        return [Check("reservation", False, "the ledger holds no such reservation")]
    steps, faults = statement["steps"], list[str]()
    # Whatever else the study was charged is of its search, and has to be stated with it.
    beside = [
        other
        for other in known.reservations
        if other.study_id == held.study_id
        and other.charged_steps
        and other.reservation_id != held.reservation_id
    ]
    charged = [{**json.loads(each.event), "steps": each.charged_steps} for each in (held, *beside)]
    if list(statement["events"]) != charged:
        told = ", ".join(f"{event['steps']:,}" for event in charged)
        faults.append(f"its events are not {told} steps of what was reserved")
    if steps["charged"] != held.charged_steps:
        faults.append(f"{steps['charged']} steps, where {held.charged_steps} were charged")
    if steps["reserved"] != held.reserved_steps:
        faults.append(f"{steps['reserved']} steps, where {held.reserved_steps} were reserved")
    if statement["study"]["id"] != held.study_id:
        faults.append(f"it is of study {held.study_id}")
    searched = f", and {len(beside)} of its search" if beside else ""
    said = "; ".join(faults) or (
        f"{held.charged_steps:,} steps of the mechanism that was reserved{searched}"
    )
    return [Check("reservation", not faults, said)]


def _check_data(statement: Mapping[str, Any], known: Known) -> list[Check]:
    """The data are those that the budget was opened for. Nothing where the journal is of before it said which."""
    opened = _opened_for(known)
    if opened is None:
        return []
    of_users = statement.get("unit_details", {})
    stated = {
        "dataset": statement["dataset"]["name"],
        "sha256": statement["dataset"]["sha256"],
        "unit": of_users.get("column", statement["unit"]),
        "num_train": statement["num_examples"]["value"],
    }
    if of_users:
        stated["records_per_unit"] = of_users["records_per_unit"]
    if statement["search"]["waiver"] is not None:
        stated["waiver"] = statement["search"]["waiver"]
    return [_compared("data", stated, opened, "those that the budget was opened for")]


def _opened_for(known: Known) -> dict[str, Any] | None:
    """What the journal's first entry says of the data; None: it is of before one did."""
    first = known.entry(1)
    return json.loads(first.body).get("registration") if first else None


def _compared(name: str, stated: Mapping[str, Any], known: Mapping[str, Any], good: str) -> Check:
    """Whether all that is stated stands in the journal so."""
    wrong = [each for each, value in stated.items() if known.get(each) != value]
    return Check(name, not wrong, f"{', '.join(wrong)}: not {good}" if wrong else good)


def _check_search(statement: Mapping[str, Any], known: Known) -> list[Check]:
    """Nothing where the entry is of before entries said it."""
    held = known.reservation(statement["ledger"]["reservation"])
    if held is None or held.search_accounting is None:
        return []
    stated, reserved = statement["search"]["accounting"], held.search_accounting
    said = f"{reserved} in the journal"
    return [
        Check("search", stated == reserved, said if stated == reserved else f"{stated}, but {said}")
    ]


def _check_budget(statement: Mapping[str, Any], known: Known) -> list[Check]:
    scope, signed = known.scope, statement["ledger"]["budget"]
    holds = (
        (signed["epsilon"], signed["delta"]) == (scope.epsilon, scope.delta)
        and statement["neighboring_relation"] == scope.neighboring_relation.value
        and statement["unit"] == ("record" if scope.unit == "record" else "user")
    )
    said = f"epsilon {scope.epsilon:g} at delta {scope.delta:g} for a {scope.unit}, by {scope.neighboring_relation}"
    return [Check("budget", holds, said if holds else f"the ledger's is {said}")]


def _check_charged(statement: Mapping[str, Any], known: Known) -> list[Check]:
    """All that was charged by then, computed again from the journal.

    Nothing of a statement that is silent on it, as those were that are older than journals which say what for they were opened.
    """
    signed = statement["ledger"]
    if "charged_epsilon" not in signed:
        if _opened_for(known) is None:
            return []
        said = "it does not say what had been charged, nor what is in none of it"
        return [Check("charged by then", False, said)]
    head = known.entry(signed["head"]["seq"])
    if head is None or head.hash != signed["head"]["hash"]:
        said = f"entry {signed['head']['seq']} is no longer the one that stood when it was issued"
        return [Check("charged by then", False, said)]
    entries = [entry for entry in known.entries if entry.seq <= head.seq]
    if len(entries) != head.seq:
        return [Check("charged by then", None, "the journal was not read from its first entry")]
    faults = _miscounts(signed, entries)
    stated = float(signed["charged_epsilon"])
    try:
        again = composed(_charged(entries, known), known.scope)
    except TooHardError as error:
        return [Check("charged by then", None, f"not computed again: {error}")]
    if not agrees(stated, again, signed["accountant"]):
        faults.append(
            f"epsilon {text.epsilon(stated)} is stated, computed again it is {text.epsilon(again)}"
        )
    said = f"epsilon {text.epsilon(again)} at delta {known.scope.delta:g} up to entry {head.seq}"
    return [Check("charged by then", not faults, "; ".join(faults) or said)]


def _charged(entries: Sequence[Entry], known: Known) -> list[tuple[str, int]]:
    steps = Counter[str]()
    for entry in entries:
        if entry.kind == "begin":
            steps[entry.reservation_id or ""] += json.loads(entry.body)["num_steps"]
    events = {held.reservation_id: held.event for held in known.reservations}
    return [(events[name], count) for name, count in steps.items()]


def _miscounts(signed: Mapping[str, Any], entries: Sequence[Entry]) -> list[str]:
    """What the statement counts fewer of than the journal had by then."""
    bodies = [(entry, json.loads(entry.body)) for entry in entries]
    reserved = [body for entry, body in bodies if entry.kind == "reserve"]
    counted = {
        "unaccounted_searches": len(
            {
                body["study"]
                for body in reserved
                if body.get("search_accounting") == SearchAccounting.DECLARED_UNACCOUNTED.value
            }
        ),
        "unaccounted_baselines": len({body["study"] for body in reserved if body.get("baseline")}),
        "restored_backups": count_restored(
            body
            for entry, body in bodies
            if entry.kind == "attest" and entry.reservation_id is None
        ),
    }
    return [
        f"{name} is {signed.get(name)}, the journal has {count}"
        for name, count in counted.items()
        if not (signed.get(name) or 0) >= count
    ]
