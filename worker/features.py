"""Features, computed once before a search or a private run, in tasks all over the Ray cluster where that pays.

A process that computes on a processor uses one core well and several badly, and a driver has no GPU. So features come
of tasks that ask for what a trial or a rank asks for, and while they run nothing else of their study does.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import partial
from typing import Any, Final

import numpy as np
import ray
from numpy.typing import NDArray

from tan_core.data import Records, Split, has_features, verify
from tan_core.data.part import Role
from tan_core.engine.features import features_of, load_inputs
from tan_core.models.extractor import Extractor
from tan_core.wire import FeaturesMade, PrivateAssignment, SearchAssignment
from worker.at_once import trial_device
from worker.begin import checkpoint_of, extractor_for
from worker.places import nodes_now
from worker.resources import Ranks, tasks_at_once, why_waiting
from worker.settings import WorkerSettings

log = logging.getLogger(__name__)

Splits = tuple[Split, Split]
"""Train and validation; never test."""
Waiting = Callable[[str | None, float], None]
"""Told what is waited for, if anything is, and for how many seconds more."""

_TOLD_EVERY_SECONDS: Final = 30.0
_LOOK_EVERY_SECONDS: Final = 1.0
_WAITS_AFTER_SECONDS: Final = 30.0
"""A task that has a place has begun by then, on a slow node too."""
_LOST_WORKERS: Final = 3
"""Of a task, before the search fails."""
_ALONE_SECONDS: Final = 3.0
"""What a driver computes itself: processes of Ray's take as long to begin."""
_TASK_SECONDS: Final = 5.0
"""At the driver's pace: each task reads the extractor anew."""
_ON_GPU: Final = 8192
"""Records of a task on a GPU."""


class UnwantedError(Exception):
    """Nobody waits for it any more."""


def _unheard(waits_for: str | None, seconds: float) -> None:
    """Where nobody listens."""


class Told:
    """Says in the log how far features are, now and then.

    Args:
        what: is computed.
        beat: called for every block of records; what it raises ends the work.
        note: told of every block.
    """

    def __init__(
        self,
        what: str,
        beat: Callable[[], None] = lambda: None,
        note: Callable[[FeaturesMade], None] = lambda made: None,
    ) -> None:
        self._what, self._beat, self._note = what, beat, note
        self._began = self._told_at = time.monotonic()
        self._first: int | None = None

    def __call__(self, done: int, number: int) -> None:
        """So many records of so many are done."""
        self._beat()
        now = time.monotonic()
        if self._first is None:  # perhaps an earlier process made others
            self._first, self._began = done, now
        rate = (done - self._first) / (now - self._began) if now > self._began else None
        self._note(FeaturesMade(done=done, number=number, per_second=rate or None))
        if rate is None or now - self._told_at < _TOLD_EVERY_SECONDS:
            return
        self._told_at = now
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
    note: Callable[[FeaturesMade], None] = lambda made: None,
    waiting: Waiting = _unheard,
) -> ray.ObjectRef:
    """Both splits, as the head behind an extractor reads them.

    Args:
        assignment: whose dataset the simulations read.
        extractor: None: the records themselves.
        settings: where features are kept.
        each: what a trial is lent.
        is_unwanted: asked now and then.
        note: told how far features are.
        waiting: told while no task has a place.

    Raises:
        UnwantedError: nobody waits any more.
        DatasetError: the data cannot be read or the features cannot be kept.
    """
    with Sharing(each, assignment.max_concurrent, settings, is_unwanted, waiting) as sharing:
        load = partial(_load, assignment, extractor, settings, sharing, note)
        # Ray keeps on disk what does not fit into its memory.
        return ray.put((load("train"), load("validation")))


def keep_features(
    assignment: PrivateAssignment,
    settings: WorkerSettings,
    ranks: Ranks,
    *,
    is_unwanted: Callable[[], bool],
    note: Callable[[FeaturesMade], None],
    waiting: Waiting = _unheard,
) -> None:
    """Compute the features of a private run that are kept nowhere yet; its ranks would one after the other.

    Also those of one rank: it would hold what it was lent, and the file's lock may be held by a driver whose tasks wait
    for just that. Does nothing where they are not to be kept.

    Raises:
        UnwantedError: nobody waits for them any more.
        DatasetError: the data cannot be read or the features cannot be kept.
    """
    each = {name.lower(): amount for name, amount in ranks.each.items()}
    # Ranks on processors have all cores of their nodes, however few they are.
    limit = ranks.number if ranks.use_gpu else None
    sharing = Sharing(each, limit, settings, is_unwanted, waiting)
    if settings.cache_dir is None:
        return
    extractor = extractor_for(assignment, checkpoint_of(assignment, settings))
    if extractor is None:
        return
    kept = partial(has_features, fingerprint=extractor.fingerprint, cache_dir=settings.cache_dir)
    roles: list[Role] = ["test", *(["validation"] if assignment.baseline else []), "train"]
    if all(kept(assignment.dataset, role) for role in roles):
        return
    verify(assignment.dataset, storage=settings.storage)
    with sharing:
        for role in roles:
            _load(assignment, extractor, settings, sharing, note, role)
    log.info("features of %s are there", assignment.model.name)


def _load(
    assignment: SearchAssignment | PrivateAssignment,
    extractor: Extractor | None,
    settings: WorkerSettings,
    sharing: "Sharing",
    note: Callable[[FeaturesMade], None],
    role: Role,
) -> Split:
    return load_inputs(
        assignment.dataset,
        role,
        extractor,
        cache_dir=settings.cache_dir,
        storage=settings.storage,
        compute=sharing,
        progressed=Told(f"features of {role}", sharing.beat, note),
        waiting=sharing.beat,
    )


class Sharing(AbstractContextManager["Sharing"]):
    """Computes features in tasks, wherever the cluster has room for them; a :data:`~tan_core.engine.features.Compute`.

    On processors the driver begins, and what it has not done after some seconds it shares out. Features are those of
    one process up to float rounding. Tasks that are not over at the end of the ``with`` block are ended.

    Args:
        each: what a task is lent.
        limit: of tasks that Ray is given at once.
        settings: whether the cluster grows.
        is_unwanted: asked now and then.
        waiting: told while no task has a place.
    """

    def __init__(
        self,
        each: Mapping[str, float],
        limit: int | None,
        settings: WorkerSettings,
        is_unwanted: Callable[[], bool],
        waiting: Waiting = _unheard,
    ) -> None:
        self._each, self._limit, self._settings = each, limit, settings
        self._is_unwanted, self._waiting = is_unwanted, waiting
        self._has_gpu = bool(each.get("gpu"))
        self._task: Any = ray.remote(_features).options(
            num_cpus=each["cpu"], num_gpus=each.get("gpu", 0),
            max_retries=_LOST_WORKERS, num_returns="streaming",
        )  # fmt: skip
        self._running: deque[ray.ObjectRefGenerator] = deque()

    @property
    def at_once(self) -> int:
        """Tasks that Ray is given now, at most; with one, and no GPU, the driver does it all."""
        return tasks_at_once(nodes_now(), self._each, self._limit, self._settings)

    def __exit__(self, *_: object) -> None:
        for task in self._running:
            ray.cancel(task, force=True)
        self._running.clear()

    def __call__(
        self, extractor: Extractor, records: NDArray[Any] | Records, rows: range
    ) -> Iterator[NDArray[Any]]:
        """Blocks of features, in the order of the records."""
        size = _ON_GPU
        if not self._has_gpu:
            began, done, first = time.monotonic(), 0, None
            for block in features_of(extractor, records, rows):
                yield block
                done += len(block)
                now = time.monotonic()
                if first is None:  # some extractors prepare themselves in their first call
                    first = (done, now)
                elif now > began + _ALONE_SECONDS and self.at_once > 1:
                    size = math.ceil((done - first[0]) * _TASK_SECONDS / (now - first[1]))
                    break
            rows = rows[done:]
        if rows:
            yield from self._shared(extractor, records, rows, size)

    def beat(self) -> None:
        """Nothing, as long as somebody waits.

        Raises:
            UnwantedError: nobody does.
        """
        if self._is_unwanted():
            raise UnwantedError

    def _shared(
        self, extractor: Extractor, records: NDArray[Any] | Records, rows: range, size: int
    ) -> Iterator[NDArray[Any]]:
        # All have their part of what is little.
        fair = math.ceil(len(rows) / self.at_once)
        unit = extractor.records_at_once
        size = math.ceil(min(size, fair) / unit) * unit
        given = ray.put(extractor), ray.put(records)
        parts = (rows[at : at + size] for at in range(0, len(rows), size))
        for part in parts:
            self._running.append(self._task.remote(*given, part))
            while len(self._running) >= self.at_once:
                yield self._first()
        while self._running:
            yield self._first()

    def _first(self) -> NDArray[Any]:
        task = self._running[0]
        self._wait(task, self._say_waiting)  # the tasks behind it begin no earlier
        ray.get(next(task))
        self._waiting(None, 0.0)
        self._wait(task)
        self._running.popleft()
        block, error = ray.get(next(task))
        if error is not None:
            raise error
        return block

    def _wait(
        self,
        task: ray.ObjectRefGenerator,
        meanwhile: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """For what a task yields next."""
        began = time.monotonic()
        while not ray.wait([task], timeout=_LOOK_EVERY_SECONDS)[0]:
            self.beat()
            meanwhile(time.monotonic() - began)

    def _say_waiting(self, seconds: float) -> None:
        if seconds >= _WAITS_AFTER_SECONDS:
            waits_for = why_waiting(1, self._each, nodes_now(), self._settings)
            self._waiting(waits_for, _LOOK_EVERY_SECONDS)


def _features(
    extractor: Extractor, records: NDArray[Any] | Records, rows: range
) -> Generator[tuple[NDArray[Any] | None, Exception | None] | None]:
    """In a worker of Ray's: nothing as soon as it has a place, then all. An error as it is: what is raised Ray would wrap."""
    yield None
    try:
        device = trial_device()
        blocks = features_of(extractor.to(device), records, rows, device=device)
        yield np.concatenate([*blocks]), None
    except Exception as error:  # noqa: BLE001 the driver raises it
        yield None, _sent(error)


def _sent(error: Exception) -> Exception:
    """The error, or what it says, where it would not arrive: those of a model of a user's own may hold or want anything."""
    try:
        return deepcopy(error)
    except Exception:  # noqa: BLE001 whatever its class raises
        return RuntimeError(f"{type(error).__name__}: {error}")
