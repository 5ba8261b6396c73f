"""A plan is told whether the budget would admit it, and admission says the same."""

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.session import Database
from service.ledger.fit import Wanted, budget_fit
from service.ledger.schemas import ALL_TENANTS, AdmissionRule, BudgetFit
from service.ledger.service import BudgetExceededError, Ledger
from tan_core.accounting import price
from tan_core.accounting.effort import limited_effort
from tan_core.mechanism import Mechanism, NeighboringRelation

DELTA = 1e-5


async def _foresee(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism, *also: Mechanism,
    tenant: str = "local", target: float | None = None,
) -> BudgetFit:  # fmt: skip
    async with database.snapshot() as session:
        foreseen = await ledger.foresee(
            session, scope_id=scope, mechanism=mechanism, together_with=also, tenant=tenant
        )
    wanted = Wanted(dataset="tiny", epsilon=target, delta=DELTA, steps=mechanism.steps)
    return budget_fit(foreseen, wanted)


async def _refusal(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism, *also: Mechanism,
    tenant: str = "local", name: str = "asked",
) -> str | None:  # fmt: skip
    """How admission refuses it; None where it admits it."""
    try:
        async with database.session() as session:
            await ledger.admit_and_reserve(
                session, scope_id=scope, reservation_id=name, study_id=name, actor="test",
                mechanism=mechanism, together_with=also, tenant=tenant,
            )  # fmt: skip
    except BudgetExceededError as error:
        return str(error)
    return None


@pytest.mark.parametrize("steps", [50, 100, 150, 200, 400])
async def test_it_is_what_admission_says(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism, steps: int
) -> None:
    assert await _refusal(database, ledger, scope, mechanism, name="before") is None

    found = await _foresee(database, ledger, scope, mechanism.with_steps(steps), mechanism)

    assert found.refusal == await _refusal(
        database, ledger, scope, mechanism.with_steps(steps), mechanism
    )
    assert found.fits is (found.refusal is None)
    (whole,) = found.limits
    composed = price([mechanism.with_steps(steps + 200)], delta=DELTA).epsilon
    assert (whole.epsilon, whole.composed_epsilon) == (1.0, composed)
    assert whole.committed_epsilon == price([mechanism], delta=DELTA).epsilon


async def test_nothing_is_written(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    async with database.session() as session:
        before = await ledger.account(session, scope)
    found = await _foresee(database, ledger, scope, mechanism)
    async with database.session() as session:
        assert await ledger.account(session, scope) == before
    assert found.fits is True
    assert found.entry == before.head


async def test_the_caps_of_the_tenant_and_of_all_count_and_those_of_others_do_not(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    async with database.session() as session:
        for tenant, epsilon in (("narrow", 0.1), (ALL_TENANTS, 0.9)):
            await ledger.set_cap(session, scope, tenant=tenant, epsilon=epsilon, actor="test")

    narrow = await _foresee(database, ledger, scope, mechanism, tenant="narrow")
    other = await _foresee(database, ledger, scope, mechanism, tenant="other")

    assert {each.tenant: each.fits for each in narrow.limits} == {
        None: True,
        ALL_TENANTS: True,
        "narrow": False,
    }
    assert narrow.refusal is not None
    assert "the cap of tenant narrow" in narrow.refusal
    assert narrow.refusal == await _refusal(database, ledger, scope, mechanism, tenant="narrow")
    assert [each.tenant for each in other.limits] == [None, ALL_TENANTS]
    assert other.fits is True


async def test_a_frozen_budget_holds_nothing(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    async with database.session() as session:
        await ledger.set_cap(session, scope, tenant=ALL_TENANTS, epsilon=0.0, actor="test")
    found = await _foresee(database, ledger, scope, mechanism, target=0.6)
    assert found.refusal == await _refusal(database, ledger, scope, mechanism)
    assert (found.fits, found.fitting_epsilon, found.fitting_steps) == (False, None, None)


@pytest.mark.parametrize("committed", [0, 40, 150])
async def test_about_what_would_fit_is_near_the_most_that_does(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism, committed: int
) -> None:
    if committed:
        held = mechanism.with_steps(committed)
        assert await _refusal(database, ledger, scope, held, name="before") is None
    asked = mechanism.with_steps(600)
    target = price([asked], delta=DELTA).epsilon

    by_steps = (await _foresee(database, ledger, scope, asked)).fitting_steps
    by_epsilon = (await _foresee(database, ledger, scope, asked, target=target)).fitting_epsilon

    assert by_steps is not None
    assert by_epsilon is not None
    most = next(
        n
        for n in range(600, 0, -1)
        if price([mechanism.with_steps(committed + n)], delta=DELTA).epsilon <= 1.0
    )
    assert by_steps == pytest.approx(most, rel=0.15)
    best = price([mechanism.with_steps(most)], delta=DELTA).epsilon
    assert by_epsilon == pytest.approx(best, rel=0.15)


async def _open_filtered(ledger: Ledger, session: AsyncSession) -> None:
    await ledger.open_scope(
        session, scope_id="filtered", unit="record", epsilon=1.0, delta=DELTA, actor="test",
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        admission=AdmissionRule.RENYI_FILTER,
    )  # fmt: skip


async def test_a_rényi_filter_is_foreseen_by_its_own_rule(
    database: Database, ledger: Ledger, mechanism: Mechanism
) -> None:
    async with database.session() as session:
        await _open_filtered(ledger, session)
    answers: set[bool | None] = set()
    for steps in (40, 80, 120, 200, 400):
        asked = mechanism.with_steps(steps)
        found = await _foresee(database, ledger, "filtered", asked)
        refusal = await _refusal(database, ledger, "filtered", asked, name=f"of-{steps}")
        assert found.refusal == refusal
        assert found.accountant == "rdp"
        answers.add(found.fits)
    assert answers == {True, False}


@pytest.mark.parametrize("cap", [0.5, 0.62, 0.8])
async def test_what_would_fit_a_filter_is_told_by_what_it_adds_up(
    database: Database, ledger: Ledger, mechanism: Mechanism, cap: float
) -> None:
    """At its one order what costs next to nothing is far from epsilon 0, so that a small cap admits nothing at all."""
    async with database.session() as session:
        await _open_filtered(ledger, session)
        limit = await ledger.set_cap(
            session, "filtered", tenant="narrow", epsilon=cap, actor="test"
        )
        told = await ledger.what_meets(session, "filtered", limit)
    fitting = [
        steps
        for steps in range(1, 401)
        if (
            await _foresee(
                database, ledger, "filtered", mechanism.with_steps(steps), tenant="narrow"
            )
        ).fits
    ]
    asked = mechanism.with_steps(400)
    found = await _foresee(database, ledger, "filtered", asked, tenant="narrow")
    target = price([asked], delta=DELTA).epsilon
    aimed = await _foresee(database, ledger, "filtered", asked, tenant="narrow", target=target)

    warned = any(each.startswith("nothing is admitted") for each in told.warnings)
    assert warned is not bool(fitting)
    if not fitting:
        assert (found.fitting_steps, aimed.fitting_epsilon) == (None, None)
        return
    assert found.fitting_steps == pytest.approx(fitting[-1], rel=0.1, abs=1)
    best = price([mechanism.with_steps(fitting[-1])], delta=DELTA).epsilon
    assert aimed.fitting_epsilon == pytest.approx(best, rel=0.15)


async def test_what_takes_too_long_to_price_is_said_and_not_guessed(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    odd = Mechanism(sampling_rate=0.0137, noise_multiplier=2.71, clip_norm=1.0, steps=83)
    with limited_effort(0.0):
        found = await _foresee(database, ledger, scope, odd)
    assert (found.fits, found.limits, found.refusal) == (None, [], None)
    assert "processor time" in (found.note or "")


async def test_the_databases_own_wall_is_foreseen(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A wrong accountant admits what the database does not."""
    monkeypatch.setattr("service.ledger.admission.epsilon", lambda *_: 0.5)
    asked = mechanism.with_steps(5000)
    found = await _foresee(database, ledger, scope, asked)
    assert found.fits is False
    assert found.refusal is not None
    assert "the Rényi wall" in found.refusal
    assert found.refusal == await _refusal(database, ledger, scope, asked)
