"""``tan-cli selftest privacy``: what private runs do on this machine, measured against their price.

The checks need torch, which the command line does without: they run in a process of their own.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from service.cli.errors import CliError, Exit
from service.cli.options import JsonFlag

Json = dict[str, Any]

NEEDED = ("torch", "ray", "safetensors")

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def selftest() -> None:
    """Checks of the product on itself."""


@app.command("privacy")
def privacy(
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Of all records and keys, to see the same again; default: fresh ones.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out the three largest models.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure draws, noise and sensitivity of private runs here against what is priced.

    A minute or two; exit code 1 if a check fails. docs/selftest.md says what each one proves.
    """
    from service.cli.output import show, show_json

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise CliError(
            f"the self-test trains, and {', '.join(missing)} is not installed here; run it where "
            "workers run, or: pip install 'tan-search[worker]'"
        )
    findings = list(_findings(seed=seed, quick=quick, is_silent=as_json))
    document = report(findings, seed=seed)
    if as_json:
        show_json(document)
    else:
        from service.cli import selftest_view

        show(selftest_view.findings(document))
    if not document["passed"]:
        raise typer.Exit(Exit.FAILED)


def report(findings: Sequence[Json], *, seed: int | None) -> Json:
    """All findings, whether each one passed, and how often a correct product fails."""
    return {
        "passed": all(finding["passed"] for finding in findings),
        "false_alarm": sum(finding["false_alarm"] for finding in findings),
        "seed": seed,
        "findings": list(findings),
    }


def _findings(*, seed: int | None, quick: bool, is_silent: bool) -> Iterator[Json]:
    """Each finding as soon as the other process has printed it."""
    command = [sys.executable, "-m", "worker.selftest"]
    command += [] if seed is None else ["--seed", str(seed)]
    command += ["--quick"] if quick else []
    end: Json = {}
    count = 0
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        _watched(is_silent=is_silent) as tell,
    ):
        for line in process.stdout or ():
            document = _parsed(line)
            if "check" not in document:
                end = document
                break
            count += 1
            tell(document)
            yield document
    # What broke off has found nothing wrong, and says nothing.
    if count == 0 or end.get("num_findings") != count:
        raise CliError(
            f"the self-test broke off after {count} checks with exit code {process.returncode}; "
            "what it said is above"
        )


def _parsed(line: str) -> Json:
    """A line that is whole; nothing of one that is not."""
    try:
        return json.loads(line)
    except ValueError:
        return {}


@contextmanager
def _watched(*, is_silent: bool) -> Generator[Callable[[Json], None]]:
    """Says on a terminal what was checked last."""
    from service.cli.output import console

    screen = console(error=True)
    if is_silent or not screen.is_terminal:
        yield lambda _: None
        return
    with screen.status("starting") as status:
        yield lambda finding: status.update(f"checked {finding['check']}")
