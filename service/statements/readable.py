"""Whether the mechanisms that a statement tells people are its events, and what each event is of."""

from collections.abc import Mapping
from typing import Any

from service.statements.check import Check
from tan_core.accounting import SearchAccounting

OF_SCORES = "scores of the trials"
OF_EVENTS = ("private run", "trials of the search", OF_SCORES)
"""What each event is of, in its order, where a search was charged beside the run; else there is the run's alone."""

_NUMBERS = ("sampling_rate", "noise_multiplier", "clip_norm")
_AS_THEY_ARE = ("sampling", "steps")
_WHERE_CUT = "max_batch_size"


def check_mechanisms(statement: Mapping[str, Any]) -> list[Check]:
    """Nothing of a statement that tells none: it is of before they did."""
    told = statement.get("mechanisms")
    if told is None:
        return []
    events = [_readable(event) for event in statement["events"]]
    if [_without_of(mechanism) for mechanism in told] == events:
        return [Check("mechanisms", True, "as in the events")]
    return [Check("mechanisms", False, "what people are told is not what the events say")]


def check_searched(statement: Mapping[str, Any]) -> list[Check]:
    """Whether a search that is said to be charged is among what is priced, trials and scores; else nothing."""
    search = statement.get("search") or {}
    if search.get("accounting") != SearchAccounting.ACCOUNTED:
        return []
    _, trials, scores = statement["events"]
    of = tuple(mechanism.get("of") for mechanism in statement["mechanisms"])
    count = search["trials"]
    is_good = (
        of == OF_EVENTS
        and search["steps"] == {"trials": trials["steps"], "scores": scores["steps"]}
        and scores["steps"] == count
        and trials["steps"] == count * statement["steps"]["planned"]
        and float.fromhex(scores["sampling_rate"]) == 1
    )
    told = f"{count} trials of {trials['steps'] // count:,} steps and their scores are priced"
    wrong = "its trials and their scores are not what the events say"
    return [Check("trials", is_good, told if is_good else wrong)]


def _without_of(mechanism: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in mechanism.items() if name != "of"}


def _readable(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event in decimals."""
    cap = event.get(_WHERE_CUT)
    return {
        **{name: event[name] for name in _AS_THEY_ARE},
        **{name: float.fromhex(event[name]) for name in _NUMBERS},
        **({} if cap is None else {_WHERE_CUT: cap}),
    }
