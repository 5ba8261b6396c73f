"""Follows a study or a log to its end: the stream, and whatever it takes to stay on it."""

import time
from collections.abc import Callable

from httpx import ReadTimeout

from service.cli import progress as study_progress
from service.cli.connect import Json, document
from service.cli.live import Display
from service.client import Client, Event, ProblemError, UnreachableError
from service.client.patience import Patience, unsaid

LOG_SILENCE_SECONDS = 300.0
"""Of a log that is followed, after which its server is asked whether it is still there: a driver may be silent for
long, and so is a network that is gone."""
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

    Raises:
        ClientError: the server stayed away for two minutes, or refused.
    """
    progress = study_progress.begun(study)
    if display and study["state"] == "queued":
        # Of a study that has begun, the stream tells the story from its beginning.
        display.update(study_progress.of_study(study))
    note = display.note if display else unsaid
    for event in client.every_event(study["id"], on_note=note, sleep=sleep, clock=clock):
        progress = study_progress.advance(progress, event)
        if on_event:
            on_event(event)
        if display:
            display.update(progress)
    ended = client.wait_study(study["id"], to_end=True, on_note=note, sleep=sleep, clock=clock)
    latest = document(ended)
    if display:
        display.update(study_progress.of_study(latest))
    return latest


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
        ClientError: the server stayed away for two minutes, or refused.
    """
    written, tail = 0, ""
    patience = Patience(note, sleep=sleep, clock=clock)
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
            try:
                for part in client.read_log(
                    study_id, run=run, attempt=attempt, follow=True, silence=LOG_SILENCE_SECONDS
                ):
                    new, skip = part[skip:], max(0, skip - len(part))
                    if new:
                        write(new)
                        written, tail = written + len(new), (tail + new)[-TAIL_CHARACTERS:]
            except UnreachableError as error:
                if not isinstance(error.__cause__, ReadTimeout):
                    raise
                continue  # who says nothing may be there all the same: its attempts tell
            if not fitting or fitting[-1].finished_at:
                return
            patience.pause()  # it has ended since, or the server has
        except (UnreachableError, ProblemError) as error:
            patience.try_on(error)


def _place(log: str, written: int, tail: str) -> int:
    """How much of a log was written: so many characters that ended with ``tail``, unless its beginning was dropped since."""
    if log[:written].endswith(tail):
        return min(written, len(log))
    found = log.find(tail)
    return 0 if found == -1 else found + len(tail)
