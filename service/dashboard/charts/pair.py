"""Two parameters at once: a dot for each trial at one batch, where it lies in both, in the tone of its quarter by accuracy.

Nothing is drawn between the dots: a surface through so few trials would show what its interpolation makes up.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service import text
from service.dashboard.charts.axis import Axis
from service.dashboard.charts.scale import SIZE, Frame
from service.dashboard.charts.table import Table
from service.dashboard.charts.trial_point import (
    NUM_QUARTERS,
    TrialPoint,
    in_quarters,
    named,
    spread,
)

MAX_DOTS = 400
LEAST_DRAWN = NUM_QUARTERS
"""Trials: a quarter of fewer is none."""
_DOT = (18, 30)
"""What a dot takes of the plot area, across and up."""
_BAND_SHARE = 0.8
"""Of a band: what dots stand in."""
_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PairChart:
    """What the template draws."""

    names: tuple[str, ...]
    """Of the parameters that can be chosen, in the order of the space."""
    across: str
    up: str
    frame: Frame
    quarters: tuple[str, ...]
    """Dots by accuracy, the worst first, so that the best lie on top."""
    trials: str
    """Numbers of the trials, dot by dot."""
    best: int | None
    """The number of the trial that stands out; None where no trial has both parameters."""
    best_dot: str
    best_quarter: int
    """From 1, the best last."""
    num_shown: int
    named: str
    """What each trial is called, as JSON."""
    summary: str
    table: Table


def pair_chart(
    scored: Sequence[tuple[TrialPoint, float]],
    axes: Sequence[Axis],
    *,
    ranked: Sequence[str],
    across: str | None = None,
    up: str | None = None,
    marked: int | None = None,
) -> PairChart | None:
    """The chart of trials with their accuracies at one batch; None where few of them have two parameters.

    Args:
        scored: the trials.
        axes: the searched parameters.
        ranked: their names, what mattered most first: what is drawn unless others are named.
        across: the parameter from left to right.
        up: the other one. What is no parameter, or both at once, gives way.
        marked: the number of the trial that stands out; None, or not among them: the best.
    """
    having = {axis.name: {p.number for p, _ in scored if axis.name in p.params} for axis in axes}
    by_name = {axis.name: axis for axis in axes if len(having[axis.name]) >= LEAST_DRAWN}
    if len(by_name) < 2:
        return None
    known = [name for name in ranked if name in by_name]
    names = _chosen(known, having, across, up)
    pair = by_name[names[0]], by_name[names[1]]
    both = having[names[0]] & having[names[1]]
    placed = [
        (each, place)
        for each in spread([each for each in scored if each[0].number in both], MAX_DOTS)
        if (place := _place(each[0], pair)) is not None
    ]
    shown = [each for each, _ in placed]
    dots = _apart([place for _, place in placed], pair)
    drawn = [
        (f"M{x} {SIZE - y}h0", point.number) for (x, y), (point, _) in zip(dots, shown, strict=True)
    ]
    quarters = in_quarters(drawn[::-1])
    numbers = [number for _, number in drawn]
    best = marked if marked in numbers else next(iter(numbers), None)
    rank = numbers.index(best) if best is not None else 0
    return PairChart(
        names=tuple(by_name),
        across=names[0],
        up=names[1],
        frame=_frame(*pair),
        quarters=tuple("".join(dot for dot, _ in quarter) for quarter in quarters),
        trials=",".join(map(str, reversed(numbers))),
        best=best,
        best_dot=drawn[rank][0] if drawn else "",
        best_quarter=next(
            (k for k, quarter in enumerate(quarters, 1) for _, each in quarter if each == best),
            NUM_QUARTERS,
        ),
        num_shown=len(shown),
        named=named(shown),
        summary=_summary(shown, pair, rank),
        table=Table(
            ("trial", *names, "accuracy"),
            [(p.number, *(p.params[name] for name in names), v) for p, v in shown],
        ),
    )


def _chosen(
    known: Sequence[str], having: Mapping[str, set[int]], across: str | None, up: str | None
) -> tuple[str, str]:
    """Two different ones of those that are known, what mattered most first; ``having`` are the trials with each.

    What is not named is one that enough trials have beside the other one, if there is such a one.
    """

    def beside(other: str | None) -> str:
        names = [name for name in known if name != other]
        if other is None:
            return names[0]
        fit = (name for name in names if len(having[other] & having[name]) >= LEAST_DRAWN)
        return next(fit, names[0])

    across, up = (name if name and name in known else None for name in (across, up))
    first = across or beside(up)
    return first, up if up and up != first else beside(first)


def _place(point: TrialPoint, pair: tuple[Axis, Axis]) -> _Place | None:
    """Where a trial lies, in the middle of its band where there are bands; None where it lacks a parameter."""
    places: list[int] = []
    for axis in pair:
        place = axis.place(point.params.get(axis.name))
        if place is None:
            return None
        if count := len(axis.bands):
            place = (round(place * (count - 1)) + 0.5) / count
        places.append(round(SIZE * place))
    return places[0], places[1]


def _apart(places: Sequence[_Place], pair: tuple[Axis, Axis]) -> list[_Place]:
    """The places, moved within their bands so that no dot hides another, the first ones least.

    Along an axis without bands nothing moves: there a place is a number.
    """
    steps = [_steps(axis, dot) for axis, dot in zip(pair, _DOT, strict=True)]
    ways = sorted(
        ((across, up) for across in steps[0] for up in steps[1]),
        key=lambda way: (way[0] / _DOT[0]) ** 2 + (way[1] / _DOT[1]) ** 2,
    )
    taken: dict[_Place, list[_Place]] = {}
    # Many trials have one place: the ways from it that are taken are not tried again.
    tried: Counter[_Place] = Counter()
    moved: list[_Place] = []
    for x, y in places:
        place = x, y
        for across, up in ways[tried[x, y] :]:
            tried[x, y] += 1
            if _is_free((x + across, y + up), taken):
                place = x + across, y + up
                break
        taken.setdefault(_cell(place), []).append(place)
        moved.append(place)
    return moved


def _steps(axis: Axis, dot: int) -> range:
    """How far a dot may be moved along an axis, by whole dots."""
    if not axis.bands:
        return range(1)
    most = int(SIZE * _BAND_SHARE / len(axis.bands) / 2 - dot / 2) // dot
    return range(-dot * most, dot * most + 1, dot) if most > 0 else range(1)


def _cell(place: _Place) -> _Place:
    return place[0] // _DOT[0], place[1] // _DOT[1]


def _is_free(place: _Place, taken: dict[_Place, list[_Place]]) -> bool:
    column, row = _cell(place)
    near = (taken.get((column + i, row + j), ()) for i in (-1, 0, 1) for j in (-1, 0, 1))
    return not any(
        abs(x - place[0]) < _DOT[0] and abs(y - place[1]) < _DOT[1]
        for each in near
        for x, y in each
    )


def _frame(across: Axis, up: Axis) -> Frame:
    """A line at each label, and between bands."""
    return Frame(
        grid="".join(
            [f"M{right} 0v{SIZE}" for right in _lines(across)]
            + [f"M0 {SIZE - above}h{SIZE}" for above in _lines(up)]
        ),
        x_labels=_labels(across),
        y_labels=tuple(reversed(_labels(up))),
    )


def _lines(axis: Axis) -> list[int]:
    parts = len(axis.bands) or len(axis.labels) - 1
    return [round(SIZE * k / parts) for k in range(parts + 1)]


def _labels(axis: Axis) -> tuple[str, ...]:
    """Evenly spaced; those of bands stand in their middle."""
    if not axis.bands:
        return axis.labels
    return ("", *(each for label in axis.bands for each in (label, "")))


def _summary(shown: Sequence[tuple[TrialPoint, float]], pair: tuple[Axis, Axis], rank: int) -> str:
    across, up = (axis.name for axis in pair)
    what = f"{up} over {across} of {text.counted(len(shown), 'trial')} by accuracy"
    if not shown:
        return f"{what}."
    point, value = shown[rank]
    has = " and ".join(f"{name} {text.parameter(point.params.get(name))}" for name in (across, up))
    return f"{what}; trial {point.number}, {text.percent(value)}, has {has}."
