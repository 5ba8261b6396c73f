"""What one token asks for at once takes no connections from others."""

import asyncio

import pytest

from tests.fixtures.api import make_settings, make_spec
from tests.integration.access.conftest import BOOTSTRAP, Caller, serving


@pytest.fixture
async def narrow(digits, tmp_path, database):
    """An application that works on three requests of one token at a time."""
    settings = make_settings(
        tmp_path / "home", host="0.0.0.0", api_token=BOOTSTRAP, database_pool=4
    )
    async with serving(settings, database) as app:
        yield app


async def test_streams_are_not_counted_once_they_have_begun(narrow):
    admin = Caller(narrow, BOOTSTRAP)
    study = (await admin.post("/studies", json=make_spec())).json()["id"]
    streams = [asyncio.create_task(admin.get(f"/studies/{study}/events")) for _ in range(5)]
    await asyncio.sleep(0.3)

    async with asyncio.timeout(5):
        assert (await admin.get("/studies")).status_code == 200

    assert not any(stream.done() for stream in streams)
    await admin.post(f"/studies/{study}/cancel")
    for stream in streams:
        stream.cancel()


async def test_whatever_the_end_a_place_comes_free(narrow):
    admin = Caller(narrow, BOOTSTRAP)
    for path in ("/nowhere", "/studies/s-1", "/studies?limit=none", "/tokens") * 2:
        async with asyncio.timeout(5):
            await admin.get(path)
            await admin.head(path)
