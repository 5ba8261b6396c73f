"""The charts of a comparison: private runs of a few studies over each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service import text
from service.dashboard.charts.lines import Lines, Series, Value
from service.dashboard.charts.private_run import spent_by_now
from service.dashboard.charts.table import Table
from service.private_run.schemas import PrivateRunCurves


@dataclass(frozen=True, slots=True)
class NamedRun:
    """One study's private run; None while it has none."""

    label: str
    curves: PrivateRunCurves | None


def compared_spending(runs: Sequence[NamedRun]) -> Lines | None:
    """Epsilon of each run over the steps it was charged; None where nothing was charged."""
    spent = [
        {} if run.curves is None or run.curves.charged_steps is None else
        {point.charged_steps: point.epsilon for point in spent_by_now(run.curves)}
        for run in runs
    ]  # fmt: skip
    ends = [
        f"{run.label} {text.epsilon(points[max(points)])}"
        for run, points in zip(runs, spent, strict=True)
        if any(points)
    ]
    if not ends:
        return None
    return _overlaid(
        runs,
        spent,
        x_label="Steps charged",
        y_label="ε",
        summary=f"Epsilon by the steps charged, each by its own accountant and δ: {', '.join(ends)}.",
    )


def compared_updates(runs: Sequence[NamedRun]) -> Lines | None:
    """Norms of the noisy gradients of each run over its steps; None where no run has succeeded."""
    norms = [
        {point.step: point.gradient_norm for point in (run.curves.updates if run.curves else [])}
        for run in runs
    ]
    known = [run.label for run, points in zip(runs, norms, strict=True) if points]
    if not known:
        return None
    return _overlaid(
        runs,
        norms,
        x_label="Step",
        y_label="Norm of the noisy gradient",
        summary=f"Norm of the noisy gradient over the steps of {', '.join(known)}.",
    )


def _overlaid(
    runs: Sequence[NamedRun],
    points: Sequence[Mapping[int, Value]],
    *,
    x_label: str,
    y_label: str,
    summary: str,
) -> Lines:
    """A line for each run over the steps of all; one without points keeps its place among the colours."""
    steps = sorted({step for each in points for step in each})
    columns = [[each.get(step) for step in steps] for each in points]
    return Lines(
        x_label=x_label,
        y_label=y_label,
        x=steps,
        series=[
            Series(run.label, "line", column) for run, column in zip(runs, columns, strict=True)
        ],
        summary=summary,
        table=Table(
            (x_label.lower(), *(run.label for run in runs)), list(zip(steps, *columns, strict=True))
        ),
    )
