"""Commands on the ledger of a dataset. ``tan-cli ledger DATASET`` is ``tan-cli ledger show DATASET``."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from service.cli.errors import Exit
from service.cli.keys import ExpectedKey, ExpectedKeyId, expected_key
from service.cli.options import DatasetName, JsonFlag, finite, not_empty, one_line, sendable_key

if TYPE_CHECKING:
    from service.client import Client

Json = dict[str, Any]

MOST_ENTRIES = 10_000
ALL_TENANTS = "*"
KEY_OPTION = "--idempotency-key"


class ShowByDefault(TyperGroup):
    """What is no command of the group is the name of a dataset to show."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments with ``show`` before them, unless a command stands there."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=ShowByDefault, no_args_is_help=True, rich_markup_mode=None)


@app.command("show")
def show_ledger(
    dataset: DatasetName,
    entries: Annotated[
        int, typer.Option(min=0, max=MOST_ENTRIES, help="So many of the newest entries.")
    ] = 50,
    until: Annotated[
        int | None, typer.Option(min=1, help="Entries up to this number. Default: the newest.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the whole hash chain; exit 1 if it is broken.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a dataset's budget, who holds what of it, and its journal."""
    from service.cli.connect import document, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        report = document(client.verify_ledger(dataset)) if verify else None
        account = document(client.get_ledger(dataset, entries=entries, until=until))
        about = document(client.get_dataset(dataset))
    if as_json:
        show_json(account if report is None else {**account, "verification": report})
    else:
        from service.cli import privacy_view

        show(privacy_view.ledger(account, about))
        if report is not None:
            show(privacy_view.chain(report))
    raise typer.Exit(Exit.DONE if report is None or report["is_valid"] else Exit.FAILED)


@app.command("verify")
def verify_ledger(
    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help="Default: every private dataset.")
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(
            "--accept-restored-backup",
            metavar='"WHO: REASON"',
            help="Go on with a restored database. Who does and why stays in the ledger for ever, and beside "
            "every ε.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="An export kept in a file. It is verified without any server."),
    ] = None,
    key_id: ExpectedKeyId = None,
    key: ExpectedKey = None,
    as_json: JsonFlag = False,
) -> None:
    """Walk the hash chain and fold the journal again; exit 1 and name the entry that was edited."""
    from service.cli.connect import document, open_client
    from service.cli.errors import InputError
    from service.cli.output import show, show_json

    if file is not None:
        if dataset is not None or accept is not None:
            raise InputError("--file verifies an export alone: leave DATASET out")
        _verify_export(file, expected_key(key, key_id), as_json=as_json)
    if key is not None or key_id is not None:
        raise InputError("--key and --key-id are for an export: name its --file")
    if accept is not None and dataset is None:
        raise InputError("--accept-restored-backup is for one DATASET: name it")
    with open_client() as client:
        if accept is not None:
            client.accept_restored_backup(dataset or "", {"reason": accept})
        names = [dataset] if dataset is not None else _private(client)
        reports = {name: document(client.verify_ledger(name)) for name in names}
    if as_json:
        show_json(reports)
    else:
        from service.cli import privacy_view

        show(*(privacy_view.chain(report, name) for name, report in reports.items()))
    good = all(report["is_valid"] for report in reports.values())
    raise typer.Exit(Exit.DONE if good else Exit.FAILED)


@app.command("export")
def export_ledger(
    dataset: DatasetName,
    as_: Annotated[
        Literal["json", "registry"],
        typer.Option(
            "--format",
            help="json: all of it, signed. registry: a draft record per completed study, in YAML, for "
            "the registry of differential privacy deployments.",
        ),
    ] = "json",
    output: Annotated[Path | None, typer.Option(help="A file; default: standard output.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a ledger down for somebody outside."""
    import json

    from service.cli.errors import InputError
    from service.cli.output import show, show_json
    from service.cli.schema import write

    if as_json and as_ == "registry":
        raise InputError("--json goes without --format registry, which is YAML")
    from service.cli.connect import open_client

    with open_client() as client:
        if as_ == "registry":
            from service.statements.registry import to_yaml

            client.get_dataset(dataset)  # an unknown name is an error, not an empty file
            text = to_yaml(list(_statements(client, dataset)))
        else:
            text = json.dumps(client.export_ledger(dataset), indent=2) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        write(output, text)
        if as_json:
            show_json({"path": str(output)})
        else:
            show(f"wrote {output}")


@app.command("reprice")
def reprice_ledger(
    dataset: DatasetName,
    accountant: Annotated[
        list[str] | None,
        typer.Option(
            help="pld, rdp or prv; may be repeated. Default: pld, and rdp for what it has a price for."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Price what was charged by the accountants of today; show it beside what was said before."""
    from service.cli.connect import document, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        asked = {"accountants": accountant} if accountant else {}
        repriced = document(client.reprice_ledger(dataset, asked))
    if as_json:
        show_json(repriced)
    else:
        from service.cli import privacy_view

        show(privacy_view.repricing(repriced))


@app.command("cap")
def cap_tenant(
    dataset: DatasetName,
    epsilon: Annotated[
        float,
        typer.Option(
            help="Total ε of the tenant's studies, at the δ of the dataset; 0: nothing more is admitted.",
            callback=finite,
        ),
    ],
    tenant: Annotated[
        str | None, typer.Option(help="Whose studies are limited.", callback=not_empty)
    ] = None,
    all_tenants: Annotated[
        bool,
        typer.Option("--all-tenants", help="Limit all of them together; with --epsilon 0: freeze."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Limit a tenant to a lower ε within the dataset's budget. What is committed stays."""
    from service.cli.connect import document, open_client, sent_by_options
    from service.cli.errors import InputError
    from service.cli.output import show, show_json

    if (tenant is None) is not all_tenants:
        raise InputError("a cap is for one --tenant or for --all-tenants: name one of them")

    options = {"epsilon": "--epsilon", "tenant": "--tenant"}
    with open_client() as client, sent_by_options(options):
        cap = document(client.set_cap(dataset, tenant or ALL_TENANTS, {"epsilon": epsilon}))
    if as_json:
        show_json(cap)
    else:
        from service import text
        from service.ledger import words

        committed = cap.get("committed_epsilon")
        beside = "" if committed is None else f"; ε {text.epsilon(committed)} is committed"
        whose = words.whose(cap["tenant"])
        show(f"{whose}: ε <= {cap['epsilon']:g} of {dataset}, entry {cap['seq']}{beside}")
        for warning in cap.get("warnings") or []:
            show(f"warning: {warning}", error=True)


@app.command("charge")
def charge_release(
    dataset: DatasetName,
    noise_multiplier: Annotated[
        float,
        typer.Option(
            help="Standard deviation of the Gaussian noise, over the most (L2) that one protected unit adds to what is released.",
            callback=finite,
        ),
    ],
    reason: Annotated[
        str,
        typer.Option(
            help="What is released, and what for. It stays in the ledger for ever, for all who may see the dataset.",
            callback=one_line,
        ),
    ],
    steps: Annotated[int, typer.Option(min=1, help="How often it runs: of DP-SGD its steps.")] = 1,
    sampling_rate: Annotated[
        float,
        typer.Option(
            help="Probability with which each unit is in a step; 1: all of them, always.",
            callback=finite,
        ),
    ] = 1.0,
    sampling: Annotated[
        Literal["poisson", "unamplified"],
        typer.Option(help="unamplified: no Poisson sampling, as with shuffled batches."),
    ] = "poisson",
    tenant: Annotated[
        str | None,
        typer.Option(
            help="Whose caps it counts to; default: your own. A wrong name is charged all the same: --dry-run warns of it.",
            callback=not_empty,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would cost; charge nothing.")
    ] = False,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            help="The same key again is answered again, and charged once; default: a fresh key.",
            callback=sendable_key,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Charge a release outside of the service BEFORE it is made; exit 3 if the budget does not hold it."""
    import uuid

    from service.cli.connect import document, open_client, readable, sent_by_options
    from service.cli.errors import CliError
    from service.cli.output import show, show_json
    from service.client import ProblemError, UnreachableError
    from service.client.patience import AWAY
    from service.client.studies import NEVER_SENT

    key = str(uuid.uuid4()) if idempotency_key is None else idempotency_key
    asked: Json = {
        "noise_multiplier": noise_multiplier, "steps": steps, "sampling_rate": sampling_rate, "sampling": sampling,
        "reason": reason, **({} if tenant is None else {"tenant": tenant}),
    }  # fmt: skip
    options = {name: f"--{name.replace('_', '-')}" for name in asked}
    again = f"the same command with --idempotency-key {key} asks again, and cannot charge it twice"
    with open_client() as client, sent_by_options({**options, "Idempotency-Key": KEY_OPTION}):
        try:
            release = document(
                client.charge_release(dataset, asked, idempotency_key=key, dry_run=dry_run)
            )
        except UnreachableError as error:
            if dry_run or isinstance(error.__cause__, NEVER_SENT):
                raise
            raise CliError(
                f"the server at {error.url} did not answer ({error.cause}): the release may be charged",
                hint=again,
            ) from error
        except ProblemError as error:
            if dry_run or error.status not in AWAY:
                raise
            refusal = readable(error)
            raise CliError(f"the release may be charged: {refusal.message}", hint=again) from error
    if as_json:
        show_json(release)
    else:
        from service.cli import privacy_view

        show(privacy_view.outside_release(release, dataset))
        for warning in release["warnings"]:
            show(f"warning: {warning}", error=True)


def _verify_export(file: Path, key_id: str | None, *, as_json: bool) -> NoReturn:
    """Say what holds of an export in a file, and end."""
    from service.cli.connect import read_json
    from service.cli.output import show, show_json
    from service.statements.export_check import verify_export

    found = verify_export(read_json(file), key_id=key_id)
    if as_json:
        show_json([asdict(check) for check in found])
    else:
        from service.cli import privacy_view

        show(privacy_view.checks(found))
    raise typer.Exit(Exit.FAILED if any(check.is_bad for check in found) else Exit.DONE)


def _private(client: "Client") -> list[str]:
    # By the budget: one whose row was made to say that it is public has it all the same.
    return [one.name for one in client.list_datasets().items if one.budget is not None]


def _statements(client: "Client", dataset: str) -> "list[Json]":
    """Of every completed study on the dataset, oldest first."""
    from service.client import ProblemError

    found: list[Json] = []
    for study in client.every_study(
        {"state": ["completed"], "dataset": dataset, "archived": "include"}
    ):
        try:
            found.append(client.get_statement(study.id))
        except ProblemError as error:
            if error.status != 404:
                raise
    return found[::-1]
