"""The embedded server and its owner, killed, doubled, locked out and started as anybody."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from service.db import embedded
from service.db.embedded import AlreadyServedError, EmbeddedPostgres, EmbeddedPostgresError

pytestmark = [pytest.mark.faults, pytest.mark.slow]

REPOSITORY = Path(embedded.__file__).parents[2]
OWNER = """
    import json, sys, time
    from pathlib import Path
    from service.db.embedded import EmbeddedPostgres

    server = EmbeddedPostgres(Path(sys.argv[1]))
    server.start()
    print(json.dumps({"pid": server.pid, "url": server.url_app}), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(prefix="tan-home-"))
    top.chmod(0o711)
    yield top / "home"
    shutil.rmtree(top)


def start_owner(home: Path, **options: object) -> tuple[subprocess.Popen[str], dict[str, object]]:
    """Another process that owns the server of ``home``."""
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(home)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY, **options,
    )  # fmt: skip
    assert owner.stdout is not None
    line = owner.stdout.readline()
    if not line:
        pytest.fail(owner.communicate()[1])
    return owner, json.loads(line)


def end(owner: subprocess.Popen[str], number: int) -> None:
    owner.send_signal(number)
    owner.communicate(timeout=20)


def note(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS note (text text)")
        connection.execute("INSERT INTO note VALUES (%s)", (text,))


def notes(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT text FROM note")]


def is_running(pid: int) -> bool:
    try:
        return embedded._name_and_state(pid)[1] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_was_written_is_there_after_a_stop_and_a_start(home: Path) -> None:
    with EmbeddedPostgres(home) as server:
        assert server.is_healthy()
        pid, url = server.pid, server.url_owner
        note(url, "kept")
    assert pid is not None
    assert not is_running(pid)
    with EmbeddedPostgres(home) as server:
        assert server.url_owner == url
        assert notes(server.url_owner) == ["kept"]


def test_only_its_owner_can_read_its_files(home: Path) -> None:
    with EmbeddedPostgres(home):
        modes = {path.name: path.stat().st_mode & 0o777 for path in home.iterdir()}
    assert modes["postgres"] == 0o700
    assert modes["logs"] == 0o700
    secrets = [name for name in modes if name.endswith(".secret")]
    assert len(secrets) == 3
    assert {modes[name] for name in secrets} == {0o600}


def test_a_password_is_asked_for_and_never_logged(home: Path) -> None:
    with EmbeddedPostgres(home) as server:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.url_app.replace(":", ":x", 2).replace("x//", "//"))
        with psycopg.connect(server.url_superuser) as connection:
            stored = connection.execute("SELECT rolpassword FROM pg_authid").fetchall()
    log = (home / "logs" / "postgres.log").read_text()
    for path in home.glob("*.secret"):
        assert path.read_text().strip() not in log
    assert all(row[0] is None or row[0].startswith("SCRAM-SHA-256") for row in stored)


def test_the_service_role_cannot_alter_the_schema(home: Path) -> None:
    with (
        EmbeddedPostgres(home) as server,
        psycopg.connect(server.url_app) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("CREATE TABLE mine (x int)")


def test_a_second_starter_is_told_who_serves(home: Path) -> None:
    owner, facts = start_owner(home)
    try:
        with pytest.raises(AlreadyServedError, match=str(owner.pid)) as refusal:
            EmbeddedPostgres(home).start()
        assert refusal.value.pid == owner.pid
        with psycopg.connect(str(facts["url"])) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        end(owner, signal.SIGKILL)
        with EmbeddedPostgres(home):  # adopt, and stop
            pass
    assert not is_running(int(str(facts["pid"])))


def test_of_many_starters_one_owns_the_server(home: Path) -> None:
    program = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from service.db.embedded import AlreadyServedError, EmbeddedPostgres
        try:
            with EmbeddedPostgres(Path(sys.argv[1])):
                time.sleep(2)
            print("served")
        except AlreadyServedError:
            print("refused")
    """)
    home.mkdir(mode=0o711)
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(home)],
            stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
        )
        for _ in range(4)
    ]  # fmt: skip
    said = sorted(starter.communicate(timeout=60)[0].strip() for starter in starters)
    assert said == ["refused", "refused", "refused", "served"]


@pytest.mark.crash
def test_the_server_of_a_killed_owner_is_adopted_and_stopped(home: Path) -> None:
    owner, facts = start_owner(home)
    end(owner, signal.SIGKILL)
    pid = int(str(facts["pid"]))
    assert is_running(pid)
    server = EmbeddedPostgres(home)
    server.start()
    try:
        assert (server.pid, server.url_app) == (pid, facts["url"])
        assert server.is_healthy()
    finally:
        server.stop()
    # Of a server that is no child its data is let go a moment before the process is.
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(pid)


@pytest.mark.crash
def test_a_killed_server_recovers_what_was_committed(home: Path) -> None:
    with EmbeddedPostgres(home) as server:
        note(server.url_owner, "committed")
        assert server.pid is not None
        first = server.pid
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while server.is_healthy() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not server.is_healthy()
        server.start()
        assert server.pid != first
        assert notes(server.url_owner) == ["committed"]


@pytest.mark.crash
def test_owner_and_server_killed_together_recover(home: Path) -> None:
    owner, facts = start_owner(home)
    os.kill(int(str(facts["pid"])), signal.SIGKILL)
    end(owner, signal.SIGKILL)
    with EmbeddedPostgres(home) as server:
        assert server.is_healthy()


def test_a_pid_file_that_names_another_process_is_stale(home: Path) -> None:
    with EmbeddedPostgres(home):
        pass
    lines = [str(os.getpid()), str(home / "postgres"), "1", "1", "", "127.0.0.1", "", "ready"]
    pid_file = home / "postgres" / "postmaster.pid"
    pid_file.write_text("\n".join(lines) + "\n")
    shutil.chown(pid_file, (home / "postgres").stat().st_uid)
    with EmbeddedPostgres(home) as server:
        assert server.is_healthy()
        assert server.pid != os.getpid()


def test_a_pid_file_that_names_a_zombie_is_stale(home: Path) -> None:
    with EmbeddedPostgres(home):
        pass
    zombie = subprocess.Popen(["true"])
    while embedded._name_and_state(zombie.pid)[1] != "Z":
        time.sleep(0.01)
    pid_file = home / "postgres" / "postmaster.pid"
    pid_file.write_text(f"{zombie.pid}\n{home / 'postgres'}\n1\n1\n\n127.0.0.1\n\nready\n")
    shutil.chown(pid_file, (home / "postgres").stat().st_uid)
    with EmbeddedPostgres(home) as server:
        assert server.is_healthy()
    zombie.wait()


def test_a_half_made_cluster_is_made_again(home: Path) -> None:
    (home / "postgres.new" / "base").mkdir(parents=True)
    home.chmod(0o711)
    with EmbeddedPostgres(home) as server:
        assert server.is_healthy()
    assert not (home / "postgres.new").exists()


def test_a_taken_port_is_no_obstacle(home: Path) -> None:
    with EmbeddedPostgres(home) as first:
        port = psycopg.conninfo.conninfo_to_dict(first.url_app)["port"]
        other = home.parent / "other"
        other.mkdir(mode=0o711)
        (other / "postgres.port").write_text(f"{port}\n")
        with EmbeddedPostgres(other) as second:
            assert second.is_healthy()
            assert second.url_app.rpartition("@")[2] != first.url_app.rpartition("@")[2]


def test_a_home_that_is_a_file_is_a_clear_error(home: Path) -> None:
    home.write_text("")
    with pytest.raises(EmbeddedPostgresError, match=str(home)):
        EmbeddedPostgres(home).start()


def test_a_full_disk_is_a_clear_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device", str(home))

    monkeypatch.setattr(embedded, "_write_private", full)
    with pytest.raises(EmbeddedPostgresError, match="No space left on device; free some space"):
        EmbeddedPostgres(home).start()


def test_a_server_that_cannot_start_says_why(home: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        EmbeddedPostgres(home, settings={"no_such_setting": "1"}).start()
    with EmbeddedPostgres(home) as server:  # and holds no lock afterwards
        assert server.is_healthy()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns a directory that nobody can enter")
def test_no_permission_above_the_data_is_touched(home: Path) -> None:
    closed = home.parent / "closed"
    closed.mkdir(mode=0o700)
    above = [closed, *closed.parents, Path(embedded.__file__).parent, Path(sys.prefix)]
    before = [(path.stat().st_mode, path.stat().st_uid, path.stat().st_gid) for path in above]
    try:
        with EmbeddedPostgres(closed / "home") as server:
            assert server.is_healthy()
    except EmbeddedPostgresError as error:
        # Where user namespaces are forbidden, a closed directory is refused, not opened.
        assert "cannot reach" in str(error)  # noqa: PT017 - both outcomes are right somewhere
    after = [(path.stat().st_mode, path.stat().st_uid, path.stat().st_gid) for path in above]
    assert after == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become nobody")
def test_without_namespaces_root_runs_the_server_as_nobody(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_NAMESPACE", ("false",))
    with EmbeddedPostgres(home) as server:
        assert server.is_healthy()
        assert (home / "postgres").owner() == "nobody"
    monkeypatch.undo()
    with EmbeddedPostgres(home) as server:  # and back again
        assert server.is_healthy()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become nobody")
def test_another_user_than_root_serves_a_home_of_its_own(home: Path) -> None:
    home.mkdir(mode=0o700)
    shutil.chown(home, "nobody")
    # Imported as root, run as nobody: this interpreter may lie where nobody cannot read it.
    program = textwrap.dedent("""
        import os, pwd, sys
        from pathlib import Path
        from service.db.embedded import EmbeddedPostgres, find_installation

        binary = find_installation().tool("postgres")
        os.setgroups([])
        os.setgid(pwd.getpwnam("nobody").pw_gid)
        os.setuid(pwd.getpwnam("nobody").pw_uid)
        if not os.access(binary, os.X_OK):
            sys.exit(77)
        with EmbeddedPostgres(Path(sys.argv[1])) as server:
            assert server.is_healthy()
            print("healthy as", Path("/proc", str(server.pid)).owner())
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(home)],
        capture_output=True, text=True, check=False, cwd=REPOSITORY,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("the binaries lie where nobody cannot read them")
    assert done.stdout == "healthy as nobody\n", done.stderr
    assert {path.owner() for path in home.rglob("*")} == {"nobody"}
