"""Verification of a journal, independent of the database that keeps it.

An entry's hash is ``sha256(prev_hash || "scope|seq|kind|reservation|" || body)``, with an empty
``prev_hash`` at entry 1. The state tables must be what the entries fold to, and the Rényi divergences
in them those of the stored events.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.ledger import renyi
from service.ledger.notes import outside_reason
from service.ledger.schemas import (
    LOCAL_TENANT,
    Cap,
    ChainReport,
    Entry,
    Head,
    Reservation,
    Scope,
    Segment,
)
from tan_core.mechanism import Mechanism


@dataclass
class State:
    """What the entries fold to."""

    reservations: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    caps: dict[str, Cap] = field(default_factory=dict[str, Cap])
    segments: dict[tuple[str, int], dict[str, Any]] = field(
        default_factory=dict[tuple[str, int], dict[str, Any]]
    )
    """By reservation and number."""


_FOLDED = (
    "study_id", "tenant", "search_accounting", "baseline", "reason", "seq", "reserved_steps", "charged_steps", "released_steps", "epoch", "segments",
    "open_segment", "ended_segment", "checkpoint_step", "checkpoint_sha256", "state",
)  # fmt: skip


def entry_hash(
    scope_id: str, seq: int, kind: str, reservation_id: str | None, body: str, prev_hash: str
) -> str:
    """The hash that an entry must have, as hex."""
    text = f"{scope_id}|{seq}|{kind}|{reservation_id or ''}|{body}"
    return hashlib.sha256(bytes.fromhex(prev_hash) + text.encode()).hexdigest()


def verify(
    scope: Scope,
    head: Head,
    entries: Iterable[Entry],
    reservations: Iterable[Reservation],
    caps: Iterable[Cap] = (),
    segments: Iterable[Segment] | None = None,
    *,
    registrations: Sequence[Mapping[str, Any]] | None = None,
) -> ChainReport:
    """Whether the entries chain up to the head and fold to the state; the first that does not.

    Args:
        scope: as its row has it.
        head: of the scope.
        entries: the journal, in order.
        reservations: as their rows have them.
        caps: as their rows have them.
        segments: as their rows have them; None: they are not known here.
        registrations: of the private datasets that have this budget, as their rows have it; None: they are not known here.
            Journals that were opened before they said what for are held to none.
    """
    seq, last_hash, state = 0, "", State()
    for entry in entries:
        fault = _fault_of(scope, state, entry, seq, last_hash, registrations)
        if fault is not None:
            return _report(scope, head, seq, fault, first_bad_seq=entry.seq)
        seq, last_hash = entry.seq, entry.hash
    if seq == 0:
        fault = "the journal has no entry, not even the one that opened its budget"
        return _report(scope, head, seq, fault, first_bad_seq=1)
    if (head.seq, head.hash) != (seq, last_hash):
        fault = f"the head is at entry {head.seq} ({head.hash}), the journal ends at {seq}"
        return _report(scope, head, seq, fault, first_bad_seq=min(seq, head.seq) + 1)
    fault = _state_fault(state, reservations, caps)
    if fault is None and segments is not None:
        fault = _segments_fault(state, segments)
    return _report(scope, head, seq, fault)


def _fault_of(
    scope: Scope,
    state: State,
    entry: Entry,
    last_seq: int,
    last_hash: str,
    registrations: Sequence[Mapping[str, Any]] | None,
) -> str | None:
    """What is wrong with an entry, whatever stands in it; its hash may be right all the same."""
    try:
        fault = _entry_fault(scope, entry, last_seq, last_hash) or _fold(scope, state, entry)
        if fault is None and entry.kind == "open" and registrations is not None:
            return _registration_fault(scope, json.loads(entry.body), registrations)
        return fault
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        return f"entry {entry.seq} cannot be read: {type(error).__name__}: {error}"


def _report(
    scope: Scope, head: Head, seq: int, fault: str | None, first_bad_seq: int | None = None
) -> ChainReport:
    return ChainReport(
        scope_id=scope.scope_id, is_valid=fault is None, num_entries=seq, head=head,
        first_bad_seq=first_bad_seq, fault=fault,
    )  # fmt: skip


def _entry_fault(scope: Scope, entry: Entry, last_seq: int, last_hash: str) -> str | None:
    if entry.seq != last_seq + 1:
        return f"entry {last_seq + 1} is missing: entry {entry.seq} follows entry {last_seq}"
    if entry.prev_hash != last_hash:
        return f"entry {entry.seq} does not follow the hash of the entry before it"
    expected = entry_hash(
        scope.scope_id, entry.seq, entry.kind, entry.reservation_id, entry.body, entry.prev_hash
    )
    if entry.hash != expected:
        return f"entry {entry.seq} was edited: its content hashes to {expected}"
    if (entry.kind == "open") != (entry.seq == 1):
        return f"entry {entry.seq} is {entry.kind!r}: a journal opens with its first entry, and only there"
    return None


def _fold(scope: Scope, state: State, entry: Entry) -> str | None:
    """Apply an entry to ``state``; what is impossible about it, if anything."""
    body = json.loads(entry.body)
    if entry.kind == "open":
        return _open_fault(scope, body)
    if entry.kind == "cap":
        limit = float.fromhex(body["epsilon"])
        state.caps[body["tenant"]] = Cap(tenant=body["tenant"], epsilon=limit, seq=entry.seq)
        return None
    if entry.kind == "attest" and entry.reservation_id is None:
        return None  # of the whole scope
    held = state.reservations.get(entry.reservation_id or "")
    if entry.kind == "reserve":
        if held is not None or body["steps"] < 1:
            return f"entry {entry.seq} reserves {entry.reservation_id!r} a second time, or no step"
        state.reservations[entry.reservation_id or ""] = _reserved(entry, body)
        return None
    if held is None:
        return f"entry {entry.seq} is about {entry.reservation_id!r}, which was never reserved"
    if not _is_possible(held, entry.kind, body):
        return f"entry {entry.seq} cannot follow: {entry.kind!r} of {entry.reservation_id!r} as it stood"
    _apply(held, entry.kind, body)
    _apply_to_segment(state, entry, body)
    if held["charged_steps"] + held["released_steps"] > held["reserved_steps"]:
        return f"entry {entry.seq} charges {entry.reservation_id!r} beyond what it reserved"
    return None


def _is_possible(held: dict[str, Any], kind: str, body: dict[str, Any]) -> bool:
    """Whether the ledger's functions could have written it: they take no charge back.

    An entry that somebody appends by hand has the right hash, and every mark that left stays in place.
    """
    if kind == "attest":
        return True
    if held["state"] != "open":
        return False
    match kind:
        case "acquire":
            return body["epoch"] > held["epoch"]
        case "begin":
            return (
                body["epoch"] == held["epoch"] > 0
                and body["segment"] == held["segments"] + 1
                and body["num_steps"] >= 1
            )
        case "end":
            return body["epoch"] == held["epoch"] and 1 <= body["segment"] <= held["segments"]
        case _:
            unused = held["reserved_steps"] - held["charged_steps"] - held["released_steps"]
            return body["released_steps"] == unused


def _open_fault(scope: Scope, body: dict[str, Any]) -> str | None:
    """The budget in the table must be the one that the journal opened with."""
    stated = (
        body["name"], body["unit"], body["neighboring_relation"],
        float.fromhex(body["epsilon"]), float.fromhex(body["delta"]), body.get("admission", "pld"),
        None if body.get("filter_order") is None else float.fromhex(body["filter_order"]),
    )  # fmt: skip
    known = (
        scope.name, scope.unit, scope.neighboring_relation, scope.epsilon, scope.delta,
        scope.admission, scope.filter_order,
    )  # fmt: skip
    return None if stated == known else f"the scope was opened as {stated}, its row says {known}"


def _registration_fault(
    scope: Scope, body: dict[str, Any], found: Sequence[Mapping[str, Any]]
) -> str | None:
    """The data in the registry must be what the journal was opened for."""
    stated = body.get("registration")
    if stated is None:
        return None
    if not found:
        return f"the budget was opened for {stated.get('dataset')!r}, and no private dataset has it any more"
    if scope.scope_id != f"dataset:{stated.get('dataset')}":
        return f"the budget of {stated.get('dataset')!r} is another one: this is one more for the same data"
    for known in found:
        for name in sorted(stated.keys() | known.keys()):
            if stated.get(name) != known.get(name):
                return (
                    f"the budget was opened for data with {name} = {stated.get(name)!r}, their row says "
                    f"{known.get(name)!r}"
                )
    return None


def _reserved(entry: Entry, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "study_id": body["study"],
        "tenant": body.get("tenant", LOCAL_TENANT),
        "search_accounting": body.get("search_accounting"),
        "baseline": body.get("baseline"),
        "reason": None,
        "seq": entry.seq,
        "event": body["event"],
        "reserved_steps": body["steps"],
        "charged_steps": 0,
        "released_steps": 0,
        "epoch": 0,
        "segments": 0,
        "open_segment": None,
        "ended_segment": 0,
        "checkpoint_step": 0,
        "checkpoint_sha256": None,
        "state": "open",
    }


def _apply(held: dict[str, Any], kind: str, body: dict[str, Any]) -> None:
    match kind:
        case "acquire":
            held |= {"epoch": body["epoch"], "open_segment": None}
        case "begin":
            held["charged_steps"] += body["num_steps"]
            held |= {"segments": body["segment"], "open_segment": body["segment"]}
        case "end":
            if held["open_segment"] == body["segment"]:
                held["open_segment"] = None
            if held["ended_segment"] < body["segment"]:
                held["ended_segment"] = body["segment"]
                held["checkpoint_step"] = body["step"]
                held["checkpoint_sha256"] = body["checkpoint_sha256"]
        case "release":
            held["released_steps"] += body["released_steps"]
            held |= {"state": "closed", "open_segment": None}
        case _:  # an attestation binds a fact and moves nothing
            held["reason"] = held["reason"] or outside_reason(body["note"])


def _apply_to_segment(state: State, entry: Entry, body: dict[str, Any]) -> None:
    place = entry.reservation_id or "", body.get("segment", 0)
    if entry.kind == "begin":
        told = ("epoch", "request_id", "start_step", "num_steps")
        begun: dict[str, Any] = {name: body.get(name) for name in told}
        state.segments[place] = begun | {
            "checkpoint_step": None, "checkpoint_sha256": None, "ended": False,
        }  # fmt: skip
    elif entry.kind == "end":
        state.segments[place] |= {
            "checkpoint_step": body["step"], "checkpoint_sha256": body["checkpoint_sha256"], "ended": True,
        }  # fmt: skip


def _segments_fault(state: State, segments: Iterable[Segment]) -> str | None:
    """Where the rows that answer a repeated request differ from what was charged."""
    known = {(row.reservation_id, row.segment): row for row in segments}
    if known.keys() != state.segments.keys():
        odd = sorted(known.keys() ^ state.segments.keys())
        return f"segments {odd} are not in table and journal alike"
    for place, folded in state.segments.items():
        for name, value in folded.items():
            if (stored := getattr(known[place], name)) != value:
                reservation_id, number = place
                return (
                    f"segment {number} of reservation {reservation_id!r}: {name} is {stored!r}, the journal "
                    f"says {value!r}"
                )
    return None


def _state_fault(
    state: State, reservations: Iterable[Reservation], caps: Iterable[Cap]
) -> str | None:
    """Where the state tables differ from what the journal folds to."""
    limits, rows = list(caps), list(reservations)
    known = {held.reservation_id: held for held in rows}
    if len(known) < len(rows) or len({cap.tenant for cap in limits}) < len(limits):
        return "a reservation or a cap is there twice"  # no table has it so, but a document may
    if (stored := {cap.tenant: cap for cap in limits}) != state.caps:
        return f"the caps are {stored}, the journal says {state.caps}"
    if known.keys() != state.reservations.keys():
        odd = sorted(known.keys() ^ state.reservations.keys())
        return f"reservations {odd} are not in table and journal alike"
    for reservation_id, folded in state.reservations.items():
        held = known[reservation_id]
        for name in _FOLDED:
            if getattr(held, name) != folded[name]:
                return (
                    f"reservation {reservation_id!r}: {name} is {getattr(held, name)!r}, "
                    f"the journal says {folded[name]!r}"
                )
        if json.loads(held.event) != folded["event"]:
            return f"reservation {reservation_id!r}: its event is not the one in the journal"
        mechanism = Mechanism.from_json(folded["event"])
        if not renyi.agree(held.divergences, renyi.divergences(mechanism)):
            return f"reservation {reservation_id!r}: its divergences are not those of its event"
    return None
