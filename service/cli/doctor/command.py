"""The command: every check at once, and a table of what they found."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from service.cli.errors import Exit
from service.cli.options import JsonFlag

if TYPE_CHECKING:
    from rich.console import RenderableType

    from service.cli.doctor.check import Check, Finding

Json = dict[str, Any]

STYLES = {"ok": "green", "warning": "yellow", "failure": "red"}


def doctor(as_json: JsonFlag = False) -> None:
    """Check what the product stands on here, and say what to do; exit 1 if anything failed.

    Nothing is started, made or changed, and nothing has to run.
    """
    from service.cli.doctor.check import LIMIT_SECONDS, run
    from service.cli.output import console, show, show_json

    with console(error=True).status("checking") as status:
        findings = run(
            _checks(),
            limit_seconds=LIMIT_SECONDS,
            tell=lambda names: status.update(f"still waiting for {', '.join(names)}"),
        )
    if as_json:
        show_json(_document(findings))
    else:
        show(_report(findings))
    failed = any(each.verdict == "failure" for each in findings.values())
    raise typer.Exit(Exit.FAILED if failed else Exit.DONE)


def _checks() -> "dict[str, Check]":
    """Every check by its name. Without settings that can be read, those that need none."""
    from service.cli.doctor import machine, services
    from service.cli.doctor.check import failure
    from service.cli.settings import ClientSettings
    from service.settings import SettingsError, read_settings

    client = ClientSettings.from_environment()
    database = services.Database()
    plain: dict[str, Check] = {
        "python": machine.python,
        "api": lambda: services.api(client),
        "gpu": machine.gpu,
        "kernels": machine.kernels,
        "memory": machine.memory,
    }
    try:
        settings = read_settings()
    except SettingsError as error:
        wrong = str(error)
        advice = "the variables are explained in the README, under Configuration"
        return {"settings": lambda: failure(wrong, advice), **plain}
    return {
        "settings": lambda: machine.settings(settings),
        **plain,
        "database": database.check,
        "clock": lambda: services.clock(client, database.ahead_seconds),
        "ray": lambda: services.ray(settings),
        "workers": lambda: services.workers(settings),
        "data": lambda: services.data(settings, client),
        "disk": lambda: machine.disk(settings),
        "port": lambda: machine.port(settings),
        "keys": lambda: machine.secrets(settings),
    }


def _report(findings: "Mapping[str, Finding]") -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from service.cli.views import facts

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, finding in findings.items():
        grid.add_row(Text(finding.verdict, style=STYLES[finding.verdict]), name, finding.found)
    steps = [(name, each.next) for name, each in findings.items() if each.next is not None]
    ending = facts("\nWhat to do", steps) if steps else Text("\nNothing has to be done.")
    return Group(grid, ending)


def _document(findings: "Mapping[str, Finding]") -> Json:
    return {
        "checks": [
            {"name": name, "verdict": each.verdict, "found": each.found, "next": each.next}
            for name, each in findings.items()
        ],
        "failures": sum(each.verdict == "failure" for each in findings.values()),
        "warnings": sum(each.verdict == "warning" for each in findings.values()),
    }
