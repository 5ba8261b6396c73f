"""The API, one function per request. Documents come back as the server wrote them."""

import contextlib
import json
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import quote, urlsplit

import httpx

from service.cli.errors import (
    ApiError,
    CliError,
    InputError,
    LostAnswerError,
    UnknownStudyError,
    UnreachableError,
)
from service.cli.settings import ClientSettings

Json = dict[str, Any]

TIMEOUT_SECONDS = 60.0
SILENCE_SECONDS = 45.0
"""A stream that says nothing for so long, not even a keep-alive, is taken for dead."""
RESEND_AFTER_SECONDS = (0.5, 1.0, 2.0)
"""Waits before a submission whose answer was lost is sent again."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServerEvent:
    """One Server-Sent Event of a study."""

    id: str
    kind: str
    data: Json


class ApiClient:
    """A connection to one control plane; a context manager."""

    def __init__(
        self, settings: ClientSettings, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = settings.api_url
        headers = {"Accept": "application/json"}
        if settings.token:
            headers["Authorization"] = f"Bearer {settings.token}"
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(TIMEOUT_SECONDS, connect=5.0),
                transport=transport,
                # A proxy for the outside world has no business with this machine's own server.
                trust_env=urlsplit(self.url).hostname not in LOOPBACK,
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise CliError(f"TAN_API_URL is not an address: {self.url!r} ({error})") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    # Studies

    def plan(self, study: Json) -> Json:
        """What the study would do and cost; nothing is stored."""
        return self._json("POST", "/plans", json=study)

    def submit(self, study: Json, *, idempotency_key: str | None = None) -> Json:
        """The stored study. The same key twice gives the same study.

        A request whose answer was lost is sent again with its key, which is made up here unless
        given: one call makes one study at most.

        Raises:
            InputError: the key is not printable ASCII.
            UnreachableError: there was no server to send it to.
            LostAnswerError: it was sent, and sent again, and never answered.
        """
        key = idempotency_key or str(uuid.uuid4())
        if not (key.isascii() and key.isprintable()):
            raise InputError(f"an idempotency key is printable ASCII, got {key!a}")
        waits = iter(RESEND_AFTER_SECONDS)
        was_sent = False
        while True:
            try:
                return self._json("POST", "/studies", json=study, headers={"Idempotency-Key": key})
            except UnreachableError as error:
                was_sent = was_sent or not isinstance(error.__cause__, NEVER_SENT)
                if not was_sent:
                    raise
                wait = next(waits, None)
                if wait is None:
                    raise LostAnswerError(
                        self.url, error.cause, idempotency_key=key
                    ) from error.__cause__
                time.sleep(wait)

    def studies(
        self, *, states: Sequence[str] = (), name: str | None = None, limit: int | None = None
    ) -> Iterator[Json]:
        """Studies, newest first, page by page; no more than ``limit``."""
        query: dict[str, Any] = {"state": list(states)} if states else {}
        if name is not None:
            query["name"] = name
        left = limit
        while left is None or left > 0:
            page = self._json("GET", "/studies", params={**query, "limit": min(left or 100, 100)})
            yield from page["items"][:left]
            cursor = page.get("next_cursor")
            if not cursor or not page["items"]:
                return
            left = None if left is None else left - len(page["items"])
            query["cursor"] = cursor

    def study(self, study_id: str) -> Json:
        """One study."""
        return self._json("GET", f"/studies/{_part(study_id)}")

    def cancel(self, study_id: str) -> Json:
        """Ask for the study to stop; what was spent stays spent."""
        return self._json("POST", f"/studies/{_part(study_id)}/cancel")

    def pause(self, study_id: str) -> Json:
        """Let the study rest from its next checkpoint on."""
        return self._json("POST", f"/studies/{_part(study_id)}/pause")

    def resume(self, study_id: str) -> Json:
        """Go on with a paused study."""
        return self._json("POST", f"/studies/{_part(study_id)}/resume")

    def attempts(self, study_id: str) -> list[Json]:
        """Every driver of the study, the oldest first, and how it ended."""
        return self._json("GET", f"/studies/{_part(study_id)}/attempts")["items"]

    def logs(
        self,
        study_id: str,
        *,
        run: str | None = None,
        attempt: int | None = None,
        follow: bool = False,
    ) -> Iterator[str]:
        """What a driver said, part by part; with ``follow`` until its attempt has ended."""
        query = _without_none({"run": run, "attempt": attempt, "follow": follow or None})
        path = f"/studies/{_part(study_id)}/logs"
        # A driver may be silent for long.
        timeout = httpx.Timeout(None, connect=5.0)
        with self._stream("GET", path, params=query, timeout=timeout) as response:
            yield from response.iter_text()

    def promote(self, study_id: str, *, trial: int | None = None) -> Json:
        """Let the private run begin, with the search's winner or a named trial."""
        return self._json("POST", f"/studies/{_part(study_id)}/promote", json={"trial": trial})

    def statement(self, study_id: str) -> Json:
        """The signed privacy statement."""
        return self._json("GET", f"/studies/{_part(study_id)}/statement")

    def download_model(self, study_id: str, target: IO[bytes]) -> int:
        """Bytes of the private model (safetensors) that were written to ``target``."""
        written = 0
        with self._stream("GET", f"/studies/{_part(study_id)}/model") as response:
            for chunk in response.iter_bytes():
                written += target.write(chunk)
        return written

    def events(self, study_id: str, *, last_event_id: str | None = None) -> Iterator[ServerEvent]:
        """The study's events after ``last_event_id``, until the stream ends."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        with self._stream(
            "GET",
            f"/studies/{_part(study_id)}/events",
            headers=headers,
            timeout=httpx.Timeout(SILENCE_SECONDS, connect=5.0),
        ) as response:
            yield from parse_events(response.iter_lines())

    def calibration(
        self, *, dataset: str | None = None, model: str | None = None, limit: int
    ) -> Json:
        """Predictions of completed studies beside what was reached, and how often they held."""
        query = _without_none({"dataset": dataset, "model": model, "limit": limit})
        return self._json("GET", "/calibration", params=query)

    # Datasets

    def add_dataset(self, registration: Json) -> Json:
        """The registered dataset."""
        return self._json("POST", "/datasets", json=registration, timeout=600.0)

    def datasets(self) -> list[Json]:
        """Every registered dataset."""
        return self._json("GET", "/datasets")["items"]

    def dataset(self, name: str) -> Json:
        """One registered dataset."""
        return self._json("GET", f"/datasets/{_part(name)}")

    def ledger(self, dataset: str, *, entries: int = 50) -> Json:
        """The dataset's budget, where it went, and the newest entries of its journal."""
        return self._json("GET", f"/datasets/{_part(dataset)}/ledger", params={"entries": entries})

    def verify_ledger(self, dataset: str) -> Json:
        """Whether the dataset's journal is whole."""
        return self._json("GET", f"/datasets/{_part(dataset)}/ledger/verify")

    def accept_restored_backup(self, dataset: str, reason: str) -> Json:
        """The entry that says who goes on with a restored ledger, and why."""
        path = f"/datasets/{_part(dataset)}/ledger/restored-backup"
        return self._json("POST", path, json={"reason": reason})

    def export_ledger(self, dataset: str) -> Json:
        """The whole ledger, signed."""
        return self._json("GET", f"/datasets/{_part(dataset)}/ledger/export")

    def reprice_ledger(self, dataset: str, accountants: Sequence[str]) -> Json:
        """What the accountants of today make of the past."""
        path = f"/datasets/{_part(dataset)}/ledger/evaluations"
        return self._json("POST", path, json={"accountants": list(accountants)}, timeout=600.0)

    def set_cap(self, dataset: str, tenant: str, epsilon: float) -> Json:
        """A tenant's limit within the dataset's budget."""
        path = f"/datasets/{_part(dataset)}/caps/{_part(tenant)}"
        return self._json("PUT", path, json={"epsilon": epsilon})

    # Keys

    def keys(self) -> list[Json]:
        """The public keys of the service, the signing one first."""
        return self._json("GET", "/keys")["items"]

    def rotate_key(self) -> Json:
        """The fresh key that signs from now on."""
        return self._json("POST", "/keys/rotate")

    # Access

    def create_token(self, request: Json) -> Json:
        """A new token, with its text."""
        return self._json("POST", "/tokens", json=request)

    def tokens(self) -> list[Json]:
        """Every token without its secret."""
        return self._json("GET", "/tokens")["items"]

    def revoke_token(self, token_id: str) -> None:
        """End a token."""
        self._send("DELETE", f"/tokens/{_part(token_id)}")

    def audit(self, *, limit: int) -> Iterator[Json]:
        """Changes that were asked for, newest first, page by page; no more than ``limit``."""
        query: dict[str, Any] = {}
        while limit > 0:
            page = self._json("GET", "/audit", params={**query, "limit": min(limit, 1000)})
            yield from page["items"]
            limit -= len(page["items"])
            if page["next_cursor"] is None:
                return
            query["cursor"] = page["next_cursor"]

    # How a request is made

    def _json(self, method: str, path: str, **options: Any) -> Json:
        response = self._send(method, path, **options)
        try:
            return response.json()
        except ValueError as error:
            raise CliError(
                f"{self.url}{path} answered {response.status_code} without JSON: "
                "is this the address of a TAN Search server?"
            ) from error

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **_without_none(options))
        except httpx.HTTPError as error:
            raise UnreachableError(self.url, _cause(error)) from error
        if response.is_error:
            raise _api_error(response)
        return response

    @contextlib.contextmanager
    def _stream(self, method: str, path: str, **options: Any) -> Generator[httpx.Response]:
        try:
            with self._http.stream(method, path, **_without_none(options)) as response:
                if response.is_error:
                    response.read()
                    raise _api_error(response)
                yield response
        except httpx.HTTPError as error:
            raise UnreachableError(self.url, _cause(error)) from error


def open_client() -> ApiClient:
    """The client that the environment describes."""
    return ApiClient(ClientSettings.from_environment())


def find_study(client: ApiClient, reference: str) -> Json:
    """The study with this id, this unique beginning of an id, or (the newest) with this name.

    Raises:
        UnknownStudyError: there is none, or the beginning is not unique.
    """
    try:
        return client.study(reference)
    except ApiError as error:
        if error.status not in (404, 422):
            raise
    summary = next(iter(client.studies(name=reference, limit=1)), None)
    if summary is not None and summary["name"] == reference:
        return client.study(summary["id"])
    matching = [s for s in client.studies(limit=1000) if s["id"].startswith(reference)]
    if len(matching) == 1:
        return client.study(matching[0]["id"])
    if matching:
        some = ", ".join(s["id"] for s in matching[:5])
        raise UnknownStudyError(
            f"{reference!r} is the beginning of {len(matching)} studies: {some}"
        )
    raise UnknownStudyError(
        f"no study has the id or the name {reference!r}; `tan-cli list` shows them"
    )


def parse_events(lines: Iterator[str]) -> Iterator[ServerEvent]:
    """Events of a ``text/event-stream``; comments and events without data are passed over."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                yield _event(fields)
            fields = {}
            continue
        name, _, value = line.partition(":")
        if name in ("id", "event"):
            fields[name] = value.removeprefix(" ")
        elif name == "data":
            before = f"{fields['data']}\n" if "data" in fields else ""
            fields["data"] = before + value.removeprefix(" ")


def _event(fields: Mapping[str, str]) -> ServerEvent:
    try:
        data = json.loads(fields["data"])
    except ValueError as error:
        raise CliError(f"the server sent an event that is not JSON: {fields['data']!r}") from error
    return ServerEvent(fields.get("id", ""), fields.get("event", "message"), data)


def _api_error(response: httpx.Response) -> ApiError:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": f"HTTP {response.status_code} {response.reason_phrase}"}
    return ApiError(response.status_code, problem)


def _cause(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    return str(error) or type(error).__name__


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _part(text: str) -> str:
    return quote(text, safe="")


def read_json(path: Path) -> Json:
    """A JSON object in a file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise CliError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CliError(f"{path} holds no JSON object")
    return document
