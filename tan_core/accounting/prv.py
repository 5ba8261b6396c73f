"""Epsilon by privacy random variables (Opacus): the third voice. The safe end of its interval.

It runs in a child process under limits on time and memory, because at large epsilon it needs either
without bound.
"""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

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
_RELATIVE_ERROR = 0.002


class Rough(Protocol):
    """About what is expected."""

    @property
    def epsilon(self) -> float: ...  # noqa: D102
    @property
    def delta(self) -> float: ...  # noqa: D102


class PrvProfile:
    """The profile of a composition; each answer takes a process.

    Args:
        mechanisms: what is composed.
        rough: about what is expected; it sets the width of the interval.

    Raises:
        UnsupportedEventError: a mechanism is not a sampled Gaussian.
    """

    def __init__(self, mechanisms: Sequence[Mechanism], *, rough: Callable[[], Rough]) -> None:
        events = [sampled_gaussian_event(mechanism, "prv") for mechanism in mechanisms]
        expected = rough()
        self._request: dict[str, Any] = {
            "history": [(e.noise_multiplier, e.sampling_rate, e.steps) for e in events],
            "eps_error": min(
                max(_RELATIVE_ERROR * expected.epsilon, _MIN_EPSILON_ERROR), _MAX_EPSILON_ERROR
            ),
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


def _ask(request: dict[str, Any]) -> float:
    """What the child answers."""
    answer = _run(request)
    if "error" in answer:
        raise AccountantError(f"prv failed: {answer['error']}")
    return float(answer["answer"])


def _run(request: dict[str, Any]) -> dict[str, Any]:
    """The child's answer; its processor time counts as that of whoever asked."""
    seconds = max(1, math.ceil(min(remaining_effort(), TIME_LIMIT_SECONDS)))
    request = {**request, "cpu_seconds": seconds}
    try:
        child = subprocess.run(
            [sys.executable, "-m", "tan_core.accounting._prv_process"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_SECONDS,
            cwd=Path(tan_core.__file__).parents[1],
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        spent_elsewhere(seconds)
        raise AccountantError(f"prv failed: no answer within {TIME_LIMIT_SECONDS:g} s") from error
    if child.returncode == -signal.SIGXCPU:
        spent_elsewhere(seconds)
        raise AccountantError(f"prv failed: no answer within {seconds} s of processor time")
    try:
        answer: dict[str, Any] = json.loads(child.stdout)
    except ValueError as error:
        reason = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        raise AccountantError(f"prv failed: {reason[0]}") from error
    spent_elsewhere(answer.pop("cpu_seconds", 0.0))
    return answer
