"""Checks of what the command line talks to: the API, the database, Ray, the datasets."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from service import text
from service.cli.doctor.check import PROGRAM_SECONDS, Finding, failure, ok, unanswered, warning
from service.cli.errors import EXPORT_AGAIN
from service.cli.settings import ClientSettings, running_server
from service.client import (
    Client,
    ClientError,
    ProblemError,
    UnreachableError,
    UnsendableTokenError,
)
from service.hosts import is_loopback, is_only_here, leads_here, url_of
from service.settings import Settings

TIMEOUT_SECONDS = 10.0
"""Of one request: a server that answers at all does so sooner."""
CLOCK_SECONDS = 5.0
"""A difference that nobody has to think about."""
NO_SERVER = "tan-cli serve starts one here; TAN_API_URL names another one"


def api(settings: ClientSettings) -> Finding:
    """Whether the API answers, can serve, and knows the token."""
    try:
        with _client(settings) as client:
            ready = client.readyz()
            if ready.detail is not None:
                return failure(
                    f"{settings.api_url} serves nothing but datasets and ledgers: {ready.detail}",
                    'what it says is explained in docs/ledger.md, "A restored backup"',
                )
            return _rights(client, settings)
    except UnreachableError as error:
        found = f"nobody answers at {settings.api_url} ({error.cause})"
        return failure(found, NO_SERVER) if settings.is_stated else warning(found, NO_SERVER)
    except ProblemError as error:
        return failure(
            f"{settings.api_url} cannot serve: {error.problem.detail}",
            "see the database check; the log of the service says more",
        )
    except UnsendableTokenError as error:
        return failure(f"TAN_API_TOKEN {error.fault}", EXPORT_AGAIN)
    except (ClientError, ValueError) as error:
        return failure(str(error), "TAN_API_URL names a server: http://HOST:PORT")


def clock(settings: ClientSettings, database: Callable[[], float | None]) -> Finding:
    """This machine's clock beside those of the API and of the database."""
    ahead = {"the API": _api_ahead(settings), "the database": database()}
    known = {who: seconds for who, seconds in ahead.items() if seconds is not None}
    if not known:
        return ok("nothing to compare this machine's clock with: neither API nor database answers")
    found = ", ".join(f"{who} differs by {seconds:+.1f} s" for who, seconds in known.items())
    if max(map(abs, known.values())) > CLOCK_SECONDS:
        return warning(
            found, "let NTP set every clock: tokens and statements carry times that people compare"
        )
    return ok(found)


class Database:
    """The database as ``service.maintenance`` sees it, in a process that holds the database code."""

    def __init__(self) -> None:
        self._seen: dict[str, object] = {}
        self._is_done = False

    def check(self) -> Finding:
        """Whether it can be reached, and has this version's schema."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "service.maintenance", "look"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=PROGRAM_SECONDS,
            )
            if done.returncode != 0:
                lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
                return failure(
                    lines[-1], "look at TAN_DATABASE_URL, and whether PostgreSQL runs there"
                )
            self._seen = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            return unanswered(
                "the look at the database",
                PROGRAM_SECONDS,
                "look at TAN_DATABASE_URL and the network",
            )
        finally:
            self._is_done = True
        return self._finding()

    def ahead_seconds(self) -> float | None:
        """Its clock less this machine's; None where it does not run."""
        while not self._is_done:
            time.sleep(0.02)
        ahead = self._seen.get("clock_ahead_seconds")
        return ahead if isinstance(ahead, float) else None

    def _finding(self) -> Finding:
        seen, database = self._seen, self._seen.get("database")
        if not isinstance(database, dict):
            made = "rests" if seen["is_made"] else "is not made yet"
            return ok(f"the database of {seen['home']} {made}: tan-cli serve starts it")
        found = (
            f"PostgreSQL {database['postgres']} at {database['database']}, schema "
            f"{database['schema_version'] or 'none'}"
        )
        advice = {
            "empty": "tan-cli db upgrade, or tan-cli db restore FILE",
            "behind": "tan-cli db backup FILE with the older version, then tan-cli db upgrade",
            "newer": "upgrade this program: the database is newer",
        }.get(database["state"])
        if advice is None:
            return ok(f"{found}, as needed")
        return failure(f"{found}, needed {database['needed']}", advice)


def ray(settings: Settings) -> Finding:
    """Whether there is a Ray to run studies on."""
    try:
        installed = version("ray")
    except PackageNotFoundError:
        installed = None
    if settings.ray_address is not None:
        return _cluster(settings.ray_address, settings.ray_token_path, installed)
    if installed is None:
        told = "Ray is not installed, and TAN_RAY_ADDRESS names no cluster"
        if settings.is_part:
            return warning(told, "that is right for an API; the orchestrator needs TAN_RAY_ADDRESS")
        return failure(told, "pip install 'tan-search[worker]', or set TAN_RAY_ADDRESS")
    if running_server(settings.home_path) is None:
        return ok(f"Ray {installed}; no head runs: tan-cli serve starts one")
    return ok(f"Ray {installed}; the running service has a head of its own")


def workers(settings: Settings) -> Finding:
    """Whether drivers can reach the API where they are told to find it, as far as it is seen from here."""
    url = settings.worker_url
    if url is None:
        url = url_of(settings.host, settings.port)
        if settings.ray_address is None:
            return ok("drivers run here and find the API at its own address")
    ray_host = urlsplit(settings.ray_address or "").hostname or "localhost"
    advice = "set TAN_WORKER_URL to an address of the API that every Ray node can reach"
    if is_only_here(urlsplit(url).hostname or "") and not is_loopback(ray_host):
        return warning(f"drivers on {ray_host} are told {url}, which is their own machine", advice)
    try:
        answer = httpx.get(f"{url}/healthz", timeout=TIMEOUT_SECONDS, trust_env=False)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return warning(f"from here nobody answers at {url}, where drivers look ({error})", advice)
    return ok(f"the API answers at {url}, where drivers look")


def data(settings: Settings, client_settings: ClientSettings) -> Finding:
    """Whether the folder of examples and the files of registered datasets can be read here."""
    folder = settings.data_dir
    if folder is not None and not os.access(folder.expanduser(), os.R_OK | os.X_OK):
        return failure(
            f"TAN_DATA_DIR = {folder} cannot be read", "name another folder, or unset it"
        )
    try:
        with _client(client_settings) as client:
            registered = client.list_datasets().items
    except (ClientError, ValueError):
        known = (
            "TAN_DATA_DIR is not set" if folder is None else f"TAN_DATA_DIR = {folder} can be read"
        )
        return ok(f"{known}; without a server, registered datasets are not known")
    paths = {each.name: each.path for each in registered if each.path is not None}
    lost = [f"{name} ({path})" for name, path in paths.items() if not os.access(path, os.R_OK)]
    if not lost:
        return ok(f"{text.counted(len(registered), 'dataset')}, their files readable here")
    found = f"not readable here: {', '.join(lost)}"
    advice = "put the files back, or mount their folder: every node reads them at the same path"
    is_here = leads_here(client_settings.api_url)
    return failure(found, advice) if is_here else warning(found, advice)


def _rights(client: Client, settings: ClientSettings) -> Finding:
    """What the token may do, as far as reading tells."""
    where = f"{settings.api_url} answers"
    try:
        client.list_studies({"limit": 1})
    except ProblemError as error:
        if error.status == 401:
            said = "TAN_API_TOKEN is refused" if settings.token else "it asks for a token"
            return failure(
                f"{where}, and {said}: {error.problem.detail}",
                "export TAN_API_TOKEN=...; an admin makes one: tan-cli token create NAME --scope submit",
            )
        if error.status == 403:
            return failure(
                f"{where}, and the token may not even read",
                "an admin gives another one: tan-cli token create NAME --scope read",
            )
        raise
    try:
        client.list_tokens()
        rights = "everything (admin)"
    except ProblemError as error:
        if error.status != 403:
            raise
        rights = "read, and whatever else its scopes say, but not administer"
    who = "the token may" if settings.token else "no token is asked for: who is here may"
    return ok(f"{where}; {who} {rights}")


def _cluster(address: str, token_path: Path | None, installed: str | None) -> Finding:
    """Whether the cluster's Jobs API answers with the token."""
    headers: dict[str, str] = {}
    try:
        if token_path is not None:
            headers["Authorization"] = f"Bearer {token_path.expanduser().read_text().strip()}"
        answer = httpx.get(
            f"{address}/api/version",
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            trust_env=not leads_here(address),
        )
        answer.raise_for_status()
        theirs = str(answer.json()["ray_version"])
    except OSError as error:
        return failure(
            f"TAN_RAY_TOKEN_PATH = {token_path} cannot be read: {error}", "name its file"
        )
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        return failure(
            f"no Ray Jobs API answers at {address} ({error})",
            "look at TAN_RAY_ADDRESS (http://HOST:8265) and TAN_RAY_TOKEN_PATH",
        )
    if installed not in (None, theirs):
        return warning(
            f"the cluster at {address} has Ray {theirs}, this machine {installed}",
            "install the same version on both",
        )
    return ok(f"the cluster at {address} has Ray {theirs}")


def _api_ahead(settings: ClientSettings) -> float | None:
    """The clock of the API less this machine's, to half a second; None: it does not answer."""
    try:
        before = time.time()
        answer = httpx.get(
            f"{settings.api_url}/healthz",
            timeout=TIMEOUT_SECONDS,
            trust_env=not leads_here(settings.api_url),
        )
        after = time.time()
        theirs = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None
    return theirs + 0.5 - (before + after) / 2  # a Date has whole seconds, cut off


def _client(settings: ClientSettings) -> Client:
    return Client(settings.api_url, token=settings.token, timeout=TIMEOUT_SECONDS)
