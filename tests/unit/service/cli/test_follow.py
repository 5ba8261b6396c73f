import pytest

from service.cli.follow import PATIENCE_SECONDS, follow
from service.client import Client, Event, UnreachableError
from tests.unit.service.cli.recorded import STUDY, RecordedServer

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
