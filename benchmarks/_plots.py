"""Pictures of docs/results.md: SVG that is the same for the same results."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1b5e8c", "#c0392b", "#3c7d3f", "#8a6d3b", "#6b4a8e", "#555555")
_INK = "#333333"
_STYLE = {
    "font.size": 9,
    "axes.edgecolor": _INK,
    "text.color": _INK,
    "axes.grid": True,
    "grid.color": "#e4e1dc",
    "axes.axisbelow": True,
    "legend.edgecolor": "#d8d4cd",
    "legend.fontsize": 8,
    # The same file for the same picture: no random ids, no date, and text as text.
    "svg.hashsalt": "tan-search",
    "svg.fonttype": "none",
}


def save(path: Path, draw: Callable[[Sequence["Axes"]], None], *, panels: int = 1) -> None:
    """A picture of panels side by side, drawn by ``draw``."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(5.6 if panels == 1 else 4.4 * panels, 3.6), layout="constrained")
        draw([figure.add_subplot(1, panels, 1 + panel) for panel in range(panels)])
        figure.savefig(path, metadata={"Date": None, "Creator": None})
    # Lines that end in blanks are no part of a picture.
    text = "\n".join(line.rstrip() for line in path.read_text().splitlines())
    path.write_text(text + "\n")


def band(axes: "Axes", x: Sequence[float], groups: Sequence[Sequence[float]], **style: str) -> None:
    """Means joined by a line, and every value as a dot."""
    means = [sum(group) / len(group) for group in groups]
    axes.plot(x, means, linewidth=1.8, **style)
    for at, group in zip(x, groups, strict=True):
        axes.plot(
            [at] * len(group), group,
            marker="o", markersize=2.5, linestyle="none", color=style["color"], alpha=0.5,
        )  # fmt: skip


def log2_axis(axes: "Axes", values: Sequence[float]) -> None:
    """Batches, one tick for each."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()
