"""What holds at every moment of the lives of studies, by the tables and the ledger."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import text

from service.ledger import names, repository
from service.ledger.schemas import Reservation
from service.ledger.service import Ledger
from service.studies.lifecycle import ALLOWED, TERMINAL, StudyState
from tests.property.studies.drivers import SCOPE, Stage


@dataclass
class Row:
    """A study as the tables have it."""

    id: str
    state: str
    event_seq: int
    seqs: list[int]
    states: list[str]
    holds_slot: bool
    waits_for_a_person: bool
    active_runs: int
    live_attempts: int
    running_trials: int


_ROWS = text("""
SELECT study.id, study.state, study.event_seq,
    (SELECT coalesce(array_agg(seq ORDER BY seq), '{}') FROM event WHERE study_id = study.id) AS seqs,
    (SELECT coalesce(array_agg(data ->> 'state' ORDER BY seq), '{}') FROM event
        WHERE study_id = study.id AND kind = 'state') AS states,
    study.state IN ('simulating', 'training') AND NOT study.suspended AS holds_slot,
    study.state = 'awaiting_approval' AND NOT study.promote_requested AS waits_for_a_person,
    (SELECT count(*) FROM run WHERE study_id = study.id AND state = 'active') AS active_runs,
    (SELECT count(*) FROM attempt JOIN run ON run.id = run_id
        WHERE study_id = study.id AND attempt.state = 'live') AS live_attempts,
    (SELECT count(*) FROM trial WHERE study_id = study.id AND state = 'running') AS running_trials
FROM study ORDER BY created_at
""")


async def rows_of(stage: Stage) -> list[Row]:
    """All studies."""
    async with stage.database.session() as session:
        return [Row(**row) for row in (await session.execute(_ROWS)).mappings()]


@dataclass
class Invariants:
    """Compares the service with what it was, and with what was truly run."""

    stage: Stage
    budget: float
    slots: int
    charged: dict[str, int] = field(default_factory=dict)
    """Steps, by reservation, as the ledger had them last."""
    head: int = 0
    """The last entry of the ledger by then."""

    async def check(self) -> None:
        """Whether all holds that has to."""
        rows = await rows_of(self.stage)
        for row in rows:
            self._check_row(row)
        assert sum(row.holds_slot for row in rows) <= self.slots, "more run than there are slots"
        await self._check_ledger({row.id: row for row in rows})

    def _check_row(self, row: Row) -> None:
        assert row.seqs == list(range(1, row.event_seq + 1)), row
        assert row.states[0] == "queued", row
        assert row.states[-1] == row.state, row
        for before, after in itertools.pairwise(row.states):
            assert before == after or StudyState(after) in ALLOWED[StudyState(before)], row
        assert row.live_attempts <= row.active_runs <= 1, row
        assert row.live_attempts == 1 or row.running_trials == 0, f"trials without a driver: {row}"
        assert row.state not in TERMINAL or row.active_runs == 0, row

    async def _check_ledger(self, rows: dict[str, Row]) -> None:
        async with self.stage.database.session() as session:
            head = (await repository.head(session, SCOPE)).seq
            held = await repository.reservations(session, SCOPE)
            if head != self.head:
                report = await Ledger().verify_chain(session, SCOPE)
                assert report.is_valid, report.fault
                totals = await Ledger().totals(session, SCOPE)
                assert totals.charged_epsilon <= totals.committed_epsilon <= self.budget
                self.head = head
        for each in held:
            assert each.charged_steps >= self.charged.get(each.reservation_id, 0), each
            assert each.charged_steps + each.released_steps <= each.reserved_steps, each
            if rows[each.study_id].state in TERMINAL:
                assert each.state == "closed", f"its study is over: {each}"
                assert each.charged_steps + each.released_steps == each.reserved_steps, each
            self.charged[each.reservation_id] = each.charged_steps
        for study_id in rows:
            self._check_charged(
                rows[study_id], [each for each in held if each.study_id == study_id]
            )

    def _check_charged(self, row: Row, held: Sequence[Reservation]) -> None:
        """As many steps are charged as were run, and no more but where a search's own outputs ended its study."""
        trials, scores = names.of_search(row.id)
        searched = sum(each.charged_steps for each in held if each.reservation_id == trials)
        trained = sum(
            each.charged_steps for each in held if each.reservation_id not in (trials, scores)
        )
        ran = self.stage.executed[f"{row.id}-search"]
        assert searched == ran, f"{searched} steps are charged, {ran} were run: {row}"
        ran = self.stage.executed[f"{row.id}-private"]
        is_owed = row.state == "failed" and ran == 0
        assert trained == ran or is_owed, f"{trained} steps are charged, {ran} were run: {row}"
