"""When a process that is watched is said to hang."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from service.local import watch as watched
from service.local.watch import MISSES, Watch

SILENCE_SECONDS = 0.6


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.setattr(watched, "START_SECONDS", 2.0)
    made = Watch(SILENCE_SECONDS)
    yield made
    made.close()


class Process:
    """Answers at a socket that it inherits, as long as it does."""

    def __init__(self, watch: Watch, answer: bytes) -> None:
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
def test_any_answer_is_one_and_silence_after_it_is_none(watch: Watch, status: str) -> None:
    process = Process(watch, f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
    soon(lambda: process.asked >= 2 * MISSES)
    assert not watch.is_hung

    process.answers.clear()

    assert soon(lambda: watch.is_hung) > SILENCE_SECONDS / 2


def test_who_begins_is_given_longer_and_begins_anew(watch: Watch) -> None:
    assert soon(lambda: watch.is_hung) > 2 * SILENCE_SECONDS

    watch.begin()

    assert not watch.is_hung
    assert soon(lambda: watch.is_hung) > 2 * SILENCE_SECONDS
