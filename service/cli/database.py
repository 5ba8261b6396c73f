"""``tan-cli db``: the schema, backups and their restoration. Works on the database, not on a server."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.errors import CliError
from service.cli.options import JsonFlag
from service.text import counted

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


@app.command("status")
def status(as_json: JsonFlag = False) -> None:
    """Show the database of TAN_DATABASE_URL or TAN_HOME and its schema; change nothing."""
    _show(_maintain("status"), as_json=as_json)


@app.command("upgrade")
def upgrade(as_json: JsonFlag = False) -> None:
    """Bring the schema to this version's. `tan-cli serve` does so by itself."""
    _show(_maintain("upgrade"), as_json=as_json)


@app.command("backup")
def backup(file: BackupFile, as_json: JsonFlag = False) -> None:
    """Verify the ledger and write the database to a new FILE; the service may go on meanwhile."""
    report = _maintain("backup", str(file.expanduser().absolute()))
    _say(
        report,
        f"{report['file']}: {report['size_bytes'] / 1e6:.1f} MB, schema {report['schema_version']}, "
        f"{counted(report['scopes'], 'ledger chain')} verified\n"
        "Not in it: keys in TAN_HOME, checkpoints and models in TAN_STORAGE.",
        as_json=as_json,
    )


@app.command("restore")
def restore(
    file: BackupFile,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what the database holds.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make an empty database what FILE says, upgrade its schema and verify its ledger.

    What was spent after the backup is not in it: statements published since then say so.
    """
    options = ["--force"] if force else []
    report = _maintain("restore", str(file.expanduser().absolute()), *options)
    _say(
        report,
        f"restored {report['file']} (schema {report['schema_version']}); "
        f"{counted(report['scopes'], 'ledger chain')} verified\nNext: tan-cli serve",
        as_json=as_json,
    )


def _maintain(*arguments: str) -> dict[str, Any]:
    """What ``service.maintenance`` answers, in a process of its own: this one has no database code."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "service.maintenance", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CliError(done.stderr.strip() or f"it ended with exit code {done.returncode}")
    return json.loads(done.stdout)


def _show(report: dict[str, Any], *, as_json: bool) -> None:
    version = report["schema_version"] or "none"
    advice = {
        "empty": "\nNext: tan-cli db upgrade, or tan-cli db restore FILE",
        "behind": "\nNext: tan-cli db backup with the older version, then tan-cli db upgrade",
        "newer": "\nThis program is too old for the database: upgrade the program.",
    }.get(report["state"], "")
    _say(
        report,
        f"{report['database']}\nPostgreSQL {report['postgres']}, {report['size_bytes'] / 1e6:.1f} MB\n"
        f"schema {version}, needed {report['needed']}: {report['state']}{advice}",
        as_json=as_json,
    )


def _say(report: dict[str, Any], text: str, *, as_json: bool) -> None:
    from service.cli.output import show_json

    if as_json:
        show_json(report)
    else:
        print(text)
