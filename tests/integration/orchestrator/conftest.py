"""A world for tests of the reconciler."""

import httpx
import pytest

from service.db.session import Database
from service.settings import Settings
from tests.support.world import World


@pytest.fixture
def world(client: httpx.AsyncClient, settings: Settings, database: Database) -> World:
    return World(client, settings, database)
