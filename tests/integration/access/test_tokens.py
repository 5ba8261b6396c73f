"""Tokens from their making to their end, and the local mode without any."""

import asyncio
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from service.access import service
from service.auth.tokens import Token, digest
from service.db.session import Database
from service.errors import ConflictError
from tests.fixtures.api import BASE_URL, make_settings
from tests.integration.access.conftest import BOOTSTRAP, Caller, serving


@pytest.fixture
async def local(tmp_path, database):
    """The application in local single-user mode."""
    async with serving(make_settings(tmp_path / "home"), database) as app:
        yield Caller(app)


async def rows(database, query: str, **values):
    async with database.session() as session:
        return (await session.execute(text(query), values)).all()


class TestToken:
    async def test_its_secret_is_shown_once_and_only_its_digest_is_stored(self, admin, database):
        made = await admin.new_token("alice", ["submit"], tenant="vision")
        token = Token.parse(made["token"])
        assert (token.id, made["tenant"], made["created_by"]) == (made["id"], "vision", "bootstrap")
        assert token.secret not in (await admin.get("/tokens")).text
        stored = await rows(database, "SELECT t::text FROM api_token t")
        assert token.secret not in stored[0][0]
        assert digest(token.secret) in stored[0][0]

    async def test_it_lets_in_whoever_has_it(self, admin):
        caller = await admin.befriend(["read"])
        assert (await caller.get("/studies")).status_code == 200

    async def test_a_secret_with_the_id_of_another_opens_nothing(self, admin):
        first, second = [Token.parse((await admin.new_token())["token"]) for _ in range(2)]
        mixed = Caller(admin.app, str(Token(first.id, second.secret)))
        assert (await mixed.get("/studies")).status_code == 401

    async def test_it_ends_when_it_is_revoked(self, admin):
        made = await admin.new_token()
        caller = Caller(admin.app, made["token"])
        assert (await caller.get("/studies")).status_code == 200
        for _ in range(2):
            assert (await admin.delete(f"/tokens/{made['id']}")).status_code == 204
        assert (await caller.get("/studies")).status_code == 401
        listed = (await admin.get("/tokens")).json()["items"]
        assert listed[0]["revoked_at"] is not None

    async def test_it_ends_when_it_expires(self, admin, database):
        made = await admin.new_token(expires_in_seconds=3600)
        caller = Caller(admin.app, made["token"])
        await rows_updated(database, "UPDATE api_token SET expires_at = now() - interval '1 s'")
        assert (await caller.get("/studies")).status_code == 401

    async def test_another_process_hears_of_its_end(self, admin, exposed, database, monkeypatch):
        monkeypatch.setattr("service.auth.authenticator.CACHE_SECONDS", 0.0)
        made = await admin.new_token()
        async with serving(exposed, database) as replica:
            caller = Caller(replica, made["token"])
            assert (await caller.get("/studies")).status_code == 200
            await admin.delete(f"/tokens/{made['id']}")
            assert (await caller.get("/studies")).status_code == 401

    async def test_its_last_use_is_known_to_the_minute(self, admin):
        caller = await admin.befriend()
        assert (await admin.get("/tokens")).json()["items"][0]["last_used_at"] is None
        await caller.get("/studies")
        used = (await admin.get("/tokens")).json()["items"][0]["last_used_at"]
        at = datetime.fromisoformat(used)
        assert (at.second, at.microsecond) == (0, 0)
        assert 0 <= (datetime.now(UTC) - at).total_seconds() < 120

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"scopes": []}, "scopes"),
            ({"scopes": ["root"]}, "scopes.0"),
            ({"tenant": "A B"}, "tenant"),
            ({"name": ""}, "name"),
            ({"expires_in_seconds": 1}, "expires_in_seconds"),
            ({"secret": "mine"}, "secret"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_what_makes_no_token_is_refused_by_its_field(self, admin, change, path):
        answer = await admin.post("/tokens", json={"name": "a", "scopes": ["read"], **change})
        assert answer.status_code == 422
        assert [error["path"] for error in answer.json()["errors"]] == [path]

    async def test_none_of_this_id(self, admin):
        assert (await admin.delete("/tokens/none")).status_code == 404
        assert (await admin.delete("/tokens/a%00b")).status_code == 404


async def rows_updated(database, query: str) -> None:
    async with database.session() as session:
        await session.execute(text(query))


class TestLocalMode:
    async def test_nobody_is_asked_while_there_is_no_token(self, local):
        assert (await local.get("/studies")).status_code == 200
        assert (await local.get("/tokens")).json() == {"items": []}

    async def test_a_stale_token_of_the_environment_does_no_harm(self, local):
        caller = Caller(local.app, "left-from-somewhere")
        assert (await caller.get("/studies")).status_code == 200

    async def test_from_the_first_token_on_everybody_is_asked(self, local):
        made = await local.new_token("me", ["admin"])
        assert (await local.get("/studies")).status_code == 401
        admin = Caller(local.app, made["token"])
        assert (await admin.get("/studies")).status_code == 200
        assert (await admin.delete(f"/tokens/{made['id']}")).status_code == 204
        assert (await local.get("/studies")).status_code == 200

    async def test_the_first_token_must_be_an_admins(self, local):
        answer = await local.post("/tokens", json={"name": "alice", "scopes": ["submit"]})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["path"] == "scopes"
        assert (await local.get("/studies")).status_code == 200

    async def test_the_last_admin_cannot_leave_others_behind(self, local):
        made = await local.new_token("me", ["admin"])
        admin = Caller(local.app, made["token"])
        await admin.new_token("alice", ["submit"])
        answer = await admin.delete(f"/tokens/{made['id']}")
        assert answer.status_code == 409
        assert (await admin.get("/studies")).status_code == 200

    async def test_two_last_admins_cannot_end_one_another(self, local, database):
        one = await local.new_token("me", ["admin"])
        admin = Caller(local.app, one["token"])
        other = await admin.new_token("you", ["admin"])
        await admin.new_token("alice", ["submit"])

        async def end_other() -> None:
            async with database.session() as session:
                await service.revoke(session, other["id"], has_bootstrap=False)

        async with database.session() as session:
            await service.revoke(session, one["id"], has_bootstrap=False)
            second = asyncio.create_task(end_other())
            await asyncio.sleep(0.1)
        with pytest.raises(ConflictError, match="the last one"):
            await second

    async def test_behind_a_proxy_everybody_is_asked(self, tmp_path, database):
        settings = make_settings(tmp_path / "home", trusted_proxies="127.0.0.1")
        async with serving(settings, database) as app:
            for host in ("127.0.0.1:8321", "tan.example.org"):
                answer = await Caller(app).get("/studies", headers={"Host": host})
                assert answer.status_code == 401

    async def test_time_alone_opens_no_door(self, local, database):
        await local.new_token("me", ["admin"], expires_in_seconds=60)
        await rows_updated(database, "UPDATE api_token SET expires_at = now() - interval '1 s'")
        assert (await local.get("/studies")).status_code == 401


class TestFirstToken:
    async def test_it_is_made_where_no_admin_can_come_in(self, database, tmp_path):
        settings = make_settings(tmp_path, host="0.0.0.0")
        first = await service.make_first(database)
        assert await service.make_first(database) is None
        async with serving(settings, database) as app:
            assert (await Caller(app).get("/studies")).status_code == 401
            assert (await Caller(app, first).get("/tokens")).status_code == 200

    async def test_again_when_every_admin_has_gone(self, database):
        await service.make_first(database)
        await rows_updated(database, "UPDATE api_token SET revoked_at = now()")
        assert await service.make_first(database) is not None


async def test_the_bootstrap_token_may_look_like_any_other(tmp_path, database):
    text_ = str(Token.new())
    settings = make_settings(tmp_path, host="0.0.0.0", api_token=text_)
    async with serving(settings, database) as app:
        assert (await Caller(app, text_).get("/tokens")).status_code == 200
        assert (await Caller(app, BOOTSTRAP).get("/tokens")).status_code == 401


@pytest.mark.parametrize("stated", ["", " ", "\n"])
async def test_an_empty_bootstrap_token_is_none_and_lets_nobody_in(
    tmp_path, database, monkeypatch, stated
):
    """As compose files and shells set it where nobody has said one."""
    monkeypatch.setenv("TAN_API_TOKEN", stated)
    async with serving(make_settings(tmp_path, host="0.0.0.0"), database) as app:
        for value in ("Bearer", "Bearer ", f"Bearer {stated}"):
            answer = await Caller(app).get("/tokens", headers={"Authorization": value})
            assert answer.status_code == 401
        signed_in = await Caller(app).post(
            "/ui/sign-in", data={"token": stated}, headers={"Origin": BASE_URL}
        )
        assert signed_in.status_code == 401


async def test_what_cannot_be_looked_up_is_refused_as_that_and_not_as_wrong(tmp_path):
    away = Database("postgresql://tan@127.0.0.1:9/tan")
    stated = str(Token.new())
    async with serving(make_settings(tmp_path, host="0.0.0.0", api_token=stated), away) as app:
        for token in (stated, str(Token.new())):
            answer = await Caller(app, token).get("/studies")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert answer.json()["detail"].startswith("the database does not answer")
    await away.close()


class TestEnvironment:
    """A shell that has exported a token for tan-cli starts the server too."""

    @pytest.fixture
    async def made(self, tmp_path, database):
        """Two admins' tokens, and one that reads."""
        settings = make_settings(tmp_path / "home", host="0.0.0.0", api_token=BOOTSTRAP)
        async with serving(settings, database) as app:
            admin = Caller(app, BOOTSTRAP)
            scopes = {"first": "admin", "second": "admin", "reader": "read"}
            return {name: await admin.new_token(name, [scope]) for name, scope in scopes.items()}

    @pytest.fixture
    def started(self, tmp_path, database):
        def start(token: str, **changes):
            changes = {"host": "0.0.0.0", **changes}
            return serving(make_settings(tmp_path / "home", api_token=token, **changes), database)

        return start

    async def test_a_token_that_was_revoked_opens_nothing(self, made, started):
        async with started(made["first"]["token"]) as app:
            exported, other = (Caller(app, made[name]["token"]) for name in ("first", "second"))
            assert (await exported.get("/tokens")).status_code == 200
            answer = await exported.post(
                "/ui/sign-in",
                data={"token": made["first"]["token"]},
                headers={"Origin": str(exported.base_url).rstrip("/")},
            )
            session = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
            assert (await Caller(app).get("/studies", headers=session)).status_code == 200

            await other.delete(f"/tokens/{made['first']['id']}")

            assert (await exported.get("/tokens")).status_code == 401
            assert (await Caller(app).get("/studies", headers=session)).status_code == 401
        async with started(made["first"]["token"]) as app:
            assert (await Caller(app, made["first"]["token"]).get("/tokens")).status_code == 401

    async def test_the_audit_names_it(self, made, started):
        async with started(made["first"]["token"]) as app:
            caller = Caller(app, made["first"]["token"])
            await caller.new_token()
            events = (await caller.get("/audit")).json()["items"]
            assert events[0]["token_id"] == made["first"]["id"]

    async def test_it_may_no_more_than_before(self, made, started):
        async with started(made["reader"]["token"]) as app:
            caller = Caller(app, made["reader"]["token"])
            assert (await caller.get("/studies")).status_code == 200
            assert (await caller.get("/tokens")).status_code == 403

    async def test_it_keeps_no_door_open_for_the_last_admin(self, made, started):
        async with started(made["first"]["token"]) as app:
            caller = Caller(app, made["first"]["token"])
            assert (await caller.delete(f"/tokens/{made['second']['id']}")).status_code == 204
            assert (await caller.delete(f"/tokens/{made['first']['id']}")).status_code == 409

    async def test_a_secret_of_the_same_form_is_good_as_before(self, made, started):
        secret = str(Token(made["first"]["id"], "0" * 64))
        async with started(secret, host="127.0.0.1") as app:
            assert (await Caller(app, secret).get("/tokens")).status_code == 200
            assert (await Caller(app).get("/tokens")).status_code == 401

    async def test_an_admin_is_made_where_nobody_could_come_in(self, made, database):
        stated = made["first"]["token"]
        assert await service.make_first(database, stated=stated) is None
        await rows_updated(database, "UPDATE api_token SET revoked_at = now()")
        assert await service.make_first(database, stated="a-secret") is None
        assert Token.parse(await service.make_first(database, stated=stated) or "")
