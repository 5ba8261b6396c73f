"""Who let a private run begin is kept with the study and in the audit."""

import pytest

from service.cli.views import approved
from service.db.tables import Study
from service.orchestrator.proposal import propose, settle
from tests.integration.access.conftest import Caller
from tests.integration.dashboard import seeding
from tests.integration.dashboard.page import Page


@pytest.fixture
async def study(app):
    return await seeding.awaiting_approval(app.state.context)


@pytest.fixture
async def carla(admin):
    made = await admin.new_token("carla", ["approve"], tenant="local")
    caller = Caller(admin.app, made["token"])
    caller.id = made["id"]
    return caller


async def settled(app, study_id: str) -> dict:
    """The promotion once the orchestrator has acted on it."""
    async with app.state.context.database.session() as session:
        row = await session.get_one(Study, study_id)
        proposed = await propose(session, row)
        settle(row, proposed, trial=row.promoted_trial)
        return dict(row.promotion)


@pytest.mark.slow
async def test_nobody_has_approved_what_is_only_proposed(admin, study):
    assert (await admin.get(f"/studies/{study}")).json()["promotion"]["approved_by"] is None


async def test_the_study_names_who_approved_which_trial_before_and_after_it_begins(
    app, carla, study
):
    proposed = (await carla.get(f"/studies/{study}")).json()["promotion"]["trial"]

    answer = await carla.post(f"/studies/{study}/promote")

    approval = answer.json()["promotion"]["approved_by"]
    assert (approval["token_id"], approval["name"]) == (carla.id, "carla")
    assert (approval["trial"], approval["at"][:2]) == (proposed, "20")
    promoted = await settled(app, study)
    assert (promoted["by"], promoted["approved_by"]) == ("user", approval)
    assert (await carla.get(f"/studies/{study}")).json()["promotion"]["approved_by"] == approval


async def test_another_trial_is_named_too_and_the_audit_has_its_number(admin, app, carla, study):
    standings = (await carla.get(f"/studies/{study}")).json()["promotion"]["standings"]
    chosen = standings[-1]["trial"]

    answer = await carla.post(f"/studies/{study}/promote", json={"trial": chosen})

    assert answer.json()["promotion"]["approved_by"]["trial"] == chosen
    assert (await settled(app, study))["trial"] == chosen
    event = (await admin.get("/audit")).json()["items"][0]
    assert event["target"] == f"{study}/trials/{chosen}"
    assert (event["token_id"], event["token_name"]) == (carla.id, "carla")


async def test_what_is_approved_is_the_trial_that_was_proposed_then(app, carla, study):
    """What earlier studies teach may change a later proposal; nobody has approved that one."""
    proposed = (await carla.get(f"/studies/{study}")).json()["promotion"]["trial"]
    await carla.post(f"/studies/{study}/promote")
    async with app.state.context.database.session() as session:
        row = await session.get_one(Study, study)
        assert row.promoted_trial == proposed


async def test_the_token_of_the_environment_is_named_by_its_variable(admin, study):
    await admin.post(f"/studies/{study}/promote")
    approval = (await admin.get(f"/studies/{study}")).json()["promotion"]["approved_by"]
    assert (approval["token_id"], approval["name"]) == ("bootstrap", "TAN_API_TOKEN")


async def test_the_page_and_the_command_line_name_who_approved(admin, carla, study):
    assert "Approved:" not in (await admin.get(f"/ui/studies/{study}")).text
    answer = await carla.post(f"/studies/{study}/promote")
    shown = Page((await admin.get(f"/ui/studies/{study}")).text).text["approved-by"]
    trial = answer.json()["promotion"]["trial"]
    assert shown.startswith(f"Approved: trial {trial}, by carla (token {carla.id}), 20")
    said = approved(answer.json()["promotion"])
    assert said is not None
    assert said.startswith(f"trial {trial}, by carla (token {carla.id}), 20")
