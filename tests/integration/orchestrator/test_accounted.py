"""Studies whose search is charged: everything is held before it begins, and each trial is charged before it runs."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from httpx import Response

from service import text
from service.db.session import Database
from service.db.tables import Run, Study
from service.ledger import names, renyi, repository
from service.ledger.schemas import Reservation
from service.ledger.service import Ledger
from service.plans.schemas import PlanView
from service.publication.published import Published
from service.statements.verify import verify_statement
from tan_core.accounting import price
from tan_core.mechanism import Mechanism
from tests.fixtures.api import driver_headers, make_spec, register_table
from tests.support.reports import completed_trial, make_trial
from tests.support.world import World

CHARGED = {"accounting": "accounted", "trials": 3, "rungs": [64]}
STEPS = 100


async def held(world: World, study_id: str) -> dict[str, Reservation]:
    async with world.database.session() as session:
        found = await repository.of_study(session, study_id)
    return {each.reservation_id: each for each in found}


async def of_search(world: World, study_id: str) -> tuple[Reservation, Reservation]:
    found = await held(world, study_id)
    trials, scores = names.of_search(study_id)
    return found[trials], found[scores]


async def ask(
    world: World, study_id: str, request_id: str, fence: int = 1, **body: Any
) -> Response:
    run_id = f"{study_id}-search"
    return await world.client.post(
        f"/worker/runs/{run_id}/segments",
        json={
            "fence": fence,
            "start_step": 0,
            "num_steps": STEPS,
            "request_id": request_id,
            **body,
        },
        headers=driver_headers(world.settings, run_id, fence),
    )


async def searching(world: World, **changes: Any) -> str:
    """A study whose search has a driver."""
    study_id = await world.submit(search=CHARGED, **changes)
    await world.tick(3)
    assert (await world.study(study_id))["state"] == "simulating"
    return study_id


async def report(world: World, study_id: str, number: int, accuracy: float, fence: int = 1) -> None:
    trial = completed_trial(number, accuracy, params={"learning_rate": 1.0 + number})
    await world.report(f"{study_id}-search", "PUT", f"/trials/{number}", fence, trial=trial)


async def searched(world: World, study_id: str) -> None:
    """All trials charged and told, and the search over."""
    for number, accuracy in enumerate((0.7, 0.9, 0.8)):
        assert (await ask(world, study_id, f"r{number}")).json()["num_steps"] == STEPS
        await report(world, study_id, number, accuracy)
    await world.report(f"{study_id}-search", "POST", "/finish", outcome="succeeded")


async def test_all_of_it_is_held_before_anything_runs(world: World) -> None:
    study_id = await world.submit(search=CHARGED)
    study, found = await world.study(study_id), await held(world, study_id)

    assert list(found) == [study_id, *names.of_search(study_id)]
    trials, scores = await of_search(world, study_id)
    assert (trials.reserved_steps, scores.reserved_steps) == (4 * STEPS, 4)
    assert all(each.search_accounting == "accounted" for each in found.values())
    planned = study["plan"]["privacy"]
    assert study["privacy"]["epsilon"] == planned["epsilon_reserved"] <= 3.0
    assert study["privacy"]["search_note"] == "search on private data accounted, every trial of it"
    assert study["plan"]["simulations"][0]["private"] is True


@pytest.mark.slow
async def test_a_budget_that_holds_the_run_and_not_its_search_refuses_both(world: World) -> None:
    alone = (await world.study(await world.submit(search=CHARGED)))["plan"]["reference"]
    given = {"accounting": "no_search", "trials": 0, "space": {}}
    noise = {"noise_multiplier": alone["noise_multiplier"]}
    async with world.database.session() as session:
        committed = (await Ledger().totals(session, "dataset:digits")).committed_epsilon
        await Ledger().set_cap(
            session, "dataset:digits", tenant="local", epsilon=committed * 1.3, actor="test"
        )
        before = await repository.head(session, "dataset:digits")
    refused = await world.client.post("/studies", json=make_spec(search=CHARGED))

    assert refused.status_code == 409, refused.text
    assert "over-budget" in refused.json()["type"]
    async with world.database.session() as session:
        assert await repository.head(session, "dataset:digits") == before
    assert len((await world.client.get("/studies")).json()["items"]) == 1
    await world.submit(search=given, train=noise)


@pytest.mark.slow
async def test_a_filter_refuses_by_the_figures_of_run_trials_and_scores_together(
    world: World, tmp_path: Path
) -> None:
    """One after the other they are reserved there, and any of the three may be what does not fit any more."""
    await register_table(
        world.client,
        tmp_path,
        epsilon=50.0,
        delta=1e-3,
        admission="renyi_filter",
        allow=["accounted"],
    )
    spec = make_spec(
        dataset="table",
        privacy={"epsilon": 3.0, "delta": 1e-3},
        search={**CHARGED, "rungs": [8]},
        train={"batch_size": 16},
    )
    plan = PlanView.model_validate((await world.client.post("/plans", json=spec)).json())
    assert plan.charged_search is not None
    run = plan.private_run().mechanism
    run = run.with_steps(plan.reservation.steps)
    parts = [run, *plan.charged_search.reserved(run.neighboring_relation)]
    scope_id = "dataset:table"
    async with world.database.session() as session:
        order = (await Ledger().scope(session, scope_id)).filter_order

    def told(mechanisms: list[Mechanism]) -> str:
        return text.epsilon(renyi.epsilon(mechanisms, order=order, delta=1e-3))

    assert (await world.client.post("/studies", json=spec)).status_code == 201
    for fitting in range(3):
        # So many of its parts fit, and the next does not.
        limit = renyi.epsilon([*parts, *parts[:fitting]], order=order, delta=1e-3) + 1e-6
        async with world.database.session() as session:
            await Ledger().set_cap(session, scope_id, tenant="local", epsilon=limit, actor="test")
        detail = (await world.client.post("/studies", json=spec)).json()["detail"]

        assert detail.startswith("over the cap of tenant local")
        assert f"what is committed ({told(parts)})" in detail, fitting
        assert f"the epsilon of {told(parts)} that was asked" in detail, fitting
        assert f"would be {told([*parts, *parts])} of {limit:.4g}" in detail, fitting
    async with world.database.session() as session:
        assert len(await repository.reservations(session, scope_id)) == len(parts)


async def test_a_trial_is_charged_whole_with_its_score_and_once_for_one_request(
    world: World,
) -> None:
    study_id = await searching(world)

    answers = await asyncio.gather(*(ask(world, study_id, "same") for _ in range(4)))
    assert {each.json()["num_steps"] for each in answers} == {STEPS}
    trials, scores = await of_search(world, study_id)
    assert (trials.charged_steps, scores.charged_steps) == (STEPS, 1)

    partly = await ask(world, study_id, "part", num_steps=STEPS - 1)
    assert partly.status_code == 422
    assert "charged whole" in partly.text
    trials, scores = await of_search(world, study_id)
    assert (trials.charged_steps, scores.charged_steps) == (STEPS, 1)


async def test_a_score_that_was_not_charged_is_not_taken(world: World) -> None:
    """Whether a driver never asked for it, or asked for two with one request."""
    study_id = await searching(world)
    run_id = f"{study_id}-search"

    async def told(number: int, **changes: Any) -> Response:
        trial = completed_trial(number, 0.5) | changes
        return await world.client.put(
            f"/worker/runs/{run_id}/trials/{number}",
            json={"fence": 1, "trial": trial},
            headers=driver_headers(world.settings, run_id, 1),
        )

    assert (await told(0, state="running", scores=[], value=None)).status_code == 204
    for changes in ({}, {"scores": []}, {"value": None}):
        refused = await told(0, **changes)
        assert refused.status_code == 422
        assert [error["path"] for error in refused.json()["errors"]] == ["trial.scores"]
    for _ in range(2):
        await ask(world, study_id, "same")
        assert (await told(0)).status_code == 204
    assert (await told(1)).status_code == 422
    assert (await told(1, state="failed", scores=[], value=None)).status_code == 204
    await ask(world, study_id, "other")
    assert (await told(2)).status_code == 204
    assert (await told(0)).status_code == 204


async def test_where_the_spare_trials_are_used_up_nothing_more_is_granted(world: World) -> None:
    study_id = await searching(world)

    granted = [
        (await ask(world, study_id, f"r{number}")).json()["num_steps"] for number in range(6)
    ]

    assert granted == [STEPS] * 4 + [0, 0]
    trials, scores = await of_search(world, study_id)
    assert (trials.charged_steps, scores.charged_steps) == (4 * STEPS, 4)


async def test_a_driver_that_was_replaced_charges_nothing(world: World) -> None:
    study_id = await searching(world)
    await ask(world, study_id, "first")
    await world.report(f"{study_id}-search", "POST", "/finish", outcome="failed", reason="died")
    await world.tick(3)

    assert (await ask(world, study_id, "late")).status_code == 409
    assert (await ask(world, study_id, "new", fence=2)).json()["num_steps"] == STEPS
    trials, scores = await of_search(world, study_id)
    assert (trials.charged_steps, scores.charged_steps, trials.epoch) == (2 * STEPS, 2, 2)


async def test_a_search_that_is_not_charged_has_nothing_to_begin(world: World) -> None:
    study_id = await world.submit()
    await world.tick(3)

    refused = await ask(world, study_id, "r0")

    assert refused.status_code == 409
    assert "this is for a private run" in refused.text


@pytest.mark.slow
async def test_the_statement_composes_run_trials_and_scores(world: World) -> None:
    study_id = await searching(world)
    await searched(world, study_id)
    await world.tick(3)
    trials, scores = await of_search(world, study_id)
    assert {trials.state, scores.state} == {"closed"}
    assert (trials.released_steps, scores.released_steps) == (STEPS, 1)

    await world.begin_segment(study_id, 0, 100)
    await world.finish_private(study_id)
    await world.tick(2)

    study = await world.study(study_id)
    assert study["state"] == "completed", study["reason"]
    statement = (await world.client.get(f"/studies/{study_id}/statement")).json()
    assert [event["steps"] for event in statement["events"]] == [100, 300, 3]
    assert statement["search"] == {
        "accounting": "accounted",
        "note": "search on private data accounted, every trial of it",
        "dataset": "digits",
        "epsilon": statement["search"]["epsilon"],
        "waiver": None,
        "trials": 3,
        "steps": {"trials": 300, "scores": 3},
        "reservations": list(names.of_search(study_id)),
    }
    checks = verify_statement(statement)
    assert not [check for check in checks if check.is_bad]
    assert "3 trials of 100 steps" in next(c.detail for c in checks if c.name == "trials")

    oracle = PLDAccountant(value_discretization_interval=2e-4)
    for event in statement["mechanisms"]:
        step = GaussianDpEvent(event["noise_multiplier"])
        if event["sampling_rate"] < 1:
            step = PoissonSampledDpEvent(event["sampling_rate"], step)
        oracle.compose(SelfComposedDpEvent(step, event["steps"]))
    stated = statement["privacy"]["epsilon"]
    assert stated == pytest.approx(oracle.get_epsilon(1e-5), rel=2e-3)
    assert statement["search"]["epsilon"] < stated == study["privacy"]["epsilon"] <= 3.0
    account = (await world.client.get("/datasets/digits/ledger")).json()
    assert account["committed_epsilon"] == account["charged_epsilon"] > 0
    assert account["unaccounted_searches"] == 0


@pytest.mark.parametrize("begin_from", ["auto", "scratch"])
async def test_the_private_run_begins_with_the_weights_of_the_promoted_trial(
    world: World, begin_from: str
) -> None:
    study_id = await searching(world, train={"begin_from": begin_from})
    digest = "5b" * 32
    start = {"trial": 0, "weights_sha256": digest[:-1] + "0", "learning_rate_factor": 0.25}
    for number, accuracy in enumerate((0.7, 0.8, 0.9)):
        await ask(world, study_id, f"r{number}")
        trial = completed_trial(number, accuracy, params={"learning_rate": 1.0 + number})
        # A driver that keeps what nobody asked for changes nothing.
        trial |= {"weights_sha256": digest[:-1] + str(number)}
        if number == 2:
            trial |= {"began_from": start}
        await world.report(f"{study_id}-search", "PUT", f"/trials/{number}", 1, trial=trial)
    await world.report(f"{study_id}-search", "POST", "/finish", outcome="succeeded")
    await world.tick(3)

    async with world.database.session() as session:
        search = await session.get_one(Run, f"{study_id}-search")
        run = await session.get_one(Run, f"{study_id}-private")
    study = await world.study(study_id)
    assert study["best_trial"]["number"] == study["run"]["trial"] == 2
    assert study["best_trial"]["weights_sha256"] == digest[:-1] + "2"
    if begin_from == "scratch":
        assert search.assignment["weights_storage_path"] is None
        assert search.assignment["charged"]["anew"] is None
        assert run.assignment["begin_from"] is study["run"]["began_from_trial"] is None
        assert run.assignment["trainer"]["learning_rate"] == 3.0
        return
    folder = search.assignment["weights_storage_path"]
    assert folder.endswith(f"/{study_id}-search")
    begun = {"trial": 2, "path": f"{folder}/trial-2-{digest[:16]}.safetensors"}
    assert run.assignment["begin_from"] == {**begun, "sha256": digest[:-1] + "2"}
    assert study["run"]["began_from_trial"] == 2
    assert study["plan"]["simulations"][0]["learning_rate_factor"] == 0.5
    assert study["best_trial"]["began_from"] == start
    assert run.assignment["trainer"]["learning_rate"] == 0.5 * 0.25 * 3.0
    assert study["run"]["learning_rate"] == 0.375
    assert study["prediction"]["ahead"] > 0
    planned = study["plan"]["charged_search"]
    assert (planned["trials"], planned["anew"]) == (3, 2)
    told = search.assignment["charged"]
    assert (told["anew"], told["score_std"]) == (2, planned["score_std"])


async def test_what_a_trial_could_not_keep_is_not_begun_with(world: World) -> None:
    study_id = await searching(world)
    await searched(world, study_id)
    await world.tick(3)

    study = await world.study(study_id)
    assert study["state"] == "training"
    assert study["plan"]["goes_on"]
    assert study["run"]["began_from_trial"] is None
    assert study["promotion"]["reason"].endswith("not kept, so the private run begins anew")
    assert study["prediction"]["ahead"] == 0


async def test_a_run_begins_with_the_weights_of_a_public_proxy_where_it_is_told_to(
    world: World, tmp_path: Path
) -> None:
    for shift, (name, fields) in enumerate(
        [("secret", {"epsilon": 50.0, "delta": 1e-3}), ("open", {"public": True})]
    ):
        await register_table(world.client, tmp_path, name=name, shift=shift, **fields)
    changes = {
        "dataset": "secret",
        "search": {"accounting": "public_proxy", "dataset": "open"},
        "train": {"batch_size": 16, "steps": 20, "begin_from": "trial"},
    }
    study_id = await world.submit(**changes)
    await world.tick(3)
    trial = completed_trial(0, 0.9, params={"learning_rate": 2.0}) | {"weights_sha256": "5b" * 32}
    await world.report(f"{study_id}-search", "PUT", "/trials/0", 1, trial=trial)
    await world.report(f"{study_id}-search", "POST", "/finish", outcome="succeeded")
    await world.tick(3)

    async with world.database.session() as session:
        run = await session.get_one(Run, f"{study_id}-private")
    assert run.assignment["begin_from"]["sha256"] == "5b" * 32
    assert run.assignment["trainer"]["learning_rate"] == 0.5 * 2.0
    assert (await world.study(study_id))["run"]["began_from_trial"] == 0


async def test_weights_of_a_simulation_are_never_begun_with(world: World) -> None:
    """Whatever a driver says that it kept: they are not private."""
    study_id = await world.submit()
    await world.tick(3)
    for number in range(3):
        trial = completed_trial(number, 0.9, params={"learning_rate": 1.0 + number})
        trial |= {"weights_sha256": "5b" * 32}
        await world.report(f"{study_id}-search", "PUT", f"/trials/{number}", 1, trial=trial)
    await world.report(f"{study_id}-search", "POST", "/finish", outcome="succeeded")
    await world.tick(3)

    async with world.database.session() as session:
        run = await session.get_one(Run, f"{study_id}-private")
    assert run.assignment["begin_from"] is None


async def test_what_was_charged_stays_charged_where_the_study_is_cancelled(world: World) -> None:
    study_id = await searching(world)
    await ask(world, study_id, "r0")
    await world.client.post(f"/studies/{study_id}/cancel")
    refused = await ask(world, study_id, "r1")
    assert refused.status_code == 409
    await world.report(f"{study_id}-search", "POST", "/finish", outcome="cancelled")
    await world.tick(3)

    study = await world.study(study_id)
    assert study["state"] == "cancelled"
    found = await held(world, study_id)
    assert {each.state for each in found.values()} == {"closed"}
    assert [each.committed_steps for each in found.values()] == [0, STEPS, 1]
    assert 0 < study["privacy"]["epsilon"] < 3.0
    assert (await world.committed()) > 0


async def ended_in_vain(world: World, study_id: str, *states: str) -> dict[str, Any]:
    """Its search, after trials that were charged and ended so."""
    run_id = f"{study_id}-search"
    for number, state in enumerate(states):
        await ask(world, study_id, f"r{number}")
        await world.report(run_id, "PUT", f"/trials/{number}", trial=make_trial(number, state))
    await world.report(
        run_id, "POST", "/finish", outcome="failed", reason="no trial completed", retryable=False
    )
    await world.tick(3)
    study = await world.study(study_id)
    assert study["state"] == "failed"
    return study


async def test_a_search_that_its_own_outputs_end_is_charged_for_the_run_that_never_was(
    world: World,
) -> None:
    """As a private run that ends so is charged for all of its steps: composition holds for the whole plan alone."""
    study_id = await searching(world)
    study = await ended_in_vain(world, study_id, "diverged", "diverged", "failed")

    found = await held(world, study_id)
    planned = study["plan"]["reference"]["steps"]
    assert {each.state for each in found.values()} == {"closed"}
    assert [each.committed_steps for each in found.values()] == [planned, 3 * STEPS, 3]
    assert f"{planned} steps of the private run are charged" in study["error"]["reason"]
    charged = [each.charged for each in found.values()]
    of_all = price([each for each in charged if each], delta=study["privacy"]["delta"])
    assert study["privacy"]["epsilon"] == pytest.approx(of_all.epsilon)
    report = (await world.client.get("/datasets/digits/ledger/verify")).json()
    assert report["is_valid"], report


async def test_a_search_that_crashes_end_gives_the_run_back(world: World) -> None:
    """They are taken not to depend on the records, as everywhere."""
    study_id = await searching(world)
    study = await ended_in_vain(world, study_id, "failed", "failed", "failed")

    found = await held(world, study_id)
    assert [each.committed_steps for each in found.values()] == [0, 3 * STEPS, 3]
    assert "are charged" not in study["error"]["reason"]


async def test_a_search_that_was_not_over_gives_the_run_back(world: World) -> None:
    study_id = await searching(world)
    await ended_in_vain(world, study_id, "diverged", "diverged")

    found = await held(world, study_id)
    assert [each.committed_steps for each in found.values()] == [0, 2 * STEPS, 2]


async def test_the_worker_is_told_the_very_mechanism_that_is_held(world: World) -> None:
    study_id = await searching(world)
    trials, _ = await of_search(world, study_id)

    async with world.database.session() as session:
        run = await session.get_one(Run, f"{study_id}-search")
    told = run.assignment["charged"]
    whole = trials.committed
    assert whole is not None
    assert told["mechanism"]["event"] == whole.with_steps(STEPS).to_json()
    assert run.assignment["confirmation"] is None


@pytest.mark.slow
async def test_an_unaccounted_search_teaches_a_charged_one_nothing(world: World) -> None:
    """What it found on the same private data was not paid for."""
    free = await world.submit()
    await world.tick(3)
    await world.finish_search(free)
    await world.client.post(f"/studies/{free}/cancel")
    await world.tick(3)
    charged = await searching(world)
    await searched(world, charged)
    await world.client.post(f"/studies/{charged}/cancel")
    await world.tick(3)

    named = make_spec(search={**CHARGED, "warm_start": [free]})
    refused = await world.client.post("/studies", json=named)
    assert refused.status_code == 422
    assert "was not charged" in refused.text

    again = await searching(world, name="again", privacy={"epsilon": 2.0})
    async with world.database.session() as session:
        run = await session.get_one(Run, f"{again}-search")
    sources = [point["source"] for point in run.assignment["points"]]
    assert sources == []  # three trials are too few to be seeded unasked
    asked = make_spec(search={**CHARGED, "warm_start": [charged]})
    assert (await world.client.post("/studies", json=asked)).status_code == 201


@pytest.mark.slow
async def test_seeded_unasked_it_learns_from_charged_searches_alone(world: World) -> None:
    free = await world.submit()
    await world.tick(3)
    await world.finish_search(free)
    await world.client.post(f"/studies/{free}/cancel")
    await world.tick(3)

    study_id = await world.submit(search={**CHARGED, "trials": 4})
    await world.tick(3)
    async with world.database.session() as session:
        run = await session.get_one(Run, f"{study_id}-search")
    assert run.assignment["points"] == []
    other = await world.submit(search={"trials": 4})
    await world.client.post(f"/studies/{study_id}/cancel")
    await world.report(f"{study_id}-search", "POST", "/finish", outcome="cancelled")
    await world.tick(4)
    async with world.database.session() as session:
        run = await session.get_one(Run, f"{other}-search")
    assert [point["source"].split()[0] for point in run.assignment["points"]] == [free]


async def test_what_is_predicted_knows_of_the_noise_on_every_score(
    world: World, owner: Database
) -> None:
    """The best of loud scores is a worse promise than the best of nearly silent ones, and a vaguer one."""
    found: list[dict[str, Any]] = []
    for part in (0.01, 1.0):
        study_id = await searching(world, promotion="manual")
        async with owner.session() as session:
            study = await session.get_one(Study, study_id)
            noise = study.plan["charged_search"]["score_noise_multiplier"]
            charged = {**study.plan["charged_search"], "score_noise_multiplier": part * noise}
            study.plan = {**study.plan, "charged_search": charged}
        await searched(world, study_id)
        await world.tick(2)
        found.append((await world.study(study_id))["prediction"])
        await world.client.post(f"/studies/{study_id}/cancel")
        await world.tick(2)
    silent, loud = found

    assert loud["trial"] == silent["trial"] == 1
    assert loud["accuracy"] < silent["accuracy"] - 0.01
    assert loud["high"] - loud["low"] > 1.2 * (silent["high"] - silent["low"])


async def test_the_score_of_a_trial_leaves_with_the_ledger_that_paid_for_it(world: World) -> None:
    """A backup of before it would give its steps back, though everybody has seen what they told."""
    study_id = await searching(world)
    await ask(world, study_id, "r0")

    async with world.database.session() as session:
        head = await repository.head(session, "dataset:digits")
    assert Published(world.settings.home_path).marks()["dataset:digits"] == head


async def change_charged(world: World, study_id: str, **changes: Any) -> None:
    """Make the search's own assignment say something else of its trials."""
    async with world.database.session() as session:
        run = await session.get_one(Run, f"{study_id}-search")
        charged = {**run.assignment["charged"], **changes}
        run.assignment = {**run.assignment, "charged": charged}


async def quieter(world: World, study_id: str, part: str) -> None:
    """Half of the noise that is held, on a trial's steps or on its score."""
    async with world.database.session() as session:
        charged = (await session.get_one(Run, f"{study_id}-search")).assignment["charged"]
    if part == "score":
        noise = charged["score_noise_multiplier"] / 2
        await change_charged(world, study_id, score_noise_multiplier=noise)
        return
    held = Mechanism.from_json(charged["mechanism"]["event"])
    less = replace(held, noise_multiplier=held.noise_multiplier / 2)
    await change_charged(world, study_id, mechanism={"event": less.to_json()})


@pytest.mark.parametrize("part", ["trial", "score"])
async def test_a_mechanism_that_is_not_the_one_held_is_granted_nothing(
    world: World, part: str
) -> None:
    study_id = await searching(world)
    await quieter(world, study_id, part)

    refused = await ask(world, study_id, "r0")

    assert refused.status_code == 409, refused.text
    assert f"a {part} of study {study_id!r} is another mechanism" in refused.json()["detail"]
    assert [each.charged_steps for each in await of_search(world, study_id)] == [0, 0]


@pytest.mark.parametrize("part", ["trial", "score"])
async def test_no_statement_is_made_of_a_search_that_ran_something_else(
    world: World, part: str
) -> None:
    study_id = await searching(world)
    await searched(world, study_id)
    await world.tick(3)
    await world.begin_segment(study_id, 0, 100)
    await world.finish_private(study_id)
    await quieter(world, study_id, part)
    await world.tick(2)

    study = await world.study(study_id)
    assert study["state"] == "training"
    assert "is another mechanism than the ledger holds" in study["reason"]
