"""Errors of the command line, each with the exit code that scripts rely on.

CliError                  1  failed
├── ApiError              1, 2 or 3: what the server refused, as it said it
├── InputError            2  what was written cannot be had; it lists the fields at fault
└── UnknownStudyError     1  no study has this id or name
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any
from urllib.parse import unquote

from service import text


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
        said = text.got(self.message, self.value)
        told = self.message if said is None else f"{self.message} (got {said})"
        return f"{self.path}: {told}" if self.path else told


class CliError(Exception):
    """Something that the user should read, and nothing else.

    ``hint`` says what to type next; without one it is the help of the command.
    """

    exit_code = Exit.FAILED

    def __init__(
        self, message: str, *, faults: Sequence[Fault] = (), hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.faults = list(faults)
        self.hint = hint


class InputError(CliError):
    """What was written cannot be had."""

    exit_code = Exit.BAD_INPUT


class UnknownStudyError(CliError):
    """No study is meant by these words, or more than one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="tan-cli list shows the studies and their ids")


EXPORT_AGAIN = "export TAN_API_TOKEN=... as `tan-cli token create` printed it, without quotes or line ends in it"
"""What to do about a token that was damaged on its way here."""
OVER_BUDGET = "/problems/over-budget"
"""Type of the ledger's refusal, among the conflicts."""


class ApiError(CliError):
    """The server refused what was asked for at ``path``. ``problem`` is its answer (RFC 9457)."""

    def __init__(self, status: int, problem: dict[str, Any], *, path: str = "") -> None:
        detail = str(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        is_over_budget = status == 409 and problem.get("type") == OVER_BUDGET
        super().__init__(
            detail,
            faults=_faults(problem),
            hint=_left(path) if is_over_budget else _next(status, path),
        )  # fmt: skip
        self.status = status
        self.problem = problem
        if is_over_budget:
            self.exit_code = Exit.OVER_BUDGET
        elif status in (400, 413, 415, 422):
            self.exit_code = Exit.BAD_INPUT


HINTS = {
    401: "export TAN_API_TOKEN=...; an admin makes one: tan-cli token create NAME --scope submit",
    403: "an admin gives a token that may: tan-cli token create NAME --scope SCOPE",
    404: "tan-cli list shows the studies, tan-cli dataset list the datasets",
    409: "tan-cli show STUDY says where it stands",
    412: "tan-cli show STUDY says what it is now",
    429: "wait and repeat it",
    500: "tan-cli doctor looks at what the service stands on; its log has the error",
    502: "tan-cli doctor",
    503: "tan-cli doctor looks at what the service stands on",
}
"""What to type after a refusal, by its HTTP status; ``_next`` knows better of some paths."""


def _left(path: str) -> str:
    """Where to see what is left of a budget that did not hold what was asked for at this path."""
    match unquote(path).strip("/").split("/"):
        case ["datasets", dataset, *_]:
            return f"tan-cli ledger show {dataset} says what is left, and the caps"
        case _:
            return "tan-cli dataset list shows the budgets"


def _next(status: int, path: str) -> str | None:
    """What to type after a refusal of what was asked for at this path."""
    resource, *names = unquote(path).strip("/").split("/")
    if status in (404, 409):
        match resource, status, names:
            case ("studies", _, [study, _]) | ("studies", 409, [study]):
                return f"tan-cli show {study} says where it stands"
            case "datasets", 409, [dataset, *_]:
                return f"tan-cli ledger show {dataset}"
            case "datasets", _, _:
                return "tan-cli dataset list shows what is registered"
            case "tokens", _, _:
                return "tan-cli token list shows the tokens"
            case _:
                pass
    return HINTS.get(status)


def _faults(problem: dict[str, Any]) -> list[Fault]:
    errors = problem.get("errors")
    if not isinstance(errors, list):
        return []
    return [
        Fault(str(e.get("path", "")), str(e.get("message", "")), e.get("value"))
        for e in errors
        if isinstance(e, dict)
    ]
