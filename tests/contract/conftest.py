"""A served API with studies at every point of their way, for cases that a schema alone cannot make."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from pydantic import SecretStr

from service.app import Server, create_app
from service.auth import authenticator
from service.auth.secrets import run_token, server_secret
from service.datasets.service import ensure_digits
from service.db.session import Database
from service.orchestrator.launcher import JobStatus
from service.orchestrator.log_keeper import LogKeeper
from service.rate_limit import RateLimit
from service.settings import Settings
from tests.fixtures.api import make_settings
from tests.support.world import World

TOKEN = "of-the-contract-tests"
"""Asked for by every operation, as the document says: none would be needed on a loopback address."""

UNLIMITED = RateLimit(per_second=1e6, burst=1e6)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Cases are drawn from the document while they are collected: not where none of them is wanted."""
    wanted = config.option.markexpr.split(" and ")
    return True if collection_path.name == "test_openapi.py" and "not slow" in wanted else None


def document() -> dict[str, Any]:
    """The schema alone: making the application connects to nothing."""
    unused = SecretStr("postgresql://nobody@127.0.0.1/none")
    return create_app(make_settings(Path("unused"), database_url=unused)).openapi()


@dataclass(frozen=True)
class ServedApi:
    """Where it listens, what is there to ask for, and the key of its drivers' tokens."""

    url: str
    home: Path
    subjects: dict[str, list[str]] = field(default_factory=dict)
    """By the name that a path has for it."""
    final: list[str] = field(default_factory=list)
    """Studies that are over: a stream of theirs has an end."""

    def driver_token(self, run_id: str, fence: object) -> str:
        return run_token(server_secret(self.home), f"{run_id}-a{fence}")


@pytest.fixture(scope="session")
def api(tmp_path_factory, postgres_server, template_database) -> Iterator[ServedApi]:
    home = tmp_path_factory.mktemp("home")
    with postgres_server.database(template_database) as urls, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        own = make_settings(
            home,
            database_url=SecretStr(urls.app),
            api_token=SecretStr(TOKEN),
            max_running_studies=100,
            rate_limit=UNLIMITED,
        )
        # One address with thousands of wrong tokens would be answered nothing else but 429.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(authenticator, "FAILURES", UNLIMITED)
            app = create_app(own)
            assert app.state.context.authenticator
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=2)
        server = Server(config, app.state.context.hub)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.02)
        served = ServedApi(f"http://127.0.0.1:{listener.getsockname()[1]}", home)
        asyncio.run(_populate(served, own))
        yield served
        server.should_exit = True
        thread.join()


async def _populate(served: ServedApi, settings: Settings) -> None:
    """A study in each state, with its runs."""
    assert settings.database_url is not None
    database = Database(settings.database_url.get_secret_value())
    await ensure_digits(database)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=60) as client:
        world = World(client, settings, database)
        completed = await world.trained()
        for job in world.launcher.jobs:  # else whoever follows their logs waits for the end
            world.launcher.end(job, JobStatus.SUCCEEDED, 0)
        cancelled = await world.submit()
        await client.post(f"/studies/{cancelled}/cancel")
        await world.tick(2)
        awaiting = await world.submit(promotion="manual")
        await world.tick(3)
        await world.finish_search(awaiting)
        await world.tick(3)
        training = await world.to_training()
        simulating = await world.submit()
        await world.tick(2)
        studies = [await world.submit(), simulating, awaiting, training, completed, cancelled]
        states = [(await world.study(each))["state"] for each in studies]
        await LogKeeper(database, world.launcher, server_secret(settings.home_path)).look()
    await database.close()
    assert states == [
        "queued", "simulating", "awaiting_approval", "training", "completed", "cancelled",
    ]  # fmt: skip
    served.final.extend([completed, cancelled])
    served.subjects.update(
        study_id=studies,
        name=["digits"],
        run_id=[f"{training}-private", f"{simulating}-search", f"{completed}-private"],
    )
