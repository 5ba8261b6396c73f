"""The whole application on a fresh database, without a network."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from service.app import create_app
from service.context import Context
from service.db.session import Database
from service.settings import Settings


@pytest.fixture
def app(database: Database, tmp_path: Path) -> FastAPI:
    return create_app(Settings(home=tmp_path), database)


@pytest.fixture
def context(app: FastAPI) -> Context:
    return app.state.context


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client
