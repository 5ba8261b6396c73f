"""A tenant sees and touches its own studies, and nobody else's."""

import pytest

from service.auth.scopes import asking
from service.db.tables import Attempt, Run, Trial
from tests.fixtures.api import make_spec
from tests.support.reports import make_score


@pytest.fixture
async def other(admin):
    return await admin.befriend(["submit", "approve"], tenant="umbrella")


BELOW_A_STUDY = ["", "/trials", "/run", "/events", "/statement", "/model", "/attempts", "/logs"]


@pytest.mark.parametrize("path", BELOW_A_STUDY)
async def test_what_is_anothers_is_not_there(other, study, path):
    answer = await other.get(f"/studies/{study}{path}")
    nothing = await other.get(f"/studies/s-000000000000{path}")
    assert answer.status_code == nothing.status_code == 404
    assert answer.json()["detail"] == f"there is no study {study!r}"


@pytest.mark.parametrize("verb", ["cancel", "promote", "pause", "resume", "finish"])
async def test_what_is_anothers_cannot_be_changed(acme, other, study, verb):
    before = (await acme.get(f"/studies/{study}")).json()
    assert (await other.post(f"/studies/{study}/{verb}")).status_code == 404
    assert (await acme.get(f"/studies/{study}")).json() == before


async def test_nor_edited(other, study):
    refused = await other.patch(f"/studies/{study}", json={"name": "x"}, headers={"If-Match": "*"})
    assert refused.status_code == 404


async def test_an_admin_sees_whose_it_is(admin, study):
    assert (await admin.get(f"/studies/{study}")).json()["tenant"] == "acme"
    assert (await admin.get("/studies")).json()["items"][0]["tenant"] == "acme"


async def test_lists_hold_ones_own(acme, other, admin, study):
    for caller, expected in ((acme, [study]), (other, []), (admin, [study])):
        listed = (await caller.get("/studies")).json()["items"]
        assert [each["id"] for each in listed] == expected


async def test_a_tenants_studies_are_counted_alone(acme, other, admin, study):
    for caller in (acme, other, other):
        await caller.post("/studies", json=make_spec())
    for caller, counted in ((acme, 2), (other, 2), (admin, 4)):
        page = (await caller.get("/studies?limit=1")).json()
        assert (len(page["items"]), page["total"]) == (1, counted)


async def test_the_dashboard_shows_ones_own(acme, other, study):
    assert study in (await acme.get("/")).text
    assert study not in (await other.get("/")).text
    assert (await acme.get(f"/ui/studies/{study}")).status_code == 200
    assert (await other.get(f"/ui/studies/{study}")).status_code == 404
    assert "digits-eps3" in (await acme.get("/ui/datasets/digits")).text
    assert "digits-eps3" not in (await other.get("/ui/datasets/digits")).text


async def test_a_tenant_may_use_the_key_that_another_used(acme, other, study):
    key = {"Idempotency-Key": "the-first"}
    mine = await acme.post("/studies", json=make_spec(), headers=key)
    theirs = await other.post("/studies", json=make_spec(), headers=key)
    assert (mine.status_code, theirs.status_code) == (201, 201)
    assert mine.json()["id"] != theirs.json()["id"]


async def test_nothing_is_learnt_from_anothers_study(acme, other, admin, study):
    spec = make_spec(search={"warm_start": [study]})
    refused = await other.post("/plans", json=spec)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["message"] == "there is no study of this id"
    assert (await other.post("/studies", json=spec)).status_code == 422
    assert (await acme.post("/plans", json=spec)).status_code == 200
    assert (await admin.post("/plans", json=spec)).status_code == 200


async def test_a_plan_tells_nothing_of_how_fast_anothers_study_was(
    acme, other, admin, study, database
):
    """Who asks for one model after the other would learn which ones they train, how often and how fast."""
    async with database.session() as session:
        scores = [make_score(0, 0.9, seconds=1.0)]
        trial = {"params": {"learning_rate": 1.0}, "scores": scores, "attempt": 1}
        session.add(Trial(study_id=study, number=0, state="completed", **trial))
        result = {"steps": 100, "train_seconds": 20.0}
        run = {"study_id": study, "kind": "private", "assignment": {}, "result": result}
        session.add(Run(id="r", state="succeeded", **run))
        await session.flush()
        session.add(Attempt(run_id="r", number=1, state="succeeded", submission_id="r-a1"))
    for caller, is_told in ((acme, True), (admin, True), (other, False)):
        cost = (await caller.post("/plans", json=make_spec())).json()["cost"]
        told = [cost[name] for name in ("rate_source", "search_seconds", "private_run_seconds")]
        assert [each is not None for each in told] == [is_told] * 3
    submitted = (await other.post("/studies", json=make_spec())).json()
    assert submitted["plan"]["cost"]["rate_source"] is None


async def test_datasets_and_budgets_are_everybodys_to_see(other, study):
    assert (await other.get("/datasets/digits")).json()["name"] == "digits"
    assert (await other.get("/datasets/digits/ledger")).status_code == 200


async def test_the_ledger_names_who_reserved_and_for_which_tenant(admin, study):
    account = (await admin.get("/datasets/digits/ledger")).json()
    assert account["reservations"][0]["tenant"] == "acme"
    assert '"token:' in account["entries"][-1]["body"]


async def test_anothers_study_cannot_be_compared(acme, other, study):
    mine = (await other.post("/studies", json=make_spec())).json()["id"]
    own = (await acme.post("/studies", json=make_spec())).json()["id"]
    compared = f"/ui/compare?study={study}&study="
    assert (await acme.get(compared + own)).status_code == 200
    for caller, ids in ((acme, mine), (other, mine)):
        refused = await caller.get(compared + ids)
        assert refused.status_code == 404
        assert "there is no study" in refused.text


async def test_a_question_is_put_as_the_tenant_s_that_asks_it(acme, other, app, monkeypatch):
    """Else all would stand in one line for a place to compute in."""
    told = []
    run = app.state.context.arithmetic.run

    async def noted(compute, **options):
        told.append(asking.get())
        return await run(compute, **options)

    monkeypatch.setattr(app.state.context.arithmetic, "run", noted)
    for caller in (acme, other):
        assert (await caller.post("/plans", json=make_spec())).status_code == 200
    assert told[0] == "acme"
    assert told[-1] == "umbrella"
