"""Errors of the command line, each with the exit code that scripts rely on.

CliError                  1  failed
├── ApiError              1, 2 or 3: what the server refused, as it said it
├── InputError            2  what was written cannot be had; it lists the fields at fault
├── LostAnswerError       1  a study was sent, and no answer came back
├── UnknownStudyError     1  no study has this id or name
└── UnreachableError      1  nobody answers at the server's address
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """Exit codes of ``tan-cli``."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    OVER_BUDGET = 3
    INTERRUPTED = 130


@dataclass(frozen=True)
class Fault:
    """One field at fault, with its path as in the YAML."""

    path: str
    message: str
    value: Any = None

    def __str__(self) -> str:
        got = "" if self.value is None else f" (got {self.value!r})"
        return f"{self.path}: {self.message}{got}" if self.path else f"{self.message}{got}"


class CliError(Exception):
    """Something that the user should read, and nothing else."""

    exit_code = Exit.FAILED

    def __init__(self, message: str, *, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.faults = list(faults)


class InputError(CliError):
    """What was written cannot be had."""

    exit_code = Exit.BAD_INPUT


class UnknownStudyError(CliError):
    """No study is meant by these words, or more than one."""


class UnreachableError(CliError):
    """Nobody answers at the server's address."""

    def __init__(self, url: str, cause: object) -> None:
        super().__init__(
            f"cannot reach the server at {url} ({cause})\n"
            "`tan-cli serve` starts one here; TAN_API_URL names another one."
        )
        self.url = url
        self.cause = cause


class LostAnswerError(CliError):
    """A study was sent and no answer came back: it may be stored."""

    def __init__(self, url: str, cause: object, *, idempotency_key: str) -> None:
        super().__init__(
            f"the server at {url} took the study and did not answer ({cause})\n"
            f"It may be stored. `tan-cli submit --idempotency-key {shlex.quote(idempotency_key)}` "
            "with the same study asks again and cannot make a second one."
        )
        self.idempotency_key = idempotency_key


OVER_BUDGET = "/problems/over-budget"
"""Type of the ledger's refusal, among the conflicts."""


class ApiError(CliError):
    """The server refused. ``problem`` is its answer (RFC 9457)."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        detail = str(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        super().__init__(detail, faults=_faults(problem))
        self.status = status
        self.problem = problem
        if status == 409 and problem.get("type") == OVER_BUDGET:
            self.exit_code = Exit.OVER_BUDGET
        elif status in (400, 413, 415, 422):
            self.exit_code = Exit.BAD_INPUT


def _faults(problem: dict[str, Any]) -> list[Fault]:
    errors = problem.get("errors")
    if not isinstance(errors, list):
        return []
    return [
        Fault(str(e.get("path", "")), str(e.get("message", "")), e.get("value"))
        for e in errors
        if isinstance(e, dict)
    ]
