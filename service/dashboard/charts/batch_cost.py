"""The chart of a plan's cost: examples that are processed, over the private run's batch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service import text
from service.dashboard.charts.scale import Frame, Scale, decades_scale, doublings_scale
from service.dashboard.charts.table import Table
from tan_core.planner.sketch import BatchCost

WHAT = {
    "private_run": "by the private run",
    "search": "by the search",
    "full_search": "by a search at the full batch",
}
LINES = tuple(WHAT)
"""What can be drawn."""


@dataclass(frozen=True, slots=True)
class BatchCostChart:
    """What the template draws. Both axes are logarithmic."""

    frame: Frame
    private_run: str
    search: str
    full_search: str
    """Of these three, what is not drawn is empty."""
    here: str
    """The dots of the batch that was asked for."""
    summary: str
    table: Table


def batch_cost_chart(
    costs: Sequence[BatchCost], *, batch: int, shown: Sequence[str] = LINES
) -> BatchCostChart:
    """The chart of these batches, rising, of which one is ``batch``; of ``LINES``, those that are ``shown``."""
    lines = {name: [getattr(one.cost, f"{name}_examples") for one in costs] for name in shown}
    x = doublings_scale(costs[0].expected_batch_size, costs[-1].expected_batch_size)
    y = decades_scale(
        min(min(line) for line in lines.values()), max(max(line) for line in lines.values())
    )
    sizes = [one.expected_batch_size for one in costs]
    place = sizes.index(batch)
    return BatchCostChart(
        frame=Frame.of(x, y),
        **{name: _line(sizes, lines[name], x, y) if name in lines else "" for name in LINES},
        here="".join(
            f"M{x.right(math.log2(batch))} {y.down(math.log10(line[place]))}h0"
            for line in lines.values()
        ),
        summary=_summary(batch, {name: line[place] for name, line in lines.items()}),
        table=_table(costs, shown),
    )


def _line(sizes: Sequence[int], counts: Sequence[int], x: Scale, y: Scale) -> str:
    corners = [
        f"{x.right(math.log2(size))} {y.down(math.log10(count))}"
        for size, count in zip(sizes, counts, strict=True)
    ]
    return f"M{'L'.join(corners)}"


def _summary(batch: int, processed: Mapping[str, int]) -> str:
    told = ", ".join(f"{WHAT[name]} {text.number(count)}" for name, count in processed.items())
    return f"Processed at batch {text.number(batch)}: {told}."


def _table(costs: Sequence[BatchCost], shown: Sequence[str]) -> Table:
    names = [f"{name}_examples" for name in shown] + ["saving"] * ("search" in shown)
    return Table(
        columns=("expected_batch_size", *names),
        rows=[
            (one.expected_batch_size, *(getattr(one.cost, name) for name in names)) for one in costs
        ],
    )
