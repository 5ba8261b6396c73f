"""HEAD is answered as GET would be, without a body."""

import asyncio

import pytest

from tests.fixtures.api import make_spec
from tests.integration.access.conftest import Caller

PATHS = ["/", "/healthz", "/readyz", "/studies", "/datasets/digits", "/metrics", "/ui/datasets", "/nowhere"]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
async def test_it_has_the_status_and_the_headers_of_get_and_no_body(admin, path):
    head, get = await admin.head(path), await admin.get(path)
    assert head.status_code == get.status_code
    assert head.headers["content-type"] == get.headers["content-type"]
    assert head.content == b""


async def test_it_is_no_way_around_the_door(nobody, admin):
    assert (await nobody.head("/studies")).status_code == 401
    assert (await nobody.head("/")).headers["location"] == "/ui/sign-in?next=/"
    study = (await admin.post("/studies", json=make_spec())).json()["id"]
    other = await admin.befriend(["read"], tenant="umbrella")
    assert (await other.head(f"/studies/{study}")).status_code == 404
    assert (await other.head("/audit")).status_code == 403


async def test_of_a_stream_it_ends(admin):
    study = (await admin.post("/studies", json=make_spec())).json()["id"]
    answer = await asyncio.wait_for(admin.head(f"/studies/{study}/events"), 5)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.content == b""


async def test_a_look_at_a_download_is_none(admin):
    """Nothing leaves the service by it, and the audit does not say so."""
    where = "/datasets/digits/ledger/export"
    assert (await admin.head(where)).status_code == 200
    assert (await admin.get("/audit")).json()["items"] == []
    assert (await admin.get(where)).status_code == 200
    assert [each["method"] for each in (await admin.get("/audit")).json()["items"]] == ["GET"]


async def test_it_is_measured_by_its_route(admin):
    await admin.head("/datasets/digits")
    assert (
        'method="HEAD",route="/datasets/{name}",status="2xx"' in (await admin.get("/metrics")).text
    )


async def test_the_icon_is_where_browsers_look_for_it(app):
    answer = await Caller(app).get("/favicon.ico")
    assert answer.status_code == 307
    assert (await Caller(app).get(answer.headers["location"])).headers["content-type"] == "image/svg+xml"  # fmt: skip


@pytest.mark.parametrize("path", ["/nowhere", "/ui/studies/s-0", "/ui/datasets/none"])
async def test_what_is_not_there_is_so_for_a_browser_too(admin, path):
    headers = {"Accept": "text/html"}
    head, get = await admin.head(path, headers=headers), await admin.get(path, headers=headers)
    assert (head.status_code, get.status_code) == (404, 404)
