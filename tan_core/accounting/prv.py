"""Epsilon by privacy random variables (Opacus): the third voice. The safe end of its interval.

It runs in a process of its own under limits on time and memory, because at large epsilon it needs either
without bound. That process stays for a minute and answers what is asked next: see ``_prv_process``.
"""

import atexit
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol, cast

import tan_core
from tan_core.accounting.effort import check_effort, remaining_effort, spent_elsewhere
from tan_core.accounting.events import sampled_gaussian_event
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism

CONVERSION = "prv upper"
TIME_LIMIT_SECONDS = 30.0
MEMORY_LIMIT_BYTES = 4 * 2**30

_MAX_EPSILON_ERROR = 0.01
_MIN_EPSILON_ERROR = 0.001
_RELATIVE_ERROR = 0.0007
_RELATIVE_ERROR_OF_MANY = 0.002
_MANY_STEPS = 100_000
"""The work is about steps over width: of a million steps the narrower interval would take more than the limits."""
_MOST_IDLE = 2
"""Processes that wait for the next question, of some 90 MB each."""


class Rough(Protocol):
    """About what is expected."""

    @property
    def epsilon(self) -> float: ...  # noqa: D102
    @property
    def delta(self) -> float: ...  # noqa: D102


class PrvProfile:
    """The profile of a composition; each answer takes a process, forked of one that waits.

    Args:
        mechanisms: what is composed.
        rough: about what is expected; it sets the width of the interval.

    Raises:
        UnsupportedEventError: a mechanism is not a sampled Gaussian.
    """

    def __init__(self, mechanisms: Sequence[Mechanism], *, rough: Callable[[], Rough]) -> None:
        events = [sampled_gaussian_event(mechanism, "prv") for mechanism in mechanisms]
        expected = rough()
        is_many = sum(each.steps for each in events) > _MANY_STEPS
        width = (_RELATIVE_ERROR_OF_MANY if is_many else _RELATIVE_ERROR) * expected.epsilon
        self._request: dict[str, Any] = {
            "history": [(e.noise_multiplier, e.sampling_rate, e.steps) for e in events],
            "eps_error": min(max(width, _MIN_EPSILON_ERROR), _MAX_EPSILON_ERROR),
            "delta_error": expected.delta / 1000,
            "memory_bytes": MEMORY_LIMIT_BYTES,
        }
        check_effort("prv")  # what was expected may have taken the time

    def epsilon(self, delta: float) -> float:
        """The upper end of the interval at a delta."""
        return _ask({**self._request, "delta": delta})

    def delta(self, epsilon: float) -> float:
        """The upper end of the interval at an epsilon.

        Raises:
            AccountantError: epsilon is below the interval's own width.
        """
        if epsilon < self._request["eps_error"]:
            raise AccountantError(
                f"prv has no delta at epsilon = {epsilon:g}: it answers to {self._request['eps_error']:g}"
            )
        return _ask({**self._request, "epsilon": epsilon})


class _Process:
    """One that answers, a question at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tan_core.accounting._prv_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(tan_core.__file__).parents[1],
            start_new_session=True,  # its forks are ended with it
        )

    def ask(self, line: str, deadline: float) -> str:
        """The line that it answers; empty where it has ended.

        Raises:
            TimeoutError: there is none by the deadline.
        """
        stdin, stdout = (
            cast("IO[bytes]", self._process.stdin),
            cast("IO[bytes]", self._process.stdout),
        )
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            return ""
        with (
            selectors.DefaultSelector() as selector
        ):  # select() takes no more than 1024 descriptors
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(max(deadline - time.monotonic(), 0.0)):
                raise TimeoutError
        return stdout.readline().decode()

    def end(self) -> str:
        """How it ended, its fork with it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        return f"exit status {self._process.wait()}"


_idle: list[_Process] = []
_inherited: list[_Process] = []


def _told(line: str) -> str:
    """What a process answers: one that waits, as long as there is any, or a new one.

    Raises:
        AccountantError: a new one ended without an answer.
        TimeoutError: there is none in time.
    """
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    while True:
        try:
            process, is_new = _idle.pop(), False
        except IndexError:
            process, is_new = _Process(), True
        try:
            told = process.ask(line, deadline)
        except BaseException:
            process.end()  # after Ctrl-C, too: what it answers later is not what is asked next
            raise
        if told:
            _rest(process)
            return told
        ended = process.end()
        if is_new:
            raise AccountantError(f"prv failed: {ended}")


def _rest(process: _Process) -> None:
    if len(_idle) < _MOST_IDLE:
        _idle.append(process)
    else:
        process.end()


@atexit.register
def _end_idle() -> None:
    while _idle:
        _idle.pop().end()


def _leave_to_parent() -> None:
    """In a forked child: two that read one pipe would take each other's answers."""
    _inherited.extend(_idle)
    _idle.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def _ask(request: dict[str, Any]) -> float:
    """What the child answers."""
    answer = _run(request)
    if "error" in answer:
        raise AccountantError(f"prv failed: {answer['error']}")
    return float(answer["answer"])


def _run(request: dict[str, Any]) -> dict[str, Any]:
    """The answer; the processor time that it took counts as that of whoever asked."""
    seconds = max(1, math.ceil(min(remaining_effort(), TIME_LIMIT_SECONDS)))
    try:
        answer: dict[str, Any] = json.loads(_told(json.dumps({**request, "cpu_seconds": seconds})))
    except TimeoutError as error:
        spent_elsewhere(seconds)
        raise AccountantError(f"prv failed: no answer within {TIME_LIMIT_SECONDS:g} s") from error
    ended_by = answer.pop("signal", None)
    if ended_by == signal.SIGXCPU:
        spent_elsewhere(seconds)
        raise AccountantError(f"prv failed: no answer within {seconds} s of processor time")
    if ended_by is not None:
        raise AccountantError(f"prv failed: its process was ended by signal {ended_by}")
    spent_elsewhere(answer.pop("cpu_seconds", 0.0))
    return answer
