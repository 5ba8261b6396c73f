"""A study on a terminal: its phases as bars, what its trials reached, how its run goes."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from service import text
from service.cli import chart
from service.cli.story import Rung, Story

CHART_HEIGHT = 5
CHART_WIDTH = 44
BAR_WIDTH = 16
NARROWEST = 36
"""Below so many columns there is room for bars alone."""


def plots(story: Story, *, width: int) -> RenderableType:
    """The plots that there is something to show in, side by side where there is room."""
    if width < NARROWEST:
        return Text()
    each = min(CHART_WIDTH, width - 2)
    found = [
        part
        for part in (
            _best(story.best_so_far, width=each, told=story.of_scores),
            _rungs(story.rungs, width=each, told=story.of_scores),
            _rates(story.rates, width=each),
        )
        if part is not None
    ]
    columns = max(1, width // (CHART_WIDTH + 2))
    grid = Table.grid(padding=(0, 2, 0, 0))
    for start in range(0, len(found), columns):
        grid.add_row()
        grid.add_row(*found[start : start + columns])
    return grid


def _best(values: Sequence[float], *, width: int, told: str) -> RenderableType | None:
    """Best accuracy so far over the trials that climbed every rung."""
    if len(values) < 2:
        return None
    labels = [text.percent(values[-1]), *[""] * (CHART_HEIGHT - 2), text.percent(values[0])]
    room = max(map(len, labels))
    curve = chart.line(values, width=width - room - 1, height=CHART_HEIGHT, is_stepped=True)
    lines = [
        Text.assemble((f"{label:>{room}} ", "dim"), (part, "cyan"))
        for label, part in zip(labels, curve, strict=True)
    ]
    title = f"best so far, {len(values):,} completed ({told})"
    return Group(Text(title, style="bold", overflow="ellipsis", no_wrap=True), *lines)


def _rungs(rungs: Sequence[Rung], *, width: int, told: str) -> RenderableType | None:
    """How the trials do at each simulated batch."""
    if not rungs:
        return None
    low, high = min(rung.middle for rung in rungs), max(rung.best for rung in rungs)
    grid = Table.grid(padding=(0, 1, 0, 0))
    bar = max(4, min(BAR_WIDTH, width - 28))
    for rung in rungs:
        grid.add_row(
            Text(rung.name, style="dim"),
            Text(_bar(rung, low, high, bar), style="cyan"),
            f"{text.percent(rung.best)}, {text.counted(len(rung.accuracies), 'trial')}",
        )
    title = Text(f"best of each rung ({told})", style="bold", no_wrap=True)
    return Group(title, grid)


def _bar(rung: Rung, low: float, high: float, width: int) -> str:
    """From the worst median of all rungs: to the rung's own median full, to its best light."""
    span = high - low or 1.0
    middle, best = (
        max(1, round(width * (value - low) / span)) for value in (rung.middle, rung.best)
    )
    return "█" * middle + "░" * (best - middle)


def _rates(rates: Sequence[float], *, width: int) -> RenderableType | None:
    """How fast the private run steps. Its accuracy is read once, at its end."""
    if len(rates) < 2:
        return None
    title = Text("steps per second of the private run", style="bold", no_wrap=True)
    return Group(
        title,
        Text(chart.sparkline(rates, width=width), style="green"),
        Text(f"{rates[-1]:.1f} now, {max(rates):.1f} at most", style="dim"),
    )
