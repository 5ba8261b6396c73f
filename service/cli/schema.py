"""``tan-cli schema``: what a study.yaml may hold, for editors."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from service.cli.errors import InputError
from service.cli.options import JsonFlag

FILE_NAME = "study.schema.json"
HINT = f"# yaml-language-server: $schema={FILE_NAME}\n"
"""The first line of a study whose schema lies beside it."""
_LONGEST_STEM = 60
"""Of a name, with room for what is added to it: a name has 255 bytes at most."""
_NOT_REPLACED = {errno.EBUSY, errno.EPERM}
"""Where a file can be written to alone: one that is mounted by itself, as into a container, and somebody else's."""


def schema(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A file, replaced if it is there; default: standard output."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the JSON Schema of study.yaml (draft 2020-12). Needs no server.

    Editors that know the YAML language server read it where the first line of a study says
    `# yaml-language-server: $schema=FILE`.
    """
    text = schema_text()
    if output is None:
        print(text, end="")
        return
    write(output, text)
    if as_json:
        from service.cli.output import show_json

        show_json({"path": str(output)})
    else:
        print(
            f"wrote {output}; let the first line of a study.yaml beside it be\n"
            f"# yaml-language-server: $schema={output.name}"
        )


def schema_text() -> str:
    """The schema as JSON, its examples those of the first study."""
    from service.cli.template import STUDY
    from tan_core.spec.schema import study_schema
    from tan_core.spec.yaml import parse_yaml

    return json.dumps(study_schema(parse_yaml(STUDY)), indent=2, ensure_ascii=False) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all: what is there stays where the disk is full. A link goes on leading to it.

    One that cannot be replaced, as it is mounted by itself or somebody else's, is written to where it is.

    Raises:
        InputError: it cannot be written.
    """
    try:
        is_special = path.exists() and not path.is_file()  # a pipe, a device
        if is_special or not os.access(path.resolve().parent, os.W_OK):
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _replace(path: Path, text: str) -> None:
    found = None
    if path.exists():
        path.open("ab").close()  # one that may not be written to is not replaced either
        found = path.stat()
    part = path.with_name(f".{path.name[:_LONGEST_STEM]}.{os.getpid()}.part")
    try:
        part.touch()
        if found is not None:  # before there is anything to read
            os.chown(part, found.st_uid, found.st_gid)
            shutil.copymode(path, part)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        if found is None or error.errno not in _NOT_REPLACED:
            raise
        path.write_text(text, encoding="utf-8")
    finally:
        part.unlink(missing_ok=True)
