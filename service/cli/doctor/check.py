"""One check, and many of them side by side: none can hold up or break another."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    """It works, and not as well as it might."""
    FAILURE = "failure"
    """Something will not work."""


@dataclass(frozen=True)
class Finding:
    """What a check found, and what to do about it."""

    verdict: Verdict
    found: str
    next: str | None = None


Check = Callable[[], Finding]

PROGRAM_SECONDS = 4.5
"""For a program that a check runs: less than a check has, so that it can still say so."""


def ok(found: str, next_: str | None = None) -> Finding:
    """Nothing is wrong."""
    return Finding(Verdict.OK, found, next_)


def warning(found: str, next_: str) -> Finding:
    """Something could be better."""
    return Finding(Verdict.WARNING, found, next_)


def failure(found: str, next_: str) -> Finding:
    """Something is broken."""
    return Finding(Verdict.FAILURE, found, next_)


def run(checks: Mapping[str, Check], *, limit_seconds: float) -> dict[str, Finding]:
    """The findings by the names of their checks, in their order, all made at the same time.

    A check that raises has failed, and so has one that takes longer than ``limit_seconds``: its thread
    is left behind, and ends with the program.
    """
    findings: dict[str, Finding] = {}

    def make(name: str, check: Check) -> None:
        try:
            findings[name] = check()
        except Exception as error:  # noqa: BLE001 - whatever breaks a check is what it found
            findings[name] = failure(
                f"the check itself broke: {type(error).__name__}: {error}",
                "report it: this should not happen",
            )

    threads = [
        threading.Thread(target=make, args=each, name=each[0], daemon=True)
        for each in checks.items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit_seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = failure(
        f"no answer within {limit_seconds:g} s",
        "run it again: a busy machine or a slow network would explain it",
    )
    made = dict(findings)  # as it is now: a late thread may still write
    return {name: made.get(name, late) for name in checks}
