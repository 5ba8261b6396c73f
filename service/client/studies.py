"""Studies, their trials, events, logs and results."""

from collections.abc import Iterator
from typing import IO, Any

from service.calibration.schemas import Calibration
from service.client.connection import Body, Connection, Event, events, part
from service.logs.schemas import AttemptList
from service.studies.schemas import (
    PromoteRequest,
    StudyEdit,
    StudyPage,
    StudyQuery,
    StudySummary,
    StudyView,
)
from service.trials.schemas import TrialPage, TrialQuery
from tan_core.planner import Plan
from tan_core.spec import StudySpec


class Studies(Connection):
    """The operations below ``/studies``, with ``/plans`` and ``/calibration``."""

    def make_plan(self, study: StudySpec | Body) -> Plan:
        """What the study would do and cost; nothing is stored."""
        return self._ask(Plan, "POST", "/plans", body=study)

    def submit_study(
        self, study: StudySpec | Body, *, idempotency_key: str | None = None
    ) -> StudyView:
        """The stored study; the same key and study give the same one again."""
        headers = {"Idempotency-Key": idempotency_key}
        return self._ask(StudyView, "POST", "/studies", body=study, headers=headers)

    def list_studies(self, query: StudyQuery | None = None) -> StudyPage:
        """One page; the next one is asked for with its ``next_cursor`` and the same filters."""
        return self._ask(StudyPage, "GET", "/studies", query=query)

    def every_study(self, query: StudyQuery | None = None) -> Iterator[StudySummary]:
        """The studies of every page."""
        asked = query or StudyQuery()
        while True:
            page = self.list_studies(asked)
            yield from page.items
            if page.next_cursor is None:
                return
            asked = StudyQuery(
                **asked.model_dump(exclude_unset=True, exclude={"cursor"}), cursor=page.next_cursor
            )

    def get_study(self, study_id: str) -> StudyView:
        """One study."""
        return self._ask(StudyView, "GET", _study(study_id))

    def edit_study(self, study_id: str, change: StudyEdit, *, if_match: str = "*") -> StudyView:
        """The study with its name, its tags or its place in the archive changed.

        Args:
            study_id: which.
            change: what is left out stays.
            if_match: ``"VERSION-"`` in quotes, as the ETag begins: refused (412) where the study was
                edited since; ``*``: whatever was edited.
        """
        headers = {"If-Match": if_match}
        return self._ask(StudyView, "PATCH", _study(study_id), body=change, headers=headers)

    def cancel_study(self, study_id: str, *, idempotency_key: str | None = None) -> StudyView:
        """Ask for a clean stop; what was charged stays charged."""
        headers = {"Idempotency-Key": idempotency_key}
        return self._ask(StudyView, "POST", f"{_study(study_id)}/cancel", headers=headers)

    def pause_study(self, study_id: str) -> StudyView:
        """Let the study stop at its next checkpoint and wait."""
        return self._ask(StudyView, "POST", f"{_study(study_id)}/pause")

    def resume_study(self, study_id: str) -> StudyView:
        """Let a paused study go on."""
        return self._ask(StudyView, "POST", f"{_study(study_id)}/resume")

    def promote_study(
        self,
        study_id: str,
        choice: PromoteRequest | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> StudyView:
        """Let the private run begin, with the search's winner or a named trial."""
        headers = {"Idempotency-Key": idempotency_key}
        path = f"{_study(study_id)}/promote"
        return self._ask(StudyView, "POST", path, body=choice, headers=headers)

    def list_trials(self, study_id: str, query: TrialQuery | None = None) -> TrialPage:
        """One page of the study's trials."""
        return self._ask(TrialPage, "GET", f"{_study(study_id)}/trials", query=query)

    def list_attempts(self, study_id: str) -> AttemptList:
        """The drivers that the study had, and how each ended."""
        return self._ask(AttemptList, "GET", f"{_study(study_id)}/attempts")

    def follow_events(self, study_id: str, *, last_event_id: int | None = None) -> Iterator[Event]:
        """What happened after ``last_event_id`` and what happens, until the study is at its end."""
        headers = {
            "Accept": "text/event-stream",
            "Last-Event-ID": None if last_event_id is None else str(last_event_id),
        }
        with self._stream(f"{_study(study_id)}/events", headers=headers) as response:
            yield from events(response.iter_lines())

    def read_log(
        self,
        study_id: str,
        *,
        run: str | None = None,
        attempt: int | None = None,
        follow: bool | None = None,
    ) -> Iterator[str]:
        """What a driver wrote, as it comes; with ``follow`` also what it writes from now on."""
        query = {"run": run, "attempt": attempt, "follow": follow}
        headers = {"Accept": "text/plain"}
        path = f"{_study(study_id)}/logs"
        with self._stream(path, query=query, headers=headers) as response:
            yield from response.iter_text()

    def get_statement(self, study_id: str) -> dict[str, Any]:
        """The signed privacy statement, as it was signed."""
        return self._send("GET", f"{_study(study_id)}/statement").json()

    def get_model(self, study_id: str, target: IO[bytes]) -> int:
        """Bytes of the private model (safetensors) that were written to ``target``."""
        with self._stream(f"{_study(study_id)}/model", headers={"Accept": "*/*"}) as response:
            return sum(target.write(chunk) for chunk in response.iter_bytes())

    def get_calibration(
        self, *, dataset: str | None = None, model: str | None = None, limit: int | None = None
    ) -> Calibration:
        """Predictions of completed studies beside what was reached."""
        query = {"dataset": dataset, "model": model, "limit": limit}
        return self._ask(Calibration, "GET", "/calibration", query=query)


def _study(study_id: str) -> str:
    return f"/studies/{part(study_id)}"
