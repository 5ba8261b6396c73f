"""docker-compose.yml without Docker: every service in a host of its own, made of Linux namespaces.

A host has its own network (one interface per network of the file, on a bridge), processes, name and
mounts: an overlay over this machine's root, where ``/opt/tan`` is this virtual environment, with the file's
volumes, secrets and environment. What an image would bring along is emulated: the entry point of
PostgreSQL's. Limits and dropped capabilities are not.

With ``TAN_TEST_IMAGES=FOLDER`` the hosts are those of the images that ``deploy/Dockerfile`` makes: an overlay over ``FOLDER/service``
and ``FOLDER/worker``, which hold (or lead to) their file systems, such as ``buildah mount`` shows them. Then commands run
as the image's user, without capabilities, and file systems are as read-only as the file asks for.

Needs root, ``ip``, ``unshare``, ``nsenter`` and overlay mounts: :func:`why_not` says what is missing.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from service.db.embedded import find_installation

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
TOOLS = ("ip", "unshare", "nsenter", "setpriv", "mount")
IMAGES = os.environ.get("TAN_TEST_IMAGES")
AS_USER = (
    "setpriv", "--reuid=tan", "--regid=tan", "--init-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"
)  # fmt: skip
ENTER = ("setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec")
"""A host does not outlive the tests, however these end."""
UNSHARE = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child")
SUBNET = "10.77"
PREFIX = "tt"
START_SECONDS = 120
POSTGRES_ENTRY_POINT = """\
set -eu
export PGDATA=/var/lib/postgresql/18/docker PGHOST=/tmp
as_postgres="setpriv --reuid=65534 --regid=65534 --clear-groups"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  mkdir -p "$PGDATA" && chown -R 65534:65534 /var/lib/postgresql && chmod 700 "$PGDATA"
  install -o 65534 -m 400 "$POSTGRES_PASSWORD_FILE" /tmp/owner
  $as_postgres initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile=/tmp/owner \\
    --auth-local=trust $POSTGRES_INITDB_ARGS
  $as_postgres pg_ctl --wait --options="-c listen_addresses='' -k /tmp" start
  createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
  for script in /docker-entrypoint-initdb.d/*.sh; do sh "$script"; done
  $as_postgres pg_ctl --wait --mode=fast stop
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
fi
exec $as_postgres postgres -c listen_addresses='*' -k /tmp
"""


def why_not() -> str | None:
    """What keeps this machine from making hosts; None: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    overlay = (
        "mount -t tmpfs tmpfs /tmp && mkdir /tmp/u /tmp/w /tmp/r && "
        "mount -t overlay overlay -o lowerdir=/,upperdir=/tmp/u,workdir=/tmp/w /tmp/r"
    )
    network = (
        f"ip netns add {PREFIX}probe && ip link add {PREFIX}probe type veth peer name {PREFIX}peer && "
        f"ip link add {PREFIX}prober type bridge; made=$?; ip link del {PREFIX}prober; "
        f"ip link del {PREFIX}probe; ip netns del {PREFIX}probe; exit $made"
    )
    for what, probe in (
        ("overlay mounts", ["unshare", "--mount", "--net", "sh", "-c", overlay]),
        ("network namespaces, cables or bridges", ["sh", "-c", network]),
    ):
        done = subprocess.run(probe, capture_output=True, text=True)
        if done.returncode != 0:
            return f"no {what}: {done.stderr.strip()}"
    return None


class Host:
    """One container of a service.

    Args:
        name: of the host.
        spec: of the service.
        addresses: by network.
        scratch: folder for its root.
    """

    def __init__(
        self, name: str, spec: Mapping[str, Any], addresses: Mapping[str, str], scratch: Path
    ) -> None:
        self.name, self.spec, self.addresses = name, spec, addresses
        self.scratch, self.root = scratch, scratch / "r"
        self.namespace = f"{PREFIX}-{name}"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def image(self) -> Path | None:
        """The file system of its image; None: this machine's."""
        found = re.match(r"tan-search-(\w+):", self.spec["image"])
        return Path(IMAGES) / found[1] if IMAGES and found else None

    @property
    def is_running(self) -> bool:
        """Whether its first process lives."""
        return self.process is not None and self.process.poll() is None

    def run(self, *command: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        """A command inside, as ``docker compose exec``."""
        return subprocess.run(
            [*self._inside(), *self.entered(command)],
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def is_healthy(self) -> bool:
        """Whether its health check passes."""
        test = self.spec["healthcheck"]["test"]
        with suppress(subprocess.TimeoutExpired, ProcessLookupError):
            return self.is_running and self.run(*test[1:], timeout=30).returncode == 0
        return False

    def entered(self, command: Sequence[str]) -> list[str]:
        """A command with the environment and the user of its image."""
        bin_, home = (
            (":/usr/local/bin", "/home/tan")
            if self.image
            else (f":{find_installation().bin}", "/root")
        )
        own = {
            "PATH": f"/opt/tan/bin{bin_}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": home,
            "LANG": "C.UTF-8",
        }
        variables = own | self.spec.get("environment", {})
        environment = [f"{key}={value}" for key, value in variables.items()]
        return ["env", "-i", *environment, *(AS_USER if self.image else ()), *command]

    def kill(self) -> None:
        """Every process in it, at once."""
        if self.process is not None:
            for child in self._first_processes():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self.process.kill()
            self.process.wait()

    def _first_processes(self) -> list[int]:
        assert self.process is not None
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with suppress(OSError):
            return [int(each) for each in listed.read_text().split()]
        return []

    def _inside(self) -> list[str]:
        first = next(iter(self._first_processes()), None)
        if first is None:
            raise ProcessLookupError(f"{self.name} is not running")
        spaces = ["--mount", "--net", "--uts", "--pid"]
        return ["nsenter", f"--target={first}", *spaces, "--wd=/", "chroot", str(self.root)]


class Topology:
    """The services of docker-compose.yml as hosts.

    Args:
        folder: where volumes, secrets and logs are kept.
        data: the folder of datasets.
        workers: containers of ``ray-worker``, of one core each.
    """

    def __init__(self, folder: Path, *, data: Path, workers: int) -> None:
        self.folder = folder
        values = {**os.environ, "TAN_DATA": str(data), "TAN_OBJECT_STORE_BYTES": "80000000"}
        text = re.sub(
            r"\$\{(\w+):-([^}]*)\}",
            lambda found: values.get(found[1], found[2]),
            FILE.read_text(),
        )
        compose = yaml.safe_load(text)
        # What Ray would read from the limits of a container.
        compose["services"]["ray-worker"]["command"].append("--num-cpus=1")
        self.networks: list[str] = [
            *{n for each in compose["services"].values() for n in each.get("networks", [])}
        ]
        self._secrets = folder / "deploy" / "secrets"
        self._make_secrets()
        self.hosts: dict[str, Host] = {}
        for name, spec in compose["services"].items():
            if "profiles" in spec:
                continue
            for copy in range(workers if name == "ray-worker" else 1):
                host = name if name != "ray-worker" else f"{name}-{copy + 1}"
                number = len(self.hosts) + 10
                addresses = {net: self._address(net, number) for net in spec["networks"]}
                self.hosts[host] = Host(host, spec, addresses, folder / "roots" / host)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    @property
    def url(self) -> str:
        """The API as it is published."""
        return f"http://{self['api'].addresses['outside']}:8321"

    def secret(self, name: str) -> str:
        """One of the secrets."""
        return (self._secrets / name).read_text()

    def up(self) -> None:
        """Start everything in the order that the file asks for."""
        self.down()  # what an earlier run could not clear away
        for number, network in enumerate(self.networks):
            _ip("link", "add", _bridge(number), "type", "bridge")
            _ip("addr", "add", f"{self._address(network, 1)}/24", "dev", _bridge(number))
            _ip("link", "set", _bridge(number), "up")
        for host in self.hosts.values():
            self._connect(host)
        waiting = list(self.hosts.values())
        deadline = time.monotonic() + START_SECONDS * 2
        while waiting:
            for host in list(waiting):
                if self._may_start(host):
                    self.start(host.name)
                    waiting.remove(host)
            self._check(deadline)
            time.sleep(1)
        for host in self.hosts.values():
            while "healthcheck" in host.spec and not host.is_healthy():
                self._check(deadline)
                time.sleep(1)

    def start(self, name: str) -> None:
        """Start a service's container, for the first time or again: its volumes are as they were."""
        host = self.hosts[name]
        with (self.folder / f"{name}.log").open("ab") as log:
            host.process = subprocess.Popen(
                [*ENTER, host.namespace, *UNSHARE, "sh", "-c", self._first_process(host)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def restart_ended(self) -> None:
        """What the restart policies ask for."""
        for name, host in self.hosts.items():
            if host.spec["restart"] != "no" and host.process and not host.is_running:
                self.start(name)

    def down(self) -> None:
        """Stop everything, and leave nothing behind on this machine."""
        for host in self.hosts.values():
            host.kill()
            for at in range(len(host.addresses)):
                _ip("link", "del", self._cable(host, at), check=False)
            _ip("netns", "del", host.namespace, check=False)
        for number in range(len(self.networks)):
            _ip("link", "del", _bridge(number), check=False)

    def cut(self, name: str, *, is_cut: bool) -> None:
        """Pull or plug in the network cables of a host."""
        host = self.hosts[name]
        for at in range(len(host.addresses)):
            _ip("-n", host.namespace, "link", "set", f"eth{at}", "down" if is_cut else "up")

    def logs(self) -> str:
        """The end of what every host has printed."""
        return "\n".join(
            f"== {path.stem}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:])
            for path in sorted(self.folder.glob("*.log"))
        )

    def _address(self, network: str, number: int) -> str:
        return f"{SUBNET}.{self.networks.index(network)}.{number}"

    def _make_secrets(self) -> None:
        self._secrets.parent.mkdir(parents=True)
        script = shutil.copy(ROOT / "deploy" / "secrets.sh", self._secrets.parent)
        subprocess.run(["sh", script], check=True, capture_output=True)

    def _connect(self, host: Host) -> None:
        _ip("netns", "add", host.namespace)
        _ip("-n", host.namespace, "link", "set", "lo", "up")
        for at, (network, address) in enumerate(host.addresses.items()):
            outer = self._cable(host, at)
            _ip("link", "add", outer, "type", "veth", "peer", "name", f"eth{at}", "netns", host.namespace)  # fmt: skip
            _ip("link", "set", outer, "master", _bridge(self.networks.index(network)), "up")
            _ip("-n", host.namespace, "addr", "add", f"{address}/24", "dev", f"eth{at}")
            _ip("-n", host.namespace, "link", "set", f"eth{at}", "up")

    def _cable(self, host: Host, at: int) -> str:
        """The end of an interface's cable that is on the bridge."""
        return f"{PREFIX}{list(self.hosts).index(host.name)}e{at}"

    def _names(self, host: Host) -> str:
        """What the host can look up: those it shares a network with, as Docker's own names."""
        lines = [f"127.0.0.1 localhost\n{next(iter(host.addresses.values()))} {host.name}"]
        for other in self.hosts.values():
            shared = [net for net in other.addresses if net in host.addresses]
            if other is not host and shared:
                lines.append(f"{other.addresses[shared[0]]} {other.name}")
        return "\n".join(lines) + "\n"

    def _may_start(self, host: Host) -> bool:
        waits: Mapping[str, Mapping[str, str]] = host.spec.get("depends_on", {})
        for name, how in waits.items():
            other = self.hosts[name]
            if how["condition"] == "service_completed_successfully":
                if other.process is None or other.process.poll() != 0:
                    return False
            elif not other.is_healthy():
                return False
        return True

    def _check(self, deadline: float) -> None:
        assert time.monotonic() < deadline, f"not up in time: {self._states()}\n{self.logs()}"
        for host in self.hosts.values():
            if host.spec["restart"] == "no" and host.process and host.process.poll():
                raise AssertionError(f"{host.name} failed\n{self.logs()}")
        self.restart_ended()

    def _states(self) -> dict[str, str]:
        """What is running, and what its health check says."""
        states: dict[str, str] = {}
        for name, host in self.hosts.items():
            states[name] = "runs" if host.is_running else "ended" if host.process else "waits"
            if host.is_running and "healthcheck" in host.spec:
                done = host.run(*host.spec["healthcheck"]["test"][1:])
                states[name] += f", health check: {done.returncode} {done.stderr[-300:]}"
        return states

    def _first_process(self, host: Host) -> str:
        """A shell script: the mounts, then the command below it, which is thereby not process 1."""
        scratch, root = host.scratch, host.root
        scratch.mkdir(parents=True, exist_ok=True)
        lines = [
            "set -e",
            f"hostname {host.name}",
            f"mount -t tmpfs tmpfs {scratch}",
            f"mkdir {scratch}/u {scratch}/w {root}",
            f"mount -t overlay overlay -o lowerdir={host.image or '/'},upperdir={scratch}/u,workdir={scratch}/w {root}",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"mount -t tmpfs -o mode=1777 tmpfs {root}/dev/shm",
            f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp",
            f"mount -t tmpfs tmpfs {root}/run",
            *([] if host.image else self._own_sources(root)),
            f"cat > {root}/etc/hosts <<'HOSTS'\n{self._names(host)}HOSTS",
            f"mkdir -p {root}/run/secrets",
        ]
        lines += [
            f"cp {self._secrets / secret} {root}/run/secrets/{secret}"
            for secret in host.spec.get("secrets", [])
        ]
        for volume in host.spec.get("volumes", []):
            source, target, *mode = volume.split(":")
            target = f"{root}{target}"
            lines.append(self._mounted(source, target, is_image=host.image is not None))
            lines += [f"mount -o remount,bind,ro {target}"] if mode == ["ro"] else []
        command = ["sh", "-c", POSTGRES_ENTRY_POINT]
        inside = shlex.join(host.entered(host.spec.get("command", command)))
        if host.image and host.spec.get("read_only"):
            lines.append(f"mount -o remount,ro {root}")
        lines += [
            f"chroot {root} sh -c {shlex.quote(f'cd / && exec {inside}')} & child=$!",
            "trap 'kill -TERM $child' TERM",
            "wait $child",
        ]
        return "\n".join(lines)

    @staticmethod
    def _own_sources(root: Path) -> list[str]:
        """These sources and their environment, which may lie below /tmp themselves."""
        return [
            f"mkdir -p {root}{ROOT} && mount --rbind {ROOT} {root}{ROOT}",
            f"mkdir -p {root}{sys.prefix} && mount --rbind {sys.prefix} {root}{sys.prefix}",
            f"rm -rf {root}/opt/tan && ln -s {sys.prefix} {root}/opt/tan",
        ]

    def _mounted(self, source: str, target: str, *, is_image: bool) -> str:
        path = Path(source)
        if not source.startswith((".", "/")):
            path = self.folder / "volumes" / source
            path.mkdir(parents=True, exist_ok=True)
        path = path if path.is_absolute() else ROOT / path
        if path.is_dir():
            # A volume takes owner and mode from the folder that it covers first.
            taken = f'[ ! -d {target} ] || [ -n "$(ls -A {path})" ] || {{ chown --reference={target} {path}; chmod --reference={target} {path}; }}'
            lines = [taken] if is_image and not source.startswith((".", "/")) else []
            return "\n".join([*lines, f"mkdir -p {target} && mount --bind {path} {target}"])
        return f"mkdir -p {Path(target).parent} && touch {target} && mount --bind {path} {target}"


def _bridge(number: int) -> str:
    return f"{PREFIX}br{number}"


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True)
