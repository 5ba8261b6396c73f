"""Reserve, begin, end, release on a real PostgreSQL."""

from functools import partial
from typing import Any

import pytest

from service.db.session import Database
from service.errors import InvalidInputError
from service.ledger import repository
from service.ledger.service import (
    BudgetExceededError,
    Ledger,
    LedgerArgumentError,
    ReservationClosedError,
    ReservationReusedError,
    StaleEpochError,
    UnknownReservationError,
)
from tan_core.accounting import calibrate_steps, price
from tan_core.mechanism import Mechanism, NeighboringRelation

SHA = "a" * 64


@pytest.fixture
async def held(database: Database, ledger: Ledger, scope: str, mechanism: Mechanism) -> str:
    """A reservation of 100 steps, acquired by epoch 1."""
    async with database.session() as session:
        await ledger.admit_and_reserve(
            session, scope_id=scope, reservation_id="r1", study_id="s1", mechanism=mechanism,
            actor="test",
        )  # fmt: skip
        await ledger.acquire(session, "r1", epoch=1)
    return "r1"


async def begin(
    database: Database, ledger: Ledger, *, epoch: int = 1, start: int = 0, steps: int = 10,
    request: str = "q1",
) -> tuple[int, int]:  # fmt: skip
    async with database.session() as session:
        return await ledger.begin_segment(
            session, "r1", epoch=epoch, start_step=start, num_steps=steps, request_id=request
        )


async def test_a_reservation_counts_against_the_budget_at_once(
    database: Database, ledger: Ledger, scope: str, held: str, mechanism: Mechanism
) -> None:
    async with database.session() as session:
        account = await ledger.account(session, scope)
    assert account.committed_epsilon == price([mechanism], delta=1e-5).epsilon
    assert account.charged_epsilon == 0.0
    assert account.remaining_epsilon == 1.0 - account.committed_epsilon


async def test_what_does_not_fit_is_refused_with_every_figure(
    database: Database, ledger: Ledger, scope: str, held: str, mechanism: Mechanism
) -> None:
    big = mechanism.with_steps(1000)
    async with database.session() as session:
        with pytest.raises(BudgetExceededError, match="compose to less than their sum") as refusal:
            await ledger.admit_and_reserve(
                session, scope_id=scope, reservation_id="r2", study_id="s2", mechanism=big,
                actor="test",
            )  # fmt: skip
        assert await ledger.spent(session, scope) == [mechanism]
    error = refusal.value
    assert error.asked == price([big], delta=1e-5).epsilon
    assert error.remaining == 1.0 - price([mechanism], delta=1e-5).epsilon
    assert (error.total, error.scope_id, error.status) == (1.0, scope, 409)


async def test_the_same_reservation_is_made_once(
    database: Database, ledger: Ledger, scope: str, held: str, mechanism: Mechanism
) -> None:
    async with database.session() as session:
        again = await ledger.admit_and_reserve(
            session, scope_id=scope, reservation_id=held, study_id="s1", mechanism=mechanism,
            actor="test",
        )  # fmt: skip
        assert again.seq == 2
        with pytest.raises(ReservationReusedError):
            await ledger.admit_and_reserve(
                session, scope_id=scope, reservation_id=held, study_id="s2", mechanism=mechanism,
                actor="test",
            )  # fmt: skip
        assert await ledger.spent(session, scope) == [mechanism]


async def test_a_scope_opens_once_and_only_with_one_budget(
    database: Database, ledger: Ledger, scope: str
) -> None:
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    async with database.session() as session:
        again = await ledger.open_scope(
            session, scope_id=scope, unit="record", neighboring_relation=relation, epsilon=1.0,
            delta=1e-5, actor="someone",
        )  # fmt: skip
        assert again == 1
        with pytest.raises(ReservationReusedError):
            await ledger.open_scope(
                session, scope_id=scope, unit="record", neighboring_relation=relation, epsilon=2.0,
                delta=1e-5, actor="someone",
            )  # fmt: skip


@pytest.mark.parametrize(("epsilon", "delta"), [(float("nan"), 1e-5), (0.0, 1e-5), (1.0, 1.0)])
async def test_a_budget_outside_its_domain_is_refused(
    database: Database, ledger: Ledger, epsilon: float, delta: float
) -> None:
    async with database.session() as session:
        with pytest.raises(LedgerArgumentError):
            await ledger.open_scope(
                session, scope_id="s", unit="record",
                neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE, epsilon=epsilon,
                delta=delta, actor="test",
            )  # fmt: skip


async def test_delta_and_relation_must_be_the_scopes(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    other = Mechanism(
        sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=1,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )  # fmt: skip
    async with database.session() as session:
        for case, delta in ((mechanism, 1e-4), (other, 1e-6)):
            with pytest.raises(InvalidInputError):
                await ledger.admit_and_reserve(
                    session, scope_id=scope, reservation_id="r", study_id="s", mechanism=case,
                    actor="test", delta=delta,
                )  # fmt: skip


async def test_a_segment_is_charged_when_it_begins(
    database: Database, ledger: Ledger, scope: str, held: str
) -> None:
    assert await begin(database, ledger, steps=10) == (1, 10)
    async with database.session() as session:
        assert (await ledger.reservation(session, held)).charged_steps == 10


async def test_the_same_request_is_charged_once(
    database: Database, ledger: Ledger, held: str
) -> None:
    assert await begin(database, ledger) == await begin(database, ledger) == (1, 10)
    with pytest.raises(ReservationReusedError):
        await begin(database, ledger, steps=11)
    async with database.session() as session:
        assert (await ledger.reservation(session, held)).charged_steps == 10


async def test_no_more_is_granted_than_is_left(
    database: Database, ledger: Ledger, held: str
) -> None:
    assert await begin(database, ledger, steps=70, request="a") == (1, 70)
    assert await begin(database, ledger, steps=70, request="b") == (2, 30)
    assert await begin(database, ledger, steps=70, request="c") == (0, 0)
    assert await begin(database, ledger, steps=70, request="b") == (2, 30)


async def test_a_successor_shuts_out_the_worker_before_it(
    database: Database, ledger: Ledger, held: str
) -> None:
    await begin(database, ledger, steps=10, request="a")
    async with database.session() as session:
        await ledger.acquire(session, held, epoch=2)
    with pytest.raises(StaleEpochError):
        await begin(database, ledger, epoch=1, request="b")
    with pytest.raises(StaleEpochError):
        await begin(database, ledger, epoch=1, request="a")
    async with database.session() as session:
        with pytest.raises(StaleEpochError):
            await ledger.end_segment(
                session, held, epoch=1, segment=1, checkpoint_step=10, checkpoint_sha256=SHA
            )
        with pytest.raises(StaleEpochError):
            await ledger.acquire(session, held, epoch=2)
        assert (await ledger.reservation(session, held)).charged_steps == 10


async def test_what_was_charged_to_the_worker_before_runs_for_no_successor(
    database: Database, ledger: Ledger, held: str
) -> None:
    """Its steps ran, or may have: granted again under the name of that request they would be free."""
    await begin(database, ledger, steps=10, request="a")
    async with database.session() as session:
        await ledger.acquire(session, held, epoch=2)
    with pytest.raises(ReservationReusedError):
        await begin(database, ledger, epoch=2, steps=10, request="a")


async def test_nobody_charges_before_acquiring(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    async with database.session() as session:
        await ledger.admit_and_reserve(
            session, scope_id=scope, reservation_id="r1", study_id="s1", mechanism=mechanism,
            actor="test",
        )  # fmt: skip
    with pytest.raises(StaleEpochError):
        await begin(database, ledger, epoch=0)


async def test_an_ended_segment_moves_the_checkpoint_once(
    database: Database, ledger: Ledger, held: str
) -> None:
    await begin(database, ledger, steps=10)
    end = {"epoch": 1, "segment": 1, "checkpoint_step": 10}
    async with database.session() as session:
        for _ in range(2):
            await ledger.end_segment(session, held, **end, checkpoint_sha256=SHA)
        with pytest.raises(UnknownReservationError, match="another checkpoint"):
            await ledger.end_segment(session, held, **end, checkpoint_sha256="b" * 64)
        with pytest.raises(UnknownReservationError):
            await ledger.end_segment(session, held, **end | {"segment": 2}, checkpoint_sha256=SHA)
        now = await ledger.reservation(session, held)
    assert (now.checkpoint_step, now.checkpoint_sha256, now.open_segment) == (10, SHA, None)


async def test_a_segment_may_begin_while_the_checkpoint_before_it_is_on_its_way(
    database: Database, ledger: Ledger, held: str
) -> None:
    await begin(database, ledger, steps=10, request="a")
    assert await begin(database, ledger, start=10, steps=10, request="b") == (2, 10)
    async with database.session() as session:
        await ledger.end_segment(
            session, held, epoch=1, segment=1, checkpoint_step=10, checkpoint_sha256=SHA
        )
        now = await ledger.reservation(session, held)
    assert (now.checkpoint_step, now.open_segment, now.charged_steps) == (10, 2, 20)


async def test_a_crash_while_a_checkpoint_is_on_its_way_costs_both_segments_that_were_begun(
    database: Database, ledger: Ledger, scope: str, held: str
) -> None:
    for number in range(2):
        await begin(database, ledger, start=10 * number, steps=10, request=f"a{number}")
    async with database.session() as session:
        await ledger.acquire(session, held, epoch=2)
        with pytest.raises(StaleEpochError):  # it is durable now, and too late
            await ledger.end_segment(
                session, held, epoch=1, segment=1, checkpoint_step=10, checkpoint_sha256=SHA
            )
        now = await ledger.reservation(session, held)
        assert (now.checkpoint_step, now.charged_steps) == (0, 20)
    await begin(database, ledger, epoch=2, steps=10, request="b")
    async with database.session() as session:
        assert (await ledger.reservation(session, held)).charged_steps == 30
        assert (await ledger.verify_chain(session, scope)).is_valid


async def test_a_segment_cannot_end_beyond_its_steps(
    database: Database, ledger: Ledger, held: str
) -> None:
    await begin(database, ledger, steps=10)
    async with database.session() as session:
        with pytest.raises(LedgerArgumentError):
            await ledger.end_segment(
                session, held, epoch=1, segment=1, checkpoint_step=11, checkpoint_sha256=SHA
            )


async def test_release_gives_back_only_what_never_began(
    database: Database, ledger: Ledger, scope: str, held: str, mechanism: Mechanism
) -> None:
    await begin(database, ledger, steps=30)
    async with database.session() as session:
        assert await ledger.release(session, held, actor="test", reason="done") == 70
        assert await ledger.release(session, held, actor="test", reason="done") == 0
        assert await ledger.spent(session, scope) == [mechanism.with_steps(30)]
    with pytest.raises(ReservationClosedError):
        await begin(database, ledger, request="b")


async def test_a_swap_releases_and_reserves_together(
    database: Database, ledger: Ledger, scope: str, held: str, mechanism: Mechanism
) -> None:
    await begin(database, ledger, steps=10)
    other = Mechanism(sampling_rate=0.02, noise_multiplier=2.5, clip_norm=1.0, steps=120)
    async with database.session() as session:
        new = await ledger.swap(
            session, held, new_reservation_id="r2", study_id="s1", mechanism=other, actor="test"
        )
        assert new == "r2"
        again = await ledger.swap(
            session, held, new_reservation_id="r2", study_id="s1", mechanism=other, actor="test"
        )
        assert again == "r2"
        assert await ledger.spent(session, scope) == [mechanism.with_steps(10), other]


async def test_a_swap_that_does_not_fit_changes_nothing(
    database: Database, ledger: Ledger, scope: str, held: str, mechanism: Mechanism
) -> None:
    async with database.session() as session:
        with pytest.raises(BudgetExceededError):
            await ledger.swap(
                session, held, new_reservation_id="r2", study_id="s1",
                mechanism=mechanism.with_steps(1000), actor="test",
            )  # fmt: skip
        assert await ledger.spent(session, scope) == [mechanism]
        assert (await ledger.reservation(session, held)).state == "open"


async def test_a_swap_frees_what_never_began_and_nothing_more(
    database: Database, ledger: Ledger, scope: str, held: str, mechanism: Mechanism
) -> None:
    most = calibrate_steps(sampling_rate=0.02, noise_multiplier=2.0, epsilon=1.0, delta=1e-5)
    await begin(database, ledger, steps=60)
    async with database.session() as session:
        swap = partial(
            ledger.swap, session, held, new_reservation_id="r2", study_id="s1", actor="test"
        )
        with pytest.raises(BudgetExceededError):
            await swap(mechanism=mechanism.with_steps(most - 59))
        await swap(mechanism=mechanism.with_steps(most - 60))
        assert (await ledger.account(session, scope)).committed_epsilon <= 1.0


async def test_a_swap_is_priced_again_where_others_reserved_meanwhile(
    database: Database, ledger: Ledger, scope: str, held: str, mechanism: Mechanism,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The release that it begins with moves the head by itself, and so could hide theirs."""
    most = calibrate_steps(sampling_rate=0.02, noise_multiplier=2.0, epsilon=1.0, delta=1e-5)
    check, others = ledger._check_budget, Ledger()

    async def check_and_come_too_late(*arguments: Any) -> None:
        await check(*arguments)
        monkeypatch.undo()
        async with database.session() as session:
            await others.admit_and_reserve(
                session, scope_id=scope, reservation_id="theirs", study_id="s2", actor="test",
                mechanism=mechanism.with_steps(10),
            )  # fmt: skip

    monkeypatch.setattr(ledger, "_check_budget", check_and_come_too_late)
    async with database.session() as session:
        with pytest.raises(BudgetExceededError):
            await ledger.swap(
                session, held, new_reservation_id="r2", study_id="s1", actor="test",
                mechanism=mechanism.with_steps(most),
            )  # fmt: skip
    async with database.session() as session:
        assert await ledger.spent(session, scope) == [mechanism, mechanism.with_steps(10)]


async def test_a_swap_counts_against_the_cap_of_the_same_tenant_and_nobody_else(
    database: Database, ledger: Ledger, scope: str, mechanism: Mechanism
) -> None:
    whole, limit = (price([mechanism.with_steps(n)], delta=1e-5).epsilon for n in (100, 50))
    async with database.session() as session:
        for name, tenant in (("r0", "local"), ("r1", "team")):
            await ledger.admit_and_reserve(
                session, scope_id=scope, reservation_id=name, study_id=name, actor="test",
                mechanism=mechanism.with_steps(20), tenant=tenant,
            )  # fmt: skip
        await ledger.set_cap(session, scope, tenant="team", epsilon=limit, actor="test")
        swap = partial(
            ledger.swap, session, "r1", new_reservation_id="r2", study_id="s1", actor="test"
        )
        with pytest.raises(BudgetExceededError, match="the cap of tenant team") as refusal:
            await swap(mechanism=mechanism)
        assert (refusal.value.asked, refusal.value.total) == (whole, limit)
        await swap(mechanism=mechanism.with_steps(50))
        assert (await ledger.reservation(session, "r2")).tenant == "team"


async def test_a_refusal_leaves_the_callers_transaction_usable(
    database: Database, ledger: Ledger, scope: str, held: str
) -> None:
    async with database.session() as session:
        with pytest.raises(StaleEpochError):
            await ledger.acquire(session, held, epoch=1)
        await ledger.acquire(session, held, epoch=2)
    async with database.session() as session:
        assert (await ledger.reservation(session, held)).epoch == 2


async def test_unknown_names_are_refused(database: Database, ledger: Ledger) -> None:
    async with database.session() as session:
        with pytest.raises(UnknownReservationError):
            await ledger.release(session, "nothing", actor="test", reason="")
        with pytest.raises(UnknownReservationError):
            await ledger.account(session, "nothing")


async def test_facts_and_evaluations_are_kept(
    database: Database, ledger: Ledger, scope: str, held: str, mechanism: Mechanism
) -> None:
    priced = price([mechanism], delta=1e-5)
    async with database.session() as session:
        seq = await ledger.attest(session, held, note={"weights_sha256": SHA}, actor="test")
        await ledger.record_evaluation(session, scope, seq, priced)
        (kept,) = await ledger.evaluations(session, scope)
        assert (await ledger.last_entry_of(session, held)).seq == seq
        assert (await ledger.verify_chain(session, scope)).is_valid
    assert (kept.seq, kept.epsilon, kept.accountant) == (seq, priced.epsilon, "pld")


async def test_totals_are_those_of_the_account_from_a_sum_for_each_mechanism(
    database: Database, ledger: Ledger, scope: str, held: str, mechanism: Mechanism
) -> None:
    assert await begin(database, ledger, steps=7) == (1, 7)
    other = Mechanism(sampling_rate=0.01, noise_multiplier=3.0, clip_norm=1.0, steps=5)
    async with database.session() as session:
        for number, each in enumerate([other, mechanism.with_steps(3), other, other]):
            await ledger.admit_and_reserve(
                session, scope_id=scope, reservation_id=f"o{number}", study_id="s2",
                mechanism=each, actor="test",
            )  # fmt: skip
        await ledger.release(session, "o0", actor="test", reason="done")
        sums = await repository.commitments(session, scope)
        account = await ledger.account(session, scope)
        totals = await ledger.totals(session, scope)
    assert sorted((each.committed_steps, each.charged_steps) for each in sums) == [
        (10, 0),
        (103, 7),
    ]
    assert (totals.head, totals.committed_epsilon, totals.charged_epsilon) == (
        account.head, account.committed_epsilon, account.charged_epsilon,
    )  # fmt: skip
    assert 0 < totals.charged_epsilon < totals.committed_epsilon
