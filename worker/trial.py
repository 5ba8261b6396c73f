"""One trial: its candidate simulated at one batch size after another, smallest first.

Every trial sees the same draws, noise and initial weights at a rung (common random numbers): two
trials differ by their hyper-parameters alone. Nothing here outlives a trial, because Tune runs many
trials in one process.
"""

import math
import time
import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.tune import Trainable

from tan_core.data import Split
from tan_core.engine import SeededRandomness, Trainer
from tan_core.engine.memory import keep_freed_memory
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.models import Checkpoint
from tan_core.planner import Candidate, Target, candidate, simulation
from tan_core.spec import Scalar
from tan_core.wire import RungScore, SearchAssignment, TrialState
from worker.begin import model_for
from worker.driver import last_line
from worker.schedule import RESOURCE, resource
from worker.searcher import METRIC

SMALLEST_TRIAL_STEPS = 8
"""No verdict on a run before it has taken so many steps."""
_PARAMETERS_CHECKED_EVERY = 16
_RECENT = 8
_QUICK_VALIDATION = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialData:
    """What a simulation may read, as the head of its model reads it: never the test split."""

    train: Split
    validation: Split
    checkpoint: Checkpoint | None = None
    """What every trial begins from; None: initial weights are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RungResult:
    """A rung's score, and why the run was given up where it was."""

    score: RungScore
    diverged: str | None = None


class SimulatedTrial(Trainable):
    """Tune's view of a trial: a step is a rung."""

    def setup(  # pyright: ignore[reportIncompatibleMethodOverride] tune.with_parameters adds them
        self, config: dict[str, Any], *, assignment: SearchAssignment, data: TrialData
    ) -> None:
        """Once per worker process."""
        torch.set_num_threads(1)
        keep_freed_memory()
        self._assignment = assignment
        self._checkpoint = data.checkpoint
        self._train = (_tensor(data.train.inputs), _tensor(data.train.labels))
        self._validation = (_tensor(data.validation.inputs), _tensor(data.validation.labels))
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in the same process."""
        self._begin(new_config)
        return True

    def _begin(self, config: Mapping[str, Any]) -> None:
        self._params: dict[str, Scalar] = config["params"]
        self._candidate: Candidate | None = None
        self._rung = 0

    def step(self) -> dict[str, Any]:
        """Run one rung and report its score, or why there is none."""
        rung, rungs = self._rung, self._assignment.rungs
        self._rung += 1
        report: dict[str, Any] = {
            "rung": rung,
            RESOURCE: resource(rung, rungs),
            METRIC: 0.0,
            "rung_score": None,
        }
        try:
            # Calibrating a searched number of steps takes a moment: once per trial.
            self._candidate = self._candidate or chosen(self._assignment, self._params)
            result = run_rung(
                self._assignment,
                self._candidate,
                rung,
                train=self._train,
                validation=self._validation,
                checkpoint=self._checkpoint,
            )
        except Exception as error:  # noqa: BLE001 - whatever it was, it fails this trial only
            failed = {"outcome": TrialState.FAILED.value, "reason": last_line(error)}
            return {**report, **failed, "done": True}
        report["rung_score"] = result.score.model_dump(mode="json")
        if result.diverged is not None or result.score.accuracy is None:
            ended = {"outcome": TrialState.DIVERGED.value, "reason": result.diverged}
            return {**report, **ended, "done": True}
        is_last = rung == len(rungs) - 1
        outcome = TrialState.COMPLETED if is_last else TrialState.RUNNING
        report[METRIC] = result.score.accuracy
        return {**report, "outcome": outcome.value, "done": is_last}


Tensors = tuple[torch.Tensor, torch.Tensor]


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


def run_rung(
    assignment: SearchAssignment,
    candidate: Candidate,
    rung: int,
    *,
    train: Tensors,
    validation: Tensors,
    checkpoint: Checkpoint | None = None,
) -> RungResult:
    """Simulate the candidate at the batch size of ``rung`` and score it on the validation split."""
    started = time.monotonic()
    trainer = _trainer(assignment, candidate, rung, train, checkpoint)
    losses, diverged = _take_steps(trainer, validation, assignment.dataset.num_classes)
    accuracy = None if diverged else trainer.evaluate(*validation)
    recent = _mean(list(losses)[-_RECENT:])
    dynamics = trainer.mechanism
    return RungResult(
        score=RungScore(
            rung=rung,
            expected_batch_size=dynamics.sampling_rate * len(train[1]),
            noise_multiplier=dynamics.noise_multiplier,
            steps=trainer.steps_done,
            accuracy=accuracy,
            train_loss=recent if recent is not None and math.isfinite(recent) else None,
            seconds=time.monotonic() - started,
        ),
        diverged=diverged,
    )


def _trainer(
    assignment: SearchAssignment,
    candidate: Candidate,
    rung: int,
    train: Tensors,
    checkpoint: Checkpoint | None,
) -> Trainer:
    simulated = simulation(
        candidate, expected_batch_size=assignment.rungs[rung], num_examples=len(train[1])
    )
    seed = assignment.search.seed
    initial = int(np.random.SeedSequence([seed, rung]).generate_state(1)[0])
    return Trainer(
        model=model_for(
            assignment,
            candidate.model,
            generator=torch.Generator().manual_seed(initial),
            checkpoint=checkpoint,
        ),
        execution=simulated,
        config=candidate.trainer,
        inputs=train[0],
        labels=train[1],
        randomness=SeededRandomness(seed, stream=rung),
        microbatch_size=assignment.microbatch_size,
        device="cuda" if torch.cuda.is_available() else "cpu",
    )


def _take_steps(
    trainer: Trainer, validation: Tensors, num_classes: int
) -> tuple[deque[float], str | None]:
    """Train to the end, or until the run is beyond repair; the last losses, and why it was given up."""
    steps = trainer.mechanism.steps
    verdict_at = max(SMALLEST_TRIAL_STEPS, steps // 4)
    losses: deque[float] = deque(maxlen=_RECENT)
    first: list[float] = []
    while trainer.steps_done < steps:
        loss = trainer.step().train_loss
        done = trainer.steps_done
        if loss is not None:
            losses.append(loss)
            if len(first) < _RECENT:
                first.append(loss)
            if not math.isfinite(loss):
                return losses, f"the loss was {loss} at step {done}"
        is_due = done % _PARAMETERS_CHECKED_EVERY == 0 or done == steps
        if is_due and trainer.is_diverged:
            return losses, f"a parameter was not finite at step {done}"
        if done == verdict_at < steps and _is_hopeless(
            trainer, first[0] if first else None, losses, validation, num_classes
        ):
            return losses, f"at chance level with a rising loss after {done} of {steps} steps"
    return losses, None


def _is_hopeless(
    trainer: Trainer,
    first_loss: float | None,
    losses: deque[float],
    validation: Tensors,
    num_classes: int,
) -> bool:
    """A quarter in: the loss is above its start, and the accuracy cannot be told from guessing."""
    recent = _mean(losses)
    if first_loss is None or recent is None or recent <= first_loss:
        return False
    inputs, labels = (part[:_QUICK_VALIDATION] for part in validation)
    chance = 1 / num_classes
    deviation = math.sqrt(chance * (1 - chance) / len(labels))
    return trainer.evaluate(inputs, labels) <= chance + 2 * deviation


def _mean(values: deque[float] | list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    """A view of an array in Ray's object store: read-only memory that every trial shares."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(values)
