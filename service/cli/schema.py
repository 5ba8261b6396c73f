"""``tan-cli schema``: what a study.yaml may hold, for editors."""

import json
from pathlib import Path
from typing import Annotated

import typer

from service.cli.errors import InputError
from service.cli.options import JsonFlag

FILE_NAME = "study.schema.json"
HINT = f"# yaml-language-server: $schema={FILE_NAME}\n"
"""The first line of a study whose schema lies beside it."""


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
    """Write a file.

    Raises:
        InputError: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
