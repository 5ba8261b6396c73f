"""The chart of a plan's cost: examples that are processed, over the private run's batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from service import text
from service.dashboard.charts.scale import Frame, Scale, decades_scale, doublings_scale
from service.dashboard.charts.table import Table
from tan_core.planner.sketch import BatchCost


@dataclass(frozen=True, slots=True)
class BatchCostChart:
    """What the template draws. Both axes are logarithmic."""

    frame: Frame
    private_run: str
    search: str
    full_search: str
    here: str
    """The dots of the batch that was asked for."""
    summary: str
    table: Table


def batch_cost_chart(costs: Sequence[BatchCost], *, batch: int) -> BatchCostChart:
    """The chart of these batches, rising, of which one is ``batch``."""
    here = next(one for one in costs if one.expected_batch_size == batch)
    lines = {
        "private_run": [one.cost.private_run_examples for one in costs],
        "search": [one.cost.search_examples for one in costs],
        "full_search": [one.cost.full_search_examples for one in costs],
    }
    x = doublings_scale(costs[0].expected_batch_size, costs[-1].expected_batch_size)
    y = decades_scale(
        min(min(line) for line in lines.values()), max(max(line) for line in lines.values())
    )
    sizes = [one.expected_batch_size for one in costs]
    place = sizes.index(batch)
    return BatchCostChart(
        frame=Frame.of(x, y),
        **{name: _line(sizes, line, x, y) for name, line in lines.items()},
        here="".join(
            f"M{x.right(math.log2(batch))} {y.down(math.log10(line[place]))}h0"
            for line in lines.values()
        ),
        summary=(
            f"Cost over the batch: at batch {text.number(batch)} the private run processes "
            f"{text.number(here.cost.private_run_examples)}, the search "
            f"{text.number(here.cost.search_examples)}, and a search at the full batch would "
            f"process {text.number(here.cost.full_search_examples)}."
        ),
        table=_table(costs),
    )


def _line(sizes: Sequence[int], counts: Sequence[int], x: Scale, y: Scale) -> str:
    corners = [
        f"{x.right(math.log2(size))} {y.down(math.log10(count))}"
        for size, count in zip(sizes, counts, strict=True)
    ]
    return f"M{'L'.join(corners)}"


def _table(costs: Sequence[BatchCost]) -> Table:
    names = ("private_run_examples", "search_examples", "full_search_examples", "saving")
    return Table(
        columns=("expected_batch_size", *names),
        rows=[
            (one.expected_batch_size, *(getattr(one.cost, name) for name in names)) for one in costs
        ],
    )
