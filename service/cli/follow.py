"""Follows a study to its end: the event stream, and whatever it takes to stay on it."""

import time
from collections.abc import Callable

from service.cli import progress as study_progress
from service.cli.connect import Json, document
from service.cli.live import Display
from service.client import Client, Event, UnreachableError

PATIENCE_SECONDS = 120.0
"""How long a server may be away before watching it is given up."""


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
        UnreachableError: the server stayed away for ``PATIENCE_SECONDS``.
    """
    progress = study_progress.begun(study)
    last_event_id: int | None = None
    if display and study["state"] == "queued":
        # Of a study that has begun, the stream tells the story from its beginning.
        display.update(study_progress.of_study(study))
    seen_at, tries = clock(), 0
    while True:
        try:
            for event in client.follow_events(study["id"], last_event_id=last_event_id):
                seen_at, tries = clock(), 0
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
            seen_at = clock()
        except UnreachableError:
            if clock() - seen_at >= PATIENCE_SECONDS:
                raise
            if display and tries == 0:
                display.note("the connection broke; trying again")
        tries += 1
        sleep(min(0.25 * 2 ** min(tries, 5), 5.0))
