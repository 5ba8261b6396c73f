"""What a local Ray leaves in the temporary folder."""

import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.local import ray_head
from service.local.ray_head import KEPT_SESSIONS, RayHead


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RayHead:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(ray_head, "LONGEST", 1000)  # that of pytest is long
    return RayHead(tmp_path / "home", cpus=1)


def folders(head: RayHead) -> tuple[Path, Path]:
    """Ray's own, and that for temporary files of all that runs in it."""
    given = [word for word in head.command() if word.startswith("--temp-dir=")]
    assert len(given) == 1
    head.home.mkdir(exist_ok=True)
    return Path(given[0].partition("=")[2]), Path(head.environment()["TMPDIR"])


def test_what_was_killed_leaves_nothing_beyond_the_next_start(head: RayHead) -> None:
    _, scratch = folders(head)
    left = scratch / "pymp-1"
    left.mkdir()
    (left / "listener-1").touch()

    _, again = folders(head)

    assert again == scratch
    assert list(scratch.iterdir()) == []


def test_logs_of_a_few_earlier_starts_are_kept(head: RayHead) -> None:
    of_ray, _ = folders(head)
    for number in range(KEPT_SESSIONS + 2):
        (of_ray / f"session_2026-01-0{number + 1}").mkdir()

    folders(head)

    assert len(list(of_ray.iterdir())) == KEPT_SESSIONS


def test_where_the_temporary_folder_has_a_long_path_ray_still_finds_room_for_its_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "jobs" / "user1234" / "12345678.batch"
    temporary.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    of_ray, scratch = folders(RayHead(tmp_path / "home", cpus=1))

    try:
        assert (
            len(f"{of_ray}/session_2026-12-01_02-38-53_430538_4194304/sockets/plasma_store") <= 103
        )
        assert stat.S_IMODE(of_ray.parent.stat().st_mode) == 0o700
        assert temporary in scratch.parents  # what may be large stays there
    finally:
        shutil.rmtree(of_ray.parent)


def test_nobody_else_can_enter_what_ray_opens_to_everybody(head: RayHead) -> None:
    of_ray, scratch = folders(head)
    of_ray.chmod(0o777)  # as Ray does

    folders(head)

    assert of_ray.parent == scratch.parent
    assert stat.S_IMODE(of_ray.parent.stat().st_mode) == 0o700


def test_a_folder_that_is_a_link_is_refused(head: RayHead, tmp_path: Path) -> None:
    of_ray, _ = folders(head)
    private = of_ray.parent
    private.rename(tmp_path / "elsewhere")
    private.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(PermissionError, match="belongs to somebody else"):
        head.command()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"data": {"result": {"result": [{"state": "DEAD"}, {"state": "ALIVE"}]}}}, True),
        ({"data": {"result": {"result": [{"state": "DEAD"}]}}}, False),
        ({"result": False, "data": None}, None),
        (None, None),
    ],
)
def test_it_says_whether_it_has_a_node(
    head: RayHead, monkeypatch: pytest.MonkeyPatch, answer: Any, told: bool | None
) -> None:
    def get(url: str, **_: Any) -> httpx.Response:
        if answer is None:
            raise httpx.ConnectError("refused")
        assert url == f"{head.address}/api/v0/nodes"
        return httpx.Response(200, json=answer)

    head.home.mkdir()
    head.environment()
    monkeypatch.setattr(httpx, "get", get)

    assert head.has_node() is told
