"""Checks of this machine: programs, memory, disk, ports, files."""

import ctypes
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import httpx

from service.cli.doctor.check import PROGRAM_SECONDS, Finding, failure, ok, warning
from service.cli.settings import running_server
from service.hosts import connectable, url_of
from service.settings import Settings, unread_settings
from tan_core.kernels_version import KERNELS_VERSION

GIGABYTE = 1e9
LITTLE_DISK, NO_DISK = 10 * GIGABYTE, 1 * GIGABYTE
LITTLE_MEMORY, NO_MEMORY = 4 * GIGABYTE, 1 * GIGABYTE
OLDEST_PYTHON = (3, 11)
GPU_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
SEES_GPU = "import json, torch; print(json.dumps([torch.cuda.is_available(), torch.version.cuda]))"
RUNS_KERNELS = 'import torch; from tan_core.engine import gpu; print(gpu.is_available(torch.device("cuda", 0)))'
SECRETS = ("secret", "webhook_secret", "*.secret", "*.token", "keys/statement-ed25519.pem")
"""Files of TAN_HOME that nobody else may read: keys, and passwords of what it starts."""


def settings(settings: Settings) -> Finding:
    """Whether every variable that is named as a setting is one."""
    if told := unread_settings():
        return warning("; ".join(told), "correct the names, or unset them")
    return ok(f"TAN_HOME is {settings.home_path}")


def python() -> Finding:
    """The interpreter and this package."""
    found = (
        f"Python {sys.version.split()[0]}, tan-search {_version('tan-search') or 'from its source'}"
    )
    if sys.version_info < OLDEST_PYTHON:
        return failure(found, "install Python 3.11 or newer")
    return ok(found)


def gpu() -> Finding:
    """Whether torch sees what the driver has, and the engine's kernels run there."""
    torch = _version("torch")
    if torch is None:
        return warning(
            "torch is not installed: studies cannot run here",
            "pip install 'tan-search[worker]', or let a Ray cluster run them (TAN_RAY_ADDRESS)",
        )
    if shutil.which(GPU_QUERY[0]) is None:
        return ok(f"torch {torch}; no NVIDIA driver: studies run on the CPU")
    asked = _output(*GPU_QUERY)
    if asked is None:
        return failure(
            "an NVIDIA driver is installed and does not answer", "run nvidia-smi: it says why"
        )
    devices = "; ".join(asked.splitlines())
    seen = _output(sys.executable, "-c", SEES_GPU)
    is_available, cuda = json.loads(seen) if seen else (False, None)
    if not is_available:
        why = "a CPU build" if cuda is None else f"for CUDA {cuda}, which this driver does not run"
        return warning(
            f"{devices}, and torch {torch} does not see it: it is {why}",
            "install torch's CUDA build; with make, delete .venv and set TAN_TORCH",
        )
    found = f"{devices}; torch {torch}, CUDA {cuda}"
    if _output(sys.executable, "-c", RUNS_KERNELS) != "True":
        compiler = shutil.which("gcc") or shutil.which("cc")
        return warning(
            f"{found}; the engine's kernels for GPUs do not run: private steps are several times slower",
            "install gcc, which Triton builds them with" if compiler is None else
            f"{Path(sys.executable).name} -c '{RUNS_KERNELS}' says why; GPUs older than Ampere have none",
        )  # fmt: skip
    return ok(f"{found}; the engine's kernels for GPUs run")


def _version_of(library: Path) -> int | None:
    """Of the kernels in a file; None where they cannot say it."""
    try:
        return ctypes.CDLL(str(library)).kernels_version()
    except (OSError, AttributeError):
        return None


def kernels() -> Finding:
    """Whether the engine's C kernels were built, for this Python and from this version."""
    package = find_spec("tan_core")
    places = list(package.submodule_search_locations or ()) if package else []
    name = f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}"
    for place in places:
        if (library := Path(place) / "engine" / "native" / name).is_file():
            if _version_of(library) == KERNELS_VERSION:
                return ok("the C kernels are built")
            return warning(
                "the C kernels are of another version, and not used: torch does their work, slower",
                "install this package again: pip install --force-reinstall --no-deps",
            )
    compiler = shutil.which("gcc") or shutil.which("cc")
    return warning(
        "the C kernels are not built: torch does their work, slower",
        "install gcc, then install this package again" if compiler is None else
        "install this package again: pip install --force-reinstall --no-deps",
    )  # fmt: skip


def memory() -> Finding:
    """What is free for Ray, its workers and the database."""
    free, total = _memory()
    cores = len(os.sched_getaffinity(0))
    found = f"{_size(free)} free of {_size(total)}; {cores} cores"
    if free < NO_MEMORY:
        return failure(found, "stop something: a local service needs about 2 GB")
    if free < LITTLE_MEMORY:
        return warning(found, "a local service needs about 2 GB, and large models more")
    return ok(found)


def disk(settings: Settings) -> Finding:
    """What is free where state and checkpoints are written."""
    places = {"TAN_HOME": settings.home_path, "TAN_STORAGE": settings.storage_path}
    free = {name: shutil.disk_usage(_existing(path)).free for name, path in places.items()}
    blocked = {
        name: f"{name} ({path})"
        for name, path in places.items()
        if not os.access(_existing(path), os.W_OK)
    }
    found = ", ".join(
        f"{_size(free[name])} free at {path} ({name})" for name, path in places.items()
    )
    if blocked:
        told = f"{' and '.join(blocked.values())} cannot be written"
        if settings.is_part and "TAN_HOME" not in blocked:
            return warning(
                told, "that is right for an API: drivers and the orchestrator write there"
            )
        return failure(told, "give it to this user, or name another one")
    if min(free.values()) < NO_DISK:
        return failure(found, "make room: PostgreSQL and checkpoints stop when the disk is full")
    if min(free.values()) < LITTLE_DISK:
        return warning(found, "make room before the next study")
    return ok(found)


def port(settings: Settings) -> Finding:
    """Whether the API can listen, or does."""
    address = f"{settings.host}:{settings.port}"
    url = running_server(settings.home_path)
    if url is not None:
        return ok(f"a service runs at {url}")
    if settings.port == 0:
        return ok("any free port is taken (TAN_PORT is 0)")
    if settings.is_part and _is_api(settings):
        return ok(f"an API listens on {address}")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        return failure(
            f"{address} cannot be listened on: {error.strerror or error}",
            "tan-cli serve --port 0 takes a free one; TAN_PORT names another one",
        )
    return ok(f"{address} is free")


def secrets(settings: Settings) -> Finding:
    """Whether nobody but their owner can read keys and passwords."""
    home = settings.home_path
    kept = sorted(path for name in SECRETS for path in home.glob(name) if path.is_file())
    if not kept:
        return ok(f"no keys in {home} yet: the first start makes them")
    open_ = [path for path in kept if stat.S_IMODE(path.stat().st_mode) & 0o077]
    if open_:
        names = " ".join(map(str, open_))
        return failure(f"others can read {names}", f"chmod 600 {names}; then tan-cli key rotate")
    if told := settings.open_home:
        return warning(*told.split(": ", 1))
    return ok(f"{len(kept)} keys and passwords in {home}, each for its owner alone")


def _memory() -> tuple[float, float]:
    """Bytes that are available, and all of them."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    known = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines)}
    return 1024 * float(known["MemAvailable"]), 1024 * float(known["MemTotal"])


def _is_api(settings: Settings) -> bool:
    """Whether an API listens on our port: in its container that is ourselves."""
    try:
        url = f"{url_of(connectable(settings.host), settings.port)}/healthz"
        answer = httpx.get(url, timeout=5.0, trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.is_success


def _existing(path: Path) -> Path:
    """The path, or the folder above it in which it would be made."""
    return next(each for each in (path, *path.parents) if each.exists())


def _output(*command: str) -> str | None:
    """What a program printed; None: it failed, or gave no answer in time."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PROGRAM_SECONDS
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _size(count: float) -> str:
    return f"{count / GIGABYTE:.1f} GB"
