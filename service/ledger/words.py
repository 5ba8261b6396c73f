"""The ledger for people: entries of a journal, when, by whom and what they say; and whether a budget holds a study."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from service import text
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


def instead(fit: Mapping[str, Any]) -> str | None:
    """About what would fit in the place of a study, of the ``budget`` of its plan; None: it fits, or that is not known.

    Example:
        >>> instead({"fits": False, "limits": [{"fits": False}], "fitting_epsilon": 1.2})
        'About ε 1.2 would still fit.'
        >>> instead({"fits": None, "limits": []}), instead({"fits": True, "limits": [{"fits": True}]})
        (None, None)
    """
    # By the database's own bounds no estimate is made.
    return _instead(fit) if any(not each["fits"] for each in fit["limits"]) else None


def budget_verdict(fit: Mapping[str, Any]) -> str:
    """Whether a study fits its budget now, of the ``budget`` of a plan.

    Example:
        >>> whole = {"tenant": None, "epsilon": 10.0, "committed_epsilon": 9.5, "composed_epsilon": 10.4, "fits": False}
        >>> found = {"dataset": "digits", "fits": False, "limits": [whole], "delta": 1e-5, "accountant": "pld", "missing_epsilon": 0.4}
        >>> budget_verdict({**found, "fitting_epsilon": 1.2})
        'Over the budget of digits now: with this study ε would be 10.400 of 10 at δ 1e-05 (PLD), 0.400 too much; 9.500 is charged or reserved without it. About ε 1.2 would still fit.'
        >>> budget_verdict({"dataset": "digits", "fits": None, "note": "pld was stopped"})
        'Whether it fits the budget of digits now was not computed: pld was stopped.'
    """
    dataset = fit["dataset"]
    if fit["fits"] is None:
        return f"Whether it fits the budget of {dataset} now was not computed: {fit['note']}."
    at = f"at δ {fit['delta']:g} ({fit['accountant'].upper()})"
    if fit["fits"]:
        parts = [_room(limit) for limit in fit["limits"]]
        return f"It fits the budget of {dataset} now, {at}: {'; '.join(parts)}."
    broken = next((each for each in fit["limits"] if not each["fits"]), None)
    if broken is None:  # by the database's own bounds
        return f"Over the budget of {dataset} now: {fit['refusal']}."
    over = (
        f"the budget of {dataset}"
        if broken["tenant"] is None
        else f"the cap of {whose(broken['tenant'])} in {dataset}"
    )
    if broken["epsilon"] == 0:
        return f"Over {over} now: it is 0, which admits nothing."
    return (
        f"Over {over} now: with this study ε would be {text.epsilon(broken['composed_epsilon'])} of "
        f"{text.number(broken['epsilon'])} {at}, {text.epsilon(fit['missing_epsilon'])} too much; "
        f"{text.epsilon(broken['committed_epsilon'])} is charged or reserved without it. {_instead(fit)}"
    )


def _room(limit: Mapping[str, Any]) -> str:
    tenant = limit["tenant"]
    under = "" if tenant is None else f"under the cap of {whose(tenant)} "
    return (
        f"{under}ε {text.epsilon(limit['composed_epsilon'])} of {text.number(limit['epsilon'])} with this study, "
        f"{text.epsilon(limit['committed_epsilon'])} without it"
    )


def _instead(fit: Mapping[str, Any]) -> str:
    """About what would fit in the place of a study that does not."""
    if (epsilon := fit.get("fitting_epsilon")) is not None:
        return f"About ε {text.number(epsilon)} would still fit."
    if (steps := fit.get("fitting_steps")) is not None:
        return f"About {_steps(steps)} of it would still fit."
    return "Nothing of it would fit."
