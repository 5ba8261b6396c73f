"""Who may look at everything and change nothing."""

import pytest

from service.access.audit import SAFE_METHODS
from service.access.routes import declared, routes
from service.auth.scopes import Scope
from tests.fixtures.api import make_spec
from tests.integration.access.test_scopes import CHANGES, fill


@pytest.fixture
async def auditor(admin):
    return await admin.befriend(["audit"], name="auditor", tenant="supervision")


@pytest.mark.parametrize("part", ["", "/trials", "/run", "/attempts", "/logs"])
async def test_every_tenants_studies_are_seen(auditor, study, part):
    assert (await auditor.get(f"/studies/{study}{part}")).status_code in (200, 404)
    detail = (await auditor.get(f"/studies/{study}{part}")).text
    assert f"there is no study {study!r}" not in detail


async def test_lists_pages_tokens_and_the_audit_are_whole(auditor, study):
    assert [each["id"] for each in (await auditor.get("/studies")).json()["items"]] == [study]
    assert study in (await auditor.get("/")).text
    assert (await auditor.get(f"/ui/studies/{study}")).status_code == 200
    assert (await auditor.get("/datasets/digits/ledger")).status_code == 200
    assert {each["name"] for each in (await auditor.get("/tokens")).json()["items"]} == {
        "auditor",
        "someone",
    }
    assert (await auditor.get("/audit")).json()["items"][0]["target"] == study
    assert (await auditor.get("/webhooks/deliveries")).json() == {"items": []}


async def test_an_outside_release_is_charged_by_an_admin_and_read_by_all(admin, auditor, acme):
    path = "/datasets/digits/ledger"
    asked = {"noise_multiplier": 4.0, "reason": "histogram of ages", "tenant": "acme"}
    for caller in (auditor, acme):
        assert (await caller.post(f"{path}/releases", json=asked)).status_code == 403
    made = await admin.post(f"{path}/releases", json=asked)
    assert made.status_code == 201, made.text
    for caller in (auditor, acme):
        [held] = (await caller.get(path)).json()["reservations"]
        assert (held["reason"], held["tenant"]) == ("histogram of ages", "acme")
    assert (await auditor.get("/audit")).json()["items"][0]["target"] == (
        f"digits/{made.json()['id']}"
    )


async def test_no_route_that_only_shows_is_kept_from_an_auditor(auditor):
    shown = {
        route.path
        for route in routes(auditor.app)
        if "GET" in route.methods and not set(route.methods) - SAFE_METHODS
        if (guard := declared(route)) and guard.scope is Scope.ADMIN
    }
    assert shown == set()


async def test_nothing_is_changed(auditor, acme, study):
    before = (await acme.get(f"/studies/{study}")).json()
    for name, route in CHANGES.items():
        if declared(route).scope is Scope.READ:  # stores nothing
            continue
        path = fill(route.path.replace("{study_id}", study))
        answer = await auditor.request(min(route.methods - SAFE_METHODS), path, json={})
        assert answer.status_code == 403, (name, answer.text)
    assert (await acme.get(f"/studies/{study}")).json() == before


async def test_what_else_the_token_may_it_may_in_its_own_tenant_only(admin, acme, study):
    mixed = await admin.befriend(["audit", "submit", "approve"], tenant="supervision")
    before = (await acme.get(f"/studies/{study}")).json()
    refused = [
        await mixed.post(f"/studies/{study}/{verb}")
        for verb in ("cancel", "pause", "finish", "promote")
    ]
    refused.append(
        await mixed.patch(f"/studies/{study}", json={"name": "x"}, headers={"If-Match": "*"})
    )
    assert [answer.status_code for answer in refused] == [404] * 5
    chosen = {"action": "cancel", "study": [study]}
    assert (await mixed.post("/ui/studies/bulk", data=chosen)).status_code == 409
    assert (await acme.get(f"/studies/{study}")).json() == before

    own = await mixed.post("/studies", json=make_spec(name="own"))
    assert own.json()["tenant"] == "supervision"
    assert (await mixed.post(f"/studies/{own.json()['id']}/cancel")).status_code == 202


async def test_a_search_starts_from_no_study_of_another_tenant(admin, study):
    mixed = await admin.befriend(["audit", "submit"], tenant="supervision")
    spec = make_spec(search={"warm_start": [study]})
    for path in ("/studies", "/plans"):
        answer = await mixed.post(path, json=spec)
        assert answer.status_code == 422, answer.text
        assert answer.json()["detail"].endswith("there is no study of this id")
