"""One simulation: a candidate at one batch size with one seed, a part of its steps at a time.

At a rung and seed every trial sees the same draws, noise and initial weights (common random numbers):
two trials differ by their hyper-parameters alone.

What is scored is the mean of the weights over the last quarter of the steps. A small batch shakes the
weights by its own draw as the private batch hardly does: the mean is steadier, and ranks trials as the
private batch does (docs/decisions/0018-score-the-mean-of-the-last-weights.md). What it would release is
measured beside it, for the prediction.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tan_core.data import Records
from tan_core.engine import SeededRandomness, Trainer
from tan_core.engine.inputs import Inputs
from tan_core.engine.randomness import Randomness
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism
from tan_core.models import Checkpoint
from tan_core.planner import SMALLEST_PART, Candidate, Target, candidate, simulation
from tan_core.spec import Scalar
from tan_core.spec.study import Metric
from tan_core.wire import CURVE_POINTS, CurvePoint, RungScore, SearchAssignment, TrialWeights
from worker.at_once import devices_lent, microbatch_size, trial_device
from worker.begin import go_on_from, model_for, weights_left
from worker.metric import drawn_like, score_of, some_of

QUICK_VALIDATION = 512
"""Validation records that a point on the way is taken of."""

PARAMETERS_CHECKED_EVERY = 16
"""Steps between two looks at whether the weights are numbers."""
_RECENT = 8
_RISEN = 1.25
"""A loss below so many times the first one has not risen: the first is of one batch, a sixth off where it has 32
records, while noise that drives a run off doubles its loss and more."""

Tensors = tuple[Tensor | Records, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What simulations read: inputs and labels, as the trained model reads them."""

    train: Tensors
    validation: Tensors
    users: torch.Tensor | None = None
    """Whose each training record is, where users are drawn; None: records are."""
    validation_users: torch.Tensor | None = None
    """Whose each validation record is, where users are drawn."""
    checkpoint: Checkpoint | None = None
    """What every trial begins from; None: initial weights are drawn."""

    @property
    def num_units(self) -> int:
        """What is drawn from: users where there are any, else records."""
        return len(self.train[1]) if self.users is None else int(self.users.max()) + 1


def chosen(assignment: SearchAssignment, params: Mapping[str, Scalar]) -> Candidate:
    """The candidate of a trial, exactly as the control plane would promote it."""
    return candidate(
        trainer=assignment.trainer,
        model=assignment.model,
        reference=PrivateRun(
            mechanism=Mechanism.from_json(assignment.reference.event),
            num_examples=assignment.num_examples,
        ),
        params=params,
        target=Target.from_json(assignment.target) if assignment.target else None,
    )


class RungRun:
    """A rung under way.

    Args:
        assignment: of the search.
        candidate: as :func:`chosen`.
        rung: index into ``assignment.levels``.
        seed: 0 in the search, above it in the finals.
        data: what is read.
    """

    def __init__(
        self,
        assignment: SearchAssignment,
        candidate: Candidate,
        rung: int,
        data: Data,
        *,
        seed: int = 0,
    ) -> None:
        started = time.monotonic()
        self.diverged: str | None = None
        """Why the rung was given up."""
        self._rung, self._seed, self._data = rung, seed, data
        self._num_classes = assignment.dataset.num_classes
        self._metric = assignment.search.metric
        self._views = candidate.trainer.augmentation_multiplicity
        self._trainer = _trainer(assignment, candidate, rung, seed, data)
        steps = self._trainer.mechanism.steps
        self._ends = _ends(steps)
        self._is_heated = assignment.heat and seed == 0 and len(self._ends) > 1
        self._curve: list[CurvePoint] = []
        self._first_loss: float | None = None
        self._losses: deque[float] = deque(maxlen=_RECENT)
        self._clipped: list[float] = []
        self._accuracy: float | None = None
        self._released: float | None = None
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
        """Take the next part of the steps; the score as far as it goes.

        ``accuracy`` is None until the last step: then it is of the whole validation split, and so it is after a
        heat. Another point of the curve is of a part of it. All are of the mean of the weights over the last steps before.
        """
        started = time.monotonic()
        end = self._ends[len(self._curve)]
        counted = end if self._begins_heated else self._ends[-1]
        self._mean = MeanOfLast(self._trainer, steps=max(1, counted // CURVE_POINTS))
        self.diverged = self._take_steps(until=end)
        if self.diverged is None:
            self._look(end)
        self._seconds += time.monotonic() - started
        return self.score

    @property
    def weights(self) -> dict[str, Tensor] | None:
        """By name, those that were scored at its end. None before."""
        if self._accuracy is None or self._mean.weights is None:
            return None
        return weights_left(self._trainer, self._mean.weights, self._data.checkpoint)

    @property
    def score(self) -> RungScore:
        """The rung as it stands."""
        dynamics, recent = self._trainer.mechanism, _mean(self._losses)
        return RungScore(
            rung=self._rung,
            seed=self._seed,
            expected_batch_size=dynamics.sampling_rate * self._data.num_units,
            noise_multiplier=dynamics.noise_multiplier,
            steps=self._trainer.steps_done,
            views=self._views,
            accuracy=self._curve[0].accuracy if self._has_ended_heat else self._accuracy,
            released=self._released,
            train_loss=recent if recent is not None and math.isfinite(recent) else None,
            clipped_fraction=_mean(self._clipped),
            seconds=self._seconds,
            devices=devices_lent(),
            heat=self._has_ended_heat,
            curve=self._curve,
        )

    @property
    def _begins_heated(self) -> bool:
        """Whether what comes next is the heat, or its like at a higher rung, that the two may be compared."""
        return self._is_heated and not self._curve

    @property
    def _has_ended_heat(self) -> bool:
        """Whether a heat is all that was taken, and went well."""
        is_first = self._is_heated and self._rung == 0
        return is_first and len(self._curve) == 1 and self.diverged is None

    def _take_steps(self, *, until: int) -> str | None:
        """Train on; why the run is beyond repair, if it is."""
        trainer = self._trainer
        while trainer.steps_done < until:
            stats = trainer.step()
            loss, done = stats.train_loss, trainer.steps_done
            self._mean.take(until=until)
            if stats.clipped_fraction is not None:
                # Of all steps: none clipped then means that C was above every gradient, and not above the last ones.
                self._clipped.append(stats.clipped_fraction)
            if loss is not None:
                self._first_loss = loss if self._first_loss is None else self._first_loss
                self._losses.append(loss)
                if not math.isfinite(loss):
                    return f"the loss was {loss} at step {done}"
            is_due = done % PARAMETERS_CHECKED_EVERY == 0 or done == trainer.mechanism.steps
            if is_due and trainer.is_diverged:
                return f"a parameter was not finite at step {done}"
        return None

    def _look(self, step: int) -> None:
        """Take a point of the curve, or the score at the end."""
        is_last = step == self._ends[-1]
        inputs, labels = self._data.validation
        if not is_last and not self._begins_heated:
            inputs, labels = _quick(inputs, labels, self._metric)
        accuracy = self._score(inputs, labels, weights=self._mean.weights)
        self._curve.append(CurvePoint(step=step, accuracy=accuracy))
        if self._is_no_better_than_chance(accuracy, labels):
            self.diverged = (
                f"at chance level with a rising loss after {step} of {self._ends[-1]} steps"
            )
        elif is_last:
            self._accuracy = accuracy
            self._released = self._score(inputs, labels)

    def _score(self, inputs: Inputs, labels: Tensor, *, weights: Tensor | None = None) -> float:
        """By the metric of the study."""
        hits = self._trainer.hits(inputs, labels, weights=weights)
        return score_of(hits, labels, self._metric)

    def _is_no_better_than_chance(self, accuracy: float, labels: Tensor) -> bool:
        """The loss is well above its start, and the accuracy cannot be told from guessing."""
        recent = _mean(self._losses)
        if self._first_loss is None or recent is None or recent <= _RISEN * self._first_loss:
            return False
        chance = 1 / self._num_classes
        num = drawn_like(labels, self._metric)
        return accuracy <= chance + 2 * math.sqrt(chance * (1 - chance) / num)


class MeanOfLast:
    """The mean of the weights over the last steps of a part of a run: what is scored (decision 18).

    Args:
        trainer: whose weights.
        steps: how many of them.
    """

    def __init__(self, trainer: Trainer, *, steps: int) -> None:
        self.weights: Tensor | None = None
        """[P]; None before the first step that counts."""
        self._trainer, self._steps = trainer, steps

    def take(self, *, until: int) -> None:
        """Count the present weights in where they are among the last before step ``until``."""
        number = self._trainer.steps_done - until + self._steps
        if number == 1:
            self.weights = self._trainer.released.clone()
        elif number > 1 and self.weights is not None:
            self.weights.lerp_(self._trainer.released, 1 / number)


def run_rung(
    assignment: SearchAssignment, candidate: Candidate, rung: int, data: Data, *, seed: int = 0
) -> RungRun:
    """The candidate at the batch size of ``rung``, from its first step to its score or its end."""
    run = RungRun(assignment, candidate, rung, data, seed=seed)
    while not run.is_over:
        run.advance()
    return run


def _ends(steps: int) -> list[int]:
    """The step that ends each part of a rung, the last step the last."""
    if steps < CURVE_POINTS * SMALLEST_PART:
        return [steps]
    return [steps * (part + 1) // CURVE_POINTS for part in range(CURVE_POINTS)]


def _trainer(
    assignment: SearchAssignment, candidate: Candidate, rung: int, seed: int, data: Data
) -> Trainer:
    key, initial = np.random.SeedSequence([assignment.search.seed, seed, rung]).generate_state(2)
    return trainer_of(
        assignment,
        candidate,
        data,
        execution=simulation(
            candidate, expected_batch_size=assignment.levels[rung], num_examples=data.num_units
        ),
        randomness=SeededRandomness(int(key)),
        initial=int(initial),
    )


def trainer_of(
    assignment: SearchAssignment,
    candidate: Candidate,
    data: Data,
    *,
    execution: PrivateRun | Simulation,
    randomness: Randomness,
    initial: int,
    begin_from: TrialWeights | None = None,
) -> Trainer:
    """What takes the steps of a trial; ``initial`` is the seed of its first weights, where it does not go on from others."""
    inputs, labels = data.train
    device = trial_device()
    model = model_for(
        assignment,
        candidate.model,
        generator=torch.Generator().manual_seed(initial),
        checkpoint=data.checkpoint,
    )
    if begin_from is not None:
        go_on_from(model, begin_from)
    asked, config = assignment.microbatch_size, candidate.trainer
    return Trainer(
        model=model,
        execution=execution,
        config=config,
        inputs=inputs,
        labels=labels,
        users=data.users,
        randomness=randomness,
        microbatch_size=microbatch_size(asked, model, inputs.shape[1:], config, device),
        device=device,
    )


def _quick(inputs: Tensor | Records, labels: Tensor, metric: Metric) -> tuple[Inputs, Tensor]:
    """What a point on the way is taken of: the same records of every trial."""
    at = some_of(labels, metric, at_most=QUICK_VALIDATION)
    if isinstance(inputs, Records):
        return inputs[at] if isinstance(at, slice) else inputs.take(at.numpy()), labels[at]
    return inputs[at], labels[at]


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None
