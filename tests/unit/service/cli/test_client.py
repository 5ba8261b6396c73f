import contextlib
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from service.cli import client as client_module
from service.cli.client import ApiClient, parse_events
from service.cli.errors import (
    ApiError,
    CliError,
    Exit,
    InputError,
    LostAnswerError,
    UnreachableError,
)
from service.cli.settings import ClientSettings


class TestParseEvents:
    def test_ids_kinds_and_data_are_read_and_comments_passed_over(self) -> None:
        lines = [": hello", "", "id: 7", "event: step", 'data: {"a":', "data: 1}", "", "id: 8", ""]
        [event] = parse_events(iter(lines))
        assert (event.id, event.kind, event.data) == ("7", "step", {"a": 1})

    def test_an_event_that_the_line_cut_short_is_not_delivered(self) -> None:
        assert list(parse_events(iter(["id: 1", 'data: {"a": 1}']))) == []

    def test_data_that_is_not_json_is_refused(self) -> None:
        with pytest.raises(CliError, match="not JSON"):
            list(parse_events(iter(["data: {", ""])))


class TestApiError:
    @pytest.mark.parametrize(
        ("status", "kind", "code"),
        [
            (422, "about:blank", Exit.BAD_INPUT),
            (400, "about:blank", Exit.BAD_INPUT),
            (409, "/problems/over-budget", Exit.OVER_BUDGET),
            (409, "about:blank", Exit.FAILED),
            (404, "about:blank", Exit.FAILED),
            (401, "about:blank", Exit.FAILED),
            (500, "/problems/over-budget", Exit.FAILED),
        ],
    )
    def test_the_status_and_type_decide_the_exit_code(
        self, status: int, kind: str, code: Exit
    ) -> None:
        assert ApiError(status, {"type": kind, "detail": "no"}).exit_code == code

    def test_an_answer_that_is_no_problem_still_names_the_status(self) -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(502, text="<html>"))
        with (
            ApiClient(ClientSettings(), transport=transport) as client,
            pytest.raises(ApiError, match="502 Bad Gateway"),
        ):
            client.datasets()


class TestPages:
    def test_every_page_is_read_and_no_more_than_asked(self) -> None:
        asked: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.query.decode())
            start = int(request.url.params.get("cursor", "0"))
            size = int(request.url.params["limit"])
            items = [{"id": str(n)} for n in range(start, start + size)]
            return httpx.Response(200, json={"items": items, "next_cursor": str(start + size)})

        with ApiClient(ClientSettings(), transport=httpx.MockTransport(answer)) as client:
            found = list(client.studies(states=["failed", "queued"], limit=130))

        assert [item["id"] for item in found] == [str(n) for n in range(130)]
        assert asked == [
            "state=failed&state=queued&limit=100",
            "state=failed&state=queued&cursor=100&limit=30",
        ]

    def test_names_are_escaped_in_paths(self) -> None:
        paths: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response:
            paths.append(request.url.raw_path.decode())
            return httpx.Response(200, json={})

        with ApiClient(ClientSettings(), transport=httpx.MockTransport(answer)) as client:
            client.dataset("../studies")
        assert paths == ["/datasets/..%2Fstudies"]


class Flaky:
    """A server that stores what it is sent, and whose first answers are lost on the way."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.keys: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers["Idempotency-Key"])
        if self.failures:
            raise self.failures.pop(0)
        return httpx.Response(200, json={"id": "s-1"})


@pytest.fixture
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RESEND_AFTER_SECONDS", (0.0, 0.0, 0.0))


@pytest.mark.usefixtures("_no_waiting")
class TestSubmit:
    def submit(self, server: Any, **options: Any) -> dict[str, Any]:
        with ApiClient(ClientSettings(), transport=httpx.MockTransport(server)) as client:
            return client.submit({"name": "a"}, **options)

    @pytest.mark.parametrize(
        "lost", [httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.WriteError]
    )
    def test_a_lost_answer_is_asked_for_again_with_the_same_key(self, lost: Any) -> None:
        server = Flaky(lost("gone"), httpx.ConnectError("restarting"), lost("gone"))

        assert self.submit(server)["id"] == "s-1"
        assert len(server.keys) == 4
        assert len(set(server.keys)) == 1

    def test_two_submissions_have_two_keys(self) -> None:
        server = Flaky()
        self.submit(server)
        self.submit(server)

        assert len(set(server.keys)) == 2

    def test_a_given_key_is_kept(self) -> None:
        server = Flaky(httpx.ReadTimeout("slow"))
        self.submit(server, idempotency_key="mine")

        assert server.keys == ["mine", "mine"]

    @pytest.mark.parametrize("key", ["clé", "a\n", "\x00"])
    def test_a_key_that_no_header_can_hold_is_refused(self, key: str) -> None:
        with pytest.raises(InputError, match="printable ASCII"):
            self.submit(Flaky(), idempotency_key=key)

    def test_after_three_more_tries_the_user_is_told_the_key(self) -> None:
        server = Flaky(*[httpx.ReadTimeout("slow")] * 9)
        with pytest.raises(LostAnswerError, match="no answer in time") as caught:
            self.submit(server)

        assert len(server.keys) == 4
        assert f"--idempotency-key {server.keys[0]}" in caught.value.message

    def test_what_never_left_is_not_sent_again(self) -> None:
        server = Flaky(httpx.ConnectError("refused"))
        with pytest.raises(UnreachableError):
            self.submit(server)

        assert len(server.keys) == 1

    @pytest.mark.parametrize("status", [409, 422, 500, 503])
    def test_an_answer_is_an_answer_even_if_it_is_a_refusal(self, status: int) -> None:
        asked: list[httpx.Request] = []

        def refuse(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            return httpx.Response(status, json={"detail": "no"})

        with pytest.raises(ApiError):
            self.submit(refuse)
        assert len(asked) == 1

    def test_over_a_real_socket_a_dropped_connection_makes_one_study(self) -> None:
        with drops_its_first_answer() as (url, keys):
            client = ApiClient(ClientSettings(api_url=url))
            with client:
                assert client.submit({"name": "a"})["id"] == "s-1"

        assert len(keys) == 2
        assert len(set(keys)) == 1


@contextlib.contextmanager
def drops_its_first_answer() -> Generator[tuple[str, list[str]]]:
    """A server that reads its first request and closes the connection without a word."""
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            keys.append(self.headers["Idempotency-Key"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.close_connection = True
            if len(keys) == 1:
                return
            body = b'{"id": "s-1"}'
            self.send_response(201)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", keys
        finally:
            server.shutdown()
            thread.join()
