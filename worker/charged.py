"""A trial of a search that is charged: a private run of its own, and all that is seen of it is one noisy score.

No loss, no curve and no accuracy on the way is looked at: the noisy gradients are paid for, and what they make of the
weights may be known, but a loss is of the records themselves. A trial ends early only where its weights, which are
paid for, are no numbers any more. It is charged for all of its steps and for its score before the first of them runs.
"""

import os
import time
from collections.abc import Callable
from typing import Final

import torch

from tan_core.engine import PrivateRandomness, Trainer
from tan_core.engine.randomness import KEY_BYTES
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.planner import Candidate, Counted
from tan_core.wire import (
    CURVE_POINTS,
    RECORD,
    ChargedTrials,
    CurvePoint,
    RungScore,
    SearchAssignment,
    TrialWeights,
)
from worker.at_once import devices_lent
from worker.begin import weights_left
from worker.metric import alike
from worker.rung import PARAMETERS_CHECKED_EVERY, Data, MeanOfLast, trainer_of

USED_UP = "the search's reservation is used up: crashes took the trials that were reserved to spare, so this one was not run"
_SEED_BYTES: Final = 8
_PARTS: Final = 2**32
"""Of a user: what of its records is told right is counted in whole parts of it, as sums of integers are exact."""
_GRAINS: Final = 2**10
"""Of a unit: noisy counts are told in whole ones. All digits of a sum with a floating-point number would tell the count
itself: of the counts that there may be, one alone leaves a number that the generator makes. A grain holds a million of
these and more, up to noise of a million units."""


class NotChargedError(Exception):
    """Nothing is left to charge the trial to."""


class ChargedRun:
    """A charged trial under way, a part of its steps at a time so that it can be stopped.

    Args:
        assignment: of the search; ``charged`` says how its trials run.
        candidate: what is trained.
        data: what is read.
        charge: asks for so many steps and a score; answers how many steps may run, once they are charged.
        begin_from: what it begins with, which another trial left and was charged for. None: weights of its own.

    Raises:
        NotChargedError: the reservation does not hold one trial more. Nothing has run.
    """

    def __init__(
        self,
        assignment: SearchAssignment,
        charged: ChargedTrials,
        candidate: Candidate,
        data: Data,
        *,
        charge: Callable[[int], int],
        begin_from: TrialWeights | None = None,
    ) -> None:
        started = time.monotonic()
        mechanism = Mechanism.from_json(charged.mechanism.event)
        self.diverged: str | None = None
        """Why it was given up."""
        self._data, self._noise = data, charged.score_noise_multiplier
        if assignment.dataset.unit != RECORD and data.validation_users is None:
            raise ParameterError(
                "it must be known whose the validation records are where one guarantee is for a user",
                field="validation_users",
            )
        self._metric = assignment.search.metric
        self._class_shares = candidate.trainer.class_shares
        self._views = candidate.trainer.augmentation_multiplicity
        self._randomness = PrivateRandomness(os.urandom(KEY_BYTES), 1)
        self._trainer = trainer_of(
            assignment,
            candidate,
            data,
            execution=PrivateRun(mechanism=mechanism, num_examples=assignment.num_examples),
            randomness=self._randomness,
            initial=int.from_bytes(os.urandom(_SEED_BYTES), "little", signed=True),
            begin_from=begin_from,
        )
        self._mean = MeanOfLast(self._trainer, steps=max(1, mechanism.steps // CURVE_POINTS))
        self._accuracy: float | None = None
        self._trainer.rehearse(num_scored=len(data.validation[1]))
        if charge(mechanism.steps) < mechanism.steps:
            raise NotChargedError(USED_UP)
        self._seconds = time.monotonic() - started

    @property
    def trainer(self) -> Trainer:
        """What takes the steps."""
        return self._trainer

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do: it was scored or given up."""
        return self.diverged is not None or self._accuracy is not None

    def advance(self) -> RungScore:
        """Take the next part of the steps; ``accuracy`` is None until the last of them."""
        started = time.monotonic()
        trainer, steps = self._trainer, self._trainer.mechanism.steps
        end = min(steps, trainer.steps_done + max(1, steps // CURVE_POINTS))
        while trainer.steps_done < end and self.diverged is None:
            trainer.step()
            self._mean.take(until=steps)
            done = trainer.steps_done
            if (done % PARAMETERS_CHECKED_EVERY == 0 or done == steps) and trainer.is_diverged:
                self.diverged = f"a parameter was not finite at step {done}"
        if trainer.steps_done == steps and self.diverged is None:
            self._accuracy = self._noisy_accuracy()
        self._seconds += time.monotonic() - started
        return self.score

    @property
    def weights(self) -> dict[str, torch.Tensor] | None:
        """By name, those that were scored: of noisy sums that are paid for. None before the trial was scored."""
        if self._accuracy is None or self._mean.weights is None:
            return None
        return weights_left(self._trainer, self._mean.weights, self._data.checkpoint)

    @property
    def score(self) -> RungScore:
        """The trial as it stands."""
        mechanism, accuracy = self._trainer.mechanism, self._accuracy
        done = self._trainer.steps_done
        return RungScore(
            rung=0,
            expected_batch_size=mechanism.sampling_rate * self._data.num_units,
            noise_multiplier=mechanism.noise_multiplier,
            steps=done,
            views=self._views,
            accuracy=accuracy,
            seconds=self._seconds,
            devices=devices_lent(),
            curve=[] if accuracy is None else [CurvePoint(step=done, accuracy=accuracy)],
        )

    def _noisy_accuracy(self) -> float:
        """How many validation records, or users, are told right, with the noise that was charged, as a part of them.

        Of a balanced accuracy a record counts by the stated share of its class, and at most one: what they count together is stated
        as well, for a count of the records of each class would be one more access.
        """
        inputs, labels = self._data.validation
        if len(labels) == 0:
            raise ParameterError("there are no validation records to score on", field="validation")
        told = self._trainer.hits(inputs, labels, weights=self._mean.weights)
        counts = alike(labels, self._class_shares, self._metric)
        right, num_units = units_told_right(told, self._data.validation_users, counts)
        whole = Counted.by(num_units, self._metric, self._class_shares).whole
        # A stream of its own: no step has this number.
        draw = self._randomness.noise(self._trainer.mechanism.steps, 1)
        noisy = right + self._noise * float(draw[0])
        return min(max(round(noisy * _GRAINS) / (_GRAINS * whole), 0.0), 1.0)


def units_told_right(
    hits: torch.Tensor, users: torch.Tensor | None, counts: torch.Tensor | None = None
) -> tuple[float, int]:
    """The units that are told right, and how many there are. One unit more or less moves the first by at most one.

    A user with several records counts by the part of them that is told right, however many they are.

    Args:
        hits: [N], bool: which records are told right.
        users: [N], whose each record is, by numbers from 0 without a gap; None: each is a unit of its own.
        counts: [N], in [0, 1], what a hit on each record counts; None: 1. Not of users.

    Example:
        >>> hits = torch.tensor([True, False, True, True])
        >>> units_told_right(hits, None), units_told_right(hits, torch.tensor([0, 0, 0, 1]))
        ((3.0, 4), (1.6666666665114462, 2))
    """
    # Whole parts, rounded down: a sum of them is the same whatever else is in it, as one of fractions is not.
    if users is None:
        if counts is None:
            return float(hits.sum()), len(hits)
        return int((counts[hits] * _PARTS).long().sum()) / _PARTS, len(hits)
    records = torch.bincount(users)
    right = torch.bincount(users[hits], minlength=len(records))
    return int((right * _PARTS // records).sum()) / _PARTS, len(records)
