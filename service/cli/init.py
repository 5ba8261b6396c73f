"""``tan-cli init``: a commented study.yaml from answers or options, checked before it is written."""

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.complete import dataset_names
from service.cli.errors import Fault, InputError
from service.cli.options import JsonFlag

if TYPE_CHECKING:
    from service.cli.template import Answers
    from service.datasets.schemas import DatasetView

Json = dict[str, Any]

SERVER_SECONDS = 2.0
"""How long a server may take to say which datasets there are."""


def init(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The file to write; default: study.yaml."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The same as FILE.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the study; default: from dataset and ε.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="A registered dataset; default: digits.", autocompletion=dataset_names),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Its name; default: what fits the dataset.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The target; default: 3.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Default: 1e-5, or what is well below 1/N.")
    ] = None,
    accounting: Annotated[
        str | None,
        typer.Option(
            help="search.accounting: declared_unaccounted, accounted, public_proxy or no_search; default: what "
            "the dataset allows."
        ),
    ] = None,
    search_dataset: Annotated[
        str | None,
        typer.Option(
            help="The public dataset that public_proxy searches on.", autocompletion=dataset_names
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Candidates; default: 12, and 6 where each is charged.")
    ] = None,
    batch_size: Annotated[
        str | None, typer.Option(metavar="B", help="Of the private run: a number or auto.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="S", help="Of the private run: a number or auto.")
    ] = None,
    promotion: Annotated[
        str | None, typer.Option(help="automatic (default), or manual: it waits for an approval.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: take the defaults for the rest.")
    ] = False,
    no_schema: Annotated[
        bool, typer.Option("--no-schema", help="Leave out the schema that editors read.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a commented study.yaml. On a terminal it asks for what no option says."""
    from service.cli.output import show, show_json
    from service.cli.schema import FILE_NAME, HINT, schema_text, write
    from service.cli.template import study_text
    from service.text import known_names

    if path is not None and output is not None:
        raise InputError("give FILE or --output, not both")
    target = path or output or Path("study.yaml")
    if target.is_dir():
        raise InputError(f"{target} is a folder", hint=f"tan-cli init {target / 'study.yaml'}")
    if target.exists() and not force:
        raise InputError(
            f"{target} exists already; nothing was written",
            hint=f"tan-cli init {target} --force replaces it",
        )
    given = {
        "name": name,
        "dataset": dataset,
        "model": model,
        "epsilon": epsilon,
        "delta": delta,
        "accounting": accounting,
        "search_dataset": search_dataset,
        "trials": trials,
        "batch_size": batch_size,
        "steps": steps,
        "promotion": promotion,
    }
    is_asking = sys.stdin.isatty() and not (yes or as_json)
    datasets = registered()
    answers = answered(given, datasets, ask=prompt if is_asking else None)
    text = study_text(answers)
    check(text)
    schema = None if no_schema else target.with_name(FILE_NAME)
    write(target, text if schema is None else HINT + text)
    if schema is not None:
        write(schema, schema_text())
    if datasets and answers.dataset not in datasets:
        show(
            f"note: no dataset {answers.dataset!r} is registered yet; registered: "
            f"{known_names(answers.dataset, [*datasets])}",
            error=True,
        )
    seen = datasets.get(answers.dataset)
    if seen is not None and answers.accounting not in (*seen.allowed_modes, "no_search"):
        show(
            f"note: dataset {answers.dataset!r} does not allow {answers.accounting}; accepted there: "
            f"{', '.join([*seen.allowed_modes, 'no_search'])}",
            error=True,
        )
    if as_json:
        show_json({"path": str(target), "schema": schema and str(schema)})
        return
    beside = "" if schema is None else f", and {schema}, by which editors complete and check it"
    show(f"wrote {target}{beside}\nnext: tan-cli plan {target}, tan-cli submit {target} --watch")


Ask = Callable[[str, str], str]
"""The answer to a question that has a default."""


def answered(
    given: Mapping[str, Any], datasets: "Mapping[str, DatasetView]", *, ask: Ask | None = None
) -> "Answers":
    """The options, then what is answered, then what fits the dataset."""
    from service.cli.template import ACCOUNTING, Answers

    values = {key: value for key, value in given.items() if value is not None}

    def fill(key: str, question: str, default: Any) -> Any:
        if key not in values:
            text = str(default) if ask is None else ask(question, str(default))
            values[key] = _converted(key, text, type(default))
        return values[key]

    known = f" ({', '.join(datasets)})" if datasets else ""
    dataset = str(fill("dataset", f"dataset{known}", "digits"))
    seen = datasets.get(dataset)
    is_first = dataset == "digits"
    fill("model", "model", "mlp" if is_first else _model_for(seen))
    epsilon = fill("epsilon", "target ε", 3.0)
    fill("delta", "at δ", _delta_for(seen))
    accounting = fill("accounting", f"search ({', '.join(ACCOUNTING)})", _accounting_for(seen))
    if accounting not in ACCOUNTING:
        accepted = ", ".join(ACCOUNTING)
        raise InputError("", faults=[Fault("--accounting", f"accepted: {accepted}", accounting)])
    if accounting == "no_search":
        _refuse_what_is_not_searched(values)
    else:
        fill("trials", "trials", 6 if accounting == "accounted" else 12)
    fill("batch_size", "batch size B of the private run", "256" if is_first else "auto")
    fill("steps", "its steps S", "300" if is_first else "auto")
    fill("promotion", "promotion (automatic, manual)", "automatic")
    values.setdefault("name", f"{dataset}-eps{epsilon:g}")
    if not is_first or values["batch_size"] != "256":
        values["rungs"] = "auto"
    if not is_first:
        values["clip_norm"] = 1.0
    return Answers(**values)


def _refuse_what_is_not_searched(values: Mapping[str, Any]) -> None:
    faults = [
        Fault(
            f"--{key.replace('_', '-')}",
            "nothing is searched under no_search; leave it out",
            values[key],
        )
        for key in ("trials", "search_dataset")
        if key in values
    ]
    if faults:
        raise InputError("", faults=faults)


def prompt(question: str, default: str) -> str:
    """Ask on the terminal."""
    return typer.prompt(question, default=default, err=True)


def registered() -> "dict[str, DatasetView]":
    """The datasets of the server, if there is one that says so soon."""
    from service.cli.settings import ClientSettings
    from service.client import Client, ClientError

    settings = ClientSettings.from_environment()
    try:
        with Client(settings.api_url, token=settings.token, timeout=SERVER_SECONDS) as client:
            return {each.name: each for each in client.list_datasets().items}
    except (ClientError, ValueError):
        return {}


def check(text: str) -> None:
    """Refuse a study that no server would take.

    Raises:
        InputError: with every field at fault.
    """
    from pydantic import ValidationError

    from tan_core.errors import ParameterError
    from tan_core.spec import StudySpec, field_problems, load_study

    try:
        load_study(text)
    except ValidationError as error:
        faults = [
            Fault(each.path, each.message, each.value) for each in field_problems(error, StudySpec)
        ]
        raise InputError(
            "such a study would be refused; nothing was written", faults=faults
        ) from error
    except ParameterError as error:
        raise InputError(f"such a study would be refused; nothing was written: {error}") from error


def _converted(key: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        raise InputError("", faults=[Fault(key, "expected a number", text)]) from error


def _model_for(dataset: "DatasetView | None") -> str:
    """A small one that can read it: images have three axes, a table has one."""
    if dataset is None or len(dataset.shape) == 3:
        return "tanh-cnn"
    return "mlp"


def _accounting_for(dataset: "DatasetView | None") -> str:
    if dataset is None or "declared_unaccounted" in dataset.allowed_modes:
        return "declared_unaccounted"
    if not dataset.public and "accounted" in dataset.allowed_modes:
        return "accounted"
    return "public_proxy"


def _delta_for(dataset: "DatasetView | None") -> float:
    """A power of ten below half of 1/N, and 1e-5 at most."""
    if dataset is None:
        return 1e-5
    return min(1e-5, 10.0 ** math.floor(math.log10(0.5 / dataset.num_train)))
