"""Studies, their trials, events, logs and results."""

import contextlib
import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import Any

import httpx
from pydantic import BaseModel

from service import trial_table
from service.calibration.schemas import Calibration
from service.client.connection import SILENCE_SECONDS, Body, Connection, study_path
from service.client.errors import LostAnswerError, ProblemError, UnreachableError
from service.client.pages import every
from service.client.patience import AWAY
from service.client.stream import Event, events
from service.logs.schemas import AttemptList
from service.plans.schemas import PlanView
from service.private_run.schemas import PrivateRunCurves
from service.studies.schemas import (
    PromoteRequest,
    StudyEdit,
    StudyPage,
    StudyQuery,
    StudySummary,
    StudyView,
)
from service.trials.schemas import TrialPage, TrialQuery, TrialView
from tan_core.spec import StudySpec

RESEND_AFTER_SECONDS = (0.5, 1.0, 2.0)
"""Waits before a study whose answer was lost is sent again."""
MAX_PAGE = 200
MAX_TRIAL_PAGE = 1000
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)
UNAVAILABLE = 503
"""Said by a service that has no database for now. Of the other two of those that are away, what was sent may be done."""


class Studies(Connection):
    """The operations below ``/studies``, with ``/plans`` and ``/calibration``."""

    def make_plan(self, study: StudySpec | Body) -> PlanView:
        """What the study would do and cost, and whether its budget would admit it now; nothing is stored."""
        return self._ask(PlanView, "POST", "/plans", body=study)

    def submit_study(
        self, study: StudySpec | Body, *, idempotency_key: str | None = None
    ) -> StudyView:
        """The stored study; the same key and study give the same one again.

        A request whose answer was lost, or that a service without its database did not take (503), is sent again under
        its key, which is made up here unless it is given: one call makes one study at most.

        Raises:
            ValueError: no header can hold the key.
            UnreachableError: there was no service to send it to.
            LostAnswerError: it was sent, and sent again, and never answered.
        """
        key = str(uuid.uuid4()) if idempotency_key is None else idempotency_key
        if not (key and key.isascii() and key.isprintable()):
            raise ValueError(f"an idempotency key is printable ASCII, and not empty, got {key!a}")
        headers = {"Idempotency-Key": key}
        waits = iter(RESEND_AFTER_SECONDS)
        was_sent = False
        while True:
            try:
                return self._ask(StudyView, "POST", "/studies", body=study, headers=headers)
            except (UnreachableError, ProblemError) as error:
                status = error.status if isinstance(error, ProblemError) else None
                if status not in (None, *AWAY):
                    raise
                is_not_taken = status == UNAVAILABLE or isinstance(error.__cause__, NEVER_SENT)
                was_sent = was_sent or not is_not_taken
                wait = next(waits, None) if was_sent or status == UNAVAILABLE else None
                if wait is None and not was_sent:
                    raise
                if wait is None:
                    raise LostAnswerError(
                        self.url, _cause(error), idempotency_key=key
                    ) from error.__cause__
                time.sleep(wait)

    def list_studies(self, query: StudyQuery | Body | None = None) -> StudyPage:
        """One page; the next one is asked for with its ``next_cursor`` and the same filters."""
        return self._ask(StudyPage, "GET", "/studies", query=query)

    def every_study(
        self, query: StudyQuery | Body | None = None, *, limit: int | None = None
    ) -> Iterator[StudySummary]:
        """The studies of every page; no more than ``limit``."""
        return every(self.list_studies, fields(query), limit=limit, most=MAX_PAGE)

    def get_study(self, study_id: str) -> StudyView:
        """One study."""
        return self._ask(StudyView, "GET", study_path(study_id))

    def edit_study(
        self, study_id: str, change: StudyEdit | Body, *, if_match: str = "*"
    ) -> StudyView:
        """The study with its name, its tags, its note or its place in the archive changed.

        Args:
            study_id: which.
            change: what is left out stays.
            if_match: ``"VERSION-"`` in quotes, as the ETag begins: refused (412) where the study was
                edited since; ``*``: whatever was edited.
        """
        headers = {"If-Match": if_match}
        return self._ask(StudyView, "PATCH", study_path(study_id), body=change, headers=headers)

    def cancel_study(self, study_id: str, *, idempotency_key: str | None = None) -> StudyView:
        """Ask for a clean stop; what was charged stays charged."""
        headers = {"Idempotency-Key": idempotency_key}
        return self._ask(StudyView, "POST", f"{study_path(study_id)}/cancel", headers=headers)

    def pause_study(self, study_id: str) -> StudyView:
        """Let the study stop at its next checkpoint and wait."""
        return self._ask(StudyView, "POST", f"{study_path(study_id)}/pause")

    def resume_study(self, study_id: str) -> StudyView:
        """Let a paused study go on."""
        return self._ask(StudyView, "POST", f"{study_path(study_id)}/resume")

    def finish_search(self, study_id: str) -> StudyView:
        """End a search early, and let the best of what it has found go on to the private run."""
        return self._ask(StudyView, "POST", f"{study_path(study_id)}/finish")

    def promote_study(
        self,
        study_id: str,
        choice: PromoteRequest | Body | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> StudyView:
        """Let the private run begin, with the search's winner or a named trial."""
        headers = {"Idempotency-Key": idempotency_key}
        path = f"{study_path(study_id)}/promote"
        return self._ask(StudyView, "POST", path, body=choice, headers=headers)

    def list_trials(self, study_id: str, query: TrialQuery | Body | None = None) -> TrialPage:
        """One page of the study's trials."""
        return self._ask(TrialPage, "GET", f"{study_path(study_id)}/trials", query=query)

    def every_trial(
        self, study_id: str, query: TrialQuery | Body | None = None, *, limit: int | None = None
    ) -> Iterator[TrialView]:
        """The study's trials of every page; no more than ``limit``."""
        asked = {**fields(query), "limit": MAX_TRIAL_PAGE}
        ask = partial(self.list_trials, study_id)
        return every(ask, asked, limit=limit, most=MAX_TRIAL_PAGE)

    def trial_rows(
        self, study_id: str, query: TrialQuery | Body | None = None
    ) -> list[dict[str, Any]]:
        """The study's trials as flat rows, all with the same keys: what ``tan-cli trials --csv`` holds.

        ``pandas.DataFrame(rows)`` or ``polars.DataFrame(rows)`` makes a table of them. Beside a trial's parameters, each by its
        name, they hold its number, its state, its value (an accuracy) and the ``expected_batch_size`` that it is of,
        and its accuracy at each rung. Values of simulations are not private; those of an accounted search are noisy.

        Args:
            study_id: whose trials.
            query: which of them, and in which order; default: all of them, by number.
        """
        return trial_table.rows(
            [trial.model_dump(mode="json") for trial in self.every_trial(study_id, query)]
        )

    def get_private_run(self, study_id: str) -> PrivateRunCurves:
        """The study's private run over its steps: what was done, charged and spent."""
        return self._ask(PrivateRunCurves, "GET", f"{study_path(study_id)}/run")

    def list_attempts(self, study_id: str) -> AttemptList:
        """The drivers that the study had, and how each ended."""
        return self._ask(AttemptList, "GET", f"{study_path(study_id)}/attempts")

    def follow_events(self, study_id: str, *, last_event_id: int | None = None) -> Iterator[Event]:
        """What happened after ``last_event_id`` and what happens, until the study is at its end or the line breaks."""
        with contextlib.closing(self._event_lines(study_id, last_event_id=last_event_id)) as lines:
            yield from events(lines)

    def _event_lines(
        self, study_id: str, *, last_event_id: int | None, silence: float = SILENCE_SECONDS
    ) -> Generator[str]:
        headers = {
            "Accept": "text/event-stream",
            "Last-Event-ID": None if last_event_id is None else str(last_event_id),
        }
        path = f"{study_path(study_id)}/events"
        with self._stream(path, headers=headers, silence=silence) as response:
            yield from response.iter_lines()

    def read_log(
        self,
        study_id: str,
        *,
        run: str | None = None,
        attempt: int | None = None,
        follow: bool | None = None,
        silence: float | None = None,
    ) -> Iterator[str]:
        """What a driver wrote, as it comes; with ``follow`` also what it writes from now on.

        One that is followed may be silent for ``silence`` seconds, by default for ever.
        """
        query = {"run": run, "attempt": attempt, "follow": follow}
        headers = {"Accept": "text/plain"}
        path = f"{study_path(study_id)}/logs"
        # A driver may be silent for long; what it wrote is there at once.
        silence = silence if follow else SILENCE_SECONDS
        with self._stream(path, query=query, headers=headers, silence=silence) as response:
            yield from response.iter_text()

    def get_statement(self, study_id: str) -> dict[str, Any]:
        """The signed privacy statement, as it was signed."""
        return self._document("GET", f"{study_path(study_id)}/statement")

    def get_calibration(
        self, *, dataset: str | None = None, model: str | None = None, limit: int | None = None
    ) -> Calibration:
        """Predictions of completed studies beside what was reached."""
        query = {"dataset": dataset, "model": model, "limit": limit}
        return self._ask(Calibration, "GET", "/calibration", query=query)


def _cause(error: UnreachableError | ProblemError) -> str:
    """Why there is no answer, in a few words."""
    if isinstance(error, UnreachableError):
        return error.cause
    return f"{error.status} {error.problem.title}"


def fields(query: Body | None) -> Mapping[str, Any]:
    """A query's fields, those that were set."""
    if isinstance(query, BaseModel):
        return query.model_dump(mode="json", exclude_unset=True)
    return query or {}
