"""Charts of many points that a reader zooms and hovers: what static/lines.js draws with uPlot."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from service.dashboard.charts.table import Table

Value = float | None
Kind = Literal["line", "dots", "stairs"]
Tone = Literal["accent", "muted", "amber", "good", "bad"]
DIGITS = 6
"""Significant ones, of a point on the screen. The table has them all."""


@dataclass(frozen=True, slots=True)
class Series:
    """Values over the chart's x, one for each; None where there is none."""

    label: str
    kind: Kind
    values: Sequence[Value]
    tone: Tone | None = None
    """A colour of the stylesheet; None: one of a sequence that can be told apart."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The chart: series over one rising x."""

    x_label: str
    y_label: str
    x: Sequence[float]
    series: Sequence[Series]
    summary: str
    """The chart in one sentence, for those who do not see it."""
    table: Table
    is_share: bool = False
    """Whether y is a share, shown in percent."""
    is_time: bool = False
    """Whether x is moments, in seconds since 1970, shown in UTC."""

    def to_json(self) -> str:
        """As the script reads it."""
        return json.dumps(
            {
                "x": self.x_label,
                "y": self.y_label,
                "percent": self.is_share,
                "time": self.is_time,
                "series": [
                    {"label": each.label, "kind": each.kind, "tone": each.tone}
                    for each in self.series
                ],
                "data": [
                    list(self.x) if self.is_time else _short(self.x),
                    *(_short(each.values) for each in self.series),
                ],
            },
            separators=(",", ":"),
            allow_nan=False,
        )


def _short(values: Sequence[Value]) -> list[Value]:
    return [
        None if value is None or not math.isfinite(value) else _rounded(value) for value in values
    ]


def _rounded(value: float) -> float:
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short
