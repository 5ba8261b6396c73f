"""The findings of a self-test as a table that a person can read."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from service.cli.tables import FirstThatFits, FittingTable, table

Json = dict[str, Any]


def findings(document: Json) -> RenderableType:
    """Every check with its value and what is accepted; then each failure in words."""
    found = document["findings"]
    failed = [finding for finding in found if not finding["passed"]]
    return Group(
        FirstThatFits(_table(found, is_wide=True), _table(found, is_wide=False)),
        *(Text(_failure(finding), style="red") for finding in failed),
        Text(_verdict(document, len(failed))),
    )


def _table(found: Sequence[Json], *, is_wide: bool) -> FittingTable:
    """One check a line; with its power, and what that is against, where there is room."""
    power = ("power", "against") if is_wide else ()
    made = table(None, "check", "value", "accepted", "p", *power, "", right=("value", "p", "power"))
    for finding in found:
        made.add_row(
            finding["check"],
            _number(finding["value"]),
            _accepted(finding),
            _probability(finding["p_value"]),
            *([_power(finding["power"]), finding["fault"]] if is_wide else []),
            Text("ok", style="green") if finding["passed"] else Text("FAILED", style="bold red"),
        )
    return made


def _verdict(document: Json, num_failed: int) -> str:
    count = len(document["findings"])
    alarm = f"a correct product fails one of them in {document['false_alarm']:.1e} of all runs"
    if num_failed:
        return (
            f"{num_failed} of {count} checks failed; {alarm}. Do not release what was trained here."
        )
    return f"all {count} checks passed; {alarm}"


def _failure(finding: Json) -> str:
    if finding["error"] is not None:
        return f"{finding['check']}: {finding['error']}"
    return (
        f"{finding['check']}: {finding['claim']}; {finding['statistic']} is "
        f"{_number(finding['value'])}, accepted {_accepted(finding)}"
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _accepted(finding: Json) -> str:
    low, high = finding["low"], finding["high"]
    if low is None:
        return "" if high is None else f"≤ {_number(high)}"
    if high is None:
        return f"≥ {_number(low)}"
    return _number(low) if low == high else f"{_number(low)} to {_number(high)}"


def _probability(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _power(value: float) -> str:
    """Rounded down: a power of 1 is only what is certain to the last digit."""
    return "1" if value > 1 - 1e-6 else f"{int(value * 1000) / 1000:.3f}"
