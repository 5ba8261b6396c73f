"""What a driver says to the control plane, and how it goes on saying it while that is away.

Every request is idempotent, so each one is repeated with growing pauses until it is answered or its
deadline has passed. Two answers end an attempt: 409, because a newer attempt lives, and 401. A success
that says anything else than was asked for is no answer: a proxy that shows a page for people has stored nothing.
Nor is a refusal of such a proxy, but to whoever asks for the first time.
"""

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter

from tan_core.errors import TanError
from tan_core.wire import (
    HEARTBEAT_PAUSE,
    WIRE_VERSION,
    Assignment,
    Checkpoint,
    FeaturesMade,
    Finish,
    Heartbeat,
    HeartbeatReply,
    PrivateAssignment,
    PrivateResult,
    SearchAssignment,
    SegmentEnd,
    SegmentGrant,
    SegmentRequest,
    TrialRecord,
    TrialReport,
)
from worker.settings import WorkerSettings

log = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_FENCED = 40
EXIT_REFUSED = 41
HEARTBEAT_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0
"""Between two heartbeats, whatever is asked for."""
UNEVEN = 4.0
"""A step may take so many times as long as the ones before it, and they still tell its speed."""
_WORTH_REPEATING = frozenset({408, 425, 429})
_OUR_ERRORS = "application/problem+json"
_OBJECT = TypeAdapter(dict[str, Any])

TAnswer = TypeVar("TAnswer")


class ControlPlaneError(TanError):
    """A request to the control plane came to nothing."""


class FencedError(ControlPlaneError):
    """409: this attempt is over, another one lives or the run has ended."""


class RefusedError(ControlPlaneError):
    """401 or another answer that repeating cannot change."""


class VersionError(ControlPlaneError):
    """The control plane speaks another version of the messages."""


class UnreachableError(ControlPlaneError):
    """No answer before the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a request is repeated, how long each is waited for, and the pauses between two tries."""

    deadline_seconds: float = 600.0
    answer_seconds: float = 30.0
    first_pause_seconds: float = 0.2
    longest_pause_seconds: float = 10.0

    def pause(self, tries: int) -> float:
        """Seconds to wait after so many tries have failed."""
        return min(self.longest_pause_seconds, self.first_pause_seconds * 2.0 ** min(tries - 1, 30))


PATIENT = Patience()
ONE_TRY = Patience(deadline_seconds=0.0, answer_seconds=7.5)
"""Of a heartbeat: there is time for others before the driver counts as dead, for the machine that this one went to may be gone."""


class ControlPlane:
    """The control plane as one attempt of one run sees it. Safe to share between threads.

    Args:
        settings: where it is, and who asks.
        patience: with one that does not answer.
        waiting: called before a request is repeated: who waits does not hang.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        patience: Patience = PATIENT,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self._fence = settings.fence
        self._patience = patience
        self._waiting = waiting
        self.heartbeat_pause = 0.0
        """The least seconds between two heartbeats, as the last answer asked for."""
        # Not httpx's base_url: it would end the assignment's own path in a slash.
        self._root = f"/worker/runs/{settings.run_id}"
        self._http = httpx.Client(
            base_url=settings.api_url,
            headers={"Authorization": f"Bearer {settings.run_token.get_secret_value()}"},
            # The control plane is named by the operator: no proxy of the environment stands between.
            trust_env=False,
        )

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def assignment(self) -> SearchAssignment | PrivateAssignment:
        """What this attempt is to do.

        Raises:
            VersionError: it is in messages of another version, of which some may not be understood.
        """
        content = self._request("GET", "", read=_object, params={"fence": self._fence})
        theirs = _OBJECT.validate_json(content).get("wire_version")
        if theirs != WIRE_VERSION:
            raise VersionError(
                f"this worker speaks version {WIRE_VERSION} of the messages and the control plane version "
                f"{theirs}: install the same tan-search on both"
            )
        return TypeAdapter[SearchAssignment | PrivateAssignment](Assignment).validate_json(content)

    def heartbeat(
        self,
        *,
        step: int | None = None,
        steps_per_second: float | None = None,
        features: FeaturesMade | None = None,
        ranks: int | None = None,
        waits_for: str | None = None,
        waited_seconds: float = 0.0,
    ) -> HeartbeatReply:
        """Keep the lease alive. Tried once: the next heartbeat is the repetition."""
        body = Heartbeat(
            fence=self._fence,
            ranks=ranks,
            waits_for=waits_for,
            waited_seconds=waited_seconds,
            step=step,
            steps_per_second=steps_per_second,
            features=features,
        )
        reply, pause = self._request("POST", "/heartbeat", body, read=_reply, patience=ONE_TRY)
        self.heartbeat_pause = pause
        return reply

    def report_trial(self, trial: TrialRecord) -> None:
        """Store the present state of a trial."""
        body = TrialReport(fence=self._fence, trial=trial)
        self._request("PUT", f"/trials/{trial.number}", body, read=_nothing)

    def request_segment(self, *, start_step: int, num_steps: int) -> SegmentGrant:
        """Charge the next steps. Returns only after the charge is committed."""
        body = SegmentRequest(
            fence=self._fence,
            start_step=start_step,
            num_steps=num_steps,
            request_id=uuid.uuid4().hex,
        )
        return self._request("POST", "/segments", body, read=_grant)

    def end_segment(self, segment: int, checkpoint: Checkpoint) -> None:
        """Say that a segment's steps are done and where its checkpoint is."""
        body = SegmentEnd(fence=self._fence, checkpoint=checkpoint)
        self._request("POST", f"/segments/{segment}/end", body, read=_nothing)

    def finish(
        self,
        outcome: Literal["succeeded", "failed", "cancelled"],
        *,
        reason: str | None = None,
        retryable: bool = True,
        result: PrivateResult | None = None,
    ) -> None:
        """The last report of an attempt."""
        body = Finish(
            fence=self._fence, outcome=outcome, reason=reason, retryable=retryable, result=result
        )
        self._request("POST", "/finish", body, read=_nothing)

    def _request(
        self,
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        read: Callable[[httpx.Response], TAnswer],
        params: dict[str, Any] | None = None,
        patience: Patience | None = None,
    ) -> TAnswer:
        """What ``read`` makes of the answer; where that is a ValueError, there was none."""
        patience = patience or self._patience
        content = body.model_dump_json() if body is not None else None
        headers = {"Content-Type": "application/json"} if body is not None else None
        deadline = time.monotonic() + patience.deadline_seconds
        tries = 0
        while True:
            tries += 1
            try:
                response = self._http.request(
                    method,
                    self._root + path,
                    content=content,
                    params=params,
                    headers=headers,
                    timeout=httpx.Timeout(patience.answer_seconds, connect=5.0),
                )
            except httpx.RequestError as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    with suppress(ValueError):
                        return read(response)
                    trouble = "what answers is not the control plane"
                elif _is_refusal(response, may_be_of_others=not path):
                    raise _refusal(response)
                else:
                    trouble = f"HTTP {response.status_code}"
            pause = patience.pause(tries)
            if time.monotonic() + pause > deadline:
                raise UnreachableError(
                    f"{method} {self._root}{path}: no answer in {tries} "
                    f"tries within {patience.deadline_seconds:g} s; the last one: {trouble}"
                )
            if tries == 1:
                log.warning("%s does not answer (%s); trying again", self._http.base_url, trouble)
            self._waiting()
            time.sleep(pause)


def _is_refusal(response: httpx.Response, *, may_be_of_others: bool) -> bool:
    """Whether repeating cannot change it. What others say who stand between passes, where the way was there before."""
    status = response.status_code
    if status >= 500 or status in _WORTH_REPEATING:
        return False
    is_ours = response.headers.get("Content-Type", "").startswith(_OUR_ERRORS)
    return is_ours or may_be_of_others or status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def _object(response: httpx.Response) -> bytes:
    _OBJECT.validate_json(response.content)
    return response.content


def _reply(response: httpx.Response) -> tuple[HeartbeatReply, float]:
    reply = HeartbeatReply.model_validate_json(response.content)
    return reply, _seconds(response.headers.get(HEARTBEAT_PAUSE, ""))


def _grant(response: httpx.Response) -> SegmentGrant:
    return SegmentGrant.model_validate_json(response.content)


def _nothing(response: httpx.Response) -> None:
    """A report is answered with its status alone: 204."""
    if response.content:
        raise ValueError("a report has no answer but that it was stored")


def _refusal(response: httpx.Response) -> ControlPlaneError:
    try:
        said = response.json()
        detail = said.get("detail") or said.get("title") if isinstance(said, dict) else said
    except ValueError:
        detail = response.text[:200]
    kind = FencedError if response.status_code == HTTPStatus.CONFLICT else RefusedError
    request = response.request
    return kind(f"{request.method} {request.url.path}: HTTP {response.status_code}: {detail}")


def leave(error: FencedError | RefusedError) -> NoReturn:
    """End this process at once, from any thread, and touch nothing else.

    The attempt is not ours any more. An orderly exit could still write: ``os._exit`` cannot.
    """
    log.error("this attempt has no standing any more: %s", error)
    os._exit(EXIT_FENCED if isinstance(error, FencedError) else EXIT_REFUSED)


def _seconds(header: str) -> float:
    """What the header asks for, within reason; 0 where it says nothing that can be read."""
    try:
        asked = float(header)
    except ValueError:
        return 0.0
    return min(asked, LONGEST_PAUSE_SECONDS) if asked > 0 else 0.0


class Heartbeats:
    """A thread that keeps the lease alive and learns of a wish to cancel or to pause.

    Args:
        control: where the heartbeats go.
        interval_seconds: time between two of them, where the control plane asks for no longer one.
    """

    def __init__(
        self, control: ControlPlane, *, interval_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self.cancelled = threading.Event()
        """Set once the control plane, or whoever calls :meth:`cancel`, wants the run to stop."""
        self.paused = threading.Event()
        """Set once the control plane wants the run to stop at its next checkpoint."""
        self._control = control
        self._interval_seconds = interval_seconds
        self._stopped = threading.Event()
        self._ending = False
        self._progress: tuple[int | None, float | None, float] = (None, None, 0.0)
        self._features: FeaturesMade | None = None
        self._ranks: int | None = None
        self._waits: tuple[str | None, float] = (None, 0.0)
        self._thread = threading.Thread(target=self._beat, name="heartbeats", daemon=True)

    def is_to_stop(self) -> bool:
        """Whether the run is to stop, for good or for now."""
        return self.cancelled.is_set() or self.paused.is_set()

    def progress(self, step: int, steps_per_second: float | None) -> None:
        """What heartbeats say from now on. While no further step comes, its speed falls."""
        self._progress = (step, steps_per_second, time.monotonic())

    def note_features(self, made: FeaturesMade) -> None:
        """What the next heartbeat says, and those after it until it is heard that all are made."""
        self._features = made

    def note_ranks(self, number: int) -> None:
        """What heartbeats say from now on: that a private run has as many."""
        self._ranks = number

    def note_waiting(self, waits_for: str | None, seconds: float) -> None:
        """What heartbeats say from now on: why nothing of the attempt has a place, and that it was so for so much longer."""
        self._waits = (waits_for, self._waits[1] + seconds)

    def cancel(self) -> None:
        """As if the control plane had asked for it."""
        self.cancelled.set()

    def expect_end(self) -> None:
        """From now on a refused heartbeat is no alarm: the final report may have closed the run."""
        self._ending = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        while True:
            step, rate, since = self._progress
            if rate is not None:
                rate = min(rate, UNEVEN / max(time.monotonic() - since, 1e-3))
            features = self._features
            waits_for, waited = self._waits
            try:
                reply = self._control.heartbeat(
                    step=step,
                    steps_per_second=rate,
                    features=features,
                    ranks=self._ranks,
                    waits_for=waits_for,
                    waited_seconds=waited,
                )
            except UnreachableError:
                pass  # The next heartbeat is the repetition.
            except (FencedError, RefusedError) as error:
                if self._ending:
                    return
                leave(error)
            else:
                if features is self._features and features and features.done >= features.number:
                    self._features = None
                if reply.desired == "cancel":
                    self.cancelled.set()
                elif reply.desired == "pause":
                    self.paused.set()
            if self._stopped.wait(max(self._interval_seconds, self._control.heartbeat_pause)):
                return


class TrialReporter:
    """Sends trial reports in order from a thread of its own, so that no caller ever waits for HTTP."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        self._queue: SimpleQueue[TrialRecord | None] = SimpleQueue()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._send, name="trial-reports", daemon=True)

    def put(self, trial: TrialRecord) -> None:
        """Queue a report. Raises what an earlier one failed with, if one did."""
        if self._failure is not None:
            raise self._failure
        self._queue.put(trial)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait until everything queued is stored."""
        self._queue.put(None)
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _send(self) -> None:
        while (trial := self._queue.get()) is not None:
            try:
                self._control.report_trial(trial)
            except FencedError as error:
                leave(error)
            except Exception as error:  # noqa: BLE001 - whatever it was, nothing after it is sent
                self._failure = error
                return
