"""Every route says what it asks of its callers, and holds them to it."""

import re

import pytest

from service.access.audit import SAFE_METHODS
from service.access.door import is_open
from service.access.routes import declared, routes
from service.app import create_app
from service.auth.scopes import Principal, Scope
from service.settings import Settings
from tests.fixtures.api import driver_headers, make_spec

WORKER = "/worker/"


def every_route():
    app = create_app(Settings(database_url="postgresql://nobody@127.0.0.1/none"))
    return list(routes(app))


def named(route) -> str:
    return f"{min(route.methods)} {route.path}"


ROUTES = {named(route): route for route in every_route()}
USERS = {name: route for name, route in ROUTES.items() if not route.path.startswith(WORKER)}
CHANGES = {
    name: route
    for name, route in USERS.items()
    if route.methods - SAFE_METHODS and declared(route) and declared(route).scope
}


NUMBERS = {"number", "segment"}
SAYS_NOTHING = {"/ui", "/ui/", "/ui/studies"}
"""They lead to the list of studies."""


def fill(path: str) -> str:
    """The path with the name of something that is not there."""
    return re.sub(r"{(\w+)(:path)?}", lambda part: "1" if part[1] in NUMBERS else "none", path)


@pytest.mark.parametrize("name", USERS)
def test_a_route_declares_what_it_needs(name):
    guard = declared(USERS[name])
    assert guard is not None, f"{name}: dependencies=[needs(Scope...)] is missing"
    assert guard.of_study == ("{study_id}" in name), f"{name}: needs_study is for paths of a study"
    if guard.scope is None:
        path = USERS[name].path
        assert is_open(path) or path in SAYS_NOTHING, f"{name} is open to all"


def test_only_the_description_of_the_api_is_outside_the_rooms():
    app = create_app(Settings(database_url="postgresql://nobody@127.0.0.1/none"))
    known = {route.path for route in routes(app)}
    assert {route.path for route in app.routes if hasattr(route, "path")} - known == {
        "/openapi.json"
    }


async def test_a_change_is_refused_to_every_token_that_does_not_go_so_far(admin):
    callers = {scope: await admin.befriend([scope.value]) for scope in Scope}
    for name, route in CHANGES.items():
        needed = declared(route).scope
        for scope, caller in callers.items():
            method = min(route.methods - SAFE_METHODS)
            answer = await caller.request(method, fill(route.path), json={})
            if Principal.of("x", "x", [scope]).may(needed):
                assert answer.status_code not in (401, 403), (name, scope, answer.text)
            else:
                assert answer.status_code == 403, (name, scope, answer.text)
                assert f"'{needed.value}'" in answer.json()["detail"]
                assert answer.headers["content-type"] == "application/problem+json"


def test_changes_need_more_than_read():
    assert {name for name, route in CHANGES.items() if declared(route).scope is Scope.READ} == {
        "POST /plans",  # stores nothing
        "POST /ui/sign-out",  # ends the caller's own session
        "POST /ui/statements/verify",  # stores nothing
    }


async def test_nobody_comes_in_without_a_token(nobody):
    for name in [*ROUTES, "GET /openapi.json"]:
        method, path = name.split()
        if is_open(path) or path.startswith(WORKER):
            continue
        answer = await nobody.request(method, fill(path), json=None if method == "GET" else {})
        if method == "GET" and (path == "/" or path.startswith("/ui/")):
            assert (answer.status_code, answer.headers["location"][:11]) == (303, "/ui/sign-in"), (
                name
            )
        else:
            assert answer.status_code == 401, name
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_probes_need_no_token(nobody):
    assert (await nobody.get("/healthz")).status_code == 200
    assert (await nobody.get("/readyz")).status_code == 200


CHECKPOINT = {"step": 1, "path": "/x", "sha256": "ab" * 32}
REPORTS = {
    "GET ": None,
    "POST /heartbeat": {},
    "PUT /trials/{number}": {"trial": {"number": 1, "state": "running", "params": {}}},
    "POST /segments": {"start_step": 0, "num_steps": 1, "request_id": "a"},
    "POST /segments/{segment}/end": {"checkpoint": CHECKPOINT},
    "POST /finish": {"outcome": "cancelled"},
    "POST /log": {"offset": 0, "text": "x"},
}
"""What a driver may say, as its route would take it."""


class TestRunTokens:
    """What a driver holds opens its own run's reports, and nothing else."""

    @pytest.mark.parametrize("name", [name for name in ROUTES if WORKER in name])
    @pytest.mark.parametrize(("run_id", "fence"), [("other", 1), ("none", 2), ("none-private", 1)])
    async def test_no_other_run_and_no_other_attempt(self, nobody, exposed, name, run_id, fence):
        method, path = name.split()
        headers = driver_headers(exposed, run_id, fence)
        body = REPORTS.get(name.replace("/worker/runs/{run_id}", ""))
        answer = await nobody.request(
            method,
            fill(path),
            params={"fence": 1},
            json=None if body is None else {"fence": 1, **body},
            headers=headers,
        )
        assert answer.status_code == 401, (name, answer.text)

    async def test_nothing_of_a_user(self, nobody, exposed):
        headers = driver_headers(exposed, "none", 1)
        for path in ("/studies", "/datasets", "/tokens", "/audit", "/openapi.json"):
            assert (await nobody.get(path, headers=headers)).status_code == 401
        spec = make_spec()
        assert (await nobody.post("/studies", json=spec, headers=headers)).status_code == 401

    async def test_the_token_of_an_admin_is_not_one_of_a_run(self, admin):
        answer = await admin.get("/worker/runs/none", params={"fence": 1})
        assert answer.status_code == 401
