"""``tan-cli compare``: two to six studies side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.errors import InputError
from service.cli.options import JsonFlag, StudyReferences

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]

FEWEST, MOST = 2, 6
GOES_ON = "run goes on from"
"""A row that is left out where no run does."""


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
    from service import text
    from service.cli.connect import find_study, open_client
    from service.cli.output import show, show_json
    from service.trial_spec import asked, differ, settings_compared

    with open_client() as client:
        found = [find_study(client, study) for study in studies]
    ids = [study["id"] for study in found]
    if len(set(ids)) < len(ids):
        twice = next(id_ for id_ in ids if ids.count(id_) > 1)
        raise InputError(f"study {twice} is named twice")
    specs = asked([study["spec"] for study in found])
    differing = {key: values for key, values in specs.items() if differ(values)}
    trained = settings_compared(found)
    if as_json:
        show_json({"studies": found, "trained": trained, "differences": differing})
        return
    show(_outcomes(found), "")
    if trained:
        notes = [text.OF_RATES] if any(study["plan"].get("goes_on") for study in found) else []
        show(_beside(found, "What their trials were trained with", trained), *notes, "")
    show(_specs(found, specs if everything else differing, differing))


def _outcomes(studies: Sequence[Json]) -> "RenderableType":
    from service import text
    from service.cli.tables import table

    names = [study["name"] for study in studies]
    made = table(None, "", *names, prose=names)
    rows = zip(*(_facts(study) for study in studies), strict=True)
    for row in rows:
        if row[0][0] != GOES_ON or any(value for _, value in row):
            made.add_row(row[0][0], *(value or text.MISSING for _, value in row))
    return made


def _facts(study: Json) -> list[tuple[str, str]]:
    """The same names for every study: what it is, promises, costs and reached."""
    from service import text
    from service.trial_spec import stands_for

    plan, privacy = study["plan"], study["privacy"]
    run, prediction, best = (study[part] or {} for part in ("run", "prediction", "best_trial"))
    reference, cost, counts = plan["reference"], plan["cost"], text.counts_of(plan)
    interval = f" {text.interval(prediction['low'], prediction['high'])}" if prediction else ""
    which = f" trial {best['number']}, {stands_for(study)}" if best else ""
    scored = f" ({text.of_scores(privacy['search_accounting'], plan)})" if best else ""
    return [
        ("id", study["id"]),
        ("state", study["state"]),
        ("ε", f"{text.epsilon(privacy['epsilon'])} ({str(privacy['accountant']).upper()})"),
        ("δ", f"{privacy['delta']:g}"),
        ("neighbours", str(privacy["neighboring_relation"])),
        ("search", text.beside_epsilon(privacy)),
        ("B", text.number(reference["expected_batch_size"])),
        ("σ", text.number(reference["noise_multiplier"])),
        ("S", text.number(reference["steps"])),
        (
            "accuracies",
            text.BALANCED
            if text.is_balanced(study["spec"]["search"].get("metric"))
            else "of all records",
        ),
        ("its trial", f"{text.percent(best.get('value'))}{which}{scored}"),
        ("predicted", f"{text.percent(prediction.get('accuracy'))}{interval}"),
        ("test accuracy", text.percent(run.get("test_accuracy"))),
        (GOES_ON, _goes_on(run)),
        ("processed by the run", f"{text.number(cost['private_run_examples'])} {counts}"),
        ("processed by the search", f"{text.number(cost['search_examples'])} {counts}"),
    ]


def _goes_on(run: Json) -> str:
    from service import text

    if run.get("began_from_trial") is None:
        return ""
    rate = run.get("learning_rate")
    at = "" if rate is None else f", at learning rate {text.number(rate)}"
    return f"trial {run['began_from_trial']}{at}"


def _specs(
    studies: Sequence[Json], shown: dict[str, list[Any]], differing: dict[str, list[Any]]
) -> "RenderableType":
    from rich.text import Text

    if not shown:
        return Text("their YAML says the same")
    if shown is differing:
        return _beside(studies, "How their YAML differs", shown)
    marked = {f"{key} *" if key in differing else key: values for key, values in shown.items()}
    return _beside(studies, "Their YAML; * where it differs", marked)


def _beside(studies: Sequence[Json], title: str, rows: dict[str, list[Any]]) -> "RenderableType":
    from service import text
    from service.cli.tables import table

    names = [study["name"] for study in studies]
    made = table(title, "key", *names, prose=names)
    for key, values in rows.items():
        made.add_row(key, *map(text.on_one_line, values))
    return made
