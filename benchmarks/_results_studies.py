"""The part of docs/results.md on studies: what the product reached, beside what papers report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from _plots import COLOURS, save
from _published_figures import BEST, METHODS, SAME_MODEL
from _published_studies import ROWS

from tan_core.accounting import round_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Json = dict[str, Any]

TITLES = {"mnist": "MNIST", "cifar10-jpeg": "CIFAR-10 (JPEG)"}


@dataclass(frozen=True)
class Group:
    """The studies of one row, one for each seed."""

    dataset: str
    model: str
    epsilon: float
    studies: Sequence[Json]

    @property
    def name(self) -> str:
        """As on the command line."""
        return self.studies[0]["name"]

    @property
    def accuracies(self) -> list[float]:
        """Of the test split, in percent."""
        return [100 * study["test_accuracy"] for study in self.studies]

    @property
    def best_published(self) -> float | None:
        """Of any method, in percent."""
        return BEST[self.dataset].get(self.epsilon)


def groups(studies: Sequence[Json]) -> list[Group]:
    """By row, in the order of ``ROWS``."""
    found: list[Group] = []
    for row in ROWS:
        own = [study for study in studies if study["name"] == row.name]
        if own:
            found.append(Group(row.recipe.dataset, row.recipe.label, row.epsilon, own))
    return sorted(found, key=lambda group: (group.dataset != "mnist", group.epsilon, group.model))


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def lines(studies: Sequence[Json], pictures: Path, where: str) -> Iterator[str]:
    """Tables and picture."""
    found = groups(studies)
    if not found:
        yield "No study was run."
        return
    yield from _overview(found)
    yield ""
    save(pictures / "results-published.svg", lambda panels: _draw(panels[0], found, "mnist"))
    yield f"![Accuracy over epsilon on MNIST]({where}/results-published.svg)"
    yield ""
    yield from _each(found)


def _overview(found: Sequence[Group]) -> Iterator[str]:
    yield "| dataset | ε | model | test accuracy, % | seeds | best published | same model, published | at or above the best |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for group in found:
        best = group.best_published
        same = SAME_MODEL.get((group.dataset, group.model, group.epsilon))
        verdict = "-" if best is None else ("yes" if mean(group.accuracies) >= best else "**no**")
        yield (
            f"| {TITLES[group.dataset]} | {group.epsilon:g} | {group.model} "
            f"| {spread(group.accuracies)} | {len(group.studies)} "
            f"| {'-' if best is None else f'{best:.2f}'} "
            f"| {'-' if same is None else f'{same[0]:g} ({same[1]})'} | {verdict} |"
        )


def _each(found: Sequence[Group]) -> Iterator[str]:
    yield "| study | seed | reached, % | predicted, % [90 %] | ε by PLD, PRV, RDP, RDP classical | B, σ, S | search cost | minutes | commit |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for group in found:
        for study in group.studies:
            yield _study(study)
    yield ""
    yield foretold([study for group in found for study in group.studies])
    yield ""
    yield "What each search chose:"
    yield ""
    for group in found:
        for study in group.studies:
            chosen = ", ".join(f"{key} {_value(value)}" for key, value in study["winner"].items())
            yield f"- `{study['command']}`: {chosen}"


def foretold(studies: Sequence[Json]) -> str:
    """How far private runs ended from what was predicted before them."""
    errors = [100 * (each["test_accuracy"] - each["prediction"]["accuracy"]) for each in studies]
    near = sum(abs(error) <= 1 for error in errors)
    held = sum(
        each["prediction"]["low"] <= each["test_accuracy"] <= each["prediction"]["high"]
        for each in studies
    )
    return (
        f"Before their private runs, {near} of {len(studies)} studies were predicted to within a point of the test accuracy, "
        f"{-mean(errors):+.2f} on average, and {held} of the 90 % intervals held it."
    )


def _study(study: Json) -> str:
    mechanism, told, spent = study["mechanism"], study["prediction"], study["epsilon"]
    batch = mechanism["sampling_rate"] * study["num_examples"]
    cost = study["search_examples"] / (batch * mechanism["steps"] * _views(study))
    mark = "" if told["low"] <= study["test_accuracy"] <= told["high"] else ", outside"
    shown = ", ".join(
        "-" if spent[key] is None else f"{round_up(spent[key], 3):.3f}"
        for key in ("pld", "prv", "rdp", "rdp_classical")
    )
    return (
        f"| {study['name']} | {study['seed']} | {100 * study['test_accuracy']:.2f} "
        f"| {100 * told['accuracy']:.1f} [{100 * told['low']:.1f}, {100 * told['high']:.1f}]{mark} "
        f"| {shown} | {batch:,.0f}, {mechanism['noise_multiplier']:.3g}, {mechanism['steps']:,} "
        f"| {cost:.2f} | {_minutes(study):.0f} | {study['commit']} |"
    )


def _minutes(study: Json) -> float:
    """From its start to its end, by the clock."""
    ends = (datetime.fromisoformat(study[key]) for key in ("started_at", "finished_at"))
    started, finished = ends
    return (finished - started).total_seconds() / 60


def _views(study: Json) -> int:
    fixed = study["study"]["train"].get("augmentation_multiplicity", 1)
    return study["winner"].get("augmentation_multiplicity", fixed)


def _value(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _draw(axes: "Axes", found: Sequence[Group], dataset: str) -> None:
    grey = ("#9a948b", "#b0aaa1", "#c4beb5", "#d2ccc3", "#e0dad1")
    for colour, (method, values) in zip(grey, METHODS[dataset].items(), strict=True):
        if method != "DP-SGD":  # more than a point below all others
            axes.plot(
                list(values), list(values.values()),
                color=colour, marker=".", linewidth=1.0, label=f"{method}, published",
            )  # fmt: skip
    own = [group for group in found if group.dataset == dataset]
    for colour, model in zip(COLOURS, sorted({group.model for group in own}), strict=False):
        points = [group for group in own if group.model == model]
        axes.errorbar(
            [group.epsilon for group in points], [mean(group.accuracies) for group in points],
            yerr=[stdev(group.accuracies) if len(group.studies) > 1 else 0 for group in points],
            color=colour, marker="o", linewidth=1.6, capsize=2, label=f"{model}, a study of ours",
        )  # fmt: skip
    axes.set_xlabel("ε at δ = 1e-5 (ours by PLD)")
    axes.set_ylabel("test accuracy, %")
    axes.set_title(TITLES[dataset], fontsize=10)
    axes.legend(loc="lower right")


def shortfalls(studies: Sequence[Json]) -> Iterator[str]:
    """Rows below the best published figure, predictions that missed, and rows that were not run."""
    found = groups(studies)
    for group in found:
        best = group.best_published
        if best is not None and mean(group.accuracies) < best:
            yield (
                f"{TITLES[group.dataset]}, {group.model}, ε = {group.epsilon:g}: "
                f"{mean(group.accuracies):.2f} %, {best - mean(group.accuracies):.2f} points below the best "
                "published figure."
            )
    for study in studies:
        told = study["prediction"]
        if not told["low"] <= study["test_accuracy"] <= told["high"]:
            yield f"`{study['name']}`, seed {study['seed']}: outside of its 90 % interval."
    if missing := [row.name for row in ROWS if row.name not in {each["name"] for each in studies}]:
        yield "Not run: " + ", ".join(f"`{name}`" for name in missing) + "."
