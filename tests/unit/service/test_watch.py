"""When a process that is watched is said to hang."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.local import watch as watched
from service.local.watch import MISSES, AnswerWatch, NodeWatch, PulseWatch

SILENCE_SECONDS = 0.6


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[AnswerWatch]:
    monkeypatch.setattr(watched, "START_SECONDS", 2.0)
    made = AnswerWatch(SILENCE_SECONDS)
    yield made
    made.close()


class Process:
    """Answers at a socket that it inherits, as long as it does."""

    def __init__(self, watch: AnswerWatch, answer: bytes) -> None:
        self._socket = socket.socket(fileno=socket.dup(watch.fd))
        self._answer = answer
        self.answers = threading.Event()
        self.answers.set()
        self.asked = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while self.answers.wait():
            connection, _ = self._socket.accept()
            with connection:
                connection.recv(4096)
                self.asked += 1
                if self.answers.is_set():
                    connection.sendall(self._answer)


def soon(is_so: Callable[[], bool], *, seconds: float = 10.0) -> float:
    """How long it took to be so."""
    start = time.monotonic()
    while not is_so():
        assert time.monotonic() - start < seconds, "it is not so"
        time.sleep(0.01)
    return time.monotonic() - start


@pytest.mark.parametrize("status", ["200 OK", "429 Too Many Requests", "503 Service Unavailable"])
def test_any_answer_is_one_and_silence_after_it_is_none(watch: AnswerWatch, status: str) -> None:
    process = Process(watch, f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
    soon(lambda: process.asked >= 2 * MISSES)
    assert not watch.is_hung

    process.answers.clear()

    assert soon(lambda: watch.is_hung) > SILENCE_SECONDS / 2


@pytest.mark.slow
def test_who_begins_is_given_longer_and_begins_anew(watch: AnswerWatch) -> None:
    assert soon(lambda: watch.is_hung) > 2 * SILENCE_SECONDS

    watch.begin()

    assert not watch.is_hung
    assert soon(lambda: watch.is_hung) > 2 * SILENCE_SECONDS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds pass, without waiting for them."""
    now = [1000.0]
    monkeypatch.setattr(watched.time, "monotonic", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    return passes


class Pulse:
    """A file that is touched, at whatever time a clock says."""

    def __init__(self, file: Path, clock: Callable[[float], None]) -> None:
        self.watch = PulseWatch(file, 60.0)
        self._file, self._clock = file, clock
        self.touch(at=1_000_000)

    def touch(self, *, at: int) -> None:
        self._file.touch()
        os.utime(self._file, (at, at))

    def is_hung_after(self, seconds: int) -> bool:
        """Whether it hangs then, to who looks every second."""
        looks: list[bool] = []
        for _ in range(seconds):
            self._clock(1.0)
            looks.append(self.watch.is_hung)
        return looks[-1]


@pytest.fixture
def pulse(tmp_path: Path, clock: Callable[[float], None]) -> Pulse:
    made = Pulse(tmp_path / "pulse", clock)
    assert not made.watch.is_hung
    return made


def test_a_file_that_is_touched_no_more_is_of_a_process_that_hangs(pulse: Pulse) -> None:
    assert not pulse.is_hung_after(59)
    pulse.touch(at=1_000_060)
    assert not pulse.is_hung_after(60)
    assert pulse.is_hung_after(1)


def test_a_clock_that_is_put_back_is_a_touch_like_another(pulse: Pulse) -> None:
    assert not pulse.is_hung_after(59)
    pulse.touch(at=10)
    assert not pulse.is_hung_after(60)


def test_who_did_not_look_does_not_know_who_stood_still(
    pulse: Pulse, clock: Callable[[float], None]
) -> None:
    clock(3600.0)
    assert not pulse.watch.is_hung
    assert pulse.is_hung_after(60)


def test_a_process_that_has_touched_nothing_yet_is_given_longer(
    tmp_path: Path, clock: Callable[[float], None]
) -> None:
    pulse = Pulse(tmp_path / "pulse", clock)
    pulse.watch.begin()
    assert not pulse.is_hung_after(179)
    assert pulse.is_hung_after(1)


def test_a_head_hangs_once_it_says_that_the_node_which_it_had_is_gone() -> None:
    said: list[bool | None] = [False]
    asked = [0]

    def has_node() -> bool | None:
        asked[0] += 1
        return said[0]

    def is_hung_after(answer: bool | None) -> bool:
        said[0], asked[0] = answer, 0
        soon(lambda: asked[0] > 2 * MISSES)
        return watch.is_hung

    watch = NodeWatch(has_node, silence_seconds=0.1)
    try:
        # Before it has one; while it has; where it does not answer; and then without it.
        answers: list[bool | None] = [False, True, None, False]
        assert [is_hung_after(answer) for answer in answers] == [False, False, False, True]

        watch.begin()
        assert not is_hung_after(False)
    finally:
        watch.close()
