"""Any order of reserving, charging, running, crashing and coming back: charged is never below run."""

import asyncio
import itertools
import json
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.session import Database
from service.ledger import renyi, repository
from service.ledger.errors import HeadMovedError, WorthExceededError
from service.ledger.schemas import (
    AdmissionRule,
    ChainReport,
    Entry,
    Evaluation,
    Head,
    Reservation,
)
from service.ledger.service import (
    BudgetExceededError,
    Ledger,
    LedgerArgumentError,
    ReservationClosedError,
    ReservationReusedError,
    StaleEpochError,
    UnknownReservationError,
    merge,
)
from tan_core.accounting import price
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tests.fixtures.postgres import DatabaseUrls

EPSILON, DELTA = 1.0, 1e-5
SHA, OTHER_SHA = "c" * 64, "d" * 64
MANY = 100_000
"""Steps that no budget here holds."""
SCOPES = itertools.count()
PLAN = Mechanism(sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=1)
OTHER = Mechanism(sampling_rate=0.03, noise_multiplier=2.5, clip_norm=1.0, steps=1)
WHOLE = Mechanism(sampling_rate=1.0, noise_multiplier=5.0, clip_norm=1.0, steps=1)
PRICED = price([PLAN], delta=DELTA, accountant=Accountant.RDP)

pick = st.integers(min_value=0, max_value=1000)
some_steps = st.integers(min_value=1, max_value=60)
some_tenant = st.sampled_from(["local", "team"])


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
    on_its_way: tuple[int, int] | None = None
    """A segment whose steps are done and the step of its checkpoint, which storage does not have yet."""

    def next_request(self) -> str:
        self.requests += 1
        return f"e{self.epoch}-{self.requests}"


class LostConnectionError(Exception):
    """The transaction rolls back."""


class LedgerMachine(RuleBasedStateMachine):
    """The ledger beside a model that knows which steps were truly run."""

    runner: asyncio.Runner
    database: Database
    owner: Database

    def __init__(self) -> None:
        super().__init__()
        self.scope = f"scope-{next(SCOPES)}"
        self.ledger = Ledger(Accountant.RDP)
        self.executed: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.checkpoints: dict[str, int] = {}
        self.closed: set[str] = set()
        self.workers: list[Worker] = []
        self.requests: dict[str, tuple[Mechanism, str]] = {}
        self.cap: float | None = None
        self.cap_of_all: float | None = None

    def run(self, work: Callable[[AsyncSession], Awaitable[Any]], *, lose: bool = False) -> Any:
        async def in_session() -> Any:
            async with self.database.session() as session:
                answer = await work(session)
                if lose:
                    raise LostConnectionError
                return answer

        return self.runner.run(in_session())

    @initialize(admission=st.sampled_from(AdmissionRule))
    def open_scope_and_start_a_run(self, admission: AdmissionRule) -> None:
        self.admission = admission
        self.run(lambda session: self.open(session, EPSILON))
        self.order = self.run(lambda session: repository.scope(session, self.scope)).filter_order
        self.keep_the_budget()
        self.refuse_impossible_caps()
        self.compute_divergences()
        self.reserve(PLAN, 40, "local")
        self.acquire(0)

    def keep_the_budget(self) -> None:
        """The same budget is answered again and writes nothing; another one is refused."""
        before = self.run(self.head)
        assert self.run(lambda session: self.open(session, EPSILON)) == 1
        with pytest.raises(ReservationReusedError):
            self.run(lambda session: self.open(session, EPSILON + 1))
        assert self.run(self.head) == before

    def refuse_impossible_caps(self) -> None:
        """The database by itself: a cap below nothing, and one above the budget."""
        for epsilon in (-0.5, 1.5):
            cap = (self.scope, "team", epsilon.hex(), "machine")
            with pytest.raises(LedgerArgumentError):
                self.run(lambda session: repository.call(session, "ledger_set_cap", *cap))  # noqa: B023

    def compute_divergences(self) -> None:
        """The database by itself: of a unit that comes or goes, and of one that takes another's place."""
        for relation in (NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE):
            event = replace(WHOLE, neighboring_relation=relation)
            found = self.runner.run(self.divergences(event))
            assert renyi.agree(found, renyi.divergences(event))

    @precondition(lambda self: len(self.executed) < 3)
    @rule(plan=st.sampled_from([PLAN, OTHER]), steps=some_steps, tenant=some_tenant)
    def reserve(self, plan: Mechanism, steps: int, tenant: str) -> None:
        name = f"{self.scope}-r{len(self.executed)}"
        mechanism = plan.with_steps(steps)
        try:
            self.run(lambda session: self.admit(session, name, mechanism, tenant))
        except BudgetExceededError:
            return
        self.executed[name], self.epochs[name] = 0, 0
        self.requests[name] = (mechanism, tenant)
        if self.cap is not None and tenant == "team":
            assert self.bound(self.run(self.look)[1], "team") <= self.cap

    @rule(which=pick, steps=some_steps)
    def reserve_again(self, which: int, steps: int) -> None:
        """The same request is answered again and writes nothing; another one is refused."""
        name = self.reservation(which)
        if name not in self.requests:
            return
        mechanism, tenant = self.requests[name]
        before = self.run(self.head)
        self.run(lambda session: self.admit(session, name, mechanism, tenant))
        assert self.run(self.head) == before
        other = mechanism.with_steps(mechanism.steps + steps)
        with pytest.raises((ReservationReusedError, BudgetExceededError)):
            self.run(lambda session: self.admit(session, name, other, tenant))
        assert self.run(self.head) == before

    @rule(epsilon=st.sampled_from([0.125, 0.25, 0.5]))
    def set_cap(self, epsilon: float) -> None:
        self.limit_to(epsilon, "team")
        self.cap = epsilon
        self.reserve_without_pricing(tenant="team")

    @rule(epsilon=st.sampled_from([0.0, 0.125, 0.5]), tenant=some_tenant)
    def limit_all_for_a_moment(self, epsilon: float, tenant: str) -> None:
        self.limit_to(epsilon, "*")
        self.cap_of_all = epsilon
        self.reserve_without_pricing(tenant=tenant)
        self.limit_to(EPSILON, "*")
        self.cap_of_all = None

    def limit_to(self, epsilon: float, tenant: str) -> None:
        self.run(
            lambda session: self.ledger.set_cap(
                session, self.scope, tenant=tenant, epsilon=epsilon, actor="machine"
            )
        )

    @rule(tenant=some_tenant)
    def reserve_without_pricing(self, tenant: str) -> None:
        """A client that believes in itself gets all that fits, and not a step more."""
        head, (_, held) = self.run(self.head), self.run(self.look)
        first_refused = bisect_left(
            range(MANY), True, lo=1,
            key=lambda steps: not self.fits(PLAN.with_steps(steps), held, tenant),
        )  # fmt: skip
        assert not self.is_admitted(first_refused, tenant, head.seq)
        if first_refused > 1:
            assert self.is_admitted(first_refused - 1, tenant, head.seq)
        if self.order is None:
            with pytest.raises(HeadMovedError):
                self.is_admitted(1, tenant, head.seq - 1)

    @rule(which=pick)
    def tamper(self, which: int) -> None:
        """Nobody edits an entry; the owner who switches the triggers off is found out."""
        head = self.run(self.head)
        edit = text(
            "UPDATE ledger_entry SET body = replace(body, 'machine', 'nobody')"
            " WHERE scope_id = :scope AND seq = :seq AND body LIKE '%machine%'"
        )
        seq = 1 + which % head.seq

        async def force(switch_off: bool) -> ChainReport | None:
            async with self.owner.session() as session:
                if switch_off:
                    await session.execute(text("ALTER TABLE ledger_entry DISABLE TRIGGER USER"))
                done = await session.execute(edit, {"scope": self.scope, "seq": seq})
                report = await self.ledger.verify_chain(session, self.scope)
                await session.rollback()
                return report if done.rowcount else None  # type: ignore[attr-defined]

        report = self.runner.run(force(True))
        if report is None:
            return  # an entry that names nobody
        assert (report.is_valid, report.first_bad_seq) == (False, seq)
        with pytest.raises(DBAPIError, match="append-only"):
            self.runner.run(force(False))

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
        with pytest.raises((StaleEpochError, ReservationClosedError)):
            self.run(lambda session: self.ledger.acquire(session, name, epoch=self.epochs[name]))
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
    @rule(which=pick, steps=some_steps)
    def acquire_while_the_worker_asks(self, which: int, steps: int) -> None:
        """Whoever had to wait for the scope finds what became of the reservation meanwhile."""
        worker = self.worker(which)
        if not self.may_write(worker):
            return
        name, epoch = worker.reservation, worker.epoch + 1
        self.runner.run(self.shut_out(worker, steps, epoch))
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
        if worker.granted == 0 or worker.on_its_way:
            return
        self.execute(which, 1)
        last = worker.step + worker.granted
        try:
            with pytest.raises(LedgerArgumentError):
                self.run(lambda session: self.finish(session, worker, last + 1))
            self.run(lambda session: self.finish(session, worker, last))
        except (StaleEpochError, ReservationClosedError):
            assert not self.may_write(worker)
            return
        assert self.may_write(worker)
        before = self.run(self.head)
        self.run(lambda session: self.finish(session, worker, last))
        with pytest.raises(UnknownReservationError):
            self.run(lambda session: self.finish(session, worker, last, sha256=OTHER_SHA))
        assert self.run(self.head) == before
        self.checkpoints[worker.reservation] = worker.step = last
        worker.granted = worker.executed = 0

    @precondition(lambda self: any(worker.granted for worker in self.workers))
    @rule(which=pick)
    def go_on_while_the_checkpoint_is_written(self, which: int) -> None:
        """The next segment may begin before this one has ended."""
        worker = self.worker(which)
        if worker.granted == 0 or worker.on_its_way:
            return
        self.execute(which, 1)
        worker.step += worker.granted
        worker.on_its_way = worker.segment, worker.step
        worker.granted = worker.executed = 0

    @precondition(lambda self: any(worker.on_its_way for worker in self.workers))
    @rule(which=pick)
    def end_the_one_before(self, which: int) -> None:
        worker = self.worker(which)
        if worker.on_its_way is None:
            return
        (segment, step), worker.on_its_way = worker.on_its_way, None
        try:
            self.run(lambda session: self.finish(session, worker, step, segment=segment))
        except (StaleEpochError, ReservationClosedError):
            assert not self.may_write(worker)
            return
        assert self.may_write(worker)
        self.checkpoints[worker.reservation] = step
        held = self.run(lambda session: self.ledger.reservation(session, worker.reservation))
        assert held.open_segment != segment

    @rule(which=pick)
    def attest(self, which: int) -> None:
        """Facts and prices stand there as they were told, and times in the order of the entries."""
        name = self.reservation(which)
        entries, evaluation = self.runner.run(self.tell(name))
        bodies = [json.loads(entry.body) for entry in entries]
        assert [entry.kind for entry in entries] == ["attest", "attest"]
        assert [entry.reservation_id for entry in entries] == [name, None]
        assert [body["note"] for body in bodies] == [{"fact": name}, {"fact": self.scope}]
        first, last = (datetime.fromisoformat(body["at"]) for body in bodies)
        assert datetime.now(UTC) - timedelta(minutes=5) < first < last <= datetime.now(UTC)
        assert (evaluation.seq, evaluation.reservation_id) == (entries[0].seq, name)
        assert (evaluation.epsilon, evaluation.delta) == (PRICED.epsilon, DELTA)

    @precondition(lambda self: len(self.workers) > 2)
    @rule(which=pick)
    def die(self, which: int) -> None:
        self.workers.remove(self.worker(which))

    @precondition(lambda self: len(self.executed) > 1)
    @rule(which=pick)
    def release(self, which: int) -> None:
        """Also while steps have just begun: those are not given back."""
        name = self.reservation(which)
        for worker in self.workers:
            if worker.reservation == name and self.may_write(worker):
                self.run(lambda session: self.ask(session, worker, 1, worker.next_request()))  # noqa: B023
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
            assert held[name].checkpoint_step == self.checkpoints.get(name, 0)
        if self.order is not None:
            assert self.bound(reservations) <= EPSILON
        if committed := merge(each.committed for each in reservations if each.committed):
            assert price(committed, delta=DELTA, accountant=Accountant.RDP).epsilon <= EPSILON

    def is_admitted(self, steps: int, tenant: str, seq: int) -> bool:
        """What the database, alone, says to a plan that was priced at entry ``seq``; rolled back."""

        async def ask(session: AsyncSession) -> None:
            await repository.call(
                session, "ledger_reserve", self.scope, seq, f"{self.scope}-x", "s", tenant,
                json.dumps(PLAN.with_steps(steps).to_json()), steps, "machine",
            )  # fmt: skip

        try:
            self.run(ask, lose=True)
        except LostConnectionError:
            return True
        except WorthExceededError:
            return False
        raise AssertionError("it is always rolled back")

    async def shut_out(self, worker: Worker, steps: int, epoch: int) -> None:
        """A successor acquires in a transaction that began before the worker asks, and ends after."""
        is_blocked = text("SELECT cardinality(pg_blocking_pids(:pid)) > 0")
        async with self.owner.session() as other:
            pid = await other.scalar(text("SELECT pg_backend_pid()"))
            async with self.database.session() as session:
                (seq,) = await repository.call(session, "ledger_hold_scope", self.scope)
                assert seq == (await self.head(session)).seq
                request = worker.next_request()
                asking = asyncio.ensure_future(self.ask(other, worker, steps, request))
                while not asking.done() and not await session.scalar(is_blocked, {"pid": pid}):
                    await asyncio.wait([asking], timeout=0.001)
                assert not asking.done(), "it did not wait for the scope"
                await self.ledger.acquire(session, worker.reservation, epoch=epoch)
            with pytest.raises(StaleEpochError):
                await asking

    async def tell(self, name: str) -> tuple[Sequence[Entry], Evaluation]:
        """Two facts and a price; the second fact in a transaction that began before, in another time zone."""
        async with self.owner.session() as late:
            await late.execute(text("SET LOCAL TIME ZONE 'Asia/Tokyo'"))
            async with self.database.session() as session:
                note: dict[str, object] = {"fact": name}
                seq = await self.ledger.attest(session, name, note=note, actor="machine")
                await self.ledger.record_evaluation(
                    session, self.scope, seq, PRICED, reservation_id=name
                )
            note = {"fact": self.scope}
            await self.ledger.attest_scope(late, self.scope, note=note, actor="machine")
            entries = await repository.entries(late, self.scope, last=2)
            return entries, (await self.ledger.evaluations(late, self.scope))[-1]

    async def divergences(self, event: Mechanism) -> list[float | None]:
        """As the database computes them; the service's own role may not ask."""
        query = text("SELECT ledger_divergences(CAST(:event AS json))")
        async with self.owner.session() as session:
            return await session.scalar(query, {"event": json.dumps(event.to_json())})

    def fits(self, new: Mechanism, held: list[Reservation], tenant: str) -> bool:
        """Whether the budget holds it, and the cap of its tenant."""
        if self.bound(held, None, new) > self.limit(EPSILON):
            return False
        caps = [(self.cap_of_all, None), (self.cap if tenant == "team" else None, tenant)]
        return all(
            cap > 0 and self.bound(held, whose, new) <= self.limit(cap)
            for cap, whose in caps
            if cap is not None
        )

    def limit(self, epsilon: float) -> float:
        """Up to where the database itself admits."""
        return renyi.wall(epsilon) if self.order is None else epsilon

    def bound(
        self, held: list[Reservation], tenant: str | None = None, new: Mechanism | None = None
    ) -> float:
        """Epsilon of what is committed and of something new, by divergences computed here."""
        committed = [each.committed for each in held if tenant in (None, each.tenant)]
        merged = merge(each for each in (*committed, new) if each)
        return renyi.epsilon(merged, order=self.order, delta=DELTA)

    def open(self, session: AsyncSession, epsilon: float) -> Awaitable[int]:
        return self.ledger.open_scope(
            session, scope_id=self.scope, unit="record", epsilon=epsilon, delta=DELTA,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE, actor="machine",
            admission=self.admission,
        )  # fmt: skip

    def finish(
        self,
        session: AsyncSession,
        worker: Worker,
        step: int,
        *,
        sha256: str = SHA,
        segment: int | None = None,
    ) -> Awaitable[None]:
        return self.ledger.end_segment(
            session, worker.reservation, epoch=worker.epoch, segment=segment or worker.segment,
            checkpoint_step=step, checkpoint_sha256=sha256,
        )  # fmt: skip

    async def head(self, session: AsyncSession) -> Head:
        return await repository.head(session, self.scope)

    def admit(
        self, session: AsyncSession, name: str, mechanism: Mechanism, tenant: str
    ) -> Awaitable[Any]:
        return self.ledger.admit_and_reserve(
            session, scope_id=self.scope, reservation_id=name, study_id="s",
            mechanism=mechanism, actor="machine", tenant=tenant,
        )  # fmt: skip

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


def run_machine(urls: DatabaseUrls, *, max_examples: int, steps: int = 20) -> None:
    """Run the machine on a database; raises where an invariant breaks."""
    database, owner = Database(urls.app, pool_size=1), Database(urls.owner, pool_size=1)
    with asyncio.Runner() as runner:
        machine = type(
            "Machine", (LedgerMachine,), {"runner": runner, "database": database, "owner": owner}
        )
        try:
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=max_examples,
                    stateful_step_count=steps,
                    deadline=None,
                    derandomize=True,
                    database=None,
                    report_multiple_bugs=False,
                    phases=(Phase.explicit, Phase.generate),
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(database.close())
            runner.run(owner.close())
