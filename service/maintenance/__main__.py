"""``python -m service.maintenance``: the verbs of ``tan-cli db``, and a look for ``tan-cli doctor``.

Prints one JSON document.

The command line holds no database code, so it runs this as a process of its own.
"""

import argparse
import logging
import sys
from pathlib import Path

from pydantic import BaseModel

from service.maintenance.backup import backup, restore
from service.maintenance.look import look
from service.maintenance.schema import bring_up, status
from service.maintenance.target import open_target
from service.settings import Settings, read_settings
from tan_core import log_records
from tan_core.errors import TanError


def main() -> int:
    """Do it, and print what was done; an error is one line on standard error."""
    arguments = _parser().parse_args()
    try:
        settings = read_settings()
        log_records.configure(settings.log_format, level=logging.WARNING)
        report = _run(arguments, settings)
    except TanError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{report.model_dump_json()}\n")
    return 0


def _run(arguments: argparse.Namespace, settings: Settings) -> BaseModel:
    verb = arguments.verb
    if verb == "look":
        return look(settings)
    with open_target(
        settings, is_exclusive=verb == "restore", is_made=verb in ("restore", "upgrade")
    ) as target:
        match verb:
            case "upgrade":
                return bring_up(target)
            case "backup":
                return backup(target, arguments.file)
            case "restore":
                return restore(target, arguments.file, is_forced=arguments.force)
            case _:
                return status(target)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service.maintenance", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("look")
    verbs.add_parser("status")
    verbs.add_parser("upgrade")
    verbs.add_parser("backup").add_argument("file", type=Path)
    restoring = verbs.add_parser("restore")
    restoring.add_argument("file", type=Path)
    restoring.add_argument("--force", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
