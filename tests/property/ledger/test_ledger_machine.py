"""Any order of reserving, charging, running, crashing and coming back: charged is never below run."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.session import Database
from service.ledger import repository
from service.ledger.schemas import ChainReport, Reservation
from service.ledger.service import (
    BudgetExceededError,
    Ledger,
    ReservationClosedError,
    StaleEpochError,
    merge,
)
from tan_core.accounting import price
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tests.fixtures.postgres import DatabaseUrls

EPSILON, DELTA = 1.0, 1e-5
SHA = "c" * 64
SCOPES = itertools.count()
PLAN = Mechanism(sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=1)
OTHER = Mechanism(sampling_rate=0.03, noise_multiplier=2.5, clip_norm=1.0, steps=1)

pick = st.integers(min_value=0, max_value=1000)
some_steps = st.integers(min_value=1, max_value=60)


@dataclass
class Worker:
    """A process that may be anything: at work, replaced without knowing it, dead."""

    reservation: str
    epoch: int
    step: int
    segment: int = 0
    granted: int = 0
    executed: int = 0
    requests: int = 0

    def next_request(self) -> str:
        self.requests += 1
        return f"e{self.epoch}-{self.requests}"


class LostConnectionError(Exception):
    """The transaction rolls back."""


class LedgerMachine(RuleBasedStateMachine):
    """The ledger beside a model that knows which steps were truly run."""

    runner: asyncio.Runner
    database: Database

    def __init__(self) -> None:
        super().__init__()
        self.scope = f"scope-{next(SCOPES)}"
        self.ledger = Ledger(Accountant.RDP)
        self.executed: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.closed: set[str] = set()
        self.workers: list[Worker] = []

    def run(self, work: Callable[[AsyncSession], Awaitable[Any]], *, lose: bool = False) -> Any:
        async def in_session() -> Any:
            async with self.database.session() as session:
                answer = await work(session)
                if lose:
                    raise LostConnectionError
                return answer

        return self.runner.run(in_session())

    @initialize()
    def open_scope_and_start_a_run(self) -> None:
        self.run(
            lambda session: self.ledger.open_scope(
                session, scope_id=self.scope, unit="record",
                neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE, epsilon=EPSILON,
                delta=DELTA, actor="machine",
            )
        )  # fmt: skip
        self.reserve(PLAN, 100)
        self.acquire(0)

    @precondition(lambda self: len(self.executed) < 3)
    @rule(plan=st.sampled_from([PLAN, OTHER]), steps=some_steps)
    def reserve(self, plan: Mechanism, steps: int) -> None:
        name = f"{self.scope}-r{len(self.executed)}"
        try:
            self.run(
                lambda session: self.ledger.admit_and_reserve(
                    session, scope_id=self.scope, reservation_id=name, study_id="s",
                    mechanism=plan.with_steps(steps), actor="machine",
                )
            )  # fmt: skip
        except BudgetExceededError:
            return
        self.executed[name], self.epochs[name] = 0, 0

    @precondition(lambda self: 1 < len(self.executed) < 4)
    @rule(which=pick, steps=some_steps)
    def swap(self, which: int, steps: int) -> None:
        old, name = self.reservation(which), f"{self.scope}-r{len(self.executed)}"
        try:
            self.run(
                lambda session: self.ledger.swap(
                    session, old, new_reservation_id=name, study_id="s",
                    mechanism=PLAN.with_steps(steps), actor="machine",
                )
            )  # fmt: skip
        except BudgetExceededError:
            return
        self.executed[name], self.epochs[name] = 0, 0
        self.closed.add(old)

    @rule(which=pick)
    def acquire(self, which: int) -> None:
        """A (further) worker starts from the checkpoint; the one before it may not know."""
        name = f"{self.scope}-r0" if which % 2 == 0 else self.reservation(which)
        epoch = self.epochs[name] + 1
        try:
            self.run(lambda session: self.ledger.acquire(session, name, epoch=epoch))
        except ReservationClosedError:
            assert name in self.closed
            return
        assert name not in self.closed
        held = self.run(lambda session: self.ledger.reservation(session, name))
        self.epochs[name] = epoch
        self.workers.append(Worker(name, epoch, held.checkpoint_step))

    @precondition(lambda self: self.workers)
    @rule(which=pick, steps=some_steps, retries=st.integers(min_value=0, max_value=2))
    def begin(self, which: int, steps: int, retries: int) -> None:
        """Ask for steps, again with the same request when the answer is lost."""
        worker = self.worker(which)
        request = worker.next_request()
        answers = []
        for _ in range(retries + 1):
            try:
                answers.append(self.run(lambda session: self.ask(session, worker, steps, request)))
            except (StaleEpochError, ReservationClosedError):
                assert not self.may_write(worker)
                return
        assert self.may_write(worker)
        assert len(set(answers)) == 1
        worker.segment, worker.granted = answers[0]
        worker.executed = 0

    @precondition(lambda self: self.workers)
    @rule(which=pick, steps=some_steps)
    def begin_and_lose_the_transaction(self, which: int, steps: int) -> None:
        """The charge rolls back, so nothing was granted and nothing runs."""
        worker = self.worker(which)
        request = worker.next_request()
        try:
            self.run(lambda session: self.ask(session, worker, steps, request), lose=True)
        except (LostConnectionError, StaleEpochError, ReservationClosedError):
            return

    @precondition(lambda self: self.workers)
    @rule(which=pick, part=st.sampled_from([1, 2]))
    def execute(self, which: int, part: int) -> None:
        """Noisy steps really happen, a zombie's too: as far as they were granted."""
        worker = self.worker(which)
        steps = (worker.granted - worker.executed) // part
        worker.executed += steps
        self.executed[worker.reservation] += steps

    @precondition(lambda self: any(worker.granted for worker in self.workers))
    @rule(which=pick)
    def end(self, which: int) -> None:
        worker = self.worker(which)
        if worker.granted == 0:
            return
        self.executed[worker.reservation] += worker.granted - worker.executed
        worker.executed = worker.granted
        try:
            self.run(
                lambda session: self.ledger.end_segment(
                    session, worker.reservation, epoch=worker.epoch, segment=worker.segment,
                    checkpoint_step=worker.step + worker.granted, checkpoint_sha256=SHA,
                )
            )  # fmt: skip
        except (StaleEpochError, ReservationClosedError):
            assert not self.may_write(worker)
            return
        assert self.may_write(worker)
        worker.step += worker.granted
        worker.granted = worker.executed = 0

    @precondition(lambda self: len(self.workers) > 2)
    @rule(which=pick)
    def die(self, which: int) -> None:
        self.workers.remove(self.worker(which))

    @precondition(lambda self: len(self.executed) > 1)
    @rule(which=pick)
    def release(self, which: int) -> None:
        name = self.reservation(which)
        self.run(lambda session: self.ledger.release(session, name, actor="machine", reason="end"))
        self.closed.add(name)

    @invariant()
    def the_ledger_covers_everything_that_ran(self) -> None:
        report, reservations = self.run(self.look)
        assert report.is_valid, report.fault
        held = {each.reservation_id: each for each in reservations}
        assert held.keys() == self.executed.keys()
        for name, executed in self.executed.items():
            assert held[name].charged_steps >= executed
            assert (held[name].state == "closed") == (name in self.closed)
        if committed := merge(each.committed for each in reservations if each.committed):
            assert price(committed, delta=DELTA, accountant=Accountant.RDP).epsilon <= EPSILON

    async def look(self, session: AsyncSession) -> tuple[ChainReport, list[Reservation]]:
        report = await self.ledger.verify_chain(session, self.scope)
        return report, await repository.reservations(session, self.scope)

    def ask(
        self, session: AsyncSession, worker: Worker, steps: int, request: str
    ) -> Awaitable[tuple[int, int]]:
        return self.ledger.begin_segment(
            session, worker.reservation, epoch=worker.epoch, start_step=worker.step,
            num_steps=steps, request_id=request,
        )  # fmt: skip

    def reservation(self, which: int) -> str:
        return list(self.executed)[which % len(self.executed)]

    def worker(self, which: int) -> Worker:
        return self.workers[which % len(self.workers)]

    def may_write(self, worker: Worker) -> bool:
        name = worker.reservation
        return name not in self.closed and worker.epoch == self.epochs[name]


def test_charged_never_falls_below_executed(database_urls: DatabaseUrls) -> None:
    database = Database(database_urls.app, pool_size=1)
    with asyncio.Runner() as runner:
        machine = type("Machine", (LedgerMachine,), {"runner": runner, "database": database})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=30,
                stateful_step_count=20,
                deadline=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
        runner.run(database.close())
