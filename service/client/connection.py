"""How the client's requests are made: answers become models, problems become errors."""

import contextlib
import re
from collections.abc import Generator, Mapping
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from service.client.answers import Model, understood
from service.client.errors import (
    ClientError,
    ProblemError,
    UnreachableError,
    UnsendableTokenError,
)
from service.errors import Problem
from service.hosts import leads_here

Body = BaseModel | Mapping[str, Any]
"""What is sent: a model, or the same as a mapping, which the service alone judges."""

CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 45.0
"""A stream that says nothing for so long, not even a keep-alive, is taken for dead."""
SLOW_SECONDS = 600.0
"""For what reads a whole dataset or prices a whole ledger."""
_SENDABLE = re.compile(r"[!-~]+(?: +[!-~]+)*")
"""What a header carries as it is."""


class Connection:
    """A connection to one service; a context manager.

    Args:
        url: of the service, ``http://host:port``.
        token: sent with every request; None: none is.
        timeout: seconds to wait for an answer.
        transport: in place of the network.

    Raises:
        ValueError: the address is none.
        UnsendableTokenError: the token cannot stand in a header. Its value is in no message.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url
        try:
            self._http = httpx.Client(
                base_url=url,
                headers={"Accept": "application/json"} | (_authorization(token) if token else {}),
                timeout=_timeout(timeout),
                transport=transport,
                # A proxy for the outside world has no business with this machine's own server.
                trust_env=not leads_here(url),
            )
        except httpx.InvalidURL as error:
            raise ValueError(str(error)) from error

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
        query: Body | None = None,
        headers: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
    ) -> Model:
        response = self._send(
            method, path, body=body, query=query, headers=headers, timeout=timeout
        )
        try:
            return understood(answer, response.content)
        except ValidationError as error:
            raise ClientError(_no_answer(response, answer.__name__, str(error))) from error

    def _document(self, method: str, path: str) -> dict[str, Any]:
        """An answer that has to stay as it was signed."""
        response = self._send(method, path)
        try:
            found = response.json()
        except ValueError as error:
            raise ClientError(_no_answer(response, "JSON", str(error))) from error
        if not isinstance(found, dict):
            raise ClientError(_no_answer(response, "JSON object", f"{found!r:.50}"))
        return found

    def _done(self, method: str, path: str) -> None:
        """What is answered by no content: a page that a proxy shows in the service's place is no sign that it was done."""
        response = self._send(method, path)
        if response.status_code != HTTPStatus.NO_CONTENT:
            raise ClientError(_no_answer(response, "answer", "it has a content"))

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Body | None = None,
        query: Body | None = None,
        headers: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        request = self._http.build_request(
            method,
            path,
            json=_sent(body),
            params=_given(query),
            headers=_given(headers),
            timeout=httpx.USE_CLIENT_DEFAULT if timeout is None else _timeout(timeout),
        )
        with self._clear_errors():
            response = self._http.send(request)
        if response.is_error:
            raise ProblemError(_problem(response), path=path)
        if response.is_redirect:
            raise ClientError(_no_answer(response, "answer", "it leads elsewhere"))
        return response

    @contextlib.contextmanager
    def _stream(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        silence: float | None = SILENCE_SECONDS,
    ) -> Generator[httpx.Response]:
        with (
            self._clear_errors(),
            self._http.stream(
                "GET",
                path,
                params=_given(query),
                headers=_given(headers),
                timeout=_timeout(silence),
            ) as response,
        ):
            if response.is_error:
                response.read()
                raise ProblemError(_problem(response), path=path)
            yield response

    @contextlib.contextmanager
    def _clear_errors(self) -> Generator[None]:
        try:
            yield
        except httpx.TimeoutException as error:
            raise UnreachableError(self.url, "no answer in time") from error
        except httpx.HTTPError as error:
            raise UnreachableError(self.url, str(error) or type(error).__name__) from error
        except UnicodeError as error:  # what a name server cannot be asked for
            raise UnreachableError(self.url, "its host is no name") from error


def _timeout(seconds: float | None) -> httpx.Timeout:
    """For an answer, or between two parts of it; a server is there sooner than that, or not at all."""
    connect = CONNECT_SECONDS if seconds is None else min(seconds, CONNECT_SECONDS)
    return httpx.Timeout(seconds, connect=connect)


def part(text: str) -> str:
    """A name as a part of a path, whatever is in it."""
    # Dots by themselves would be taken for the way to a folder, before it is sent.
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def study_path(study_id: str) -> str:
    """Where a study is."""
    return f"/studies/{part(study_id)}"


def _authorization(token: str) -> dict[str, str]:
    """The header; checked here, since what httpx says of one that it cannot send repeats it."""
    carried = _SENDABLE.match(token)
    end = carried.end() if carried else 0
    if end < len(token):
        raise UnsendableTokenError(end + 1)
    return {"Authorization": f"Bearer {token}"}


def _problem(response: httpx.Response) -> Problem:
    try:
        return Problem.model_validate_json(response.content)
    except ValueError:
        return Problem(
            title=response.reason_phrase,
            status=response.status_code,
            detail=_no_answer(response, "problem document", response.reason_phrase),
        )


def _no_answer(response: httpx.Response, expected: str, why: str) -> str:
    request = response.request
    return (
        f"{request.method} {request.url} was answered {response.status_code} by what is no "
        f"{expected} ({why.splitlines()[0] if why else 'nothing'}): is this the address of a TAN "
        "Search server, and is it as new as this program?"
    )


def _sent(body: Body | None) -> Any:
    return body.model_dump(mode="json", exclude_unset=True) if isinstance(body, BaseModel) else body


def _given(values: Body | None) -> dict[str, Any]:
    """What was said; the server has its own defaults."""
    if isinstance(values, BaseModel):
        values = values.model_dump(mode="json", exclude_unset=True)
    return {name: value for name, value in (values or {}).items() if value is not None}
