"""Private runs as Ray Train makes them, in this process: the same trainer, key and loop, without Ray."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tan_core.data import Split
from tan_core.engine import Trainer, TrainerState, checkpoint
from tan_core.mechanism import Mechanism
from tan_core.spec import ModelSpec
from tan_core.spec.train import TrainerConfig
from tan_core.wire import (
    Checkpoint,
    DatasetRef,
    MechanismMessage,
    PrivateAssignment,
    SegmentGrant,
)
from worker.leader import Leader
from worker.resume import resume
from worker.train_loop import Team, build_trainer, run_segments

_PATIENCE_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One private run to be measured: what is priced, on which records, with which model."""

    mechanism: Mechanism
    model: ModelSpec
    inputs: NDArray[Any]
    """What the model reads, [N, ...]."""
    labels: NDArray[np.int64]
    num_classes: int
    shape: tuple[int, ...] | None = None
    """Of a record, where the model reads features of it; None: of an input."""
    trainer: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the trainer's configuration beside the clipping norm."""
    segment_steps: int = 1_000_000

    @property
    def expected_batch_size(self) -> float:
        """B = qN as priced."""
        return self.mechanism.sampling_rate * len(self.labels)

    def assignment(self, *, attempt: int, workers: int, folder: Path) -> PrivateAssignment:
        """What the control plane would send for it."""
        return PrivateAssignment(
            run_id="selftest",
            study_id="selftest",
            study_name="selftest",
            attempt=attempt,
            fence=attempt,
            mechanism=MechanismMessage(event=self.mechanism.to_json()),
            num_examples=len(self.labels),
            model=self.model,
            trainer=TrainerConfig(clip_norm=self.mechanism.clip_norm, **self.trainer),
            workers=workers,
            microbatch_size=256,
            segment_steps=self.segment_steps,
            dataset=DatasetRef(
                name="selftest",
                source="npz",
                content_sha256="",
                num_classes=self.num_classes,
                shape=list(self.shape or self.inputs.shape[1:]),
                num_train=len(self.labels),
                num_validation=0,
                num_test=0,
            ),
            checkpoint=None,
            storage_path=str(folder),
        )


class Ranks:
    """What the threads that stand for the ranks of one attempt share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.told: list[int] = []
        self.copied: Tensor
        self.shares: dict[int, Tensor] = {}
        self._barrier = threading.Barrier(size, timeout=_PATIENCE_SECONDS)

    def meet(self) -> None:
        """Wait until every rank is here."""
        self._barrier.wait()

    def abort(self) -> None:
        """Let nobody wait for a rank that has failed."""
        self._barrier.abort()


class ThreadTeam(Team):
    """One rank of :class:`Ranks`; what it is told and what it sums, as over a process group."""

    def __init__(self, ranks: Ranks, rank: int, secrets: "Secrets") -> None:
        self.rank, self.size = rank, ranks.size
        self.device = torch.device("cpu")
        self.threads = 1
        self._ranks = ranks
        self._secrets = secrets

    def all_reduce(self, tensor: Tensor) -> None:
        """The sum over all ranks, in place."""
        self._ranks.shares[self.rank] = tensor.clone()
        self._ranks.meet()
        shares = [self._ranks.shares[rank] for rank in range(self.size)]
        tensor.copy_(torch.stack(shares).sum(0))
        self._ranks.meet()

    def meet(self) -> None:
        """Wait until every rank is here."""
        self._ranks.meet()

    def copied(self, tensor: Tensor) -> None:
        """Rank 0's bytes on every rank, in place."""
        if self.rank == 0:
            self._ranks.copied = tensor
        self._ranks.meet()
        tensor.copy_(self._ranks.copied)
        self._ranks.meet()

    def told(self, values: list[int]) -> list[int]:
        """Rank 0's values on every rank."""
        if self.rank == 0:
            self._ranks.told = values
        self._ranks.meet()
        told = list(self._ranks.told)
        self._ranks.meet()
        return told

    def shared_secret(self, num_bytes: int) -> bytes:
        """As in a private run; from the self-test's seed where there is one."""
        if self._secrets is None:
            return super().shared_secret(num_bytes)
        drawn = self._secrets(num_bytes) if self.rank == 0 else bytes(num_bytes)
        return bytes(self.told(list(drawn)))


Secrets = Callable[[int], bytes] | None
"""Where keys come from; None: from the operating system, as in a private run."""


class Observer(Leader):
    """Rank 0's line to a control plane that grants everything up to a step, and looks at each one."""

    def __init__(self, trainer: Trainer, look: Callable[[Trainer], None], *, until: int) -> None:
        self._trainer, self._look, self._until = trainer, look, until
        self.charged = 0
        """Steps granted in all."""

    @property
    def is_cancelled(self) -> bool:
        """Never."""
        return False

    @property
    def is_to_stop(self) -> bool:
        """Never."""
        return False

    def charge(self, start_step: int, num_steps: int) -> SegmentGrant:
        """Grant what is asked for, up to the last step of this attempt."""
        granted = max(0, min(num_steps, self._until - start_step))
        self.charged += granted
        return SegmentGrant(segment=0, num_steps=granted)

    def progressed(self, step: int) -> None:
        """Look at the weights that a step has left."""
        self._look(self._trainer)

    def close_segment(self, segment: int, trainer: Trainer) -> None:
        """Keep nothing: what is to be kept, ``look`` keeps."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt went."""

    trainer: Trainer
    """Of rank 0, as it stands after the last step."""
    charged: int
    """Steps that were charged."""


class Lab:
    """Where private runs are made and watched.

    Args:
        folder: for checkpoints.
        seed: of everything, keys included; None: fresh from the operating system.
    """

    def __init__(self, folder: Path, seed: int | None) -> None:
        self.folder = folder
        self.random = np.random.default_rng(seed)
        """Of the records, and of who is among them."""
        self._keys = None if seed is None else np.random.default_rng([seed, 1]).bytes

    def trainer(self, setup: Setup, *, attempt: int = 1, secret: bytes | None = None) -> Trainer:
        """A trainer of one rank, made as those of private runs; under ``secret``, if one is given."""
        secrets = self._keys if secret is None else _pinned(secret)
        return self._built(setup, ThreadTeam(Ranks(1), 0, secrets), attempt)

    def run(
        self,
        setup: Setup,
        look: Callable[[Trainer], None],
        *,
        attempt: int = 1,
        until: int | None = None,
        workers: int = 1,
        start: Callable[[Trainer], TrainerState] | None = None,
        resumed: Checkpoint | None = None,
        secret: bytes | None = None,
    ) -> Attempt:
        """Run an attempt to its end, by the loop of private runs; each rank is a thread.

        Args:
            setup: what runs.
            look: called on rank 0 before the first step and after each one.
            attempt: its number.
            until: steps are granted up to this one; None: all of the mechanism's.
            workers: number of ranks.
            start: what to begin from instead of the initial state.
            resumed: what to go on from.
            secret: of this attempt, its key; None: a fresh one.
        """
        ranks = Ranks(workers)
        secrets = self._keys if secret is None else _pinned(secret)
        last = setup.mechanism.steps if until is None else until
        attempts: list[Attempt] = []
        errors: list[BaseException] = []

        def work(rank: int) -> None:
            try:
                team = ThreadTeam(ranks, rank, secrets)
                trainer = self._built(setup, team, attempt)
                if start is not None:
                    trainer.load_state(start(trainer))
                if resumed is not None:
                    resume(trainer, resumed)
                leader = Observer(trainer, look, until=last) if rank == 0 else None
                if leader is not None:
                    look(trainer)
                assignment = setup.assignment(attempt=attempt, workers=workers, folder=self.folder)
                run_segments(trainer, assignment, team, leader)
                if leader is not None:
                    attempts.append(Attempt(trainer, leader.charged))
            except threading.BrokenBarrierError:
                return  # another rank has failed, and says why
            except BaseException as error:  # noqa: BLE001 - raised again where the ranks are waited for
                errors.append(error)
                ranks.abort()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        if not attempts:
            raise TimeoutError(f"ranks waited for each other for {_PATIENCE_SECONDS} s")
        return attempts[0]

    def saved(self, trainer: Trainer) -> Checkpoint:
        """A checkpoint on storage, as a private run reports it."""
        path = self.folder / f"step-{trainer.steps_done}"
        with suppress(FileNotFoundError):
            path.unlink()
        sha256 = checkpoint.save(path, trainer)
        return Checkpoint(step=trainer.steps_done, path=str(path), sha256=sha256)

    def _built(self, setup: Setup, team: Team, attempt: int) -> Trainer:
        assignment = setup.assignment(attempt=attempt, workers=team.size, folder=self.folder)
        records = Split(inputs=setup.inputs, labels=setup.labels)
        return build_trainer(assignment, None, records, team)


def weights(trainer: Trainer) -> Tensor:
    """A copy of all trainable weights, [P]."""
    return trainer.state().tensors["parameters"]


def _pinned(secret: bytes) -> Callable[[int], bytes]:
    return lambda num_bytes: secret[:num_bytes]
