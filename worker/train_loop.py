"""One rank of a private run.

Rank 0 asks the control plane to charge a segment before its steps run, tells the others how many were
granted, and reports the checkpoint that closes it. Every rank draws the same global mask and takes
its share; the engine adds noise on rank 0 only, once.
"""

import logging
import os
import platform
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
import torch
import torch.distributed as dist

from tan_core.data import Split, verify
from tan_core.engine import PrivateRandomness, Trainer, checkpoint
from tan_core.engine.features import load_inputs
from tan_core.engine.memory import keep_freed_memory
from tan_core.engine.randomness import KEY_BYTES
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.models import Checkpoint as Weights
from tan_core.models.extractor import Extractor
from tan_core.wire import Checkpoint, Evaluation, PrivateAssignment, PrivateResult, SegmentGrant
from worker.baseline import train_baseline, with_baseline
from worker.begin import checkpoint_of, extractor_for, model_for
from worker.driver import Outcome
from worker.log import write_log
from worker.report import ControlPlane, FencedError, Heartbeats, RefusedError, leave
from worker.scores import scores_of
from worker.settings import WorkerSettings

log = logging.getLogger(__name__)

_SEED_BYTES = 8
_RATE_WINDOW = 32
_SOFTWARE = ("tan-search", "torch", "ray", "numpy", "cryptography")


def train_loop(config: dict[str, Any]) -> Outcome | None:
    """What Ray Train runs on each rank; rank 0 returns how the run ended."""
    assignment: PrivateAssignment = config["assignment"]
    settings: WorkerSettings = config["settings"]
    team = Team()
    write_log(
        settings.log_format,
        run_id=assignment.run_id,
        attempt=assignment.attempt,
        rank=team.rank,
    )
    log.info("rank %d of %d begins on %s", team.rank, team.size, team.device)
    torch.set_num_threads(team.threads)
    keep_freed_memory()
    try:
        with ExitStack() as stack:
            leader = Leader(assignment, settings, stack) if team.rank == 0 else None
            return _train(assignment, settings, team, leader)
    except (FencedError, RefusedError) as error:
        leave(error)
    except Exception:
        log.exception("rank %d failed", team.rank)
        raise


class Team:
    """The ranks of this attempt and what they tell each other."""

    def __init__(self) -> None:
        context = ray.train.get_context()
        self.rank: int = context.get_world_rank()
        self.size: int = context.get_world_size()
        self.device: torch.device = ray.train.torch.get_device()
        self.threads = max(1, len(os.sched_getaffinity(0)) // context.get_local_world_size())

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """The sum over all ranks, in place."""
        dist.all_reduce(tensor)

    def told(self, values: list[int]) -> list[int]:
        """Rank 0's values on every rank; what the others pass counts by its length only."""
        tensor = torch.tensor(values, dtype=torch.int64, device=self.device)
        dist.broadcast(tensor, src=0)
        return tensor.tolist()

    def shared_secret(self, num_bytes: int) -> bytes:
        """Fresh bytes from rank 0's operating system, on every rank and nowhere else."""
        drawn = os.urandom(num_bytes) if self.rank == 0 else bytes(num_bytes)
        return bytes(self.told(list(drawn)))


class Leader:
    """Rank 0's line to the control plane."""

    def __init__(
        self, assignment: PrivateAssignment, settings: WorkerSettings, stack: ExitStack
    ) -> None:
        self._control = stack.enter_context(closing(ControlPlane(settings)))
        self._heartbeats = stack.enter_context(Heartbeats(self._control))
        self._folder = Path(assignment.storage_path) / f"attempt-{assignment.attempt}"
        self._written: Path | None = None
        self._times: deque[tuple[float, int]] = deque(maxlen=_RATE_WINDOW)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run is to stop at this step boundary."""
        return self._heartbeats.cancelled.is_set()

    @property
    def is_to_stop(self) -> bool:
        """Whether no further segment is to begin: for a run that pauses, none is left half done."""
        return self.is_cancelled or self._heartbeats.paused.is_set()

    def charge(self, start_step: int, num_steps: int) -> SegmentGrant:
        """Have the next steps charged; as many as were granted may run."""
        nothing = SegmentGrant(segment=0, num_steps=0)
        if self.is_to_stop:
            return nothing
        try:
            return self._control.request_segment(start_step=start_step, num_steps=num_steps)
        except FencedError:
            # Nothing is charged for a run that is being cancelled, either. Only a live attempt is
            # told so: for any other this heartbeat is refused as well.
            if self._control.heartbeat(step=start_step).desired != "cancel":
                raise
            self._heartbeats.cancel()
            return nothing

    def progressed(self, step: int) -> None:
        """Let the next heartbeat say how far the run is."""
        self._times.append((time.monotonic(), step))
        (then, first), (now, last) = self._times[0], self._times[-1]
        rate = (last - first) / (now - then) if now > then else None
        self._heartbeats.progress(step, rate)

    def close_segment(self, segment: int, trainer: Trainer) -> None:
        """Write the checkpoint, report it, and drop the one before it."""
        path = self._folder / f"step-{trainer.steps_done}"
        sha256 = checkpoint.save(path, trainer)
        self._control.end_segment(
            segment, Checkpoint(step=trainer.steps_done, path=str(path), sha256=sha256)
        )
        if self._written is not None and self._written != path:
            self._written.unlink(missing_ok=True)
        self._written = path

    def release(
        self,
        assignment: PrivateAssignment,
        trainer: Trainer,
        extractor: Extractor | None,
        test: Split,
        train_seconds: float,
    ) -> PrivateResult:
        """Write the model, the weights of its extractor with it, and evaluate it."""
        path = self._folder / "model.safetensors"
        sha256 = checkpoint.save_weights(
            path,
            {**_weights_of(extractor), **trainer.released_weights()},
            metadata={
                "study_id": assignment.study_id,
                "model": assignment.model.model_dump(mode="json"),
                "extractor": extractor.fingerprint if extractor is not None else None,
                "shape": assignment.dataset.shape,
                "num_classes": assignment.dataset.num_classes,
            },
        )
        return PrivateResult(
            steps=trainer.steps_done,
            test_accuracy=trainer.evaluate(test.inputs, test.labels),
            num_test=len(test),
            model_path=str(path),
            model_sha256=sha256,
            train_seconds=train_seconds,
            software=software(),
            updates=trainer.updates,
        )


def _weights_of(extractor: Extractor | None) -> dict[str, torch.Tensor]:
    """By their names in the whole model; most extractors have none."""
    state = {} if extractor is None else extractor.state_dict()
    return {name: value.to("cpu", copy=True).contiguous() for name, value in state.items()}


def _train(
    assignment: PrivateAssignment, settings: WorkerSettings, team: Team, leader: Leader | None
) -> Outcome | None:
    begun_from = checkpoint_of(assignment, settings)
    extractor = extractor_for(assignment, begun_from)
    inputs = partial(
        load_inputs,
        assignment.dataset,
        extractor=extractor if extractor is None else extractor.to(team.device),
        cache_dir=settings.cache_dir,
        storage=settings.storage,
        device=team.device,
    )
    if team.rank == 0:
        verify(assignment.dataset, storage=settings.storage)
    train = inputs("train")
    trainer = build_trainer(assignment, begun_from, train, team)
    if assignment.checkpoint is not None:
        resume(trainer, assignment.checkpoint)
    started = time.monotonic()
    is_stopped = run_segments(trainer, assignment, team, leader)
    if leader is None:
        return None
    if is_stopped:
        return Outcome(outcome="cancelled")
    if trainer.is_diverged:
        return Outcome(
            outcome="failed",
            reason=f"a weight was not finite after {trainer.steps_done} steps",
            retryable=False,
        )
    if trainer.steps_done == 0:
        return Outcome(
            outcome="failed",
            reason="the reservation was used up before the first step",
            retryable=False,
        )
    seconds = time.monotonic() - started
    # Nothing has read the test split before.
    test = inputs("test")
    result = leader.release(assignment, trainer, extractor, test, seconds)
    if assignment.by_class:
        evaluation = Evaluation(private=scores_of(trainer, test), group=assignment.dataset.group)
        if assignment.baseline:
            evaluation = with_baseline(
                evaluation,
                test,
                lambda: train_baseline(
                    assignment,
                    train=train,
                    validation=inputs("validation"),
                    checkpoint=begun_from,
                    device=team.device,
                    is_unwanted=lambda: leader.is_cancelled,
                ),
            )
        result = result.model_copy(update={"evaluation": evaluation})
    return Outcome(outcome="succeeded", result=result)


def run_segments(
    trainer: Trainer, assignment: PrivateAssignment, team: Team, leader: Leader | None
) -> bool:
    """Take every step that is granted; whether the run was cancelled or paused on the way."""
    steps = trainer.mechanism.steps
    while trainer.steps_done < steps:
        wanted = min(assignment.segment_steps, steps - trainer.steps_done)
        segment, granted, stop = team.told(_begin(leader, trainer, wanted))
        if granted == 0:
            return bool(stop)
        for _ in range(granted):
            (stop,) = team.told([int(leader is not None and leader.is_cancelled)])
            if stop:
                return True
            trainer.step()
            if leader is not None:
                leader.progressed(trainer.steps_done)
        if leader is not None:
            leader.close_segment(segment, trainer)
    return False


def _begin(leader: Leader | None, trainer: Trainer, wanted: int) -> list[int]:
    """Segment, steps granted, and whether to stop instead; rank 0 knows, the others wait for it."""
    if leader is None or trainer.is_diverged:
        return [0, 0, 0]
    grant = leader.charge(trainer.steps_done, wanted)
    return [grant.segment, min(grant.num_steps, wanted), int(leader.is_to_stop)]


def build_trainer(
    assignment: PrivateAssignment, begun_from: Weights | None, train: Split, team: Team
) -> Trainer:
    """This rank's trainer, under a key that is fresh for this attempt."""
    secret = team.shared_secret(KEY_BYTES + _SEED_BYTES)
    initial = int.from_bytes(secret[KEY_BYTES:], "little", signed=True)
    return Trainer(
        model=model_for(
            assignment,
            assignment.model,
            generator=torch.Generator().manual_seed(initial),
            checkpoint=begun_from,
        ),
        execution=PrivateRun(
            mechanism=Mechanism.from_json(assignment.mechanism.event),
            num_examples=assignment.num_examples,
        ),
        config=assignment.trainer,
        inputs=train.inputs,
        labels=train.labels,
        users=train.users,
        randomness=PrivateRandomness(secret[:KEY_BYTES], assignment.attempt),
        microbatch_size=assignment.microbatch_size,
        rank=team.rank,
        world_size=team.size,
        all_reduce=_all_reduce_of(team),
        device=team.device,
    )


def _all_reduce_of(team: Team) -> Callable[[torch.Tensor], None] | None:
    return team.all_reduce if team.size > 1 else None


def resume(trainer: Trainer, known: Checkpoint) -> None:
    """Go on from a reported checkpoint; the hash, the mechanism and the model must all be right."""
    loaded = checkpoint.load(Path(known.path), known.sha256)
    trainer.load_state(loaded.state)
    if trainer.steps_done != known.step:
        raise ValueError(
            f"{known.path}: holds step {trainer.steps_done}, reported was {known.step}"
        )


def software() -> dict[str, str]:
    """Versions of what executed the mechanism."""
    return {"python": platform.python_version(), **{name: version(name) for name in _SOFTWARE}}
