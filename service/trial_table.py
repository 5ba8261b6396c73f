"""Trials as a table for spreadsheets and scripts: the page's CSV, that of ``tan-cli trials`` and ``Client.trial_rows``."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

BEFORE = ("number", "state", "value", "expected_batch_size")
"""Columns before those of the parameters. The value is of the batch beside it: at different ones they do not compare."""
AFTER = (
    "fresh_seeds",
    "seconds",
    "source",
    "reason",
    "goes_on_from",
    "learning_rate_factor",
    "clipped_fraction",
    "started_at",
    "finished_at",
)
"""Columns behind the accuracies at the end of each rung."""


def rows(trials: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Trials, as JSON has them, with a key for each of their :func:`columns`; None where a trial has no such thing."""
    names, rungs = parameter_names(trials), _rungs(trials)
    return [row(trial, names=names, rungs=rungs) for trial in trials]


def columns(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys of the rows of these trials, in order; also where there are none."""
    return [*BEFORE, *parameter_names(trials), *map(_of_rung, _rungs(trials)), *AFTER]


def row(trial: Mapping[str, Any], *, names: Iterable[str], rungs: Iterable[int]) -> dict[str, Any]:
    """One trial, as JSON has it.

    Args:
        trial: with all its fields; its times may be missing.
        names: of the parameters that have a column.
        rungs: that have one.

    Example:
        >>> simulated = {"rung": 0, "expected_batch_size": 64.0, "accuracy": 0.9, "seconds": 2.5}
        >>> trial = {"number": 3, "state": "completed", "value": 0.9, "params": {"momentum": 0.5}}
        >>> trial |= {"scores": [simulated], "repeats": [], "source": None, "reason": None}
        >>> told = row(trial, names=["momentum"], rungs=[0])
        >>> [told[key] for key in ("number", "expected_batch_size", "momentum", "accuracy_rung_0")]
        [3, 64.0, 0.5, 0.9]
    """
    scores, repeats = trial["scores"], trial["repeats"]
    by_rung = accuracies(trial)
    spent = [score["seconds"] for score in (*scores, *repeats)]
    start = trial.get("began_from") or {}
    return {
        "number": trial["number"],
        "state": trial["state"],
        "value": trial["value"],
        "expected_batch_size": scores[-1]["expected_batch_size"] if scores else None,
        **{name: trial["params"].get(name) for name in names},
        **{_of_rung(rung): by_rung.get(rung) for rung in rungs},
        "fresh_seeds": len({score["seed"] for score in repeats}),
        "seconds": sum(spent) if spent else None,
        "source": trial["source"],
        "reason": trial["reason"],
        "goes_on_from": start.get("trial"),
        "learning_rate_factor": start.get("learning_rate_factor"),
        "clipped_fraction": clipped_fraction(trial),
        "started_at": _moment(trial.get("started_at")),
        "finished_at": _moment(trial.get("finished_at")),
    }


def clipped_fraction(trial: Mapping[str, Any]) -> float | None:
    """What share of its gradients was clipped at the highest rung that it reached, as its value is of it."""
    return trial["scores"][-1].get("clipped_fraction") if trial["scores"] else None


def accuracies(trial: Mapping[str, Any]) -> dict[int, float | None]:
    """At the end of each rung; where a heat ended it, there is none."""
    return {score["rung"]: score["accuracy"] for score in trial["scores"] if not score.get("heat")}


def parameter_names(trials: Iterable[Mapping[str, Any]]) -> list[str]:
    """Of all the trials, in the order in which they appear."""
    return list(dict.fromkeys(name for trial in trials for name in trial["params"]))


def _rungs(trials: Iterable[Mapping[str, Any]]) -> list[int]:
    return sorted({score["rung"] for trial in trials for score in trial["scores"]})


def _moment(value: datetime | str | None) -> str | None:
    """As JSON has it."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def _of_rung(rung: int) -> str:
    return f"accuracy_rung_{rung}"
