"""Whether the mechanisms that a statement tells people are its events."""

from collections.abc import Mapping
from typing import Any

from service.statements.check import Check

_NUMBERS = ("sampling_rate", "noise_multiplier", "clip_norm")
_AS_THEY_ARE = ("sampling", "steps")
_WHERE_CUT = "max_batch_size"


def check_mechanisms(statement: Mapping[str, Any]) -> list[Check]:
    """Nothing of a statement that tells none: it is of before they did."""
    told = statement.get("mechanisms")
    if told is None:
        return []
    events = [_readable(event) for event in statement["events"]]
    if [dict(mechanism) for mechanism in told] == events:
        return [Check("mechanisms", True, "as in the events")]
    return [Check("mechanisms", False, "what people are told is not what the events say")]


def _readable(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event in decimals."""
    cap = event.get(_WHERE_CUT)
    return {
        **{name: event[name] for name in _AS_THEY_ARE},
        **{name: float.fromhex(event[name]) for name in _NUMBERS},
        **({} if cap is None else {_WHERE_CUT: cap}),
    }
