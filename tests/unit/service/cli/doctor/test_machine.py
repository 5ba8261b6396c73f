"""What the machine is checked for, each with something wrong."""

import os
import shutil
import socket
from collections import namedtuple
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service.cli.doctor import machine
from service.settings import Settings
from tests.unit.service.cli.recorded import RecordedServer

Usage = namedtuple("Usage", "total used free")


def settings(home: Path, **changes: object) -> Settings:
    return Settings(home=home, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("free", "verdict"), [(50e9, "ok"), (5e9, "warning"), (0.5e9, "failure")], ids=str
)
def test_room_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, verdict: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100e9, 0, free))
    found = machine.disk(settings(tmp_path / "not" / "made"))
    assert found.verdict == verdict
    assert f"{free / 1e9:.1f} GB" in found.found
    assert (found.next is None) == (verdict == "ok")


@pytest.mark.parametrize(
    ("free", "verdict"), [(8e9, "ok"), (2e9, "warning"), (0.5e9, "failure")], ids=str
)
def test_memory(monkeypatch: pytest.MonkeyPatch, free: float, verdict: str) -> None:
    monkeypatch.setattr(machine, "_memory", lambda: (free, 16e9))
    assert machine.memory().verdict == verdict


def test_memory_is_read_from_this_machine() -> None:
    free, total = machine._memory()
    assert 0 < free < total


def test_a_port_is_free_or_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        found = machine.port(settings(tmp_path, port=number))
        assert found.verdict == "failure"
        assert "--port 0" in (found.next or "")
    assert machine.port(settings(tmp_path, port=number)).verdict == "ok"
    assert machine.port(settings(tmp_path, port=0)).verdict == "ok"


def test_a_misspelt_setting_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.settings(settings(tmp_path)).verdict == "ok"
    monkeypatch.setenv("TAN_MAX_RUNING_STUDIES", "9")
    found = machine.settings(settings(tmp_path))
    assert (found.verdict, "TAN_MAX_RUNNING_STUDIES" in found.found) == ("warning", True)


def test_in_a_container_the_api_on_the_port_is_ourselves(
    tmp_path: Path, server: RecordedServer
) -> None:
    server.answers["GET /healthz"] = (200, {"status": "ok"})
    number = urlsplit(server.url).port
    own = settings(tmp_path, host="0.0.0.0", port=number, database_url="postgresql://a@b/c")
    assert machine.port(own).verdict == "ok"
    assert machine.port(settings(tmp_path, port=number)).verdict == "failure"  # somebody else's


@pytest.mark.parametrize(
    ("blocked", "changes", "verdict"),
    [
        ("runs", {"database_url": "postgresql://a@b/c"}, "warning"),
        ("home", {"database_url": "postgresql://a@b/c"}, "failure"),
        ("runs", {}, "failure"),
    ],
)
def test_an_api_need_not_write_where_drivers_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    blocked: str,
    changes: dict[str, str],
    verdict: str,
) -> None:
    for name in ("home", "runs"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100e9, 0, 50e9))
    monkeypatch.setattr(os, "access", lambda path, _: path.name != blocked)

    found = machine.disk(settings(tmp_path / "home", storage=tmp_path / "runs", **changes))

    assert (found.verdict, blocked in found.found) == (verdict, True)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    assert "no keys" in machine.secrets(settings(tmp_path)).found
    (tmp_path / "keys").mkdir()
    for name in ("secret", "postgres.secret", "keys/statement-ed25519.pem"):
        (tmp_path / name).touch(0o600)
    (tmp_path / "keys" / "statement-ab.pub.pem").touch(0o644)
    found = machine.secrets(settings(tmp_path))
    assert (found.verdict, found.found.split()[0]) == ("ok", "3")

    (tmp_path / "postgres.secret").chmod(0o640)
    found = machine.secrets(settings(tmp_path))
    assert found.verdict == "failure"
    assert f"chmod 600 {tmp_path / 'postgres.secret'}" in (found.next or "")


class TestGpu:
    @pytest.fixture
    def say(self, monkeypatch: pytest.MonkeyPatch):
        """What the driver and torch answer; None: they fail."""

        def set_answers(
            driver: str | None, torch: str | None, kernels: str | None = "True", gcc: bool = True
        ) -> None:
            def answer(*words: str) -> str | None:
                if "smi" in words[0]:
                    return driver
                return kernels if words[-1] == machine.RUNS_KERNELS else torch

            programs = {"nvidia-smi"} | ({"gcc"} if gcc else set())
            monkeypatch.setattr(
                shutil, "which", lambda name: f"/bin/{name}" if name in programs else None
            )
            monkeypatch.setattr(machine, "_output", answer)

        return set_answers

    def test_without_a_driver_studies_run_on_the_cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutil, "which", lambda _: None)
        assert machine.gpu().verdict == "ok"

    def test_torch_sees_what_the_driver_has(self, say) -> None:
        say("H100, 570.1, 80 GiB", '[true, "12.8"]')
        found = machine.gpu()
        assert (found.verdict, "H100" in found.found) == ("ok", True)
        assert "kernels for GPUs run" in found.found

    @pytest.mark.parametrize("kernels", ["False", None])
    @pytest.mark.parametrize("gcc", [True, False])
    def test_kernels_that_do_not_run_are_slow_and_no_failure(
        self, say, kernels: str | None, gcc: bool
    ) -> None:
        say("H100, 570.1, 80 GiB", '[true, "12.8"]', kernels, gcc)
        found = machine.gpu()
        assert (found.verdict, "several times slower" in found.found) == ("warning", True)
        assert ("says why" if gcc else "install gcc") in (found.next or "")

    @pytest.mark.parametrize(
        ("torch", "why"), [("[false, null]", "CPU build"), ('[false, "13.0"]', "CUDA 13.0")]
    )
    def test_a_build_that_does_not_see_it_is_told_apart(self, say, torch: str, why: str) -> None:
        say("H100, 570.1, 80 GiB", torch)
        found = machine.gpu()
        assert (found.verdict, why in found.found) == ("warning", True)

    def test_a_driver_that_does_not_answer_is_a_failure(self, say) -> None:
        say(None, None)
        assert machine.gpu().verdict == "failure"


def test_the_kernels_are_looked_for_without_torch(tmp_path: Path, monkeypatch) -> None:
    assert machine.kernels().verdict in ("ok", "warning")
    monkeypatch.setattr(machine, "find_spec", lambda _: None)
    found = machine.kernels()
    assert (found.verdict, "install" in (found.next or "")) == ("warning", True)


def test_kernels_of_another_version_are_told_from_those_that_are_used(monkeypatch) -> None:
    if machine.kernels().verdict != "ok":
        pytest.skip("the kernels are not compiled")
    monkeypatch.setattr(machine, "KERNELS_VERSION", machine.KERNELS_VERSION + 1)

    found = machine.kernels()

    assert (found.verdict, "another version" in found.found) == ("warning", True)


def test_nothing_that_cannot_be_written_is_taken_for_a_home(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert machine.disk(settings(tmp_path)).verdict == "failure"
