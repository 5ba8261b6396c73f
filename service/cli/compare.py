"""``tan-cli compare``: two to six studies side by side."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.errors import InputError
from service.cli.options import JsonFlag, StudyReferences

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]

FEWEST, MOST = 2, 6


def compare(
    studies: StudyReferences,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every key of the YAML, not only those that differ.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare two to six studies: what they promise, cost and reached, and how their YAML differs."""
    if not FEWEST <= len(studies) <= MOST:
        raise InputError(f"{FEWEST} to {MOST} studies are compared at a time, got {len(studies)}")
    from service.cli.connect import find_study, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        found = [find_study(client, study) for study in studies]
    ids = [study["id"] for study in found]
    if len(set(ids)) < len(ids):
        twice = next(id_ for id_ in ids if ids.count(id_) > 1)
        raise InputError(f"study {twice} is named twice")
    specs = flattened([study["spec"] for study in found])
    differing = {key: values for key, values in specs.items() if _differ(values)}
    if as_json:
        show_json({"studies": found, "differences": differing})
        return
    show(_outcomes(found), "", _specs(found, specs if everything else differing, differing))


def flattened(specs: Sequence[Json]) -> dict[str, list[Any]]:
    """The value of every key in each spec, by its dotted path; None where a spec has no such key."""
    flat = [dict(_leaves(spec, ())) for spec in specs]
    keys = dict.fromkeys(key for each in flat for key in each)
    return {key: [each.get(key) for each in flat] for key in keys}


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    # A dimension of the space is read as one: its low and its high say nothing apart.
    is_dimension = path[:-1] == ("search", "space")
    if isinstance(value, dict) and value and not is_dimension:
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    else:
        yield ".".join(path), value


def _differ(values: Sequence[Any]) -> bool:
    return any(value != values[0] for value in values)


def _outcomes(studies: Sequence[Json]) -> "RenderableType":
    from service.cli.tables import table

    names = [study["name"] for study in studies]
    made = table(None, "", *names, prose=names)
    rows = zip(*(_facts(study) for study in studies), strict=True)
    for row in rows:
        made.add_row(row[0][0], *(value for _, value in row))
    return made


def _facts(study: Json) -> list[tuple[str, str]]:
    """The same names for every study: what it is, promises, costs and reached."""
    from service import text

    plan, privacy = study["plan"], study["privacy"]
    run, prediction, best = (study[part] or {} for part in ("run", "prediction", "best_trial"))
    reference, cost = plan["reference"], plan["cost"]
    interval = f" {text.interval(prediction['low'], prediction['high'])}" if prediction else ""
    return [
        ("id", study["id"]),
        ("state", study["state"]),
        ("ε", f"{text.epsilon(privacy['epsilon'])} ({str(privacy['accountant']).upper()})"),
        ("δ", f"{privacy['delta']:g}"),
        ("neighbours", str(privacy["neighboring_relation"])),
        ("search", privacy["search_note"]),
        ("B", text.number(reference["expected_batch_size"])),
        ("σ", text.number(reference["noise_multiplier"])),
        ("S", text.number(reference["steps"])),
        ("best trial (not private)", text.percent(best.get("value"))),
        ("predicted", f"{text.percent(prediction.get('accuracy'))}{interval}"),
        ("test accuracy", text.percent(run.get("test_accuracy"))),
        ("examples of the run", text.number(cost["private_run_examples"])),
        ("examples of the search", text.number(cost["search_examples"])),
    ]


def _specs(
    studies: Sequence[Json], shown: dict[str, list[Any]], differing: dict[str, list[Any]]
) -> "RenderableType":
    from rich.text import Text

    from service.cli.tables import table

    if not shown:
        return Text("their YAML says the same")
    title = "How their YAML differs" if shown is differing else "Their YAML; * where it differs"
    names = [study["name"] for study in studies]
    made = table(title, "key", *names, prose=names)
    for key, values in shown.items():
        mark = " *" if key in differing and shown is not differing else ""
        made.add_row(f"{key}{mark}", *map(_written, values))
    return made


def _written(value: Any) -> str:
    """As YAML has it on one line."""
    import json

    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
