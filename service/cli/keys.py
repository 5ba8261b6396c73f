"""Commands on the keys that sign privacy statements."""

from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.errors import CliError, InputError
from service.cli.options import JsonFlag

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

ExpectedKeyId = Annotated[
    str | None, typer.Option(help="The key that must have signed, known from elsewhere.")
]
ExpectedKey = Annotated[
    Path | None, typer.Option(help="The same as a PEM file, from `tan-cli key export`.")
]


def expected_key(path: Path | None, stated: str | None) -> str | None:
    """The key in the file, whose identifier must be the stated one; without a file that identifier."""
    if path is None:
        return stated
    from service.publication.keys import read_public_key

    try:
        found = read_public_key(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(
            f"--key {path}: expected an Ed25519 public key in PEM ({error})"
        ) from error
    if stated not in (None, found.key_id):
        raise InputError(f"--key {path} is key {found.key_id}, --key-id says {stated}")
    return found.public_key


@app.command("list")
def list_keys(as_json: JsonFlag = False) -> None:
    """List the service's public keys: the signing one, then the retired ones."""
    from service.cli.connect import document, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        items = document(client.list_keys())["items"]
    if as_json:
        show_json(items)
    else:
        from service.cli import privacy_view

        show(privacy_view.keys(items))


@app.command("rotate")
def rotate_key(as_json: JsonFlag = False) -> None:
    """Let a fresh key sign from now on; what the old one signed stays verifiable."""
    from service.cli.connect import document, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        fresh = document(client.rotate_key())
    if as_json:
        show_json(fresh)
    else:
        show(f"key {fresh['key_id']} signs from now on; publish it: `tan-cli key export`")


@app.command("export")
def export_key(
    key_id: Annotated[
        str | None, typer.Argument(metavar="[KEY_ID]", help="Default: the signing key.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print a public key as PEM, for the --key of `tan-cli statement --verify` and `tan-cli ledger verify`."""
    from service.cli.connect import document, open_client

    with open_client() as client:
        items = document(client.list_keys())["items"]
    found = [key for key in items if key_id is None or key["key_id"] == key_id]
    if not found:
        raise CliError(f"no key {key_id!r}", hint="tan-cli key list")
    if as_json:
        from service.cli.output import show_json

        show_json(found[0])
    else:
        typer.echo(found[0]["pem"], nl=False)
