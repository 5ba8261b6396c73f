"""How much processor time may go into one question: every long step of an accountant asks here first.

A library cannot be told to stop, so the bound holds between its calls; each of those is bounded by the
grids that it is given. Processor time is counted, not time by the clock: a busy machine takes longer and
refuses nothing more.
"""

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tan_core.errors import TooHardError

SPARE_SHARE = 0.3
"""Of the whole: until then there is time for what an answer can do without."""


@dataclass(slots=True)
class _Effort:
    seconds: float
    began: float
    elsewhere: float = 0.0
    """In child processes."""


@dataclass(frozen=True, slots=True)
class _Limit:
    effort: _Effort
    is_spare: bool = False

    @property
    def seconds(self) -> float:
        return self.effort.seconds * (SPARE_SHARE if self.is_spare else 1.0)

    def remaining(self) -> float:
        elsewhere = 0.0 if self.is_spare else self.effort.elsewhere
        return self.seconds - (time.thread_time() - self.effort.began) - elsewhere


_limit: ContextVar[_Limit | None] = ContextVar("effort", default=None)


@contextmanager
def limited_effort(seconds: float) -> Generator[None]:
    """Inside, and in this thread, accountants stop after so much processor time.

    Example:
        >>> with limited_effort(0.0):
        ...     check_effort("pld")
        Traceback (most recent call last):
        tan_core.errors.TooHardError: pld was stopped: it takes more than 0 s of processor time
    """
    token = _limit.set(_Limit(_Effort(seconds, time.thread_time())))
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def spare_effort() -> Generator[None]:
    """Inside is what an answer can do without: it gets a part of the time only, this thread's alone."""
    limit = _limit.get()
    token = _limit.set(limit and _Limit(limit.effort, is_spare=True))
    try:
        yield
    finally:
        _limit.reset(token)


def check_effort(who: str) -> None:
    """Go on, or not.

    Raises:
        TooHardError: the time is used up.
    """
    limit = _limit.get()
    if limit is not None and limit.remaining() <= 0:
        raise TooHardError(
            f"{who} was stopped: it takes more than {limit.seconds:g} s of processor time"
        )


def remaining_effort() -> float:
    """Seconds that are left; infinity where nobody set a limit."""
    limit = _limit.get()
    return math.inf if limit is None else limit.remaining()


def spent_elsewhere(seconds: float) -> None:
    """A child process has taken so much for this question."""
    limit = _limit.get()
    if limit is not None:
        limit.effort.elsewhere += seconds
