"""What the trials of a search read, in Ray's object store: computed once before them, and where trials have a GPU on one."""

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, cast

import ray
import torch

from tan_core.data import Split
from tan_core.engine.features import load_inputs
from tan_core.models.extractor import Extractor
from tan_core.wire import SearchAssignment
from worker.at_once import trial_device
from worker.log import write_log
from worker.settings import WorkerSettings

log = logging.getLogger(__name__)

Splits = tuple[Split, Split]
"""Train and validation; never test."""

_TOLD_EVERY_SECONDS: Final = 30.0
_LOOK_EVERY_SECONDS: Final = 1.0
_LOST_WORKERS: Final = 3
"""Of a task, before the search fails."""


class UnwantedError(Exception):
    """Nobody waits for it any more."""


class Told:
    """Says in the log how far features are, now and then.

    Args:
        what: is computed.
        beat: called for every block of records; what it raises ends the work.
    """

    def __init__(self, what: str, beat: Callable[[], None] = lambda: None) -> None:
        self._what = what
        self._beat = beat
        self._began = self._told_at = time.monotonic()

    def __call__(self, done: int, number: int) -> None:
        """So many records of so many are done."""
        self._beat()
        now = time.monotonic()
        if now - self._told_at < _TOLD_EVERY_SECONDS:
            return
        self._told_at = now
        rate = done / (now - self._began)
        log.info(
            "%s: %s of %s records, %.3g a second", self._what, f"{done:,}", f"{number:,}", rate
        )


def put_splits(
    assignment: SearchAssignment,
    extractor: Extractor | None,
    settings: WorkerSettings,
    each: Mapping[str, float],
    *,
    is_unwanted: Callable[[], bool],
) -> ray.ObjectRef:
    """Both splits, as the head behind an extractor reads them.

    Args:
        assignment: whose dataset the simulations read.
        extractor: None: the records themselves.
        settings: where features are kept.
        each: what a trial is lent.
        is_unwanted: asked now and then.

    Raises:
        UnwantedError: nobody waits any more.
        DatasetError: the data cannot be read or the features cannot be kept.
    """

    def beat() -> None:
        if is_unwanted():
            raise UnwantedError

    if extractor is None or not each.get("gpu"):
        # Ray keeps on disk what does not fit into its memory.
        return ray.put(_splits(assignment, extractor, settings, torch.device("cpu"), beat))
    task = ray.remote(_on_gpu).options(
        num_cpus=each["cpu"], num_gpus=each["gpu"], num_returns=2, max_retries=_LOST_WORKERS
    )
    splits, failure = cast(
        "tuple[ray.ObjectRef, ray.ObjectRef]", task.remote(assignment, extractor, settings)
    )
    while not ray.wait([failure], timeout=_LOOK_EVERY_SECONDS)[0]:
        if is_unwanted():
            ray.cancel(failure, force=True)
            raise UnwantedError
    error: Exception | None = ray.get(failure)
    if error is not None:
        raise error
    return splits


def _on_gpu(
    assignment: SearchAssignment, extractor: Extractor, settings: WorkerSettings
) -> tuple[Splits | None, Exception | None]:
    """In a worker of Ray's. An error as it is: what is raised Ray would wrap."""
    write_log(settings.log_format, run_id=assignment.run_id, attempt=assignment.attempt)
    try:
        return _splits(assignment, extractor, settings, trial_device(), lambda: None), None
    except Exception as error:  # noqa: BLE001 the driver raises it
        return None, error


def _splits(
    assignment: SearchAssignment,
    extractor: Extractor | None,
    settings: WorkerSettings,
    device: torch.device,
    beat: Callable[[], None],
) -> Splits:
    load = partial(
        load_inputs,
        assignment.dataset,
        extractor=None if extractor is None else extractor.to(device),
        cache_dir=settings.cache_dir,
        storage=settings.storage,
        device=device,
    )
    train = load("train", progressed=Told("features of train", beat))
    return train, load("validation", progressed=Told("features of validation", beat))
