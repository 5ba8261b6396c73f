"""``python -m worker.train``: the driver of one attempt of one private run.

It holds the lease and Ray's view of the job; rank 0 charges, checkpoints and evaluates
(:mod:`worker.train_loop`). A lost rank ends the attempt: the control plane starts the next one from
the last checkpoint that was reported, under a new fence and a new key. Ray Train's own retries stay
off, because they would take steps that nobody charged.
"""

import hashlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

from tan_core.errors import AuditError, ModelError, PretrainedError
from tan_core.wire import PrivateAssignment
from worker.alive import Pulses
from worker.driver import Driver, Outcome, connect, drive
from worker.reasons import UncoveredError, is_of_other_data, reason_of
from worker.report import EXIT_FAILED, ControlPlaneError, Heartbeats
from worker.resources import Ranks, of_ranks, told
from worker.settings import quieten_ray

# As a program it has another __name__, of which only warnings are told.
log = logging.getLogger("worker.train")

PROCESS_GROUP_TIMEOUT_SECONDS = 1800
"""At least: ranks wait for rank 0 while it waits for the control plane; a dead rank is noticed at once."""
CANCEL_GRACE_SECONDS = 20.0
_FINAL = (AuditError, ModelError, PretrainedError, UncoveredError)


def train(assignment: PrivateAssignment, driver: Driver) -> Outcome:
    """Run the ranks to their end."""
    quieten_ray()
    # Ray and torch take seconds to load: by now the lease is being kept.
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    from worker.features import UnwantedError, keep_features
    from worker.places import Places, nodes_now
    from worker.train_loop import train_loop

    connect(assignment.run_id)
    heartbeats = driver.heartbeats

    def ranks_now() -> Ranks:
        ranks = of_ranks(nodes_now(), assignment.workers, driver.settings)
        heartbeats.note_ranks(ranks.number)
        return ranks

    try:
        keep_features(
            assignment,
            driver.settings,
            ranks_now(),
            is_unwanted=heartbeats.is_to_stop,
            note=heartbeats.note_features,
            waiting=heartbeats.note_waiting,
        )
        # Features take hours, in which nodes come and go: for one that is gone Ray Train would wait for ever.
        ranks = ranks_now()
        log.info("%d of %d ranks, each with %s", ranks.number, assignment.workers, told(ranks.each))
        trainer = TorchTrainer(
            train_loop,
            train_loop_config={"assignment": assignment, "settings": driver.settings},
            torch_config=TorchConfig(
                backend="nccl" if ranks.use_gpu else "gloo",
                # Whoever waits for a rank that hangs is not to be the first who says so.
                timeout_s=round(
                    max(PROCESS_GROUP_TIMEOUT_SECONDS, 2 * driver.settings.progress_timeout_seconds)
                ),
            ),
            scaling_config=ScalingConfig(
                num_workers=ranks.number, use_gpu=ranks.use_gpu, resources_per_worker=ranks.each
            ),
            run_config=RunConfig(
                name=f"{assignment.run_id}-a{assignment.attempt}",
                storage_path=f"{assignment.storage_path}/ray",
                # Ranks that begin again go on from the newest checkpoint, which the next attempt is told of. Begun again in
                # this one, as Ray would by default for a node that is taken back, they would take all of its steps anew.
                failure_config=FailureConfig(max_failures=0, max_preemption_failures=0),
            ),
        )
        with (
            _interrupted_when_cancelled(heartbeats),
            _ended_when_hung(assignment, driver),
            Places(
                ranks.number,
                ranks.each,
                driver.settings,
                heartbeats,
                leave=_interrupt,
                too_few=partial(give_up, driver),
            ),
        ):
            ended = trainer.fit().return_value
    except UnwantedError:
        return Outcome(outcome="cancelled")
    except SystemExit:
        # Ray Train leaves so after SIGINT.
        is_told = heartbeats.is_to_stop()
        return Outcome(outcome="cancelled", reason=None if is_told else "interrupted")
    except Exception as error:  # noqa: BLE001 - whatever ended the ranks is the reason of the attempt
        if heartbeats.cancelled.is_set():
            return Outcome(outcome="cancelled")
        return Outcome(outcome="failed", reason=_reason(error), retryable=not is_final(error))
    if not isinstance(ended, Outcome):
        return Outcome(outcome="failed", reason="rank 0 ended without a result")
    return ended


@contextmanager
def _interrupted_when_cancelled(heartbeats: Heartbeats) -> Generator[None]:
    """Rank 0 stops at a step boundary by itself; if it has not started, Ray Train is interrupted."""
    over = threading.Event()

    def watch() -> None:
        while not heartbeats.cancelled.wait(0.5):
            if over.is_set():
                return
        if not over.wait(CANCEL_GRACE_SECONDS):
            _interrupt()

    thread = threading.Thread(target=watch, name="cancel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _interrupt() -> None:
    """Ray Train hears of it."""
    os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def _ended_when_hung(assignment: PrivateAssignment, driver: Driver) -> Generator[None]:
    """End the attempt once no rank makes progress.

    Ranks wait for each other at each step: where one hangs, soon none does anything, and until then
    nothing is said of one that waits. They are watched from the first of their steps: data may take any time to read.
    """
    attempt = f"{assignment.run_id}-a{assignment.attempt}"
    pulses, timeout = Pulses(attempt, driver.settings), driver.settings.progress_timeout_seconds
    over = threading.Event()

    def watch() -> None:
        has_begun, silent = False, 0.0
        while not over.wait(pulses.period):
            passed, beaten = pulses.look()
            has_begun = has_begun or bool(beaten)
            silent = 0.0 if beaten or not has_begun else silent + passed
            if silent >= timeout:
                give_up(driver, f"no rank made progress for {timeout:g} s")

    thread = threading.Thread(target=watch, name="hung", daemon=True)
    if pulses.period:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.is_alive():
            thread.join()
        pulses.close()


def give_up(driver: Driver, reason: str) -> NoReturn:
    """Report that the attempt has failed, and end this process at once, from any thread.

    Ray then kills all that it has started, stopped processes too. Until it has, none of them can report
    or have charged anything: the attempt is over.
    """
    log.error("the attempt is given up: %s", reason)
    driver.heartbeats.expect_end()
    try:
        driver.control.finish("failed", reason=reason)
    except ControlPlaneError as error:
        log.error("%s", error)
    finally:
        os._exit(EXIT_FAILED)


def drop_checkpoints(assignment: PrivateAssignment, outcome: Outcome) -> None:
    """Remove the checkpoints of a run whose model is released: two to three times its size.

    The control plane begins no other attempt of it, so nobody goes on from them. From here on the released weights are
    the only copy: unless they are on storage as they were reported, all stays.
    """
    result = outcome.result
    if result is None:
        return
    folder = Path(assignment.storage_path)
    try:
        with Path(result.model_path).open("rb") as model:
            sha256 = hashlib.file_digest(model, "sha256").hexdigest()
        if sha256 != result.model_sha256:
            log.error("%s is not what was released: checkpoints are kept", result.model_path)
            return
        for name in ("step-*", ".step-*.tmp"):  # whole ones, and what a killed attempt left of one
            for checkpoint in folder.glob(f"attempt-*/{name}"):
                checkpoint.unlink(missing_ok=True)
        if assignment.begin_from is not None:
            for weights in Path(assignment.begin_from.path).parent.glob("*trial-*"):
                weights.unlink(missing_ok=True)
    except OSError as error:
        log.warning("checkpoints of a released model are kept: %s", error)


def is_final(error: Exception) -> bool:
    """Whether another attempt could only spend more.

    A rank's audit failed, its model or its checkpoint is wrong, its data are not those that were
    registered, or it has taken steps that cannot be charged. Ray hands over what a rank raised as the text of its traceback.
    """
    said = [reason_of(each) for each in (_failures(error) or {0: error}).values()]
    return any(
        is_of_other_data(each) or any(kind.__name__ in each for kind in _FINAL) for each in said
    )


def _failures(error: Exception) -> dict[int, Exception]:
    return getattr(error, "worker_failures", None) or {}


def _reason(error: Exception) -> str:
    """What each rank failed with, in one line."""
    failures = _failures(error)
    if not failures:
        return reason_of(error)
    return "; ".join(f"rank {rank}: {_told(failures[rank])}" for rank in sorted(failures))[:1000]


def _told(error: Exception) -> str:
    """What a rank failed with; Ray Train's own last line of one that hangs is how to wait for longer."""
    is_hung = type(error).__name__ == "WorkerHealthCheckTimeoutError"
    return "it lives, and has not answered Ray Train for long" if is_hung else reason_of(error)


if __name__ == "__main__":
    sys.exit(drive(PrivateAssignment, train, tidy=drop_checkpoints))
