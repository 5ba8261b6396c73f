"""What the supervisor says of a PostgreSQL that it cannot start, and what it leaves alone where another one serves."""

import os
import signal
import socket
import stat
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from service.db.embedded import AlreadyServedError, EmbeddedPostgresError, take_lock
from service.local import ray_head
from service.local.__main__ import _say  # pyright: ignore[reportPrivateUsage]
from service.local.ray_head import RayHead
from service.local.supervisor import ServiceError, Supervisor
from service.settings import Settings


class Away:
    """A server that cannot be started, as on a full disk, until it is mended."""

    is_mended = False

    def is_healthy(self) -> bool:
        return self.is_mended

    def start(self) -> None:
        raise EmbeddedPostgresError("PostgreSQL did not start: No space left on device")


def test_an_outage_is_told_once_with_its_cause_and_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    supervisor = Supervisor(Settings(home=tmp_path), say=print)
    postgres: Any = Away()

    for _ in range(20):
        supervisor._keep_postgres_up(postgres)  # pyright: ignore[reportPrivateUsage]
    postgres.is_mended = True
    for _ in range(20):
        supervisor._keep_postgres_up(postgres)  # pyright: ignore[reportPrivateUsage]

    assert caplog.messages == [
        "PostgreSQL does not answer; starting it again",
        "PostgreSQL did not start; trying again",
        "over: PostgreSQL does not answer; starting it again",
        "over: PostgreSQL did not start; trying again",
    ]
    assert [bool(record.exc_info) for record in caplog.records] == [False, True, False, False]
    assert "No space left on device" in caplog.text


def test_who_starts_a_home_a_second_time_takes_nothing_from_who_serves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ray_head, "LONGEST", 1000)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    home = tmp_path / "home"
    home.mkdir()
    head = RayHead(home, cpus=1)
    head.command()
    used = Path(head.environment()["TMPDIR"]) / "pymp-1"
    used.mkdir()
    address = home / "server.json"
    address.write_text("{}")
    lock = take_lock(home / "serve.lock")
    database: Any = (
        "postgresql://tan@127.0.0.1:1/tan"  # one of its own, which no lock of ours guards
    )
    second = Supervisor(Settings(home=home, port=0, database_url=database), say=print)

    with pytest.raises(AlreadyServedError, match=f"already served by process {os.getpid()}"):
        second.run(ready=print)

    os.close(lock)
    assert used.exists()
    assert address.exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost", "::1", "::"])
def test_its_address_can_be_connected_to(tmp_path: Path, host: str) -> None:
    if ":" in host:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:  # as in many containers, whose kernel knows IPv6
            pytest.skip("this machine has no address of IPv6")
    supervisor = Supervisor(Settings(home=tmp_path, host=host, port=0), say=print)

    with supervisor._listen():  # pyright: ignore[reportPrivateUsage]
        url = urlsplit(supervisor.url)
        socket.create_connection((url.hostname, url.port), timeout=5).close()


def test_postgres_can_pass_through_a_home_that_it_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where root may make no user namespace, as in most containers, PostgreSQL runs as nobody.
    home = tmp_path / "home"
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        supervisor = Supervisor(Settings(home=home, port=taken.getsockname()[1]), say=print)
        with pytest.raises(ServiceError, match="cannot listen"):
            supervisor.run(ready=print)

    assert stat.S_IMODE(home.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)


def test_a_home_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    home = tmp_path / "home"
    home.touch()

    with pytest.raises(ServiceError, match=rf"{home}: Not a directory\. Free some space"):
        Supervisor(Settings(home=home, port=0), say=print).run(ready=print)


def test_everything_is_stopped_where_nobody_reads_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, closed = os.openpty()
    os.close(terminal)
    supervisor = Supervisor(Settings(home=tmp_path), say=_say)
    stopped: list[str] = []
    postgres: Any = SimpleNamespace(stop=lambda: stopped.append("PostgreSQL"))
    supervisor._postgres = postgres  # pyright: ignore[reportPrivateUsage]

    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", os.fdopen(closed, "w", closefd=False))
        supervisor._stop()  # pyright: ignore[reportPrivateUsage]

    os.close(closed)
    assert stopped == ["PostgreSQL"]
