"""One rank of a private run.

Rank 0 asks the control plane to charge a segment before its steps run, tells the others how many were
granted, and reports the checkpoint that closes it while the next ones run (:mod:`worker.leader`). Every
rank draws the same global mask and takes its share, of the draw and of the noise, which every parameter gets once.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import ray.train
import ray.train.torch
import torch
import torch.distributed as dist

from tan_core.data import Split, class_names, verify
from tan_core.engine import PrivateRandomness, Trainer
from tan_core.engine.features import load_inputs
from tan_core.engine.memory import keep_freed_memory
from tan_core.engine.noisy_sum import AllReduce, Pending
from tan_core.engine.randomness import KEY_BYTES
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.models import Checkpoint as Weights
from tan_core.wire import Evaluation, PrivateAssignment
from worker.alive import Pulse
from worker.at_once import microbatch_size
from worker.baseline import train_baseline, with_baseline
from worker.begin import checkpoint_of, extractor_for, go_on_from, model_for
from worker.driver import Outcome
from worker.features import Told
from worker.leader import Leader
from worker.log import write_log
from worker.report import FencedError, RefusedError, leave
from worker.resume import checkpoint_to_resume, resume
from worker.scores import scores_of
from worker.settings import WorkerSettings

log = logging.getLogger(__name__)

_SEED_BYTES = 8


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
    pulse = Pulse(f"{assignment.run_id}-a{assignment.attempt}", settings)
    pulse.name = f"rank {team.rank}"
    try:
        with ExitStack() as stack:
            leader = None
            if team.rank == 0:
                leader = Leader(assignment, settings, stack, waiting=pulse.beat)
            return _train(assignment, settings, team, leader, progressed=pulse.beat)
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
        self.is_first_of_node: bool = context.get_local_rank() == 0
        self.device: torch.device = ray.train.torch.get_device()
        self.threads = max(1, len(os.sched_getaffinity(0)) // context.get_local_world_size())

    def all_reduce(self, tensor: torch.Tensor) -> Pending | None:
        """Begin the sum over all ranks, in place."""
        return dist.all_reduce(tensor, async_op=True)

    def copied(self, tensor: torch.Tensor) -> None:
        """Rank 0's bytes on every rank, in place; the others pass one of that size."""
        dist.broadcast(tensor, src=0)

    def meet(self) -> None:
        """Wait until every rank is here; it fails where one of them was lost."""
        if self.size > 1:
            here = torch.ones((), device=self.device)
            dist.all_reduce(here)
            here.item()  # a GPU is waited for

    def told(self, values: list[int]) -> list[int]:
        """Rank 0's values on every rank; what the others pass counts by its length only."""
        if self.size == 1:  # a GPU would wait for them at each step
            return list(values)
        tensor = torch.tensor(values, dtype=torch.int64, device=self.device)
        dist.broadcast(tensor, src=0)
        return tensor.tolist()

    def shared_secret(self, num_bytes: int) -> bytes:
        """Fresh bytes from rank 0's operating system, on every rank and nowhere else."""
        drawn = os.urandom(num_bytes) if self.rank == 0 else bytes(num_bytes)
        return bytes(self.told(list(drawn)))


def _train(
    assignment: PrivateAssignment,
    settings: WorkerSettings,
    team: Team,
    leader: Leader | None,
    *,
    progressed: Callable[[], None] = lambda: None,
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
    # Nodes may hold copies of their own, and ranks share out records by their place.
    if team.is_first_of_node:
        verify(assignment.dataset, storage=settings.storage)
    # Before a step is charged: a split that cannot be read, or features of it that do not fit, cost no
    # epsilon. Both are scored after the last step and not before. Features that are kept are there by now, unless
    # this node has a cache of its own.
    told = partial(Told, note=leader.note_features) if leader is not None else Told
    test = inputs("test", progressed=told("features of test")) if leader is not None else None
    validation = inputs("validation") if leader is not None and assignment.baseline else None
    named = (
        class_names(assignment.dataset, storage=settings.storage) if leader is not None else None
    )
    train = inputs("train", progressed=told("features of train"))
    trainer = build_trainer(assignment, begun_from, train, team)
    trainer.progressed = progressed
    # Also before that: what does not fit beside the data, or fails on as many examples at once as a step may read.
    trainer.rehearse(num_scored=0 if test is None else len(test))
    team.meet()  # else rank 0 would be charged for what does not fit on another
    is_stopped = go_on(trainer, assignment, team, leader)
    started = time.monotonic()
    is_stopped = is_stopped or run_segments(trainer, assignment, team, leader)
    if leader is None or test is None:
        return None
    leader.settle()
    if is_stopped:
        return Outcome(outcome="cancelled")
    if trainer.is_diverged:
        return Outcome(
            outcome="failed",
            reason=(
                f"a weight was not finite after {trainer.steps_done} of {trainer.mechanism.steps} steps; "
                "all of them are charged, as it was the run's own outputs that ended it"
            ),
            retryable=False,
        )
    if trainer.steps_done == 0:
        return Outcome(
            outcome="failed",
            reason="the reservation was used up before the first step",
            retryable=False,
        )
    seconds = time.monotonic() - started
    result = leader.release(assignment, trainer, extractor, test, seconds, class_names=named)
    if assignment.by_class:
        score = partial(scores_of, test=test, class_names=named)
        evaluation = Evaluation(private=score(trainer), group=assignment.dataset.group)
        if validation is not None:
            evaluation = with_baseline(
                evaluation,
                score,
                lambda: train_baseline(
                    assignment,
                    train=train,
                    validation=validation,
                    checkpoint=begun_from,
                    device=team.device,
                    is_unwanted=lambda: leader.is_cancelled,
                    progressed=progressed,
                ),
            )
        result = result.model_copy(update={"evaluation": evaluation})
    return Outcome(outcome="succeeded", result=result)


def go_on(
    trainer: Trainer, assignment: PrivateAssignment, team: Team, leader: Leader | None
) -> bool:
    """Take up the run where it was left, if it had begun; what was taken since the books were written is charged first.

    Returns:
        Whether the run was cancelled or paused before that: it might have no step left to stop at, and be released.
    """
    known = assignment.checkpoint
    found = checkpoint_to_resume(assignment, team.told, is_first=team.rank == 0)
    if known is None or found is None:
        return False
    resume(trainer, found)
    if found.step == known.step:
        return False
    (stop,) = team.told([int(leader is not None and not leader.catch_up(known, found))])
    return bool(stop)


def run_segments(
    trainer: Trainer, assignment: PrivateAssignment, team: Team, leader: Leader | None
) -> bool:
    """Take every step that is granted; whether the run was cancelled or paused on the way."""
    steps = trainer.mechanism.steps
    while trainer.steps_done < steps:
        segment, granted, stop = team.told(_begin(leader, trainer, assignment.segment_steps))
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


def _begin(leader: Leader | None, trainer: Trainer, segment_steps: int) -> list[int]:
    """Segment, steps granted, and whether to stop instead; rank 0 knows, the others wait for it.

    A run whose weights are no numbers any more ends, and is charged for all of its steps: where its own outputs decide
    when it stops, composition holds for the whole plan alone.
    """
    if leader is None:
        return [0, 0, 0]
    left, is_over = trainer.mechanism.steps - trainer.steps_done, trainer.is_diverged
    wanted = left if is_over else min(segment_steps, left)
    grant = leader.charge(trainer.steps_done, wanted)
    granted = 0 if is_over else min(grant.num_steps, wanted)
    return [grant.segment, granted, int(leader.is_to_stop)]


def build_trainer(
    assignment: PrivateAssignment, begun_from: Weights | None, train: Split, team: Team
) -> Trainer:
    """This rank's trainer, under a key that is fresh for this attempt."""
    model = model_for(
        assignment,
        assignment.model,
        generator=torch.Generator().manual_seed(_initial_seed(assignment)),
        checkpoint=begun_from,
    )
    if assignment.begin_from is not None:
        go_on_from(model, assignment.begin_from)
        log.info("has the weights of trial %d", assignment.begin_from.trial)
    if team.size > 1:
        begin_alike(model, team)
    asked, shape = assignment.microbatch_size, train.inputs.shape[1:]
    return Trainer(
        model=model,
        execution=PrivateRun(
            mechanism=Mechanism.from_json(assignment.mechanism.event),
            num_examples=assignment.num_examples,
        ),
        config=assignment.trainer,
        inputs=train.inputs,
        labels=train.labels,
        users=train.users,
        randomness=PrivateRandomness(team.shared_secret(KEY_BYTES), assignment.attempt),
        microbatch_size=microbatch_size(asked, model, shape, assignment.trainer, team.device),
        rank=team.rank,
        world_size=team.size,
        all_reduce=_all_reduce_of(team),
        device=team.device,
    )


@torch.no_grad()
def begin_alike(model: torch.nn.Module, team: Team) -> None:
    """Give every rank what rank 0's model holds: code that draws from elsewhere than torch's generator has drawn other numbers on each.

    The sums of all ranks would move models that have nothing in common, and one of them be released.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        # As bytes: not every way between ranks knows every type. Those of an expanded or a conjugate tensor are none of its own.
        own = tensor.to(team.device).resolve_conj().resolve_neg().contiguous()
        own = own.reshape(-1).view(torch.uint8)
        team.copied(sent := own.clone())
        if not torch.equal(own, sent):
            tensor.copy_(sent.view(tensor.dtype).view(tensor.shape))


def _initial_seed(assignment: PrivateAssignment) -> int:
    """Of what is drawn before the first step, one for all attempts of the run: a checkpoint has what is trained, and what the
    model's code has drawn and frozen is drawn again when it is resumed. No privacy rests on it.
    """
    drawn = hashlib.sha256(assignment.run_id.encode()).digest()
    return int.from_bytes(drawn[:_SEED_BYTES], "little", signed=True)


def _all_reduce_of(team: Team) -> AllReduce | None:
    return team.all_reduce if team.size > 1 else None
