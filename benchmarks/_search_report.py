"""Figures and tables of ``search.py``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from _report import row
from scipy.stats import spearmanr

from tan_core.planner.prediction import foreseen
from tan_core.tan import Prediction
from tan_core.wire import RungScore

GUESSING = 0.1
"""Right of ten classes."""
PARTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of what released weights are ahead of a score: what might count."""


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """A study's promotion, and its private run with one seed or more."""

    name: str
    is_given: bool
    promoted: int
    prediction: Prediction
    reached: list[float]
    examples: int
    seconds: float
    private_run_examples: int

    @property
    def error(self) -> float:
        """Predicted less reached, of one run with a new seed, in points."""
        return 100 * (self.prediction.accuracy - self.reached[0])

    @property
    def holds(self) -> bool:
        """Whether that run was in the interval."""
        return self.prediction.low <= self.reached[0] <= self.prediction.high

    @property
    def cost(self) -> float:
        """Examples, in private runs."""
        return self.examples / self.private_run_examples


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One candidate simulated at two batch sizes: scores, what it would release, and what it reached at full batch."""

    expected_batch_size: int
    batches: tuple[int, int]
    scores: tuple[float, float]
    released: tuple[float, float]
    reached: float

    def error(self, part: float) -> float:
        """Predicted less reached on the validation split, in points, where ``part`` of what is released beyond a score counts."""
        ladder = [
            RungScore(
                rung=rung,
                expected_batch_size=batch,
                noise_multiplier=1.0,
                steps=1,
                accuracy=score,
                # One simulation counts by a half.
                released=score + 2 * part * (released - score),
                seconds=0.0,
            )
            for rung, (batch, score, released) in enumerate(
                zip(self.batches, self.scores, self.released, strict=True)
            )
        ]
        said = foreseen(ladder, expected_batch_size=self.expected_batch_size, guessing=GUESSING)
        assert said is not None
        return 100 * (said - self.reached)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that was measured of one task; accuracies of all candidates are by their number."""

    task: str
    truth: list[float]
    validated: list[float]
    seconds: float
    contenders: dict[int, list[float]]
    studies: list[StudyResult]
    simulated: dict[str, list[float]]
    peer: Mapping[str, Any]

    @property
    def given(self) -> list[StudyResult]:
        """The studies over the candidates whose truth is known."""
        return [study for study in self.studies if study.is_given]

    @property
    def best(self) -> list[float]:
        """Accuracies of the best candidate, one for each seed."""
        return max(self.contenders.values(), key=lambda tests: float(np.mean(tests)))

    def regret(self, study: StudyResult) -> tuple[float, float]:
        """Points below the best candidate at the same seeds, and their standard error."""
        below = 100 * (np.array(self.best) - np.array(study.reached))
        return float(below.mean()), float(below.std(ddof=1) / np.sqrt(len(below)))

    def spearman(self, accuracies: Sequence[float]) -> float:
        """Rank correlation with the truth."""
        return float(spearmanr(accuracies, self.truth).statistic)

    @property
    def num_affordable(self) -> int:
        """Full-batch runs of our engine in the time of the first study and its private run."""
        return min(len(self.truth), 1 + round(self.studies[0].seconds / self.seconds))

    @property
    def at_full_batch(self) -> float:
        """Expected test accuracy of so many candidates at random, the best one by validation."""
        return expected_best(self.validated, self.truth, self.num_affordable)


def expected_best(scores: Sequence[float], values: Sequence[float], number: int) -> float:
    """Mean value of the best-scored of ``number`` out of all, over every such choice."""
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    ways = [comb(len(order) - 1 - rank, number - 1) for rank in range(len(order))]
    return sum(w * values[at] for w, at in zip(ways, order, strict=True)) / sum(ways)


def print_tables(findings: Sequence[Findings]) -> None:
    """For people: each study, then each task."""
    print("| study | cost | time | saving | predicted | reached | error | regret |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for found in findings:
        for study in found.studies:
            told = study.prediction
            mark = "" if study.holds else " outside"
            regret = "{:+.2f} ± {:.2f}".format(*found.regret(study)) if study.is_given else "-"
            print(
                f"| {study.name} | {study.cost:.2f} | {study.seconds / found.seconds:.1f} "
                f"| {len(found.truth) / study.cost:.0f} "
                f"| {told.accuracy:.2%} [{told.low:.2%}, {told.high:.2%}] "
                f"| {study.reached[0]:.2%}{mark} | {study.error:+.2f} | {regret} |"
            )
    print("\n| task | 24 candidates | Spearman by rung (ceiling) | ours | Opacus | full batch |")
    print("| --- | --- | --- | --- | --- | --- |")
    for found in findings:
        ranks = ", ".join(
            f"{rung}: {found.spearman(accuracies):.2f}"
            for rung, accuracies in found.simulated.items()
        )
        low, middle, high = np.quantile(found.truth, [0, 0.5, 1])
        print(
            f"| {found.task} | {low:.1%} {middle:.1%} {high:.1%} "
            f"| {ranks} ({found.spearman(found.validated):.2f}) "
            f"| {np.mean(found.studies[0].reached):.2%} "
            f"| {found.peer['test']:.2%} ({found.peer['trials']}) "
            f"| {found.at_full_batch:.2%} ({found.num_affordable}) |"
        )


def print_pairs(pairs: Mapping[str, Sequence[Pair]]) -> None:
    """Root mean square error, and mean, of each task by the part of what is released beyond a score that counts."""
    parts = " | ".join(f"{part:g}" for part in PARTS)
    print(f"\n| task | pairs | {parts} |\n| --- | --- |{' --- |' * len(PARTS)}")
    for task, found in pairs.items():
        errors = np.array([[pair.error(part) for part in PARTS] for pair in found])
        if len(errors):
            root, mean = np.sqrt((errors**2).mean(axis=0)), errors.mean(axis=0)
            told = " | ".join(f"{r:.2f} ({m:+.2f})" for r, m in zip(root, mean, strict=True))
            print(f"| {task} | {len(found)} | {told} |")


def overall(findings: Sequence[Findings]) -> list[dict[str, Any]]:
    """Printed, and for scripts."""
    studies = [study for found in findings for study in found.studies]
    regrets = [found.regret(study)[0] for found in findings for study in found.given]
    ranks = [found.spearman(list(found.simulated.values())[-1]) for found in findings]
    errors = [abs(study.error) for study in studies]
    savings = [len(found.truth) / study.cost for found in findings for study in found.studies]
    gains = [
        100 * (float(np.mean(found.studies[0].reached)) - found.peer["test"]) for found in findings
    ]
    rows = [
        row("search cost, most", max(study.cost for study in studies), "private runs"),
        row("saving, least", min(savings), "1", "all candidates at full batch", min(savings)),
        row("regret, mean", float(np.mean(regrets)), "points", "best of 24 at full batch"),
        row("regret, most", max(regrets), "points", "best of 24 at full batch"),
        row("Spearman at the last rung, least", min(ranks), "1"),
        row("prediction within 1 point", float(np.mean(np.array(errors) <= 1)), "1"),
        row("90 % interval holds", float(np.mean([study.holds for study in studies])), "1"),
        row("accuracy, mean", float(np.mean(gains)), "points", "Optuna and Opacus, same time"),
    ]
    print(f"\n{len(studies)} studies")
    for each in rows:
        print(f"{each['name']}: {each['value']:.3g} {each['unit']}")
    return rows
