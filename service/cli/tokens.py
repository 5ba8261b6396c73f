"""Commands on API tokens, and on the audit of what was asked for: for admins."""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.errors import Fault, InputError
from service.cli.options import JsonFlag, not_empty

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]

SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}

OPTIONS = {
    "name": "NAME",
    "scopes": "--scope",
    "tenant": "--tenant",
    "expires_in_seconds": "--expires",
}
"""Of ``token create``, by what the API calls them."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


class ScopeName(StrEnum):
    """What a token may be given, as the server names it."""

    READ = "read"
    SUBMIT = "submit"
    APPROVE = "approve"
    AUDIT = "audit"
    ADMIN = "admin"


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or what for.")],
    scope: Annotated[
        list[ScopeName], typer.Option(help="What it may do; may be repeated. admin implies all.")
    ],
    tenant: Annotated[
        str | None, typer.Option(help="Whose studies it sees and makes; default: yours.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="90d", help="How long it is good: hours, days or weeks (h, d, w)."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a token and show it: this once, it is stored nowhere."""
    request: Json = {"name": name, "scopes": [each.value for each in scope]}
    if tenant is not None:
        request["tenant"] = tenant
    if expires is not None:
        request["expires_in_seconds"] = lifetime_seconds(expires)
    from service.cli.connect import document, open_client, sent_by_options
    from service.cli.output import show, show_json

    with open_client() as client, sent_by_options(OPTIONS):
        made = document(client.create_token(request))
    if as_json:
        show_json(made)
        return
    print(made["token"])
    show(
        f"This is shown once. Token {made['id']} of {made['name']}: {_scopes(made)} in tenant "
        f"{made['tenant']}, {_end(made)}.\n"
        "Use it: export TAN_API_TOKEN=<token>, or paste it where the dashboard asks.\n"
        "As long as one token is not revoked, this server asks everybody for a token, on its own "
        "machine too.",
        error=True,
    )


@app.command("list")
def list_tokens(as_json: JsonFlag = False) -> None:
    """List every token, without its secret; the newest first."""
    from service.cli.connect import document, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        items = document(client.list_tokens())["items"]
    if as_json:
        show_json(items)
    else:
        show(_token_table(items))


@app.command("revoke")
def revoke(
    token_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="As `tan-cli token list` shows.", callback=not_empty),
    ],
    as_json: JsonFlag = False,
) -> None:
    """End a token, and the sessions of the dashboard that it opened."""
    from service.cli.connect import open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        client.revoke_token(token_id)
    if as_json:
        show_json({"id": token_id, "revoked": True})
    else:
        show(f"token {token_id} is revoked")


def audit(
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only what was asked of this study, dataset or token.",
            callback=not_empty,
        ),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Only requests with this in them, such as promote or 'DELETE /tokens'.",
            callback=not_empty,
        ),
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Only those of this token, by its id or its name.",
            callback=not_empty,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="7d|DATE",
            help="Only what is newer: 12h, 7d, 4w, 2026-01-31 or a time with its offset.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many of the newest.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """Show the changes that were asked for, granted or refused, and who has had models and ledgers.

    The newest are first.
    """
    asked: Json = {
        "target": target,
        "action": action,
        "actor": actor,
        "since": None if since is None else moment(since),
    }
    query = {name: value for name, value in asked.items() if value is not None}
    from service.cli.connect import documents, open_client, sent_by_options
    from service.cli.output import show, show_json

    with open_client() as client, sent_by_options({name: f"--{name}" for name in asked}):
        items = documents(list(client.every_change(query, limit=limit)))
    if as_json:
        show_json(items)
    else:
        show(_audit_table(items, is_filtered=bool(query)))


def moment(written: str) -> str:
    """A time as the API takes it: of a date or a time of UTC, or so long ago.

    Raises:
        InputError: it is none.

    Example:
        >>> moment("2026-01-31"), moment("2026-01-31T12:00:00+01:00")
        ('2026-01-31T00:00:00+00:00', '2026-01-31T12:00:00+01:00')
    """
    from datetime import UTC, datetime, timedelta

    if re.fullmatch(r"[1-9][0-9]{0,4}[hdw]", written):
        return (datetime.now(UTC) - timedelta(seconds=lifetime_seconds(written))).isoformat()
    try:
        found = datetime.fromisoformat(written)
    except ValueError:
        accepted = "expected a number and h, d or w, such as 7d, or a date such as 2026-01-31"
        raise InputError("", faults=[Fault("--since", accepted, written)]) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).isoformat()


def lifetime_seconds(written: str) -> int:
    """Seconds of a duration such as ``12h``, ``90d`` or ``4w``.

    Raises:
        InputError: it is not one.

    Example:
        >>> lifetime_seconds("12h"), lifetime_seconds("90d")
        (43200, 7776000)
    """
    found = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", written)
    if found is None:
        fault = Fault("--expires", "expected a number and h, d or w, such as 90d", written)
        raise InputError("", faults=[fault])
    return int(found[1]) * SECONDS[found[2]]


def _token_table(items: Sequence[Json]) -> "RenderableType":
    from rich.text import Text

    from service import text
    from service.cli.tables import table

    if not items:
        return Text(
            "no tokens: whoever reaches this server is admin; `tan-cli token create NAME --scope "
            "admin` makes the first one"
        )
    made = table(
        None, "id", "name", "tenant", "scopes", "created", "last used", "state",
        prose=("name", "scopes"),
    )  # fmt: skip
    for item in items:
        made.add_row(
            *(item["id"], item["name"], item["tenant"], _scopes(item)),
            *(text.when(item["created_at"]), text.when(item["last_used_at"]), _end(item)),
        )
    return made


def _audit_table(items: Sequence[Json], *, is_filtered: bool = False) -> "RenderableType":
    from rich.text import Text

    from service import text
    from service.cli.tables import table

    if not items and is_filtered:
        return Text("nothing fits; `tan-cli audit` shows the newest of all")
    if not items:
        return Text("nobody has asked for a change yet")
    made = table(
        None, "at", "by", "tenant", "from", "request", "target", "status", right=("status",)
    )
    for item in items:
        made.add_row(
            *(text.when(item["at"]), _actor(item)),
            *(item["tenant"] or text.MISSING, item["address"] or text.MISSING),
            *(f"{item['method']} {item['route']}", item["target"] or text.MISSING),
            str(item["status"]),
        )
    return made


def _actor(event: Json) -> str:
    """The token's name, and its id: two may have one name."""
    name, id_ = event.get("token_name"), event["token_id"] or "-"
    return f"{name} ({id_})" if name else id_


def _scopes(token: Json) -> str:
    return ", ".join(token["scopes"])


def _end(token: Json) -> str:
    """When it ends or ended."""
    from service import text

    if token["revoked_at"]:
        return f"revoked {text.when(token['revoked_at'])}"
    if token["expires_at"]:
        return f"good until {text.when(token['expires_at'])}"
    return "good until it is revoked"
