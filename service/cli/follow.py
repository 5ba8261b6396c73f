"""Follows a study or a log to its end: the stream, and whatever it takes to stay on it."""

import time
from collections.abc import Callable

from service.cli import progress as study_progress
from service.cli.connect import Json, document
from service.cli.live import Display
from service.client import Client, ClientError, Event, ProblemError, UnreachableError

PATIENCE_SECONDS = 120.0
"""How long a server may be away before watching it is given up."""
AWAY = (502, 503, 504)
"""Said of a server, or of its database, that is away: by itself, or by a proxy."""
TAIL_CHARACTERS = 4096
"""Of a log that was told, by which its place is found in the log that is read again."""


def follow(
    client: Client,
    study: Json,
    *,
    display: Display | None = None,
    on_event: Callable[[Event], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Json:
    """The study as it was when it ended.

    The stream is taken up again after the last event seen, so a restarted server or a cut line
    loses nothing and repeats nothing.

    Raises:
        ClientError: the server stayed away for ``PATIENCE_SECONDS``, or refused.
    """
    progress = study_progress.begun(study)
    last_event_id: int | None = None
    if display and study["state"] == "queued":
        # Of a study that has begun, the stream tells the story from its beginning.
        display.update(study_progress.of_study(study))
    patience = _Patience(display.note if display else _unsaid, sleep=sleep, clock=clock)
    while True:
        try:
            if patience.is_tried:
                client.get_study(study["id"])
                patience.restore()
            for event in client.follow_events(study["id"], last_event_id=last_event_id):
                last_event_id = event.seq
                progress = study_progress.advance(progress, event)
                if on_event:
                    on_event(event)
                if display:
                    display.update(progress)
            latest = document(client.get_study(study["id"]))
            if latest["state"] in study_progress.TERMINAL:
                if display:
                    display.update(study_progress.of_study(latest))
                return latest
            patience.pause()
        except (UnreachableError, ProblemError) as error:
            patience.try_on(error)


def follow_log(
    client: Client,
    study_id: str,
    *,
    run: str | None,
    attempt: int | None,
    write: Callable[[str], None],
    note: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Write the log of one attempt, the newest that fits, until it has ended.

    After a break the log is read anew, and what was written of it is left out.

    Raises:
        ClientError: the server stayed away for ``PATIENCE_SECONDS``, or refused.
    """
    written, tail = 0, ""
    patience = _Patience(note, sleep=sleep, clock=clock)
    while True:
        try:
            fitting = [
                each
                for each in client.list_attempts(study_id).items
                if run in (None, each.run) and attempt in (None, each.attempt)
            ]
            patience.restore()
            if fitting:  # from now on this one; else the service says what there is
                run, attempt = fitting[-1].run, fitting[-1].attempt
            skip = 0
            if written:
                known = "".join(client.read_log(study_id, run=run, attempt=attempt))
                skip = written = _place(known, written, tail)
                tail = tail if skip else ""
            for part in client.read_log(study_id, run=run, attempt=attempt, follow=True):
                new, skip = part[skip:], max(0, skip - len(part))
                if new:
                    write(new)
                    written, tail = written + len(new), (tail + new)[-TAIL_CHARACTERS:]
            if not fitting or fitting[-1].finished_at:
                return
            patience.pause()  # it has ended since, or the server has
        except (UnreachableError, ProblemError) as error:
            patience.try_on(error)


class _Patience:
    """With a server that is away: says so once, tries it more and more seldom, and gives it up."""

    def __init__(
        self,
        note: Callable[[str], None],
        *,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._note, self._sleep, self._clock = note, sleep, clock
        self._away_since: float | None = None
        self._tries = 0

    @property
    def is_tried(self) -> bool:
        """Whether the server is away, as far as is known."""
        return self._away_since is not None

    def try_on(self, error: ClientError) -> None:
        """Wait after this error, or raise it again."""
        if isinstance(error, ProblemError) and error.status not in AWAY:
            raise error
        if self._away_since is None:
            self._away_since = self._clock()
            self._note("the connection broke; trying again")
        elif self._clock() - self._away_since >= PATIENCE_SECONDS:
            raise error
        self.pause()

    def restore(self) -> None:
        """The server is there."""
        if self._away_since is not None:
            self._note("the connection is back")
        self._away_since, self._tries = None, 0

    def pause(self) -> None:
        """Leave the server some time."""
        self._tries += 1
        self._sleep(min(0.25 * 2 ** min(self._tries, 5), 5.0))


def _unsaid(_: str) -> None:
    """Where nobody listens."""


def _place(log: str, written: int, tail: str) -> int:
    """How much of a log was written: so many characters that ended with ``tail``, unless its beginning was dropped since."""
    if log[:written].endswith(tail):
        return min(written, len(log))
    found = log.find(tail)
    return 0 if found == -1 else found + len(tail)
