"""What the tests of Compose and of the chart have in common."""

import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def passes() -> Callable[[list[str], dict[str, str]], bool]:
    """Whether a probe's command, which is one of Python's, ends well in an environment."""

    def passes(command: list[str], environment: dict[str, str]) -> bool:
        program, *arguments = command
        assert program == "python"
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, check=False
        )
        return done.returncode == 0

    return passes
