"""A service that asks for tokens, and callers with one of each kind."""

import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests.fixtures.api import BASE_URL, make_settings, make_spec

BOOTSTRAP = "bootstrap-secret"


class Caller:
    """Asks one application, with one token or none, from one address."""

    def __init__(self, app, token: str | None = None, *, address: str = "192.0.2.1") -> None:
        self.app = app
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app, client=(address, 1234)),
            base_url=BASE_URL,
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )

    def __getattr__(self, name):
        return getattr(self.http, name)

    async def new_token(self, name="someone", scopes=("read",), **options) -> dict:
        body = {"name": name, "scopes": list(scopes), **options}
        response = await self.http.post("/tokens", json=body)
        assert response.status_code == 201, response.text
        return response.json()

    async def befriend(self, scopes=("read",), **options) -> "Caller":
        """A caller with a new token, made by this one."""
        made = await self.new_token(scopes=scopes, **options)
        return Caller(self.app, made["token"])


@pytest.fixture
def exposed(tmp_path) -> Settings:
    return make_settings(tmp_path / "home", host="0.0.0.0", api_token=BOOTSTRAP)


@contextlib.asynccontextmanager
async def serving(settings, database):
    """The application, started and stopped."""
    app = create_app(settings, database)
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def app(digits, exposed, database) -> AsyncIterator:
    async with serving(exposed, database) as app:
        yield app


@pytest.fixture
def admin(app) -> Caller:
    return Caller(app, BOOTSTRAP)


@pytest.fixture
async def acme(admin) -> Caller:
    return await admin.befriend(["submit", "approve"], tenant="acme")


@pytest.fixture
async def study(acme) -> str:
    answer = await acme.post("/studies", json=make_spec())
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


@pytest.fixture
def nobody(app) -> Caller:
    return Caller(app)
