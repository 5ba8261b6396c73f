"""The API keeps its own schema, over a real socket and a real database."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from pydantic import SecretStr
from schemathesis.checks import CHECKS, load_all_checks

from service.app import Server, create_app
from service.datasets.service import ensure_digits
from service.db.session import Database
from tests.fixtures.api import make_settings

TOKEN = "of-the-contract-tests"
"""Asked for by every operation, as the document says: none would be needed on a loopback address."""
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
load_all_checks()
# A body may be valid JSON and yet an impossible study: 422 is the right answer to it.
EXCLUDED = [CHECKS.get_one("positive_data_acceptance")]


@pytest.fixture(scope="module")
def api_url(tmp_path_factory, postgres_server, template_database) -> Iterator[str]:
    home = tmp_path_factory.mktemp("home")
    with postgres_server.database(template_database) as urls, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        asyncio.run(_register_digits(urls.app))
        own = make_settings(home, database_url=SecretStr(urls.app), api_token=SecretStr(TOKEN))
        app = create_app(own)
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=2)
        server = Server(config, app.state.context.hub)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


async def _register_digits(url: str) -> None:
    database = Database(url)
    await ensure_digits(database)
    await database.close()


def _document() -> dict:
    """The schema alone: making the application connects to nothing."""
    unused = SecretStr("postgresql://nobody@127.0.0.1/none")
    return create_app(make_settings(Path("unused"), database_url=unused)).openapi()


schema = schemathesis.openapi.from_dict(_document())


CASES = 10_000
"""Of the long test, over all operations together."""
NUM_OPERATIONS = sum(len(operations) for operations in schema.raw_schema["paths"].values())


@schema.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_the_api_keeps_its_own_schema(case: schemathesis.Case, api_url: str) -> None:
    case.call_and_validate(
        base_url=api_url, headers=AUTHORIZED, excluded_checks=EXCLUDED, timeout=60
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(7200)
@schema.parametrize()
@settings(
    max_examples=-(-CASES // NUM_OPERATIONS),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_ten_thousand_requests_keep_it_too(case: schemathesis.Case, api_url: str) -> None:
    case.call_and_validate(
        base_url=api_url, headers=AUTHORIZED, excluded_checks=EXCLUDED, timeout=60
    )
