"""Tune's view of a trial: a ladder of rungs, each in parts, and nothing that outlives it.

A config is ``{"number": n, "params": {...}, "seed": s, "scores": [...], "began_from": start}``: seed 0 explores, a
higher one repeats a finalist, and rungs whose scores an earlier attempt has reported are not run again. A trial of a search that is
charged may go on from the weights of another one.
"""

import logging
import time
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
import ray.exceptions
import torch
from numpy.typing import NDArray
from ray.tune import Trainable

from tan_core.data import Records, Split
from tan_core.engine import checkpoint
from tan_core.engine.memory import keep_freed_memory
from tan_core.errors import ParameterError
from tan_core.models import Checkpoint
from tan_core.planner import Candidate
from tan_core.spec import Scalar
from tan_core.wire import (
    RungScore,
    SearchAssignment,
    TrialStart,
    TrialState,
    TrialWeights,
    weights_path,
)
from worker.alive import Pulse
from worker.charged import ChargedRun
from worker.log import write_log
from worker.reasons import reason_of
from worker.report import ControlPlane, FencedError, RefusedError, UnreachableError, leave
from worker.rung import Data, RungRun, Tensors, chosen
from worker.schedule import RESOURCE, cut_of, name_of, resource
from worker.searcher import METRIC, start_in
from worker.settings import WorkerSettings

log = logging.getLogger(__name__)

_PAUSES = (2.0, 10.0, 30.0)
"""Seconds between attempts to read the weights that a trial goes on from: storage may be gone for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialData:
    """What simulations may read: never the test split."""

    splits: Mapping[tuple[bool, ...], ray.ObjectRef]
    """Train and validation, as the heads of models with these features read them, in Ray's object store."""
    checkpoint: Checkpoint | None = None


class SimulatedTrial(Trainable):
    """A step is a part of a rung."""

    def setup(  # pyright: ignore[reportIncompatibleMethodOverride] tune.with_parameters adds them
        self,
        config: dict[str, Any],
        *,
        assignment: SearchAssignment,
        data: TrialData,
        settings: WorkerSettings,
    ) -> None:
        """Once per worker process."""
        write_log(
            settings.log_format,
            run_id=assignment.run_id,
            attempt=assignment.attempt,
            trial=lambda: self._number,
        )
        torch.set_num_threads(1)
        keep_freed_memory()
        self._assignment = assignment
        self._settings = settings
        self._shared = data
        self._data: tuple[tuple[bool, ...], Data] | None = None
        self._pulse = Pulse(f"{assignment.run_id}-a{assignment.attempt}", settings)
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in the same process."""
        self._begin(new_config)
        return True

    def _begin(self, config: Mapping[str, Any]) -> None:
        self._number: int = config["number"]
        self._params: dict[str, Scalar] = config["params"]
        self._seed: int = config["seed"]
        self._start = start_in(config)
        self._pulse.name = name_of(config)
        self._known = {
            score.rung: score for score in map(RungScore.model_validate, config["scores"])
        }
        self._candidate: Candidate | None = None
        levels = self._assignment.levels
        self._last = len(levels if self._seed else self._assignment.rungs) - 1
        self._rung = len(levels) - len(self._assignment.repetition) if self._seed else 0
        self._run: RungRun | ChargedRun | None = None
        self._weights_sha256: str | None = None
        log.info("begins with seed %d: %s%s", self._seed, self._params, _told(self._start))

    def step(self) -> dict[str, Any]:
        """Take a part of a rung and report how it goes, or why it does not."""
        try:
            score, diverged = self._advance()
        except (ray.exceptions.RayError, UnreachableError):
            raise  # what was lost, or did not answer, is no fault of the trial: it runs again
        except Exception as error:  # whatever else it was, it fails this trial only
            log.exception("failed")
            return self._report(None, TrialState.FAILED, reason_of(error))
        if diverged is not None:
            return self._report(score, TrialState.DIVERGED, diverged)
        if score.accuracy is None or score.heat:
            return self._report(score, TrialState.RUNNING)
        is_last = score.rung == self._last
        return self._report(score, TrialState.COMPLETED if is_last else TrialState.RUNNING)

    def _advance(self) -> tuple[RungScore, str | None]:
        self._pulse.beat()
        if (known := self._known.get(self._rung)) is not None:
            self._rung += 1
            return known, None
        if self._run is None:
            # Calibrating a searched number of steps takes a moment: once per trial.
            self._candidate = self._candidate or chosen(self._assignment, self._params)
            self._run = self._begun(self._candidate)
            self._run.trainer.progressed = self._pulse.beat
        run = self._run
        score = run.advance()
        if run.is_over:
            if self._rung == self._last and self._seed == 0:
                self._weights_sha256 = self._kept(run)
            self._rung, self._run = self._rung + 1, None
        return score, run.diverged

    def _kept(self, run: RungRun | ChargedRun) -> str | None:
        """The digest of the file with the weights that its last rung has come to; None where nothing is kept.

        A full disk costs the private run its beginning, and not the trial, which may be paid for.
        """
        folder = self._assignment.weights_storage_path
        if folder is None:
            return None
        try:
            if (weights := run.weights) is None:
                return None
            return checkpoint.keep_weights(
                weights, lambda sha256: weights_path(folder, trial=self._number, sha256=sha256)
            )
        except (OSError, MemoryError) as error:
            log.warning("its weights are not kept, so no run can go on from them: %r", error)
            return None

    def _begun(self, candidate: Candidate) -> RungRun | ChargedRun:
        """The rung of this trial that comes next."""
        data = self._read(candidate.model.features)
        charged = self._assignment.charged
        if charged is None:
            return RungRun(self._assignment, candidate, self._rung, data, seed=self._seed)
        if self._start is not None:
            candidate = candidate.at_learning_rate(self._start.learning_rate_factor)
        begin = partial(
            ChargedRun,
            self._assignment,
            charged,
            candidate,
            data,
            charge=self._charge,
            begin_from=self._weights_of(self._start) if self._start else None,
        )
        for pause in _PAUSES:
            try:
                return begin()
            except ParameterError as error:
                if error.field != "begin_from":
                    raise
                log.warning("tries again in %g s: %s", pause, error)
                self._pulse.beat()
                time.sleep(pause)
        return begin()

    def _weights_of(self, start: TrialStart) -> TrialWeights:
        """What the trial left that this one goes on from."""
        folder = self._assignment.weights_storage_path
        if folder is None:
            raise ParameterError("no storage was named for weights", field="begin_from")
        path = weights_path(folder, trial=start.trial, sha256=start.weights_sha256)
        return TrialWeights(trial=start.trial, path=path, sha256=start.weights_sha256)

    def _charge(self, steps: int) -> int:
        """How many of a trial's steps may run: the answer comes once they are charged."""
        with closing(ControlPlane(self._settings, waiting=self._pulse.beat)) as control:
            try:
                return control.request_segment(start_step=0, num_steps=steps).num_steps
            except (FencedError, RefusedError) as error:
                leave(error)

    def _read(self, features: tuple[bool, ...]) -> Data:
        """Both splits with these features; they lie in memory that all trials of a node share."""
        if self._data is None or self._data[0] != features:
            # Let go of the old ones first: the store may need their room.
            self._data = None
            train, validation = ray.get(self._shared.splits[features])
            data = Data(
                train=_tensors(train),
                validation=_tensors(validation),
                users=None if train.users is None else _tensor(train.users),
                validation_users=None if validation.users is None else _tensor(validation.users),
                checkpoint=self._shared.checkpoint,
            )
            self._data = features, data
        return self._data[1]

    def _report(
        self, score: RungScore | None, outcome: TrialState, reason: str | None = None
    ) -> dict[str, Any]:
        """What Tune, its scheduler and the searcher read; a curve's end is the metric meanwhile."""
        rung, curve = (score.rung, score.curve) if score else (self._rung, [])
        is_heat = score is not None and score.heat
        is_scored = score is not None and score.accuracy is not None and not is_heat
        is_over = outcome is not TrialState.RUNNING
        report: dict[str, Any] = {
            METRIC: curve[-1].accuracy if curve else 0.0,
            "number": self._number,
            "seed": self._seed,
            "rung": rung,
            "point": len(curve),
            # As one string: Tune flattens mappings.
            "rung_score": score.model_dump_json() if score else None,
            "is_scored": is_scored,
            "is_heat": is_heat,
            "outcome": outcome.value,
            "reason": reason,
            "weights_sha256": self._weights_sha256,
            "done": is_over,
        }
        if self._seed == 0 and (is_scored or is_heat or is_over):
            # ASHA reads only what has a resource: it decides where heats and rungs end, and never on a finalist.
            has_heat = self._assignment.heat
            cut = cut_of(score, has_heat=has_heat) if score else rung + (has_heat and rung > 0)
            report[RESOURCE] = resource(cut, self._assignment.cuts)
        return report


def _told(start: TrialStart | None) -> str:
    if start is None:
        return ""
    return (
        f", on from trial {start.trial} at {start.learning_rate_factor:g} times the learning rate"
    )


def _tensors(split: Split) -> Tensors:
    inputs = split.inputs
    # Of what is read by index, each node has its own.
    return inputs if isinstance(inputs, Records) else _tensor(inputs), _tensor(split.labels)


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    """A view of an array in Ray's object store: read-only memory that every trial shares."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(values)
