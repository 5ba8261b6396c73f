import copy
from collections.abc import Iterator

import httpx
import pytest

from service.cli.follow import follow, follow_log
from service.client import Client, Event, ProblemError, UnreachableError
from service.client.patience import PATIENCE_SECONDS
from tests.unit.service.cli.recorded import ATTEMPTS, STUDY, RecordedServer

ID = STUDY["id"]
RUNNING = {**STUDY, "state": "simulating"}


class Clock:
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_broken_line_is_taken_up_after_the_last_event(server: RecordedServer) -> None:
    server.cut_after = 4
    server.answers[f"GET /studies/{ID}"] = (200, RUNNING)
    seen: list[Event] = []

    with Client(server.url) as client:
        final = follow(
            client, RUNNING, on_event=seen.append, sleep=lambda _: server.answers.clear()
        )

    assert [event.data for event in seen] == server.events
    assert final["state"] == "completed"
    streams = server.asked(f"GET /studies/{ID}/events")
    assert [headers.get("last-event-id") for _, headers in streams] == [None, "4"]


def test_a_study_that_ended_while_nobody_watched_is_followed_to_its_end_at_once(
    server: RecordedServer,
) -> None:
    with Client(server.url) as client:
        assert follow(client, STUDY)["state"] == "completed"


def test_a_server_that_stays_away_is_given_up_with_its_address() -> None:
    clock = Clock()

    with (
        Client("http://127.0.0.1:1") as client,
        pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"),
    ):
        follow(client, RUNNING, sleep=clock.sleep, clock=clock)

    assert clock.now >= PATIENCE_SECONDS


def test_a_server_that_is_away_after_hours_of_silence_is_waited_for_as_long_as_any(
    server: RecordedServer,
) -> None:
    clock = Clock()
    server.answers[f"GET /studies/{ID}/events"] = (503, {"detail": "no database"})

    def come_back(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now > PATIENCE_SECONDS / 2:
            server.answers.clear()

    with Client(server.url) as client:
        final = follow(client, RUNNING, sleep=come_back, clock=clock)

    assert final["state"] == "completed"


class Cut(httpx.SyncByteStream):
    """A log that breaks off behind what it says."""

    def __init__(self, text: str, error: Exception | None = None) -> None:
        self._text = text
        self._error = error or httpx.ReadError("connection reset")

    def __iter__(self) -> Iterator[bytes]:
        yield self._text.encode()
        raise self._error


class Script:
    """A service of one attempt: what it says of the log, time after time, or what becomes of the request."""

    def __init__(self, *logs: str | Cut | int | Exception) -> None:
        self._logs = list(logs)
        self._attempt = copy.deepcopy(ATTEMPTS[0]) | {"state": "live", "finished_at": None}
        self.said: list[str] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        now = self._logs[0]
        if isinstance(now, Exception):
            self._logs.pop(0)
            raise now
        if isinstance(now, int):
            self._logs.pop(0)
            return httpx.Response(now, json={"title": "No", "status": now, "detail": "away"})
        if request.url.path.endswith("/attempts"):
            return httpx.Response(200, json={"items": [self._attempt]})
        assert (request.url.params["run"], request.url.params["attempt"]) == ("search", "1")
        if isinstance(now, Cut):
            self._logs.pop(0)
            return httpx.Response(200, stream=now)
        if "follow" in request.url.params:
            self._attempt["finished_at"] = STUDY["finished_at"]
        return httpx.Response(200, text=now)

    def follow(self, clock: Clock) -> str:
        with Client("http://tan", transport=httpx.MockTransport(self.answer)) as client:
            written: list[str] = []
            follow_log(
                client,
                ID,
                run=None,
                attempt=None,
                write=written.append,
                note=self.said.append,
                sleep=clock.sleep,
                clock=clock,
            )
        return "".join(written)


def test_a_log_that_breaks_off_goes_on_where_it_was() -> None:
    gone = httpx.ConnectError("refused")
    script = Script(Cut("one\ntw"), gone, 503, "one\ntwo\nthree\n")

    assert script.follow(Clock()) == "one\ntwo\nthree\n"
    assert script.said == ["the connection broke; trying again", "the connection is back"]


def test_a_log_that_is_silent_for_long_is_asked_for_again_without_a_word() -> None:
    silent = httpx.ReadTimeout("silent")
    script = Script(Cut("one\n", silent), "one\ntwo\n")

    assert script.follow(Clock()) == "one\ntwo\n"
    assert script.said == []


def test_a_log_of_which_a_lost_network_says_nothing_is_given_up() -> None:
    script = Script(Cut("one\n", httpx.ReadTimeout("silent")), *[httpx.ReadTimeout("gone")] * 1000)

    with pytest.raises(UnreachableError):
        script.follow(Clock())
    assert script.said == ["the connection broke; trying again"]


def test_a_log_whose_beginning_was_dropped_meanwhile_goes_on_where_it_was() -> None:
    long = "".join(f"line {number}\n" for number in range(1000))
    dropped = f"[4 characters before this were dropped]\n{long[4:]}end\n"

    assert Script(Cut(long), dropped).follow(Clock()) == f"{long}end\n"


def test_a_log_of_which_nothing_is_left_is_told_rather_twice_than_not() -> None:
    other = "[9 characters before this were dropped]\nfour\n"

    assert Script(Cut("one\ntwo\n"), other).follow(Clock()) == f"one\ntwo\n{other}"


def test_a_log_of_a_server_that_stays_away_is_given_up_and_a_refusal_at_once() -> None:
    clock, gone = Clock(), httpx.ConnectError("refused")
    script = Script(*[gone] * 1000)

    with pytest.raises(UnreachableError):
        script.follow(clock)

    assert PATIENCE_SECONDS <= clock.now < PATIENCE_SECONDS + 10
    with pytest.raises(ProblemError, match="401"):
        Script(Cut("one\n"), 401).follow(Clock())
