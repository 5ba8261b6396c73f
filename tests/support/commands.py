"""``tan-cli`` in this process, and what it said."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from service.cli.main import run


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]


def cli_of(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs it with these arguments."""

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = run(list(arguments))
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
