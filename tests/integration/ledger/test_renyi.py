"""The Rényi divergences that the database computes, against oracles that share no code with it."""

import csv
import json
import logging
from functools import partial
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.session import Database
from service.ledger import renyi
from service.ledger.schemas import AdmissionRule
from service.ledger.service import (
    BudgetExceededError,
    Ledger,
    LedgerArgumentError,
    ReservationReusedError,
)
from tan_core.accounting import price
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation, Sampling
from tests.fixtures.postgres import DatabaseUrls

SCOPE = "filtered"
DELTA = 1e-5
STEP = Mechanism(sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=1)
GOLDEN = Path(__file__).parents[2] / "golden" / "renyi_divergences.csv"
SETTINGS = [(0.02, 2.0), (0.2, 10.0), (1e-4, 0.5), (0.5, 0.3), (1.0, 5.0), (0.01, 0.1)]


@pytest.fixture
async def owner(database_urls: DatabaseUrls):
    """A session that may call the helpers."""
    database = Database(database_urls.owner)
    async with database.session() as session:
        yield session
    await database.close()


async def divergence(session: AsyncSession, rate: float, sigma: float, order: float) -> float:
    query = text("SELECT ledger_divergence(:q, :s, :a)")
    return await session.scalar(query, {"q": rate, "s": sigma, "a": order})


async def test_they_are_those_of_the_definition_rounded_up(owner: AsyncSession) -> None:
    with GOLDEN.open() as file:
        for row in csv.DictReader(file):
            rate, sigma, order = (
                float(row[name]) for name in ("sampling_rate", "noise_multiplier", "order")
            )
            exact = float(row["divergence"])
            found = await divergence(owner, rate, sigma, order)
            assert exact <= found <= exact * (1 + 1e-9) + 2e-12 / (order - 1), row
            mine = renyi.divergences(
                Mechanism(sampling_rate=rate, noise_multiplier=sigma, clip_norm=1, steps=1)
            )
            assert mine is not None
            assert mine[renyi.ORDERS.index(order)] == pytest.approx(exact, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize(("rate", "sigma"), SETTINGS)
async def test_at_whole_orders_they_are_those_of_dp_accounting(
    owner: AsyncSession, rate: float, sigma: float
) -> None:
    logging.getLogger("absl").setLevel(logging.ERROR)
    orders = [a for a in renyi.ORDERS if a == int(a) and a <= 60 * sigma]
    event = dp_accounting.GaussianDpEvent(sigma)
    if rate < 1:
        event = dp_accounting.PoissonSampledDpEvent(rate, event)
    theirs = vars(RdpAccountant(orders=orders).compose(event, 1))["_rdp"]
    for order, expected in zip(orders, theirs, strict=True):
        found = await divergence(owner, rate, sigma, order)
        assert found == pytest.approx(expected, rel=1e-8, abs=2e-12 / (order - 1))


async def test_an_order_that_is_of_no_use_has_none(owner: AsyncSession) -> None:
    assert await divergence(owner, 0.01, 0.1, 6.5) is None
    event = Mechanism(sampling_rate=0.01, noise_multiplier=0.1, clip_norm=1, steps=1)
    assert None in (renyi.divergences(event) or ())


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
async def test_for_next_to_no_noise_nothing_is_integrated(
    owner: AsyncSession, relation: str
) -> None:
    """The rule has some 100 / sigma points at each order: a client could keep the database busy."""
    event = json.dumps(
        {
            "sampling_rate": "0x1p+0",
            "noise_multiplier": "0x1p-1000",
            "sampling": "poisson",
            "neighboring_relation": relation,
        }
    )
    found = await owner.scalar(text("SELECT ledger_divergences(CAST(:e AS json))"), {"e": event})
    assert found == [None] * len(renyi.ORDERS)


@pytest.mark.parametrize("value", [1.0, 0.1, 3.7e-5, 123456.789, 5e-324 * 2**60, 2.0**1000, 0.0])
async def test_floats_survive_as_hexadecimal(owner: AsyncSession, value: float) -> None:
    written = await owner.scalar(text("SELECT ledger_hex(CAST(:x AS float8))"), {"x": value})
    assert written == value.hex()
    if value:
        assert await owner.scalar(text("SELECT ledger_float(:x)"), {"x": written}) == value


async def open_filtered(database: Database, epsilon: float = 3.0, **changes: object) -> Ledger:
    ledger = Ledger()
    async with database.session() as session:
        await ledger.open_scope(
            session, scope_id=SCOPE, unit="record", actor="test", epsilon=epsilon, delta=DELTA,
            **{
                "neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE,
                "admission": AdmissionRule.RENYI_FILTER, **changes,
            },
        )  # fmt: skip
    return ledger


async def reserve(database: Database, ledger: Ledger, name: str, mechanism: Mechanism) -> None:
    async with database.session() as session:
        await ledger.admit_and_reserve(
            session, scope_id=SCOPE, reservation_id=name, study_id=name, mechanism=mechanism,
            actor="test",
        )  # fmt: skip


async def test_the_filter_admits_to_its_last_step_and_no_further(database: Database) -> None:
    ledger = await open_filtered(database)
    async with database.session() as session:
        order = (await ledger.scope(session, SCOPE)).filter_order
    most = max(
        steps for steps in range(1, 20_000, 1)
        if renyi.epsilon([STEP.with_steps(steps)], order=order, delta=DELTA) <= 3.0
    )  # fmt: skip
    # Independent: what one order admits, every order admits; and PLD would admit a tenth more.
    assert price([STEP.with_steps(most)], delta=DELTA, accountant=Accountant.RDP).epsilon <= 3.0
    assert price([STEP.with_steps(round(most * 1.2))], delta=DELTA).epsilon > 3.0
    await reserve(database, ledger, "a", STEP.with_steps(most - 1))
    with pytest.raises(BudgetExceededError, match="over the budget of filtered") as refusal:
        await reserve(database, ledger, "b", STEP.with_steps(2))
    assert refusal.value.committed <= 3.0 < refusal.value.composed
    await reserve(database, ledger, "b", STEP)
    async with database.session() as session:
        account = await ledger.account(session, SCOPE)
        assert (await ledger.verify_chain(session, SCOPE)).is_valid
    assert account.accountant == "rdp"
    assert 2.99 < account.committed_epsilon <= 3.0


async def test_the_filter_has_no_place_for_what_has_no_rényi_bound(database: Database) -> None:
    ledger = await open_filtered(
        database, neighboring_relation=NeighboringRelation.ZERO_OUT, epsilon=50.0
    )
    cut = Mechanism(
        sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=10, num_examples=1000,
        max_batch_size=60, sampling=Sampling.TRUNCATED_POISSON,
        neighboring_relation=NeighboringRelation.ZERO_OUT,
    )  # fmt: skip
    with pytest.raises(LedgerArgumentError, match="accepted is Poisson sampling"):
        await reserve(database, ledger, "a", cut)


async def test_a_scope_keeps_the_rule_it_was_opened_with(database: Database) -> None:
    await open_filtered(database)
    with pytest.raises(ReservationReusedError):
        await open_filtered(database, admission=AdmissionRule.PLD)


async def test_a_budget_too_small_for_any_order_is_refused(database: Database) -> None:
    with pytest.raises(LedgerArgumentError, match="no Rényi order"):
        await open_filtered(database, epsilon=1e-3)


def lie_about_prices(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything cost nothing, so that only the database can say no."""

    async def free(*_: object) -> float:
        return 0.0

    monkeypatch.setattr(ledger, "epsilon", free)


async def test_a_client_that_lies_about_its_price_meets_the_wall(
    database: Database, ledger: Ledger, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie_about_prices(ledger, monkeypatch)
    with pytest.raises(BudgetExceededError, match="the Rényi wall around the budget of") as refusal:
        async with database.session() as session:
            await ledger.admit_and_reserve(
                session, scope_id=scope, reservation_id="r", study_id="s", actor="test",
                mechanism=STEP.with_steps(3000),
            )  # fmt: skip
    assert refusal.value.total == renyi.wall(1.0) == 2.0


async def test_a_caps_wall_stands_too(
    database: Database, ledger: Ledger, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.session() as session:
        await ledger.set_cap(session, scope, tenant="team", epsilon=0.1, actor="test")
    lie_about_prices(ledger, monkeypatch)
    steps = next(
        n for n in range(100, 5000, 50)
        if renyi.epsilon([STEP.with_steps(n)], order=None, delta=DELTA) > renyi.wall(0.1)
    )  # fmt: skip
    with pytest.raises(BudgetExceededError, match="the cap of tenant team"):
        async with database.session() as session:
            await ledger.admit_and_reserve(
                session, scope_id=scope, reservation_id="r", study_id="s", actor="test",
                mechanism=STEP.with_steps(steps), tenant="team",
            )  # fmt: skip


async def test_an_order_that_one_event_has_no_divergence_at_admits_nothing(
    database: Database, ledger: Ledger, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Little noise has none at high orders: what is known there of others is not what all comes to."""
    lie_about_prices(ledger, monkeypatch)
    quiet = Mechanism(sampling_rate=0.02, noise_multiplier=20.0, clip_norm=1.0, steps=1)
    loud = Mechanism(sampling_rate=0.02, noise_multiplier=0.5, clip_norm=1.0, steps=1000)
    known, unknown = renyi.divergences(quiet), renyi.divergences(loud)
    assert known is not None
    assert unknown is not None
    assert (known[-1] is None, unknown[-1] is None) == (False, True)
    async with database.session() as session:
        reserve = partial(
            ledger.admit_and_reserve, session, scope_id=scope, study_id="s", actor="test"
        )
        await reserve(reservation_id="quiet", mechanism=quiet)
        with pytest.raises(BudgetExceededError, match="the Rényi wall"):
            await reserve(reservation_id="loud", mechanism=loud)
