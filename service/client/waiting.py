"""Stays with a study: the stream of its events, and whatever it takes to stay on it."""

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator

from service.client.connection import SILENCE_SECONDS, study_path
from service.client.errors import ProblemError, UnreachableError, WaitTimeoutError
from service.client.patience import LEAST_SECONDS, OutOfTimeError, Patience, unsaid
from service.client.stream import Event, events
from service.client.studies import Studies
from service.studies.lifecycle import StudyState
from service.studies.schemas import StudyView


class Waiting(Studies):
    """What takes as long as a study does."""

    def every_event(
        self,
        study_id: str,
        *,
        on_note: Callable[[str], None] = unsaid,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> Iterator[Event]:
        """What happened and what happens, until the study has ended: each event once, whatever breaks on the way.

        The stream is taken up again after the last event seen, so a restarted server or a cut line
        loses nothing and repeats nothing.

        Args:
            study_id: whose events.
            on_note: is told when the connection breaks, and when it is back.
            sleep: in place of the system's.
            clock: in place of the system's.

        Raises:
            ProblemError: the service refused, as where there is no such study.
            UnreachableError: the server stayed away for two minutes.
        """
        yield from self._every_event(study_id, Patience(on_note, sleep=sleep, clock=clock))

    def wait_study(
        self,
        study_id: str,
        timeout: float | None = None,
        *,
        to_end: bool = False,
        on_note: Callable[[str], None] = unsaid,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> StudyView:
        """The study once it has ended, or once a person has to approve it (``awaiting_approval``).

        It listens to the study's events, and goes on when the server was restarted. One that was just approved,
        and waits for a slot, is waited for.

        Args:
            study_id: which.
            timeout: seconds to wait at most, give or take one; None: as long as it takes.
            to_end: whether to wait for approvals, too, and so to its end.
            on_note: is told when the connection breaks, and when it is back.
            sleep: in place of the system's.
            clock: in place of the system's.

        Raises:
            WaitTimeoutError: it is still under way. The study goes on.
            ProblemError: the service refused, as where there is no such study.
            UnreachableError: the server stayed away for two minutes.
            ValueError: the timeout is negative.

        Example::

            study = client.wait_study(client.submit_study(spec).id, timeout=3600)
            print(study.state, study.run and study.run.test_accuracy)
        """
        seconds = math.inf if timeout is None else timeout
        if not seconds >= 0:
            raise ValueError(f"a timeout is 0 s or more, got {timeout}")
        patience = Patience(on_note, timeout=seconds, sleep=sleep, clock=clock)
        state: str | None = None
        with contextlib.closing(self._every_event(study_id, patience)) as happened:
            try:
                while True:
                    study = self._look(study_id, patience)
                    state = study.state
                    is_asking = state == StudyState.AWAITING_APPROVAL and not to_end
                    if study.state.is_terminal or (is_asking and study.queue_position is None):
                        return study
                    if is_asking:  # approved, and in the line: an event need not follow
                        patience.pause()
                        continue
                    patience.check()
                    for event in happened:
                        if event.kind == "state":
                            state = event.data["state"]
                            if state == StudyState.AWAITING_APPROVAL and not to_end:
                                break  # now, or long ago
            except OutOfTimeError:
                raise WaitTimeoutError(study_id, state=state, seconds=seconds) from None

    def _every_event(self, study_id: str, patience: Patience) -> Generator[Event]:
        last_event_id: int | None = None
        while True:
            silence = patience.within(SILENCE_SECONDS)
            lines = self._event_lines(study_id, last_event_id=last_event_id, silence=silence)
            try:
                with contextlib.closing(lines):
                    for event in events(_in_time(lines, patience, silence)):
                        last_event_id = event.seq
                        yield event
            except (UnreachableError, ProblemError) as error:
                patience.try_on(error)
                self._look(study_id, patience)
                continue
            if self._look(study_id, patience).state.is_terminal:
                return
            patience.pause()

    def _look(self, study_id: str, patience: Patience) -> StudyView:
        """The study, as soon as the server is there."""
        while True:
            try:
                timeout = patience.within(SILENCE_SECONDS)
                study = self._ask(StudyView, "GET", study_path(study_id), timeout=timeout)
            except (UnreachableError, ProblemError) as error:
                patience.try_on(error)
            else:
                if patience.is_tried:
                    patience.restore()
                return study


def _in_time(lines: Iterator[str], patience: Patience, silence: float) -> Iterator[str]:
    """Lines of a stream, while hearing nothing more for as long as it may be silent would not take too long.

    A stream that ends so is begun anew, with less silence.
    """
    for line in lines:
        yield line
        if not line and patience.seconds_left < silence - LEAST_SECONDS:
            return
