"""More requests than connections: the last ones are told to come again."""

import asyncio

from service.db.session import Database
from tests.fixtures.api import open_client


async def test_a_request_without_a_connection_is_told_to_come_again(
    settings, database_urls, monkeypatch
):
    monkeypatch.setattr("service.db.session._POOL_TIMEOUT_SECONDS", 0.05)
    database = Database(database_urls.app, pool_size=2)
    async with open_client(settings, database) as client:
        assert (await client.get("/studies")).status_code == 200
        async with database.session() as one, database.session() as other:
            await asyncio.gather(one.connection(), other.connection())  # all that there are
            answer = await client.get("/studies/s-0")
        assert (await client.get("/studies")).status_code == 200
    await database.close()
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.json()["detail"] == "the service is busy; try again in a moment"
