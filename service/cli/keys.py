"""Commands on the keys that sign privacy statements."""

from typing import Annotated, Any

import typer

from service.cli.errors import CliError
from service.cli.options import JsonFlag

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


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
    """Print a public key as PEM, for `tan-cli statement --verify --key FILE`."""
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
