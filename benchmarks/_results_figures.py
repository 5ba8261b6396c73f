"""The parts of docs/results.md on single runs: TAN's figures in small, the ablation, the implicit bias."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from _plots import COLOURS, band, log2_axis, save
from _stored import Units

from tan_core.accounting import round_up
from tan_core.planner.rungs import MIN_RUNG
from tan_core.tan import Law, Observation, fit_law

Json = dict[str, Any]

FITTED_FACTOR = 8
"""The law sees batches from the planner's least rung up to the private one over this."""


def percent(values: Sequence[float]) -> str:
    """Mean and standard deviation of fractions, in percent."""
    told = f"{100 * mean(values):.1f}"
    return told + (f" ± {100 * stdev(values):.1f}" if len(values) > 1 else "")


def commits(found: Iterable[Json]) -> str:
    """Which code, when, on what."""
    found = list(found)
    told = ", ".join(sorted({each["commit"] for each in found}))
    dates = ", ".join(sorted({each["date"] for each in found}))
    machine = found[0]["machine"].rpartition(", load")[0]
    return f"{machine}; {dates}; commit {told}"


def grouped(found: Iterable[Json], *keys: str) -> dict[tuple[Any, ...], list[Json]]:
    """Runs that are alike in these, in the order they were met."""
    groups: dict[tuple[Any, ...], list[Json]] = {}
    for each in found:
        groups.setdefault(tuple(each[key] for key in keys), []).append(each)
    return groups


def wall(units: Units, pictures: Path, where: str) -> Iterator[str]:
    """Epsilon over the noise multiplier at constant TAN."""
    curves = list(units.results())
    if not curves:
        yield "Not run."
        return

    def draw(panels: Sequence[Any]) -> None:
        for axes, eta in zip(panels, sorted({each["eta"] for each in curves}), strict=True):
            own = [each for each in curves if each["eta"] == eta]
            for colour, curve in zip(COLOURS, own, strict=False):
                points = [each for each in curve["points"] if each["epsilon"]]
                axes.plot(
                    [each["noise_multiplier"] for each in points],
                    [each["epsilon"] for each in points],
                    color=colour, marker=".", label=f"PLD, S = {curve['steps']:,}",
                )  # fmt: skip
            axes.axhline(own[0]["epsilon_tan"], color=COLOURS[3], linestyle="--", label="ε_TAN")
            axes.set(xscale="log", yscale="log", xlabel="noise multiplier σ", ylabel="ε")
            ticks = (0.5, 1, 2, 4, 8)
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            low, high = axes.get_ylim()
            shown = [each for each in (0.5, 1, 2, 5, 10, 20, 50) if low <= each <= high]
            axes.set_yticks(shown, [f"{each:g}" for each in shown])
            axes.minorticks_off()
            axes.set_title(f"η = {eta:g}", fontsize=10)
            axes.legend()

    save(pictures / "results-wall.svg", draw, panels=len({each["eta"] for each in curves}))
    yield f"![ε over the noise multiplier at constant TAN]({where}/results-wall.svg)"
    yield ""
    sigmas = [
        each["noise_multiplier"] for each in max(curves, key=lambda c: len(c["points"]))["points"]
    ]
    yield f"| η, S | {' | '.join(f'σ = {sigma:g}' for sigma in sigmas)} | ε_TAN |"
    yield f"| --- |{' --- |' * (len(sigmas) + 1)}"
    for curve in curves:
        by_sigma = {each["noise_multiplier"]: each["epsilon"] for each in curve["points"]}
        cells = " | ".join(_above(by_sigma.get(sigma)) for sigma in sigmas)
        yield f"| {curve['eta']:g}, {curve['steps']:,} | {cells} | {curve['epsilon_tan']:.2f} |"
    yield ""
    yield (
        "-: a sampling rate above 1. At σ = 2 ε is "
        f"{_between(_overcharge(curve, 2.0) for curve in curves)} % above what this total noise costs at a huge "
        f"batch, at 1 {_between(_overcharge(curve, 1.0) for curve in curves)} %, as published: flat from about 2 on, "
        f"a surge below. {commits(curves)}"
    )


def _above(epsilon: float | None) -> str:
    return "-" if epsilon is None else f"{round_up(epsilon, 2):.2f}"


def _overcharge(curve: Json, sigma: float) -> float | None:
    found = (each for each in curve["points"] if each["noise_multiplier"] == sigma)
    ratio = next((each["overcharge"] for each in found), None)
    return None if ratio is None else 100 * (ratio - 1)


def _between(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{min(known):.0f} to {max(known):.0f}"


def law_of(found: Iterable[Json]) -> Law:
    """The product's, fitted to the test accuracies of runs."""
    return fit_law(
        [
            Observation(
                expected_batch_size=each["batch_size"], accuracy=each["test"], seed=each["seed"]
            )
            for each in found
        ],
        guessing=0.1,
    )


def ladder(units: Units, pictures: Path, where: str) -> Iterator[str]:
    """Accuracy over the batch at constant TAN."""
    curves = grouped(units.results(), "curve")
    if not curves:
        yield "Not run."
        return

    def draw(panels: Sequence[Any]) -> None:
        for axes, ((name,), found), colour in zip(panels, curves.items(), COLOURS, strict=False):
            by_batch = _by_batch(found)
            band(axes, list(by_batch), _percents(by_batch), color=colour, label="test accuracy")
            target, law = _target(found), law_of(_fitted(found))
            told = law.predict(target)
            axes.errorbar(
                [target * 1.12], [100 * told.accuracy],
                yerr=[[100 * (told.accuracy - told.low)], [100 * (told.high - told.accuracy)]],
                color=COLOURS[-1], marker="D", markersize=4, capsize=3, linestyle="none",
                label=f"predicted from {MIN_RUNG} to {target // FITTED_FACTOR}",
            )  # fmt: skip
            log2_axis(axes, list(by_batch))
            _leave_out_collapsed(axes, by_batch)
            axes.set_xlabel("batch B at constant TAN")
            axes.set_ylabel("test accuracy, %")
            axes.set_title(name, fontsize=8)
            axes.legend(loc="upper left")

    save(pictures / "results-ladder.svg", draw, panels=len(curves))
    yield f"![Accuracy over the batch at constant TAN]({where}/results-ladder.svg)"
    yield ""
    for (name,), found in curves.items():
        by_batch = _by_batch(found)
        yield f"{name} (ε = {found[0]['epsilon']:g}, S = {found[0]['steps']}, {_seeds(found)}):"
        yield ""
        yield f"| B | {' | '.join(str(batch) for batch in by_batch)} |"
        yield f"| --- |{' --- |' * len(by_batch)}"
        yield f"| test accuracy, % | {' | '.join(percent(each) for each in by_batch.values())} |"
        yield ""
        target = _target(found)
        told, reached = law_of(_fitted(found)).predict(target), by_batch.get(target)
        if reached is not None:
            is_inside = all(told.low <= value <= told.high for value in reached)
            yield (
                f"The law from {MIN_RUNG} to {target // FITTED_FACTOR} ({told.method.value.replace('_', ' ')}): "
                f"{100 * told.accuracy:.1f} % [{100 * told.low:.1f}, {100 * told.high:.1f}] at {target:,}; reached "
                f"{percent(reached)} %, {'inside' if is_inside else 'not all inside'}."
            )
            yield ""
    yield commits(each for found in curves.values() for each in found)


def _leave_out_collapsed(axes: Any, by_batch: Mapping[int, Sequence[float]]) -> None:
    """Batches below the planner's least rung may fall out of the picture; the table has them."""
    kept = [100 * min(values) for batch, values in by_batch.items() if batch >= MIN_RUNG]
    low, high = axes.get_ylim()
    if kept and low < min(kept) - 2:
        axes.set_ylim(min(kept) - 0.5, min(high, max(kept) + 2.5))


def _seeds(found: Sequence[Json]) -> str:
    count = len({each["seed"] for each in found})
    return f"{count} seed" if count == 1 else f"{count} seeds"


def _target(found: Sequence[Json]) -> int:
    return found[0]["reference_batch_size"]


def _fitted(found: Sequence[Json]) -> list[Json]:
    largest = _target(found) // FITTED_FACTOR
    return [each for each in found if MIN_RUNG <= each["batch_size"] <= largest]


def _by_batch(found: Iterable[Json]) -> dict[int, list[float]]:
    groups = grouped(found, "batch_size")
    return {key[0]: [each["test"] for each in groups[key]] for key in sorted(groups)}


def _percents(by_batch: Mapping[int, Sequence[float]]) -> list[list[float]]:
    return [[100 * value for value in values] for values in by_batch.values()]


_ORDERS = {"relu_norm": "ReLU, then GroupNorm", "norm_relu": "GroupNorm, then ReLU"}


def order(units: Units) -> Iterator[str]:
    """Which of ReLU and norm comes first, and K, by how often each record is met."""
    found = list(units.results())
    if not found:
        yield "Not run."
        return
    by = {
        key: [each["test"] for each in runs]
        for key, runs in grouped(found, "passes", "order", "views").items()
    }
    passes, views = (sorted({key[at] for key in by}) for at in (0, 2))
    columns = " | ".join(f"K = {each}" for each in views)
    yield f"| passes | order | {columns} | K = {views[-1]} over K = {views[0]} |"
    yield f"| --- | --- |{' --- |' * (len(views) + 1)}"
    for often in passes:
        for name, label in _ORDERS.items():
            own = [by.get((often, name, each)) for each in views]
            cells = [percent(values) if values else "-" for values in own]
            gain = _gain(own[-1], own[0])
            yield f"| {often:g} | {label} | {' | '.join(cells)} | {gain} |"
    yield ""
    first, second = _ORDERS
    gaps = {
        often: [
            _gain(by.get((often, first, each)), by.get((often, second, each))) for each in views
        ]
        for often in passes
    }
    told = "; ".join(f"{', '.join(each)} points at {often:g}" for often, each in gaps.items())
    yield (
        f"ReLU first is {told} passes (published: 8 to 11). Published gains of views are +2.8 points for ReLU "
        f"first and -0.2 for GroupNorm first. {_seeds(found).capitalize()} at most; {commits(found)}"
    )


def _gain(one: Sequence[float] | None, other: Sequence[float] | None) -> str:
    """In points, of the means; - where one was not run."""
    return f"{100 * (mean(one) - mean(other)):+.1f}" if one and other else "-"


def ablation(units: Units) -> Iterator[str]:
    """One row for each stage, at its best learning rate."""
    stages = grouped(units.results(), "stage")
    if not stages:
        yield "Not run."
        return
    yield "| stage | learning rate | test accuracy, % | seeds | over the stage before |"
    yield "| --- | --- | --- | --- | --- |"
    before: float | None = None
    for (stage,), found in stages.items():
        rate = best_rate(found)
        own = [each["test"] for each in found if each["learning_rate"] == rate]
        gain = "" if before is None else f"{100 * (mean(own) - before):+.1f}"
        yield f"| {stage if before is None else '+ ' + stage} | {rate:g} | {percent(own)} | {len(own)} | {gain} |"
        before = mean(own)
    yield ""
    yield commits(each for found in stages.values() for each in found)


def best_rate(found: Sequence[Json]) -> float:
    """By the validation split of seed 0."""
    first = [each for each in found if each["seed"] == 0]
    return max(first, key=lambda each: each["validation"])["learning_rate"]


_CLIPPINGS = {"per_example": "clipped", "none": "not clipped"}


def implicit_bias(units: Units, pictures: Path, where: str) -> Iterator[str]:
    """Accuracy over the batch, with clipping and without."""
    panels_of = grouped(units.results(), "model", "learning_rate")
    if not panels_of:
        yield "Not run."
        return

    def draw(panels: Sequence[Any]) -> None:
        for axes, ((model, rate), found) in zip(panels, panels_of.items(), strict=True):
            for colour, (clipping, label) in zip(COLOURS, _CLIPPINGS.items(), strict=False):
                by_batch = _by_batch(each for each in found if each["clipping"] == clipping)
                if by_batch:
                    band(axes, list(by_batch), _percents(by_batch), color=colour, label=label)
            log2_axis(axes, sorted({each["batch_size"] for each in found}))
            axes.set_xlabel("batch B at constant σ/B and S")
            axes.set_ylabel("test accuracy, %")
            axes.set_title(f"{model}, learning rate {rate:g}", fontsize=9)
            axes.legend(loc="lower right")

    save(pictures / "results-implicit-bias.svg", draw, panels=len(panels_of))
    yield f"![Accuracy over the batch with and without clipping]({where}/results-implicit-bias.svg)"
    yield ""
    batches = sorted({each["batch_size"] for found in panels_of.values() for each in found})
    columns = " | ".join(f"B = {batch}" for batch in batches)
    yield f"| model, learning rate | gradients | {columns} | law | points per doubling at the last batch |"
    yield f"| --- | --- |{' --- |' * (len(batches) + 2)}"
    for (model, rate), found in panels_of.items():
        for clipping, label in _CLIPPINGS.items():
            own = [each for each in found if each["clipping"] == clipping]
            by_batch = _by_batch(own)
            if not by_batch:
                continue
            cells = " | ".join(percent(by_batch[b]) if b in by_batch else "-" for b in batches)
            told = law_of(own).predict(2.0 * max(by_batch))
            yield (
                f"| {model}, {rate:g} | {label} | {cells} | {told.method.value.replace('_', ' ')} "
                f"| {100 * told.slope:+.2f} |"
            )
    yield ""
    yield commits(each for found in panels_of.values() for each in found)
