"""A database that is older than what left the service is not served, until somebody takes it upon them."""

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from service.app import create_app
from service.db.session import Database
from service.ledger.notes import RESTORED_NOTE
from service.ledger.schemas import Head
from service.ledger.service import Ledger
from service.publication import keys
from service.publication.published import FILE, Published, RestoredBackupError
from service.publication.signing import is_signed
from service.settings import Settings
from service.statements.export_check import verify_export
from tan_core.mechanism import Mechanism
from tests.fixtures.api import make_settings, open_client
from tests.fixtures.postgres import DatabaseUrls, Server
from tests.support.round_trips import RoundTrips
from tests.support.world import World

LEDGER = "/datasets/digits/ledger"
SMALL = Mechanism(sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=10)


Copy = Callable[[], Awaitable[Database]]


@pytest.fixture
async def copied(
    database: Database, database_urls: DatabaseUrls, postgres_server: Server
) -> AsyncIterator[Copy]:
    """Copies the database as it is when it is called, once: a backup, or what somebody rewrites."""
    copy = f"{database_urls.name}_copy"
    async with AsyncExitStack() as stack:

        async def made() -> Database:
            await database.close()  # a copy needs it unused
            urls = postgres_server.create(copy, database_urls.name)
            stack.callback(postgres_server.drop, copy)
            found = Database(urls.app)
            stack.push_async_callback(found.close)
            return found

        yield made


async def reserve(database: Database, name: str) -> None:
    async with database.session() as session:
        await Ledger().admit_and_reserve(
            session, scope_id="dataset:digits", reservation_id=name, study_id=name,
            mechanism=SMALL, actor="test",
        )  # fmt: skip


async def test_a_backup_from_before_an_export_is_refused_and_can_be_accepted_by_name(
    client: httpx.AsyncClient,
    settings: Settings,
    database: Database,
    copied: Copy,
) -> None:
    await reserve(database, "before")
    restored = await copied()
    await reserve(database, "after")
    exported = (await client.get(f"{LEDGER}/export")).json()
    assert is_signed(exported)
    assert [entry["kind"] for entry in exported["entries"]] == ["open", "reserve", "reserve"]
    assert (await client.get("/readyz")).status_code == 200

    async with open_client(settings, restored) as served:
        refusals = [await served.get(path) for path in ("/studies", "/")]
        assert [one.status_code for one in refusals] == [503] * 2
        problem = refusals[0].json()
        assert problem["type"] == "/problems/restored-backup"
        assert "tan-cli ledger verify digits --accept-restored-backup" in problem["detail"]
        # Ready all the same: the request that settles it has to come through.
        ready = await served.get("/readyz")
        assert (ready.status_code, ready.json()) == (
            200,
            {"status": "ok", "restored_backup": True, "detail": problem["detail"]},
        )
        assert "tan_restored_backup 1.0" in (await served.get("/metrics")).text
        assert (await served.get(f"{LEDGER}/verify")).json()["is_valid"]

        account = (await served.get(LEDGER)).json()
        assert (account["restored_backups"], account.get("restored_note")) == (0, None)
        for reason in ("noname", ": why", "dpo:"):
            refused = await served.post(f"{LEDGER}/restored-backup", json={"reason": reason})
            assert refused.status_code == 422
            assert "who: reason" in refused.text
        answer = await served.post(f"{LEDGER}/restored-backup", json={"reason": "dpo: disk lost"})
        assert answer.json()["seq"] == 3
        ready = (await served.get("/readyz")).json()
        assert (ready["restored_backup"], ready["detail"]) == (False, None)
        assert "tan_restored_backup 0.0" in (await served.get("/metrics")).text
        assert (await served.get("/studies")).status_code == 200
        entry = (await served.get(LEDGER)).json()["entries"][-1]
        assert entry["kind"] == "attest"
        note = json.loads(entry["body"])["note"]["restored_backup"]
        assert (note["reason"], note["published"]) == ("dpo: disk lost", exported["head"])
        assert (await served.get(f"{LEDGER}/verify")).json()["is_valid"]
        again = await served.post(f"{LEDGER}/restored-backup", json={"reason": "dpo: again"})
        assert again.status_code == 409
        await expect_the_note_beside_every_epsilon(served)


async def expect_the_note_beside_every_epsilon(client: httpx.AsyncClient) -> None:
    """What was spent since the backup is in no sum: an epsilon of this ledger is a lower bound for ever."""
    for path in (LEDGER, f"{LEDGER}/burndown"):
        told = (await client.get(path)).json()
        assert (told["restored_backups"], told["restored_note"]) == (1, RESTORED_NOTE)
    exported = (await client.get(f"{LEDGER}/export")).json()
    assert exported["restored"] == {"backups": 1, "note": RESTORED_NOTE}
    checks = {check.name: check for check in verify_export(exported)}
    assert checks["restored backups"].is_good
    assert checks["restored backups"].detail == f"accepted once: {RESTORED_NOTE}"
    for page in ("/ui/datasets", "/ui/datasets/digits"):
        assert RESTORED_NOTE in (await client.get(page)).text


async def test_a_rewritten_journal_stays_refused_however_long_it_is_and_is_not_exported(
    client: httpx.AsyncClient,
    settings: Settings,
    database: Database,
    copied: Copy,
) -> None:
    rewritten = await copied()
    await reserve(database, "true")
    await client.get(f"{LEDGER}/export")
    for number in range(3):
        await reserve(rewritten, f"false-{number}")
    async with open_client(settings, rewritten) as served:
        assert (await served.get("/readyz")).json()["restored_backup"]
        assert (await served.get(LEDGER)).json()["head"]["seq"] == 4
        # Signed, it would say that none was restored.
        exported = await served.get(f"{LEDGER}/export")
        assert (exported.status_code, exported.json()["type"]) == (
            503,
            "/problems/restored-backup",
        )
        assert (await served.get("/readyz")).json()["restored_backup"]


async def test_below_the_prefix_of_a_proxy_it_is_ready_and_can_be_accepted_all_the_same(
    client: httpx.AsyncClient, settings: Settings, database: Database, copied: Copy
) -> None:
    restored = await copied()
    await reserve(database, "after")
    await client.get(f"{LEDGER}/export")
    app = create_app(settings, restored)
    transport = httpx.ASGITransport(app, root_path="/tan")
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost/tan") as served:
        assert (await served.get("/studies")).status_code == 503
        for path in ("/healthz", "/readyz", "/keys", LEDGER):
            assert (await served.get(path)).status_code == 200, path
        answer = await served.post(f"{LEDGER}/restored-backup", json={"reason": "dpo: disk lost"})
        assert answer.status_code == 200
        assert (await served.get("/studies")).status_code == 200


async def test_a_private_run_marks_its_ledger_when_it_starts_is_charged_and_has_succeeded(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    world = World(client, settings, database)
    study_id = await world.submit()
    await world.tick(3)
    assert Published(settings.home_path).marks() == {}  # a search charges nothing
    await world.finish_search(study_id)
    await world.tick(3)
    assert world.launcher.submitted[-1].submission_id == f"{study_id}-private-a1"
    assert await last_marked(client, settings) == "acquire"

    await world.begin_segment(study_id, 0, 100)
    assert await last_marked(client, settings) == "begin"
    await world.finish_private(study_id)
    await world.tick(2)
    assert (await world.study(study_id))["state"] == "completed"
    assert await last_marked(client, settings) == "attest"


async def test_a_backup_from_the_middle_of_a_private_run_is_refused_once_more_of_it_is_charged(
    client: httpx.AsyncClient, settings: Settings, database: Database, copied: Copy
) -> None:
    """Nothing has left the service since, and yet steps ran that the backup knows nothing of."""
    world = World(client, settings, database)
    study_id = await world.to_training()
    await world.begin_segment(study_id, 0, 50)
    restored = await copied()
    async with open_client(settings, restored) as served:
        assert not (await served.get("/readyz")).json()["restored_backup"]

    await world.begin_segment(study_id, 50, 50)

    charged = {
        each["reservation_id"]: each["charged_steps"]
        for each in (await client.get(LEDGER)).json()["reservations"]
    }
    async with open_client(settings, restored) as served:
        known = (await served.get(LEDGER)).json()["reservations"]
        assert [(each["charged_steps"], charged[each["reservation_id"]]) for each in known] == [
            (50, 100)
        ]
        assert (await served.get("/readyz")).json()["restored_backup"]


@pytest.mark.slow
async def test_a_backup_from_before_a_private_run_is_refused_once_its_model_was_downloaded(
    client: httpx.AsyncClient,
    settings: Settings,
    database: Database,
    copied: Copy,
) -> None:
    world = World(client, settings, database)
    study_id = await world.to_training()
    restored = await copied()
    model = settings.storage_path / f"{study_id}-private" / "model.safetensors"
    model.parent.mkdir(parents=True, exist_ok=True)
    model.write_bytes(b"weights")
    await world.begin_segment(study_id, 0, 100)
    await world.finish_private(study_id, model_path=str(model))
    await world.tick(2)
    await reserve(database, "after")  # the study's own entries are no longer the newest
    (settings.home_path / FILE).unlink()  # what the orchestrator left: a download marks by itself

    answer = await client.get(f"/studies/{study_id}/model")
    assert answer.content == b"weights"
    head = (await client.get(LEDGER)).json()["head"]
    assert Published(settings.home_path).marks() == {"dataset:digits": Head.model_validate(head)}

    async with open_client(settings, restored) as served:
        assert (await served.get("/readyz")).json()["restored_backup"]
        for path in ("/studies", f"/studies/{study_id}"):
            refused = await served.get(path)
            assert (refused.status_code, refused.json()["type"]) == (
                503,
                "/problems/restored-backup",
            )


async def test_a_new_database_beside_what_left_is_told_of_with_a_way_out(
    client: httpx.AsyncClient,
    settings: Settings,
    postgres_server: Server,
    template_database: str,
) -> None:
    await client.get(f"{LEDGER}/export")
    with postgres_server.database(template_database) as urls:
        empty = Database(urls.app)
        async with open_client(settings, empty) as served:
            problem = (await served.get("/studies")).json()
            assert problem["type"] == "/problems/restored-backup"
            assert "the database knows no ledger dataset:digits" in problem["detail"]
            assert "TAN_DATABASE_URL" in problem["detail"]
            assert "--accept-restored-backup" not in problem["detail"]  # there is nothing to accept
            assert "register digits again" in problem["detail"]
            accepted = {"json": {"reason": "dpo: disk lost"}}
            assert (await served.post(f"{LEDGER}/restored-backup", **accepted)).status_code == 404

            digits = {"name": "digits", "source": "digits"}
            budget = {"epsilon": 10.0, "delta": 1e-5}
            for other in ({**digits, "name": "other", **budget}, {**digits, "public": True}):
                refused = await served.post("/datasets", json=other)
                assert (refused.status_code, refused.json()) == (503, problem)
            again = await served.post("/datasets", json={**digits, **budget})
            assert again.status_code == 201
            problem = (await served.get("/studies")).json()
            assert "tan-cli ledger verify digits --accept-restored-backup" in problem["detail"]
            assert (await served.post(f"{LEDGER}/restored-backup", **accepted)).status_code == 200
            assert (await served.get("/studies")).status_code == 200
            await expect_the_note_beside_every_epsilon(served)
        await empty.close()


async def last_marked(client: httpx.AsyncClient, settings: Settings) -> str:
    """The kind of the entry that is marked."""
    mark = Published(settings.home_path).marks()["dataset:digits"]
    entries = (await client.get(f"{LEDGER}?entries=1000")).json()["entries"]
    return next(entry["kind"] for entry in entries if entry["seq"] == mark.seq)


async def test_nothing_is_accepted_without_a_reason(client: httpx.AsyncClient) -> None:
    for body in ({}, {"reason": ""}, {"reason": "x", "more": 1}):
        assert (await client.post(f"{LEDGER}/restored-backup", json=body)).status_code == 422


def test_only_the_newest_entry_is_kept(tmp_path: Path) -> None:
    published = Published(tmp_path)
    published.record("a", Head(seq=3, hash="c"))
    published.record("a", Head(seq=2, hash="b"))
    published.record("b", Head(seq=1, hash="x"))
    assert published.marks() == {"a": Head(seq=3, hash="c"), "b": Head(seq=1, hash="x")}
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", ["edited", "truncated", "another service"])
def test_a_file_that_is_not_ours_is_refused(tmp_path: Path, how: str) -> None:
    home = tmp_path / "home"
    Published(home).record("a", Head(seq=3, hash="c"))
    if how == "another service":
        Published(tmp_path / "other").record("a", Head(seq=1, hash="a"))
        shutil.copy(tmp_path / "other" / FILE, home / FILE)
    else:
        text = (home / FILE).read_text()
        (home / FILE).write_text(text[:-9] if how == "truncated" else text.replace("3", "1", 1))
    with pytest.raises(RestoredBackupError, match="last copy"):
        Published(home).marks()


def test_what_a_retired_key_signed_is_still_ours(tmp_path: Path) -> None:
    Published(tmp_path).record("a", Head(seq=3, hash="c"))
    keys.rotate(tmp_path)
    assert Published(tmp_path).marks() == {"a": Head(seq=3, hash="c")}


async def test_a_service_that_published_nothing_asks_its_database_nothing(tmp_path: Path) -> None:
    nowhere = Database("postgresql://nobody@127.0.0.1:1/none")
    await Published(make_settings(tmp_path).home_path).check(nowhere)


async def test_however_many_ledgers_there_are_they_are_asked_for_at_once(
    tmp_path: Path, database: Database
) -> None:
    published = Published(tmp_path)
    asked: set[int] = set()
    for number in range(3):
        scope_id = f"scope-{number}"
        async with database.session() as session:
            await Ledger().open_scope(
                session, scope_id=scope_id, unit="record", neighboring_relation="add_or_remove_one",
                epsilon=1.0, delta=1e-5, actor="test",
            )  # fmt: skip
            await published.leave_head(session, scope_id)
        with RoundTrips.counted(database) as trips:
            await published.check(database, believe=False)
        asked.add(trips.number)
    assert asked == {1}

    published.record("scope-1", Head(seq=2, hash="ab" * 32))
    with pytest.raises(RestoredBackupError, match="the ledger of scope-1 has no entry 2"):
        await published.check(database, believe=False)
