"""A study is waited for whatever breaks on the way, no longer than asked, and without asking again and again."""

import contextlib
import json
import threading
import time
from collections.abc import Generator, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest

from service.client import Client, Event, ProblemError, UnreachableError, WaitTimeoutError
from service.client.patience import PATIENCE_SECONDS
from tests.support.http_server import listening
from tests.unit.service.cli.recorded import STUDY, sse, state_event

ID = STUDY["id"]
KEEP_ALIVE = [15.0, ": keep-alive"]
"""What the service says while nothing happens."""
Fate = httpx.TransportError | int
"""What becomes of a request for the study: how the line breaks, or what it is refused with."""
Part = str | float | dict[str, Any] | list[Fate] | Exception
"""Of a stream: an event or comment, seconds without a word, what becomes of the study or of the next requests for it,
or how the line breaks."""


def told(seq: int, state: str) -> str:
    """A state event on the wire."""
    return sse({"seq": seq, "at": STUDY["created_at"], **state_event(state)}).removesuffix("\n\n")


class Service(httpx.BaseTransport):
    """A service of one study, and time that passes only while it is waited for."""

    def __init__(self, *streams: list[Part], **study: Any) -> None:
        self.now = 0.0
        self.study = {**STUDY, "state": "simulating", **study}
        self.streams = list(streams)
        self.fates: list[Fate] = []
        self.looks = 0
        self.heard_from: list[str | None] = []
        """The ``Last-Event-ID`` of each stream."""
        self.notes: list[str] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            self.heard_from.append(request.headers.get("last-event-id"))
            parts = self.streams.pop(0)
            silence = request.extensions["timeout"]["read"]
            return httpx.Response(200, stream=Stream(self.told(parts, silence)))
        self.looks += 1
        if self.fates:
            fate = self.fates.pop(0)
            if isinstance(fate, httpx.TransportError):
                raise fate
            return httpx.Response(fate, json={"title": "No", "status": fate, "detail": "away"})
        return httpx.Response(200, json=self.study)

    def told(self, parts: list[Part], silence: float) -> Iterator[bytes]:
        for part in parts:
            match part:
                case float():
                    self.now += min(part, silence)
                    if part > silence:
                        raise httpx.ReadTimeout("silence")
                case dict():
                    self.study |= part
                case list():
                    self.fates = part
                case Exception():
                    raise part
                case str():
                    yield f"{part}\n\n".encode()

    def wait(self, timeout: float | None = None, **options: Any) -> str:
        with Client("http://tan", transport=self) as client:
            study = client.wait_study(
                ID,
                timeout,
                on_note=self.notes.append,
                sleep=self.sleep,
                clock=lambda: self.now,
                **options,
            )
        return study.state


class Stream(httpx.SyncByteStream):
    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        return self._parts


class TestUntil:
    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled", "awaiting_approval"])
    def test_what_has_ended_or_waits_for_a_person_is_not_waited_for(self, state: str) -> None:
        service = Service(state=state)

        assert service.wait() == state
        assert (service.looks, service.heard_from, service.now) == (1, [], 0.0)

    def test_hours_of_silence_cost_no_request(self) -> None:
        hours = KEEP_ALIVE * 1000
        service = Service([*hours, {"state": "failed"}, told(9, "failed")])

        assert service.wait() == "failed"
        assert service.now == 15_000
        assert len(service.heard_from) == 1
        assert service.looks <= 3

    def test_it_returns_as_soon_as_a_person_is_asked_though_the_stream_goes_on(self) -> None:
        asked: list[Part] = [{"state": "awaiting_approval"}, told(7, "awaiting_approval")]
        service = Service([*asked, *KEEP_ALIVE * 1000])

        assert service.wait() == "awaiting_approval"
        assert service.now == 0

    def test_to_the_end_an_approval_is_waited_for(self) -> None:
        ended: list[Part] = [{"state": "completed"}, told(8, "completed")]
        service = Service(
            [told(7, "awaiting_approval"), *KEEP_ALIVE, *ended], state="awaiting_approval"
        )

        assert service.wait(to_end=True) == "completed"
        assert service.now == 15

    def test_an_approval_of_long_ago_is_passed_over(self) -> None:
        service = Service(
            [
                *(told(1, "awaiting_approval"), told(2, "training"), 10.0),
                *({"state": "completed"}, told(3, "completed")),
            ],
            state="training",
        )

        assert service.wait() == "completed"
        assert service.heard_from == [None]

    def test_one_that_was_just_approved_is_waited_for_until_it_has_a_slot(self) -> None:
        service = Service(
            [told(7, "training"), {"state": "completed"}, told(8, "completed")],
            state="awaiting_approval",
            queue_position=2,
        )
        sleep = service.sleep

        def begin(seconds: float) -> None:
            sleep(seconds)
            if service.now > 60:
                service.study |= {"state": "training", "queue_position": None}

        service.sleep = begin

        assert service.wait() == "completed"
        assert service.looks < 20

    def test_one_whose_approval_was_refused_waits_for_a_person_again(self) -> None:
        """The budget did not hold it; where it said so before, no event follows."""
        service = Service(state="awaiting_approval", queue_position=1)
        service.sleep = lambda _: service.study.update(queue_position=None)

        assert service.wait() == "awaiting_approval"


class TestBreaks:
    def test_a_restart_is_outlasted_and_the_events_are_taken_up_where_they_were(self) -> None:
        service = Service(
            [
                told(4, "simulating"),
                [httpx.ConnectError("refused"), 502, 503],
                httpx.ReadError("reset"),
            ],
            [told(5, "training"), {"state": "completed"}, told(6, "completed")],
        )

        assert service.wait() == "completed"
        assert service.heard_from == [None, "4"]
        assert service.notes == ["the connection broke; trying again", "the connection is back"]

    def test_a_server_that_stops_in_good_order_is_taken_up_after_a_pause(self) -> None:
        service = Service(
            [told(4, "simulating")],
            [{"state": "completed"}, told(5, "completed")],
        )

        assert service.wait() == "completed"
        assert service.heard_from == [None, "4"]
        assert service.now > 0
        assert service.notes == []

    def test_a_server_that_stays_away_is_given_up(self) -> None:
        service = Service()
        service.fates = [httpx.ConnectError("refused")] * 1000

        with pytest.raises(UnreachableError, match="http://tan does not answer"):
            service.wait()
        assert PATIENCE_SECONDS <= service.now < PATIENCE_SECONDS + 10

    @pytest.mark.parametrize("status", [401, 404, 500])
    def test_a_refusal_is_told_at_once(self, status: int) -> None:
        service = Service()
        service.fates = [status]

        with pytest.raises(ProblemError, match=str(status)):
            service.wait(60)
        assert service.now == 0

    def test_every_event_is_told_once(self) -> None:
        service = Service(
            [told(1, "queued"), told(2, "simulating"), httpx.ReadError("reset")],
            [told(3, "training"), {"state": "completed"}, httpx.ReadError("reset")],
            [told(4, "completed")],
        )

        with Client("http://tan", transport=service) as client:
            heard: list[Event] = list(client.every_event(ID, sleep=service.sleep))

        assert [event.seq for event in heard] == [1, 2, 3, 4]


class TestTimeout:
    @pytest.mark.parametrize("timeout", [0.5, 10.0, 44.0, 50.0, 100.0, 3600.0])
    @pytest.mark.parametrize(
        "stream", [KEEP_ALIVE * 300, [1e9], [0.4, ": busy"] * 9000], ids=["alive", "dead", "busy"]
    )
    def test_it_is_over_on_time_whatever_the_server_says(
        self, timeout: float, stream: list[Part]
    ) -> None:
        service = Service(*([*stream] for _ in range(500)))

        with pytest.raises(WaitTimeoutError, match=rf"{ID} did not end within .* it is simulating"):
            service.wait(timeout)
        assert timeout <= service.now <= timeout + 2
        assert len(service.heard_from) < 20 + timeout / 30

    def test_the_error_is_a_timeout_that_says_what_was_seen_last(self) -> None:
        service = Service([told(1, "training"), 1e9], state="simulating")

        with pytest.raises(TimeoutError) as caught:
            service.wait(5)

        assert isinstance(caught.value, WaitTimeoutError)
        assert (caught.value.study_id, caught.value.state) == (ID, "training")
        assert caught.value.seconds == 5

    def test_no_time_at_all_is_one_look(self) -> None:
        service = Service()

        with pytest.raises(WaitTimeoutError):
            service.wait(0)
        assert (service.looks, service.heard_from) == (1, [])
        assert Service(state="completed").wait(0) == "completed"

    def test_of_a_server_that_is_away_it_says_that_nobody_answered(self) -> None:
        service = Service()
        service.fates = [httpx.ConnectError("refused")] * 1000

        with pytest.raises(WaitTimeoutError, match="no server told its state"):
            service.wait(30)
        assert service.now == pytest.approx(30)

    @pytest.mark.parametrize("timeout", [-1.0, float("nan")])
    def test_a_timeout_that_is_none_is_refused(self, timeout: float) -> None:
        with pytest.raises(ValueError, match="0 s or more"):
            Service().wait(timeout)

    def test_over_a_real_socket_it_does_not_wait_for_the_next_word(self) -> None:
        with silent_server() as url, Client(url) as client:
            begun = time.monotonic()
            with pytest.raises(WaitTimeoutError):
                client.wait_study(ID, timeout=0.3)
            assert time.monotonic() - begun < 10


@contextlib.contextmanager
def silent_server() -> Generator[str]:
    """A service of one study of which nothing is told."""
    is_over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            if self.path.endswith("/events"):
                self.end_headers()
                is_over.wait(30)
                return
            body = json.dumps({**STUDY, "state": "simulating"}).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with listening(Handler) as url:
        try:
            yield url
        finally:
            is_over.set()
