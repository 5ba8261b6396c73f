"""What the door remembers of tokens is never older than their last change."""

import pytest

from service.access import service
from service.access.schemas import TokenRequest
from service.auth import authenticator, repository
from service.auth.authenticator import Authenticator
from service.auth.scopes import Scope
from tests.fixtures.api import make_settings


@pytest.fixture
def door(tmp_path, database) -> Authenticator:
    return Authenticator(make_settings(tmp_path / "home"), database)


@pytest.fixture
def overtaken(monkeypatch, door):
    """A function of the repository, whose answer a change of tokens overtakes."""

    def overtake(name: str) -> None:
        read = getattr(repository, name)

        async def read_then_forget(*args):
            found = await read(*args)
            door.forget()
            return found

        monkeypatch.setattr(authenticator.repository, name, read_then_forget)

    return overtake


async def test_the_first_token_may_be_made_while_somebody_comes_in(door, overtaken, monkeypatch):
    overtaken("any_unrevoked")
    assert not await door.asks_for_tokens()
    monkeypatch.undo()
    monkeypatch.setattr(authenticator.repository, "any_unrevoked", _true)
    assert await door.asks_for_tokens()


async def _true(_session) -> bool:
    return True


async def test_a_token_may_be_revoked_while_it_is_read(door, overtaken, monkeypatch, database):
    async with database.session() as session:
        request = TokenRequest(name="me", scopes=[Scope.ADMIN])
        made = await service.create(session, request, by=None, has_bootstrap=False)
    overtaken("find")
    assert await door.by_token(made.token, address="192.0.2.1")
    monkeypatch.undo()
    async with database.session() as session:
        await service.revoke(session, made.id, has_bootstrap=False)
    assert await door.by_token(made.token, address="192.0.2.1") is None
