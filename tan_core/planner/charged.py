"""A search that is charged: what its trials and its scores do to the private data.

Under ``search.accounting: accounted`` a trial is a private run of its own, at the noise that its simulated
batch has in truth, and nothing of it is seen but its score: how many validation records its weights tell
right (of users, each by the part of its records), with Gaussian noise. Trials, scores and the private run are composed, and the study's target holds for
all of them together. So that they can be composed as they were planned, their mechanisms are fixed before
the first of them runs: one batch size, one number of steps, so many trials.

A simulation with a noise multiplier of 2 or more costs what any run of its total noise costs, whatever its
batch: composed with the run and eight trials at (epsilon, S) = (3, 2500) on 50,000 examples, batches of 4096
and of 512 ask the run for sigma 17.5 and 18.1. Below that it costs more and more (docs/decisions/0026).
"""

import math
from dataclasses import dataclass, replace
from typing import Self

from tan_core.accounting import calibrate_noise_multiplier
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner.candidates import simulation_of
from tan_core.planner.counted import Counted
from tan_core.planner.rungs import MIN_RUNG

MAX_STEPS = 10_000_000
"""Of all trials together: an accountant takes long over more."""

TRIALS_PER_SPARE = 10
"""Planned for each one that a crash may cost: what was begun stays charged, and is begun once more."""

SCORES_SHARE = 0.1
"""Of the total noise budget (sums of 1 / sigma^2, as Gaussians compose) that scores may take."""

SAMPLING_DEVIATION = 0.3
"""Of one record's being told right, at 90 %. Noise below what the validation split's own draw does to a score
would cost more and tell no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedSearch:
    """Trials and scores that are composed with a private run on the same data.

    Args:
        trials: that are planned.
        spare_trials: reserved on top of them, for those that a crash ends.
        score_noise_multiplier: of the count of validation units that are told right, which one unit moves by at most one.
        expected_batch_size: of a trial; None: that of the private run.
    """

    trials: int
    spare_trials: int
    score_noise_multiplier: float
    expected_batch_size: int | None = None

    @classmethod
    def of(
        cls,
        trials: int,
        *,
        epsilon: float,
        delta: float,
        accountant: Accountant,
        neighboring_relation: NeighboringRelation,
        counted: Counted | None,
        expected_batch_size: int | None,
    ) -> Self:
        """The search of so many trials in a study with this target.

        The noise of a score is what the draw of the validation split does to it anyway, or what keeps all
        scores within :data:`SCORES_SHARE` of the target where that is more.

        Args:
            trials: >= 1.
            epsilon: that search and run may cost together.
            delta: of it.
            accountant: of the study.
            neighboring_relation: of the budget.
            counted: the units, records or users, that a trial is scored on; None where they are not known.
            expected_batch_size: of a trial, where the user fixed it.
        """
        spare = math.ceil(trials / TRIALS_PER_SPARE)
        alone = calibrate_noise_multiplier(
            sampling_rate=1.0,
            steps=trials + spare,
            epsilon=epsilon,
            delta=delta,
            accountant=accountant,
            neighboring_relation=neighboring_relation,
        )
        drawn = counted.deviations if counted else 0.0
        noise = max(alone / math.sqrt(SCORES_SHARE), SAMPLING_DEVIATION * drawn)
        return cls(
            trials=trials,
            spare_trials=spare,
            score_noise_multiplier=math.ceil(100 * noise) / 100,
            expected_batch_size=expected_batch_size,
        )

    def at(self, expected_batch_size: int) -> Self:
        """The same search at another batch size."""
        return replace(self, expected_batch_size=expected_batch_size)

    def trial(self, run: PrivateRun) -> Mechanism:
        """What one trial does to the data of the run.

        Raises:
            ParameterError: its batch is above the run's.
        """
        batch = self.expected_batch_size or run.expected_batch_size
        return simulation_of(run, expected_batch_size=batch, num_examples=run.num_examples).dynamics

    def planned(self, run: PrivateRun) -> list[Mechanism]:
        """All planned trials, and all their scores."""
        return self._of(run, self.trials)

    def reserved(self, run: PrivateRun) -> list[Mechanism]:
        """The same with the spare ones: what the ledger holds."""
        return self._of(run, self.trials + self.spare_trials)

    def _of(self, run: PrivateRun, count: int) -> list[Mechanism]:
        trial = self.trial(run)
        if trial.steps * count > MAX_STEPS:
            raise ParameterError(
                f"{count:,} trials of {trial.steps:,} steps, spare ones included, are more than the {MAX_STEPS:,} "
                f"steps that can be priced together; at most {MAX_STEPS // trial.steps:,}",
                field="search.trials",
            )
        return [
            trial.with_steps(trial.steps * count),
            score_mechanism(
                self.score_noise_multiplier,
                count=count,
                neighboring_relation=trial.neighboring_relation,
            ),
        ]


def score_mechanism(
    noise_multiplier: float, *, count: int, neighboring_relation: NeighboringRelation
) -> Mechanism:
    """So many counts of validation records with Gaussian noise: one record moves each by at most one.

    So does one user, who counts by the part of its records that is told right. Under every relation: splits are cut by
    position, so a record that takes another's place is in the same split, and its hit comes, goes or stays; a user who
    takes another's place may fall into another split, and then a count loses or gains the part of one user alone. Under ``replace_one`` the event is priced as a sum of terms of norm one, which a
    replacement moves by two: twice what it moves a count, so this price is above the exact one, and the noise that is
    calibrated to it twice as loud. It stays: terms of norm 1/2 about their middle, at twice the noise multiplier, would
    say it exactly, and would be another mechanism than reservations hold and statements tell of scores.
    """
    return Mechanism(
        sampling_rate=1.0,
        noise_multiplier=noise_multiplier,
        clip_norm=1.0,
        steps=count,
        neighboring_relation=neighboring_relation,
    )


def charged_batch(batch: float, noise_multiplier: float, *, enough_noise: float) -> int:
    """The smallest batch, by halves of the private one, whose trials still have enough noise.

    Args:
        batch: B of the private run, >= 1.
        noise_multiplier: its sigma.
        enough_noise: that a trial is to have at least; less where the private run has less.

    Example:
        >>> charged_batch(4096, 18.0, enough_noise=2.0), charged_batch(4096, 3.9, enough_noise=2.0)
        (512, 4096)
        >>> charged_batch(64, 18.0, enough_noise=2.0)
        32
    """
    factor = 1
    while noise_multiplier / (2 * factor) >= enough_noise and batch / (2 * factor) >= MIN_RUNG:
        factor *= 2
    return max(1, int(batch // factor))
