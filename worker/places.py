"""What Ray has room for, and whether anything of an attempt has a place there.

Ray Train and Tune wait for a place as long as it takes, and say so nowhere that a user looks.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

import ray
from ray.util import placement_group_table

from worker.report import Heartbeats
from worker.resources import Nodes, places, why_waiting
from worker.settings import WorkerSettings

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS: Final = 5.0
TOO_FEW_SECONDS: Final = 120.0
"""A node that begins again is back by then."""


def nodes_now() -> Nodes:
    """What each node that lives has of each resource."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def has_place() -> bool | None:
    """Whether Ray has given this job any of the places that it asks for; None: it asks for none now."""
    job = ray.get_runtime_context().get_job_id()
    # Whoever asks for one is of a job, and so its number ends in that of the job.
    states = {
        group["state"] for number, group in placement_group_table().items() if number.endswith(job)
    }
    if "CREATED" in states:
        return True
    return False if "PENDING" in states else None


class Places:
    """Has heartbeats say what the attempt waits for, while nothing of it has a place.

    Args:
        number: of trials or ranks that begin together.
        each: what each of them asks for.
        settings: whether the cluster grows.
        heartbeats: where it is said.
        too_few: called once the cluster has had room for some of them, and not for all, for :data:`TOO_FEW_SECONDS`; what
            begins anew then may ask for fewer. None: nothing may.
        leave: called once the attempt is to stop, for good or for now, and has no place: nobody else would notice.
        look_every_seconds: time between two looks.
    """

    def __init__(
        self,
        number: int,
        each: Mapping[str, float],
        settings: WorkerSettings,
        heartbeats: Heartbeats,
        *,
        leave: Callable[[], None],
        too_few: Callable[[str], None] | None = None,
        look_every_seconds: float = LOOK_EVERY_SECONDS,
    ) -> None:
        self._number, self._each, self._settings = number, each, settings
        self._heartbeats = heartbeats
        self._leave = leave
        self._too_few = too_few
        self._look_every_seconds = look_every_seconds
        self._told: str | None = None
        self._lacked = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="places", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._heartbeats.note_waiting(None, 0.0)

    def _watch(self) -> None:
        looked_at = time.monotonic()
        while not self._over.wait(self._look_every_seconds):
            now = time.monotonic()
            try:
                self._look(now - looked_at)
            except Exception:
                log.warning("what Ray has room for could not be seen", exc_info=True)
            looked_at = now

    def _look(self, passed: float) -> None:
        waits_for, found = None, has_place()
        # Ray Train asks anew every minute, and who waits then waits on.
        if found is False or (found is None and self._told is not None):
            nodes = nodes_now()
            waits_for = why_waiting(self._number, self._each, nodes, self._settings)
            is_short = 0 < places(nodes, self._each) < self._number
            self._lacked = self._lacked + passed if is_short else 0.0
        if waits_for != self._told:
            log.info("%s", waits_for or "has a place")
            self._told = waits_for
        self._heartbeats.note_waiting(waits_for, 0.0 if waits_for is None else passed)
        is_to_end = self._lacked >= TOO_FEW_SECONDS and not self._settings.autoscaling
        if waits_for is not None and self._heartbeats.is_to_stop():
            self._leave()
        elif waits_for is not None and is_to_end and self._too_few is not None:
            self._too_few(waits_for)
