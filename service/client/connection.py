"""How the client's requests are made: answers become models, problems become errors.

ClientError
├── UnreachableError      nothing answered, or not in time
└── ProblemError          the service said no, and why
"""

import contextlib
import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import BaseModel

from service.errors import Problem
from service.hosts import is_loopback

Model = TypeVar("Model", bound=BaseModel)
Body = BaseModel | Mapping[str, Any]

SILENCE_SECONDS = 45.0
"""A stream that says nothing for so long, not even a keep-alive, is taken for dead."""


class ClientError(Exception):
    """A request that was not answered as it was meant to be."""


class UnreachableError(ClientError):
    """Nothing answered, or not in time: what was asked for may have been done."""


class ProblemError(ClientError):
    """The service refused; ``problem`` says why, ``status`` is the HTTP status."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem
        self.status = problem.status


@dataclass(frozen=True)
class Event:
    """One event of a study."""

    seq: int
    kind: str
    data: dict[str, Any]


class Connection:
    """A connection to one service; a context manager.

    Args:
        url: of the service, ``http://host:port``.
        token: sent with every request; None: none is.
        timeout: seconds to wait for an answer.
        transport: in place of the network.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(
            base_url=url,
            headers={"Accept": "application/json"}
            | ({"Authorization": f"Bearer {token}"} if token else {}),
            timeout=httpx.Timeout(timeout, connect=5.0),
            transport=transport,
            # A proxy for the outside world has no business with this machine's own server.
            trust_env=not is_loopback(urlsplit(url).hostname or ""),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back."""
        self._http.close()

    def _ask(
        self,
        answer: type[Model],
        method: str,
        path: str,
        *,
        body: Body | None = None,
        query: BaseModel | Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Model:
        response = self._send(method, path, body=body, query=query, headers=headers)
        return answer.model_validate_json(response.content)

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Body | None = None,
        query: BaseModel | Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> httpx.Response:
        request = self._http.build_request(
            method, path, json=_sent(body), params=_given(query), headers=_given(headers)
        )
        with _clear_errors():
            response = self._http.send(request)
        if response.is_error:
            raise ProblemError(_problem(response))
        return response

    @contextlib.contextmanager
    def _stream(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Generator[httpx.Response]:
        with (
            _clear_errors(),
            self._http.stream(
                "GET",
                path,
                params=_given(query),
                headers=_given(headers),
                timeout=httpx.Timeout(SILENCE_SECONDS, connect=5.0),
            ) as response,
        ):
            if response.is_error:
                response.read()
                raise ProblemError(_problem(response))
            yield response


def part(text: str) -> str:
    """A name as a part of a path, whatever is in it."""
    return quote(text, safe="")


def events(lines: Iterator[str]) -> Iterator[Event]:
    """The events of a ``text/event-stream`` as the service writes them: one line of data each."""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "data":
            data = json.loads(value)
            yield Event(seq=data["seq"], kind=data["kind"], data=data)


@contextlib.contextmanager
def _clear_errors() -> Generator[None]:
    try:
        yield
    except httpx.TimeoutException as error:
        raise UnreachableError("no answer in time") from error
    except httpx.HTTPError as error:
        raise UnreachableError(str(error) or type(error).__name__) from error


def _problem(response: httpx.Response) -> Problem:
    try:
        return Problem.model_validate_json(response.content)
    except ValueError:
        return Problem(
            title=response.reason_phrase,
            status=response.status_code,
            detail="the answer is no problem document: is this the address of a TAN Search service?",
        )


def _sent(body: Body | None) -> Any:
    return body.model_dump(mode="json", exclude_unset=True) if isinstance(body, BaseModel) else body


def _given(values: BaseModel | Mapping[str, Any] | None) -> dict[str, Any]:
    """What was said; the server has its own defaults."""
    if isinstance(values, BaseModel):
        values = values.model_dump(mode="json", exclude_unset=True)
    return {name: value for name, value in (values or {}).items() if value is not None}
