"""docs/cli.md is held to the commands."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from service.cli.errors import Exit
from service.cli.main import app
from service.client import Client
from tests.unit.service.cli.recorded import RecordedServer, serving

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
SHOWN = [line.split("#")[0] for line in PAGE.splitlines() if line.startswith("    tan-cli ")]


@pytest.mark.parametrize("line", SHOWN, ids=str.strip)
def test_every_command_that_is_shown_can_be_read(line: str) -> None:
    command = typer.main.get_command(app)
    first, *others = shlex.split(line.partition(">")[0])[1:]
    verb = command.commands.get(first)  # type: ignore[attr-defined]
    if verb is None:
        assert first in {name for each in command.params for name in each.opts}
    else:
        verb.make_context(first, others).close()  # raises where a word is unknown


def test_every_exit_code_is_explained() -> None:
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)} == set(Exit)


def test_the_script_that_waits_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = [
        each for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "wait_" in each
    ]
    monkeypatch.chdir(Path(__file__).parents[3])
    names: dict[str, Any] = {}
    with serving(RecordedServer()) as server:
        exec(script.replace("http://127.0.0.1:8321", server.url), names)

    assert names["study"].state == "completed"
    assert [row["number"] for row in names["rows"]] == [1, 0]


def test_the_methods_of_the_examples_exist() -> None:
    called = set(re.findall(r"client\.(\w+)\(", PAGE))
    assert called
    assert all(callable(getattr(Client, name)) for name in called)
