"""What drivers said: kept beyond their end, read over the API, without secrets."""

import asyncio
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from service.auth.secrets import run_token, server_secret
from service.db.session import Database
from service.db.tables import Attempt
from service.logs import repository
from service.orchestrator import log_keeper
from service.orchestrator.launcher import JobStatus, LauncherUnavailableError
from service.orchestrator.log_keeper import LogKeeper, pause_after
from service.orchestrator.log_tail import Said
from tests.support.world import World


@pytest.fixture
def keeper(world: World, database: Database) -> LogKeeper:
    return LogKeeper(database, world.launcher, server_secret(world.settings.home_path))


async def logs(world: World, study_id: str, **query: Any) -> httpx.Response:
    return await world.client.get(f"/studies/{study_id}/logs", params=query)


async def attempts(world: World, study_id: str) -> list[dict[str, Any]]:
    return (await world.client.get(f"/studies/{study_id}/attempts")).json()["items"]


async def searching(world: World) -> tuple[str, str]:
    study_id = await world.submit()
    await world.tick(3)
    return study_id, f"{study_id}-search-a1"


async def test_a_log_is_read_while_it_grows_and_only_in_whole_lines(
    world: World, keeper: LogKeeper
) -> None:
    study_id, job = await searching(world)
    for said, shown in [("one\ntw", "one\n"), ("one\ntwo\n", "one\ntwo\n")]:
        world.launcher.logs[job] = said
        await keeper.look()

        assert (await logs(world, study_id)).text == shown


async def test_it_outlives_the_driver_and_the_cluster(world: World, keeper: LogKeeper) -> None:
    study_id, job = await searching(world)
    world.launcher.logs[job] = "epoch 1\n\nKilled"
    world.launcher.end(job, JobStatus.FAILED, 137)
    await world.tick(1)
    await keeper.look()
    world.launcher.is_down = True

    answer = await logs(world, study_id, run="search", attempt=1)
    (attempt,) = await attempts(world, study_id)

    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text == "epoch 1\n\nKilled"
    assert (attempt["run"], attempt["attempt"], attempt["state"]) == ("search", 1, "lost")
    assert (attempt["exit_code"], attempt["last_lines"]) == (137, "epoch 1\nKilled")
    assert "exit code 137" in attempt["reason"]


async def test_the_exit_code_of_a_driver_that_reported_its_end_is_kept_too(
    world: World, keeper: LogKeeper
) -> None:
    study_id, job = await searching(world)
    await world.report(
        f"{study_id}-search", "POST", "/finish", outcome="failed", reason="no such column"
    )
    await keeper.look()
    assert (await attempts(world, study_id))[0]["exit_code"] is None  # the process still ends
    world.launcher.end(job, JobStatus.FAILED, 1)

    await keeper.look()

    (attempt,) = await attempts(world, study_id)
    assert (attempt["exit_code"], attempt["reason"]) == (1, "no such column")


async def test_no_secret_stays_in_a_log_or_a_reason(world: World, keeper: LogKeeper) -> None:
    study_id, job = await searching(world)
    token = run_token(server_secret(world.settings.home_path), job)
    world.launcher.logs[job] = (
        f"env {token}\nAuthorization: Bearer abcdefgh12345678\ntan_ab12_{'x' * 43}\n"
        "RuntimeError: Bearer abcdefgh12345678\n"
    )
    world.launcher.end(job, JobStatus.FAILED, 1)
    await world.tick(1)
    await keeper.look()

    (attempt,) = await attempts(world, study_id)
    shown = (await logs(world, study_id)).text + attempt["last_lines"] + attempt["reason"]
    assert attempt["reason"].endswith(": RuntimeError: Bearer ***")

    for secret in (token, "abcdefgh12345678", "x" * 43):
        assert secret not in shown
    assert "Bearer ***" in shown


@pytest.mark.parametrize("longest", [None, 400])
async def test_only_the_end_of_a_long_log_is_kept(
    world: World, keeper: LogKeeper, monkeypatch: pytest.MonkeyPatch, longest: int | None
) -> None:
    monkeypatch.setattr(log_keeper, "MAX_CHARACTERS", 300)
    monkeypatch.setattr(log_keeper, "PIECE_CHARACTERS", 50)
    world.launcher.longest_log = longest
    study_id, job = await searching(world)
    lines = [f"line {number:04}\n" for number in range(200)]
    for end in (1, 20, 40, 200):
        world.launcher.logs[job] = "".join(lines[:end])
        await keeper.look()

    notice, _, kept = (await logs(world, study_id)).text.partition("\n")

    assert "characters before this were dropped" in notice
    assert "".join(lines).endswith(kept)
    assert 250 <= len(kept) <= 300


async def to_be_followed(
    world: World, keeper: LogKeeper, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """A study and its job, of which one line is kept; who follows looks often."""
    monkeypatch.setattr("service.logs.service.POLL_SECONDS", 0.01)
    study_id, job = await searching(world)
    world.launcher.logs[job] = "one\n"
    await keeper.look()
    return study_id, job


async def test_who_follows_sees_what_is_added_until_the_attempt_has_ended(
    world: World, keeper: LogKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_id, job = await to_be_followed(world, keeper, monkeypatch)
    following = asyncio.create_task(logs(world, study_id, follow=True))
    await asyncio.sleep(0.1)
    assert not following.done()
    world.launcher.logs[job] = "one\ntwo"
    world.launcher.end(job, JobStatus.FAILED, 1)
    await world.tick(1)

    await keeper.look()

    assert (await asyncio.wait_for(following, 10)).text == "one\ntwo"


async def test_who_follows_reads_no_further_than_the_door_is_open(
    world: World, keeper: LogKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_id, job = await to_be_followed(world, keeper, monkeypatch)
    following = asyncio.create_task(logs(world, study_id, follow=True))
    await asyncio.sleep(0.1)
    await world.client.post("/tokens", json={"name": "me", "scopes": ["admin"]})
    world.launcher.logs[job] = "one\ntwo\n"

    await keeper.look()

    assert (await asyncio.wait_for(following, 10)).text == "one\n"


async def test_who_follows_waits_for_a_database_that_is_away(
    world: World, keeper: LogKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_id, job = await to_be_followed(world, keeper, monkeypatch)
    find, is_away = repository.attempt, asyncio.Event()

    async def away(session: AsyncSession, submission_id: str) -> Attempt | None:
        if is_away.is_set():
            raise OperationalError("SELECT", {}, Exception("server closed the connection"))
        return await find(session, submission_id)

    monkeypatch.setattr(repository, "attempt", away)
    following = asyncio.create_task(logs(world, study_id, follow=True))
    await asyncio.sleep(0.1)
    is_away.set()
    await asyncio.sleep(0.1)
    assert not following.done()
    is_away.clear()
    world.launcher.logs[job] = "one\ntwo"
    world.launcher.end(job, JobStatus.FAILED, 1)
    await world.tick(1)

    await keeper.look()

    assert (await asyncio.wait_for(following, 10)).text == "one\ntwo"


async def test_an_attempt_that_is_not_there_is_refused_by_name(world: World) -> None:
    study_id, _ = await searching(world)

    refused = await logs(world, study_id, run="private")

    assert refused.status_code == 404
    assert "it has: search 1" in refused.json()["detail"]


async def test_a_cluster_that_is_away_is_asked_again(world: World, keeper: LogKeeper) -> None:
    study_id, job = await searching(world)
    world.launcher.logs[job] = "one\n"
    world.launcher.is_down = True
    with pytest.raises(LauncherUnavailableError):
        await keeper.look()
    world.launcher.is_down = False

    await keeper.look()

    assert (await logs(world, study_id)).text == "one\n"


async def test_a_log_that_is_away_with_its_node_holds_up_neither_its_study_nor_other_logs(
    world: World, keeper: LogKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_id, lost = await searching(world)
    read = world.launcher.log

    async def unless_lost(submission_id: str) -> Said:
        if submission_id == lost:
            raise LauncherUnavailableError("timed out")
        return await read(submission_id)

    monkeypatch.setattr(world.launcher, "log", unless_lost)
    world.launcher.end(lost, JobStatus.FAILED, None)
    await world.tick(3)
    world.launcher.logs[f"{study_id}-search-a2"] = "here\n"
    with pytest.raises(LauncherUnavailableError):
        await keeper.look()

    assert [each["state"] for each in await attempts(world, study_id)] == ["lost", "live"]
    assert (await logs(world, study_id)).text == "here\n"


def test_long_looks_leave_the_time_to_the_studies() -> None:
    assert [pause_after(seconds) for seconds in (0.0, 0.05, 2.0)] == [1.0, 1.0, 18.0]


async def test_two_keepers_write_nothing_twice(world: World, keeper: LogKeeper) -> None:
    study_id, job = await searching(world)
    world.launcher.logs[job] = "one\ntwo\n"

    await asyncio.gather(keeper.look(), keeper.look(), keeper.look())

    assert (await logs(world, study_id)).text == "one\ntwo\n"
