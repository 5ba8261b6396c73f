"""Entries of a journal for people: when, by whom, and what they say. Their exact bodies are in the API."""

import json
import re
from datetime import datetime
from typing import Any

from service.ledger.schemas import ALL_TENANTS, Entry
from tan_core.wire import RECORD

MAX_VALUE = 200
"""Characters of a bound fact that are shown."""
_DIGEST = re.compile("[0-9a-f]{64}")


def when(entry: Entry) -> datetime:
    """When it was written, by the database's clock."""
    return datetime.fromisoformat(json.loads(entry.body)["at"])


def by_whom(entry: Entry) -> str:
    """Who asked for it: a token's id, a part of the service, or the attempt that the steps are of."""
    body = json.loads(entry.body)
    return body["actor"] if "actor" in body else f"attempt {body['epoch']}"


def what(entry: Entry) -> str:
    """What it says."""
    body = json.loads(entry.body)
    match entry.kind:
        case "open":
            epsilon, delta = (float.fromhex(body[name]) for name in ("epsilon", "delta"))
            return f"budget of ε {epsilon:g} at δ {delta:g}{_for_data(body.get('registration'))}"
        case "reserve":
            mode = body.get("search_accounting")
            parts = [f"holds {_steps(body['steps'])}", f"search {mode}" if mode else None]
            parts.append("a baseline without privacy" if body.get("baseline") else None)
            return "; ".join(part for part in parts if part)
        case "acquire":
            return f"attempt {body['epoch']} may charge"
        case "begin":
            first = body["start_step"]
            count = body["num_steps"]
            before = "before they run" if count > 1 else "before it runs"
            return f"charges {_steps(count)} from step {first:,}, {before}"
        case "end":
            return f"checkpoint at step {body['step']:,}"
        case "release":
            return f"gives back {_steps(body['released_steps'])}: {body['reason']}"
        case "attest":
            return f"binds {', '.join(_fact(name, value) for name, value in body['note'].items())}"
        case "cap":
            return f"limits {whose(body['tenant'])} to ε {float.fromhex(body['epsilon']):g}"


def _steps(count: int) -> str:
    return f"{count:,} step{'' if count == 1 else 's'}"


def outside(reason: str | None) -> str:
    """Whose a reservation is that no study holds."""
    return f"outside of the service: {reason or 'no reason in the journal'}"


def whose(tenant: str) -> str:
    """Whom a cap limits."""
    return "all tenants together" if tenant == ALL_TENANTS else f"tenant {tenant}"


def _for_data(registration: dict[str, Any] | None) -> str:
    """What the budget was opened for; nothing where the journal is of before it said so."""
    if registration is None:
        return ""
    per = "" if registration["unit"] == RECORD else f" by {registration['unit']}"
    modes = ", ".join(registration["allowed_modes"])
    waiver = f"; waiver of {registration['waiver']}" if registration["waiver"] else ""
    said = (
        f" for {registration['num_train']:,} in training{per}, data {registration['sha256'][:12]}, split "
        f"{registration['split_seed']}; searches {modes}{waiver}{_with_others(registration.get('overlap'))}"
    )
    return said if len(said) <= 2 * MAX_VALUE else f"{said[: 2 * MAX_VALUE]}..."


def _with_others(overlap: dict[str, Any] | None) -> str:
    if overlap is None:
        return ""
    others = ", ".join(one["dataset"] for one in overlap["others"])
    return f"; holds records of {others}, accepted by {overlap['accepted']}"


def _fact(name: str, value: Any) -> str:
    """One bound fact: of a restored backup the reason, of a digest its beginning."""
    if isinstance(value, dict) and "reason" in value:
        value = value["reason"]
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        value = value[:12]
    return f"{name} {value}"[:MAX_VALUE]
