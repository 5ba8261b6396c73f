"""One call makes one study; a list is read page by page."""

import contextlib
import json
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest

from service.client import Client, LostAnswerError, ProblemError, UnreachableError
from service.client import studies as studies_module
from tests.support.http_server import listening
from tests.unit.service.cli.recorded import STUDY, SUMMARY, TRIALS


class TestPages:
    def test_every_page_is_read_and_no_more_than_asked(self) -> None:
        asked: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.query.decode())
            start = int(request.url.params.get("cursor", "0"))
            size = int(request.url.params["limit"])
            items = [{**SUMMARY, "id": str(n)} for n in range(start, start + size)]
            return httpx.Response(200, json={"items": items, "next_cursor": str(start + size)})

        with Client("http://x", transport=httpx.MockTransport(answer)) as client:
            found = list(client.every_study({"state": ["failed", "queued"]}, limit=330))

        assert [study.id for study in found] == [str(n) for n in range(330)]
        assert asked == [
            "state=failed&state=queued&limit=200",
            "state=failed&state=queued&limit=130&cursor=200",
        ]

    def test_rows_are_of_the_trials_of_every_page(self) -> None:
        asked: list[dict[str, str]] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(dict(request.url.params))
            return httpx.Response(
                200,
                json={
                    "items": [TRIALS[len(asked) - 1]],
                    "next_cursor": [None, "c"][len(asked) % 2],
                },
            )

        with Client("http://x", transport=httpx.MockTransport(answer)) as client:
            rows = client.trial_rows(STUDY["id"], {"state": ["completed", "diverged"]})

        assert [row["number"] for row in rows] == [1, 0]
        assert {type(value) for row in rows for value in row.values()} <= {
            *(int, float, str, type(None)),
        }
        assert set(rows[0]) == set(rows[1])
        assert rows[0].items() >= {
            ("state", "completed"), ("value", 0.9301), ("expected_batch_size", 32.0),
            ("learning_rate", 0.512345), ("momentum", None), ("accuracy_rung_1", 0.9301),
        }  # fmt: skip
        assert [each.get("cursor") for each in asked] == [None, "c"]

    def test_without_a_limit_the_service_says_how_long_a_page_is(self) -> None:
        asked: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.query.decode())
            cursor = None if "cursor" in request.url.params else "1"
            return httpx.Response(200, json={"items": [SUMMARY], "next_cursor": cursor})

        with Client("http://x", transport=httpx.MockTransport(answer)) as client:
            assert len(list(client.every_study({"name": "a"}))) == 2

        assert asked == ["name=a", "name=a&cursor=1"]

    @pytest.mark.parametrize(("follow", "silence"), [(None, 45.0), (False, 45.0), (True, None)])
    def test_a_log_that_is_there_is_not_waited_for_without_end(
        self, follow: bool | None, silence: float | None
    ) -> None:
        waits: list[float | None] = []

        def answer(request: httpx.Request) -> httpx.Response:
            waits.append(request.extensions["timeout"]["read"])
            return httpx.Response(200, text="said\n")

        with Client("http://x", transport=httpx.MockTransport(answer)) as client:
            assert "".join(client.read_log("s-1", follow=follow)) == "said\n"
        assert waits == [silence]

    def test_names_are_escaped_in_paths(self) -> None:
        paths: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response:
            paths.append(request.url.raw_path.decode())
            return httpx.Response(204)

        with Client("http://x", transport=httpx.MockTransport(answer)) as client:
            client.revoke_token("../studies")
            client.revoke_token("..")
        assert paths == ["/tokens/..%2Fstudies", "/tokens/%2E%2E"]


class Flaky:
    """A server that stores what it is sent, and whose first answers are lost on the way."""

    def __init__(self, *failures: Exception | int) -> None:
        """What goes wrong; a number: a proxy has waited in vain, and says so by this status."""
        self.failures = list(failures)
        self.keys: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers["Idempotency-Key"])
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return httpx.Response(failure, text="<html>")
        return httpx.Response(201, json=STUDY)


@pytest.fixture
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies_module, "RESEND_AFTER_SECONDS", (0.0, 0.0, 0.0))


@pytest.mark.usefixtures("_no_waiting")
class TestSubmit:
    def submit(self, server: Any, **options: Any) -> str:
        with Client("http://x", transport=httpx.MockTransport(server)) as client:
            return client.submit_study({"name": "a"}, **options).id

    @pytest.mark.parametrize(
        "lost", [httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.WriteError]
    )
    def test_a_lost_answer_is_asked_for_again_with_the_same_key(self, lost: Any) -> None:
        server = Flaky(lost("gone"), httpx.ConnectError("restarting"), lost("gone"))

        assert self.submit(server) == STUDY["id"]
        assert len(server.keys) == 4
        assert len(set(server.keys)) == 1

    @pytest.mark.parametrize("status", [502, 504])
    def test_what_a_proxy_has_lost_is_asked_for_again_with_the_same_key(self, status: int) -> None:
        server = Flaky(status)
        assert self.submit(server) == STUDY["id"]
        assert len(server.keys) == 2
        assert len(set(server.keys)) == 1

        server = Flaky(*[status] * 9)
        with pytest.raises(LostAnswerError, match=str(status)) as caught:
            self.submit(server)
        assert caught.value.idempotency_key == server.keys[0]

    def test_a_service_that_is_away_is_asked_again_and_then_believed(self) -> None:
        server = Flaky(503, 503)
        assert self.submit(server) == STUDY["id"]
        assert len(server.keys) == 3
        assert len(set(server.keys)) == 1

        with pytest.raises(ProblemError, match="503"):
            self.submit(Flaky(*[503] * 9))
        # One that was lost before may be stored all the same.
        with pytest.raises(LostAnswerError, match="503"):
            self.submit(Flaky(httpx.ReadError("gone"), *[503] * 9))

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
        with pytest.raises(ValueError, match="printable ASCII"):
            self.submit(Flaky(), idempotency_key=key)

    def test_after_three_more_tries_the_user_is_told_the_key(self) -> None:
        server = Flaky(*[httpx.ReadTimeout("slow")] * 9)
        with pytest.raises(LostAnswerError, match="no answer in time") as caught:
            self.submit(server)

        assert len(server.keys) == 4
        assert caught.value.idempotency_key == server.keys[0]

    def test_what_never_left_is_not_sent_again(self) -> None:
        server = Flaky(httpx.ConnectError("refused"))
        with pytest.raises(UnreachableError):
            self.submit(server)

        assert len(server.keys) == 1

    @pytest.mark.parametrize("status", [409, 422, 500])
    def test_an_answer_is_an_answer_even_if_it_is_a_refusal(self, status: int) -> None:
        asked: list[httpx.Request] = []

        def refuse(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            return httpx.Response(status, json={"detail": "no"})

        with pytest.raises(ProblemError):
            self.submit(refuse)
        assert len(asked) == 1

    def test_over_a_real_socket_a_dropped_connection_makes_one_study(self) -> None:
        with drops_its_first_answer() as (url, keys), Client(url) as client:
            assert client.submit_study({"name": "a"}).id == STUDY["id"]

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
            body = json.dumps(STUDY).encode()
            self.send_response(201)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with listening(Handler) as url:
        yield url, keys
