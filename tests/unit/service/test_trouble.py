"""An outage fills no disk with tracebacks."""

import logging

import pytest

from service import trouble
from service.trouble import REMIND_SECONDS, Trouble

LOG = logging.getLogger("looks")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds on the clock, to be set."""
    now = [0.0]
    monkeypatch.setattr(trouble.time, "monotonic", lambda: now[0])
    return now


def test_it_is_told_in_full_and_then_in_a_line_a_minute(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    met = Trouble(LOG)
    for second in range(150):
        clock[0] = float(second)
        met.met("cannot look", OSError("gone"))

    assert caplog.messages == [
        "cannot look",
        "cannot look: OSError (for 60 s now)",
        "cannot look: OSError (for 120 s now)",
    ]
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False]


def test_another_kind_is_told_at_once_and_two_that_take_turns_are_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    met = Trouble(LOG)
    for _ in range(9):
        met.met("cannot look", OSError("gone"))
        met.met("cannot look", ValueError("odd"))
        met.met("restored")

    assert caplog.messages == ["cannot look", "cannot look", "restored"]


def test_once_it_is_over_the_next_one_is_new(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    met = Trouble(LOG)
    met.is_over()
    met.met("cannot look", OSError("gone"))
    met.is_over()
    clock[0] = REMIND_SECONDS / 2
    met.met("cannot look", OSError("gone"))

    assert caplog.messages == ["cannot look", "over: cannot look", "cannot look"]
