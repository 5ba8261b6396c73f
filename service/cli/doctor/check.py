"""One check, and many of them side by side: none can hold up or break another."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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

LIMIT_SECONDS = 30.0
"""For all checks together. They take one or two, where the machine has nothing else to do."""
PROGRAM_SECONDS = 28.0
"""For a program that a check runs: less than a check has, so that it can still say so."""
TELL_AFTER_SECONDS = 2.0
_BUSY_LOAD = 2.0
"""For each core: above it, silence says more about this machine than about whoever is silent."""


def ok(found: str) -> Finding:
    """Nothing is wrong."""
    return Finding(Verdict.OK, found)


def warning(found: str, next_: str) -> Finding:
    """Something could be better."""
    return Finding(Verdict.WARNING, found, next_)


def failure(found: str, next_: str) -> Finding:
    """Something is broken."""
    return Finding(Verdict.FAILURE, found, next_)


def unanswered(who: str, seconds: float, next_: str) -> Finding:
    """Nobody knows: a failure, unless this machine is too busy to tell."""
    found = f"{who} gave no answer within {seconds:g} s"
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > _BUSY_LOAD * cores:
        return warning(
            f"{found}; this machine is busy (load {load:.0f} on {cores} cores)",
            "run it again when less is going on",
        )
    return failure(found, f"run it again; if it stays so, {next_}")


def run(
    checks: Mapping[str, Check],
    *,
    limit_seconds: float,
    tell: Callable[[Sequence[str]], object] = lambda _: None,
) -> dict[str, Finding]:
    """The findings by the names of their checks, in their order, all made at the same time.

    A check that raises has failed. One that takes longer than ``limit_seconds`` is left behind with its
    thread, which ends with the program. ``tell`` hears the names of those that are waited for.
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
    _wait(threads, limit_seconds, tell)
    made = dict(findings)  # as it is now: a late thread may still write
    late = {name: unanswered(f"the check of {name}", limit_seconds, "report it") for name in checks if name not in made}  # fmt: skip
    return {name: made.get(name) or late[name] for name in checks}


def _wait(
    threads: Sequence[threading.Thread],
    limit_seconds: float,
    tell: Callable[[Sequence[str]], object],
) -> None:
    begun = time.monotonic()
    while waited_for := [thread for thread in threads if thread.is_alive()]:
        waited = time.monotonic() - begun
        if waited >= limit_seconds:
            return
        if waited >= TELL_AFTER_SECONDS:
            tell([thread.name for thread in waited_for])
        waited_for[0].join(min(0.25, limit_seconds - waited))
