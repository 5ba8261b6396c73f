"""Many clients, one budget."""

import asyncio
import itertools
from bisect import bisect_right

import pytest
from sqlalchemy.exc import TimeoutError as NoConnectionError
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.session import Database
from service.ledger import renyi, repository
from service.ledger.schemas import AdmissionRule
from service.ledger.service import BudgetExceededError, Ledger, ReservationReusedError
from tan_core.accounting import price
from tan_core.mechanism import Mechanism, NeighboringRelation
from tests.fixtures.postgres import DatabaseUrls

NUM_CLIENTS = 10


@pytest.fixture
def mechanism() -> Mechanism:
    return Mechanism(sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=70)


async def admit(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism, name: str
) -> bool:
    while True:
        try:
            async with database.session() as session:
                await ledger.admit_and_reserve(
                    session, scope_id=scope, reservation_id=name, study_id=name,
                    mechanism=mechanism, actor=name,
                )  # fmt: skip
        except BudgetExceededError:
            return False
        except NoConnectionError:
            continue  # there are more clients than connections: 503, and they come again
        return True


@pytest.mark.slow
async def test_racing_clients_admit_exactly_what_fits(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    admitted = await asyncio.gather(
        *(admit(database, ledger, scope, mechanism, f"r{n}") for n in range(NUM_CLIENTS * 2))
    )
    async with database.session() as session:
        account = await ledger.account(session, scope)
        assert (await ledger.verify_chain(session, scope)).is_valid
    most = max(
        count
        for count in range(1, NUM_CLIENTS * 2)
        if price([mechanism.with_steps(70 * count)], delta=1e-5).epsilon <= 1.0
    )
    assert 1 < most < NUM_CLIENTS
    assert sum(admitted) == most == len(account.reservations)
    assert account.committed_epsilon <= 1.0


async def test_racing_clients_with_one_name_make_one_reservation(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    done = await asyncio.gather(
        *(admit(database, ledger, scope, mechanism, "same") for _ in range(NUM_CLIENTS))
    )
    async with database.session() as session:
        assert await ledger.spent(session, scope) == [mechanism]
    assert all(done)


async def test_a_name_belongs_to_one_request_even_in_a_race(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    outcomes = await asyncio.gather(
        *(
            admit(database, ledger, scope, mechanism.with_steps(1 + n), "same")
            for n in range(NUM_CLIENTS)
        ),
        return_exceptions=True,
    )
    assert outcomes.count(True) == 1
    assert sum(isinstance(each, ReservationReusedError) for each in outcomes) == NUM_CLIENTS - 1


async def test_charges_during_admission_do_not_starve_it(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    await admit(database, ledger, scope, mechanism, "busy")
    async with database.session() as session:
        await ledger.acquire(session, "busy", epoch=1)
    arrived = asyncio.Event()

    async def keep_charging() -> None:
        step = 0
        while not arrived.is_set():
            async with database.session() as session:
                await ledger.begin_segment(
                    session, "busy", epoch=1, start_step=step, num_steps=1, request_id=f"q{step}"
                )
            step += 1

    charging = asyncio.create_task(keep_charging())
    async with asyncio.timeout(30):
        other = Mechanism(sampling_rate=0.013, noise_multiplier=3.1, clip_norm=1.0, steps=10)
        assert await admit(database, ledger, scope, other, "new")
    arrived.set()
    await charging


async def test_a_lock_given_up_in_a_savepoint_can_be_taken_again(
    database: Database, scope: str
) -> None:
    async def hold(session: AsyncSession) -> None:
        await repository.call(session, "ledger_hold_scope", scope)

    async def visit(seconds: float) -> None:
        async with database.session() as session:
            await hold(session)
            await asyncio.sleep(seconds)

    async with asyncio.timeout(20), database.session() as session:
        savepoint = await session.begin_nested()
        await hold(session)
        waiting = asyncio.create_task(visit(0))
        await asyncio.sleep(0.3)
        await savepoint.rollback()
        newcomer = asyncio.create_task(visit(0.3))
        await asyncio.sleep(0.1)
        await hold(session)  # a queue on the row itself ends here, in a deadlock
    await asyncio.gather(waiting, newcomer)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("rule", AdmissionRule)
async def test_sixty_four_clients_get_exactly_what_there_is(
    database_urls: DatabaseUrls,
    ledger: Ledger,
    mechanism: Mechanism,
    rule: AdmissionRule,
    seconds: int,
) -> None:
    """Small pieces, many clients, no pause: the budget is used to its last step and no further."""
    piece, clients = mechanism.with_steps(10), 64
    database = Database(database_urls.app, pool_size=32)
    async with database.session() as session:
        await ledger.open_scope(
            session, scope_id="raced", unit="record", epsilon=1.0, delta=1e-5, actor="test",
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE, admission=rule,
        )  # fmt: skip
        order = (await ledger.scope(session, "raced")).filter_order
    deadline = asyncio.get_running_loop().time() + seconds

    granted: list[bool] = []

    async def client(number: int) -> None:
        """Ask until the time is over and nothing is left."""
        for asked in itertools.count():
            is_granted = await admit(database, ledger, "raced", piece, f"r{number}-{asked}")
            granted.append(is_granted)
            if not is_granted and asyncio.get_running_loop().time() > deadline:
                return

    await asyncio.gather(*(client(number) for number in range(clients)))

    def cost(count: int) -> float:
        whole = mechanism.with_steps(10 * count)
        if order is not None:
            return renyi.epsilon([whole], order=order, delta=1e-5)
        return price([whole], delta=1e-5).epsilon

    most = bisect_right(range(1, 400), 1.0, key=cost)
    async with database.session() as session:
        account = await ledger.account(session, "raced")
        assert (await ledger.verify_chain(session, "raced")).is_valid
    await database.close()
    print(f"{rule}: {sum(granted)} of {len(granted)} requests in {seconds} s, {most} fit")
    assert 20 < sum(granted) == most == len(account.reservations)
    assert account.committed_epsilon <= 1.0
