"""A plan as a picture: what its total noise costs at every batch size, and where the wall stands."""

import math
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from service import text
from service.cli.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tan_core.mechanism import Mechanism

Json = dict[str, Any]

SUFFIXES = (".png", ".svg", ".pdf")
TOLERANCE = 1.10
"""The wall begins where epsilon is a tenth above what the same total noise costs at a huge batch."""

_LEAST_NOISE, _FLAT_FROM, _MOST_NOISE = 0.45, 4.0, 16.0
_BENT_POINTS, _FLAT_POINTS = 24, 8
_MARGIN = 1.06
_DIGITS = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9))
_HIGHEST = 12.0
"""The axis ends at so many times the lowest epsilon: the curve behind the wall has no end."""

_FOOT_COLUMNS = 115
"""Of a line below the picture."""

_CURVE, _ESTIMATE, _POINT, _WALL, _INK = "#1b5e8c", "#8a6d3b", "#c0392b", "#b9b4ac", "#333333"


def check_path(path: Path) -> None:
    """Refuse a picture of an unknown kind, before anything is planned.

    Raises:
        InputError: the suffix is none of ``SUFFIXES``.
    """
    if path.suffix.lower() not in SUFFIXES:
        got = path.suffix or "no suffix"
        raise InputError(f"--plot {path}: accepted: {', '.join(SUFFIXES)}, got {got}")


def save(document: Json, path: Path) -> None:
    """Draw epsilon against the noise multiplier at constant TAN, with the plan's own point.

    Args:
        document: a plan; its ``reference`` and ``privacy`` are enough.
        path: the picture; its suffix says which kind.

    Raises:
        InputError: the suffix is unknown, matplotlib is missing, or the file cannot be written.
    """
    check_path(path)
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "--plot needs matplotlib, which is not installed: pip install 'tan-search[plot]'"
        ) from error
    with rc_context({"font.size": 10, "axes.edgecolor": _INK, "text.color": _INK}):
        figure = Figure(figsize=(8.0, 5.0), dpi=150, layout="constrained")
        draw(figure, document)
        try:
            figure.savefig(path)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def draw(figure: "Figure", document: Json) -> None:
    """The picture: the exact curve, the estimate, the wall and the plan."""
    run, privacy = document["reference"], document["privacy"]
    mechanism = _mechanism(run, privacy)
    points = _curve(mechanism, privacy["delta"])
    alone = " of the private run alone" if document.get("charged_search") else ""
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    _set_limits(axes, points, privacy)
    _draw_wall(axes, mechanism, privacy["delta"])
    axes.plot(
        *zip(*points, strict=True),
        color=_CURVE, linewidth=2.2, label=f"ε by PLD{alone}, an upper bound",
    )  # fmt: skip
    axes.axhline(
        privacy["epsilon_tan"], color=_ESTIMATE, linewidth=1.5, linestyle=(0, (5, 3)),
        label=f"ε_TAN = {text.estimate(privacy['epsilon_tan'])}, estimate, not a guarantee",
    )  # fmt: skip
    _draw_reference(axes, run, privacy)
    _draw_axes(axes, run)
    _draw_titles(figure, axes, document)


def _mechanism(run: Json, privacy: Json) -> "Mechanism":
    from tan_core.mechanism import Mechanism, NeighboringRelation

    return Mechanism(
        sampling_rate=run["sampling_rate"],
        noise_multiplier=run["noise_multiplier"],
        clip_norm=run["clip_norm"],
        steps=run["steps"],
        neighboring_relation=NeighboringRelation(privacy["neighboring_relation"]),
    )


def _curve(mechanism: "Mechanism", delta: float) -> list[tuple[float, float]]:
    """(sigma, epsilon) around the plan, as far as a full batch, where there is a price."""
    from tan_core.tan import constant_tan_curve

    sigma = mechanism.noise_multiplier
    full_batch = sigma / mechanism.sampling_rate
    low = min(_LEAST_NOISE, 0.8 * sigma, full_batch)
    high = min(max(_MOST_NOISE, 2 * sigma), full_batch)
    flat_from = min(max(_FLAT_FROM, low), high)
    noise = {
        *_spread(low, flat_from, _BENT_POINTS),
        *_spread(flat_from, high, _FLAT_POINTS),
        sigma,
    }
    points = constant_tan_curve(mechanism, delta=delta, noise_multipliers=sorted(noise))
    return [(point.noise_multiplier, point.epsilon) for point in points if point.epsilon]


def _spread(low: float, high: float, count: int) -> list[float]:
    """Both ends and what lies between, evenly by ratio."""
    return [low * (high / low) ** (i / (count - 1)) for i in range(count)]


def _set_limits(axes: "Axes", points: Sequence[tuple[float, float]], privacy: Json) -> None:
    """Room for the plan, the estimate and the foot of the wall; not for all of the wall."""
    shown = [privacy["epsilon"], privacy["epsilon_tan"]]
    epsilons = [epsilon for _, epsilon in points]
    lowest = min(*epsilons, *shown)
    highest = max(min(_HIGHEST * lowest, max(epsilons)), *shown)
    sigmas = [sigma for sigma, epsilon in points if epsilon <= highest]
    axes.set_xlim(min(sigmas) / _MARGIN, max(sigmas) * _MARGIN)
    axes.set_ylim(lowest / 1.25, highest * 1.15)


def _draw_wall(axes: "Axes", mechanism: "Mechanism", delta: float) -> None:
    from tan_core.tan import wall

    left, right = axes.get_xlim()
    foot = min(wall(mechanism, delta=delta, tolerance=TOLERANCE), right)
    if foot <= left:
        return
    axes.axvspan(
        left, foot, color=_WALL, alpha=0.35, linewidth=0,
        label=f"the wall, σ < {foot:.3g}: ε more than {100 * (TOLERANCE - 1):.0f} % above its limit",
    )  # fmt: skip


def _draw_reference(axes: "Axes", run: Json, privacy: Json) -> None:
    accountant = str(privacy["accountant"]).upper()
    axes.plot(
        run["noise_multiplier"], privacy["epsilon"],
        marker="o", markersize=8, color=_POINT, markeredgecolor="white", linestyle="none", zorder=5,
        label=(
            f"this plan: B = {text.number(run['expected_batch_size'])}, "
            f"σ = {text.number(run['noise_multiplier'])}, "
            f"ε = {text.epsilon(privacy['epsilon'])} by {accountant}"
        ),
    )  # fmt: skip


def _draw_axes(axes: "Axes", run: Json) -> None:
    """Plain numbers on both axes, and the batch sizes along the top."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xlabel("noise multiplier σ")
    axes.set_ylabel("ε")
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_major_locator(FixedLocator(_ticks(low, high)))
        axis.set_major_formatter(plain)
        axis.set_minor_locator(NullLocator())
    scale = run["expected_batch_size"] / run["noise_multiplier"]
    top = axes.secondary_xaxis("top", functions=(lambda x: x * scale, lambda x: x / scale))
    top.set_xlabel("expected batch size B", labelpad=6)
    low, high = (scale * end for end in axes.get_xlim())
    doubled = [run["expected_batch_size"] * 2.0**i for i in range(-12, 13)]
    top.xaxis.set_major_locator(FixedLocator([b for b in doubled if max(low, 1) <= b <= high]))
    top.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text.number(round(value))))
    top.xaxis.set_minor_locator(NullLocator())
    axes.grid(color="#e4e1dc", linewidth=0.8)
    axes.set_axisbelow(True)


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten; finer ones where those would be fewer than four."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in _DIGITS:
        ticks = [d * 10.0**k for k in decades for d in digits if low <= d * 10.0**k <= high]
        if len(ticks) >= 4:
            return ticks
    return [low, high]


def _draw_titles(figure: "Figure", axes: "Axes", document: Json) -> None:
    """The title, the legend, and below the picture all that an epsilon means nothing without."""
    run, privacy = document["reference"], document["privacy"]
    axes.legend(loc="upper right", frameon=True, framealpha=0.95, edgecolor="#d8d4cd", fontsize=9)
    figure.suptitle("What the plan's total noise costs at other batch sizes", fontsize=13)
    lines = [
        f"S = {text.number(run['steps'])}, η = {privacy['signal_to_noise']:.4g}, "
        f"δ = {privacy['delta']:g}, neighbours {privacy['neighboring_relation']}, "
        f"N = {text.number(run['num_examples'])}"
    ]
    search = document.get("search_privacy")
    if search and search["mode"]:
        of = (
            "private run with its trials" if document.get("charged_search") else "private run alone"
        )
        lines += wrap(f"{of}; {search['note']}", _FOOT_COLUMNS)
    figure.supxlabel("\n".join(lines), fontsize=8.5, color="#666666")
