"""Commands on datasets: add, features, list, show, edit."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from service.cli.errors import Fault, InputError
from service.cli.options import DatasetName, JsonFlag, finite

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

OPTIONS = {
    "name": "NAME",
    "num_classes": "--classes",
    "classes": "--class",
    "features": "--feature",
    "neighboring_relation": "--relation",
    "records_per_unit": "--records-per-unit",
    "split_seed": "--split-seed",
    "accept_overlap": "--accept-overlap",
    "public: true": "--public",
    **{
        field: f"--{field}"
        for field in (
            *("path", "source", "label", "unit", "group", "epsilon", "delta"),
            *("public", "allow", "waiver", "admission", "approval"),
        )
    },
}
"""Of ``dataset add``, by what a registration calls them."""

NewName = Annotated[str, typer.Argument(metavar="NAME", help="The name studies use.")]


class ModesInARow(TyperCommand):
    """``--allow`` may be followed by several modes: ``--allow public_proxy accounted``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments with ``--allow`` before every mode."""
        spread: list[str] = []
        for word in args:
            if spread[-2:-1] == ["--allow"] and not word.startswith("-") and _is_mode(word):
                spread.append("--allow")
            spread.append(word)
        return super().parse_args(ctx, spread)


def _is_mode(word: str) -> bool:
    from tan_core.accounting import SearchAccounting

    return word in tuple(SearchAccounting)


@app.command("add", cls=ModesInARow)
def add(
    name: NewName,
    path: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL",
            help="File or folder on storage that every node sees, or an address that the server allows.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Total ε over every study that ever reads the data.", callback=finite),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Total δ.", callback=finite)] = None,
    unit: Annotated[
        str,
        typer.Option(
            metavar="record|COLUMN",
            help="What is protected: a record, or a user, by the column that says whose a record is.",
        ),
    ] = "record",
    records_per_unit: Annotated[
        int | None,
        typer.Option(min=1, help="Training records of a user that are read, at most; default: 16."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Column of the group that a record is of, for accuracies by group."),
    ] = None,
    label: Annotated[str, typer.Option(help="Label column of Parquet and CSV files.")] = "label",
    feature: Annotated[
        list[str] | None,
        typer.Option(help="Feature column of a table; may be repeated. Default: numeric columns."),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml",
            help="Feature columns and how they are read, by name: `age: {low: 0, high: 100}` becomes -1 to 1, "
            "`job: {choices: [clerk, nurse]}` columns of 0 and 1, and `height:` stays as it is. "
            "`tan-cli dataset features TABLE` prints one to fill in.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="digits, parquet, image_folder, npz or table; default: from the path."),
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="Number of classes; default: read off the labels.")
    ] = None,
    class_: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="NAME",
            help="What a class is called; repeat it, in the order of the labels. Needed where labels are text.",
        ),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Public data: no budget.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODE ...",
            help="The search.accounting modes to allow: public_proxy, accounted, or declared_unaccounted beside a "
            "--waiver. Default: public_proxy, accounted on private data, and what a waiver allows.",
        ),
    ] = None,
    waiver: Annotated[
        str | None,
        typer.Option(
            help='"owner: reason", needed to allow declared_unaccounted; it cannot be given later.'
        ),
    ] = None,
    accept_overlap: Annotated[
        str | None,
        typer.Option(
            help='"owner: reason", where the data hold records of another registered dataset: they are '
            "refused without it, and it stands in the ledger and in statements."
        ),
    ] = None,
    relation: Annotated[
        str | None, typer.Option(help="Neighbouring relation; default: add_or_remove_one.")
    ] = None,
    admission: Annotated[
        str | None,
        typer.Option(
            help="pld (default), or renyi_filter where plans depend on earlier private results."
        ),
    ] = None,
    approval: Annotated[
        str | None,
        typer.Option(
            metavar="automatic|required",
            help="required: a person approves every private run, whatever its study says.",
        ),
    ] = None,
    split_seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the validation split, where one is cut.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Look at the data and show what would be registered, or why not; keep nothing.",
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Register a dataset with its total privacy budget, which cannot be changed later: try with --dry-run."""
    registration: Json = {
        "name": name,
        "path": _place(path),
        "epsilon": epsilon,
        "delta": delta,
        "unit": unit,
        "records_per_unit": records_per_unit,
        "group": group,
        "label": label,
        "features": [*(feature or []), *_features_of(features)] or None,
        "source": source,
        "num_classes": classes,
        "classes": class_ or None,
        "public": public,
        "allow": allow or None,
        "waiver": waiver,
        "accept_overlap": accept_overlap,
        "neighboring_relation": relation,
        "admission": admission,
        "approval": approval,
        "split_seed": split_seed,
    }
    from service.cli.connect import document, open_client, sent_by_options

    named = OPTIONS if features is None else OPTIONS | {"features": "--features"}
    with open_client() as client, sent_by_options(named):
        made = document(client.register_dataset(stated(registration), dry_run=dry_run))
    _show_one(made, as_json=as_json)
    if dry_run and not as_json:
        from service.cli.output import show

        show("nothing was registered: this was a dry run", error=True)


def _features_of(path: Path | None) -> list[Json | str]:
    """The columns of a file, in its order, as a registration has them."""
    if path is None:
        return []
    from service.cli.study_file import read_mapping

    stated = read_mapping(str(path))
    faults = [
        Fault(
            str(name),
            "expected nothing, {low: NUMBER, high: NUMBER} or {choices: [NAME, ...]}",
            how,
        )
        for name, how in stated.items()
        if not (how is None or isinstance(how, dict))
    ]
    faults += [fault for name, how in stated.items() if how for fault in _faults_of(str(name), how)]
    if faults:
        raise InputError(f"{path} says of some columns what no feature is", faults=faults)
    return [
        str(name) if how is None else {"column": str(name), **how} for name, how in stated.items()
    ]


def _faults_of(name: str, how: Any) -> list[Fault]:
    """What is wrong with a range or with choices, by the column: a server that is asked knows them by number only."""
    from pydantic import ValidationError

    from tan_core.spec import field_problems
    from tan_core.spec.columns import ChoiceColumn, RangeColumn

    if not isinstance(how, dict):
        return []
    model = ChoiceColumn if "choices" in how else RangeColumn
    try:
        model.model_validate({"column": name, **how})
    except ValidationError as error:
        return [
            Fault(f"{name}.{each.path}" if each.path else name, each.message, each.value)
            for each in field_problems(error, model)
        ]
    return []


@app.command("features")
def features_template(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="A CSV or Parquet file, or a folder of such, here."),
    ],
    label: Annotated[str, typer.Option(help="Label column.")] = "label",
    unit: Annotated[
        str, typer.Option(metavar="record|COLUMN", help="What is protected, as for `add`.")
    ] = "record",
    group: Annotated[
        str | None, typer.Option(help="Column of the group that a record is of.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print what `dataset add --features` reads, to be filled in: a line for each column of a table, and no value of it."""
    from service.cli import feature_template
    from service.cli.output import show_json

    columns = {"--label": label, "--unit": unit if unit != "record" else None, "--group": group}
    beside = stated(columns)
    kinds = feature_template.kinds_of(table, beside=beside)
    if as_json:
        show_json(feature_template.as_json(kinds))
    else:
        print(feature_template.as_yaml(kinds, table, beside=beside), end="")


@app.command("list")
def list_datasets(as_json: JsonFlag = False) -> None:
    """List the registered datasets."""
    from service.cli.connect import document, open_client

    with open_client() as client:
        items = document(client.list_datasets())["items"]
    if as_json:
        from service.cli.output import show_json

        show_json(items)
    else:
        from service.cli import views
        from service.cli.output import show

        show(views.datasets(items))


@app.command("show")
def show_dataset(name: DatasetName, as_json: JsonFlag = False) -> None:
    """Show one dataset."""
    from service.cli.connect import document, open_client

    with open_client() as client:
        found = document(client.get_dataset(name))
    _show_one(found, as_json=as_json)


@app.command("edit")
def edit_dataset(
    name: DatasetName,
    approval: Annotated[
        str,
        typer.Option(
            metavar="automatic|required",
            help="required: a person approves every private run that has not begun, and those to come.",
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Change what may be changed of a dataset."""
    from service.cli.connect import document, open_client, sent_by_options

    with open_client() as client, sent_by_options(OPTIONS):
        edited = document(client.set_approval(name, {"approval": approval}))
    _show_one(edited, as_json=as_json)


def stated(registration: Json) -> Json:
    """Only what was said: every default is the server's."""
    return {name: value for name, value in registration.items() if value is not None}


def _show_one(dataset: Json, *, as_json: bool) -> None:
    if as_json:
        from service.cli.output import show_json

        show_json(dataset)
    else:
        from service.cli import views
        from service.cli.output import show

        show(views.dataset(dataset))


def _place(path: str | None) -> str | None:
    """A path as the server sees it, which works in another folder; an address as it is."""
    from tan_core.spec.addresses import is_address

    if path is None or is_address(path):
        return path
    return str(Path(path).expanduser().absolute())
