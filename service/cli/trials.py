"""``tan-cli trials``: the trials of a study, ordered and filtered by the server; ``tan-cli trial``: one of them."""

import csv
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.errors import InputError
from service.cli.options import JsonFlag, StudyReference

if TYPE_CHECKING:
    from rich.console import RenderableType

    from service.cli.tables import FittingTable

Json = dict[str, Any]

TRIAL_STATES = ("running", "completed", "pruned", "diverged", "failed", "interrupted")


def _trial_states(incomplete: str) -> list[str]:
    return [state for state in TRIAL_STATES if state.startswith(incomplete)]


def trials(
    study: StudyReference,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help=f"Only trials in this state: {', '.join(TRIAL_STATES)}; may be repeated.",
            autocompletion=_trial_states,
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            help="number, or value: by the batch reached, then by accuracy; a minus before it puts the "
            "largest first."
        ),
    ] = "-value",
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many; default: 20 in a table, else all.")
    ] = None,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV: a column for each parameter and each rung.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List a study's trials, the best first. Scores of simulations are not private, those of accounted trials are noisy."""
    if as_csv and as_json:
        raise InputError("give --csv or --json, not both")
    from service.cli.connect import documents, find_study, open_client, sent_by_options
    from service.cli.output import show, show_json

    at_most = limit if limit is not None or as_csv or as_json else 20
    query = {"state": state, "sort": sort}
    with open_client() as client, sent_by_options({name: f"--{name}" for name in query}):
        found = find_study(client, study)
        items = documents(list(client.every_trial(found["id"], query, limit=at_most)))
    if as_json:
        show_json(items)
    elif as_csv:
        write_csv(items)
    else:
        show(_table(found, items))


def trial(
    study: StudyReference,
    number: Annotated[int, typer.Argument(min=0, metavar="NUMBER", help="Of the trial.")],
    as_yaml: Annotated[
        bool,
        typer.Option(
            "--yaml", help="Print a study.yaml that tries the parameters of this trial alone."
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show one trial: its parameters, and how each of its simulations did, or its private run where it is accounted."""
    if as_yaml and as_json:
        raise InputError("give --yaml or --json, not both")
    from service.cli.connect import document, find_study, label, open_client
    from service.cli.output import show, show_json

    with open_client() as client:
        found = find_study(client, study)
        every = client.every_trial(found["id"], {"sort": "number"})
        one = next((each for each in every if each.number == number), None)
    if one is None:
        raise InputError(
            f"{label(found)} has no trial {number}", hint=f"tan-cli trials {found['id']} lists them"
        )
    item = document(one)
    if as_json:
        show_json(item)
    elif as_yaml:
        _write_study(found, item)
    else:
        show(_one(found, item))


def _write_study(study: Json, item: Json) -> None:
    """A study of this trial's parameters on standard output."""
    import yaml

    from service.trial_spec import repeated, sparse

    alone = sparse(repeated(study, item["params"], number=item["number"]))
    print(yaml.safe_dump(alone, sort_keys=False, allow_unicode=True, width=100), end="")


def _one(study: Json, item: Json) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from service import text
    from service.cli.tables import table
    from service.cli.views import facts
    from service.trial_spec import settings

    accounting = study["privacy"]["search_accounting"]
    rows = [
        ("state", f"{item['state']}: {item['reason']}" if item["reason"] else item["state"]),
        (
            text.scored_by(study["spec"]["search"].get("metric")),
            f"{text.percent(item['value'])} ({text.of_trial(accounting, study['plan'])})",
        ),
        ("from", item["source"]),
        ("goes on from", _began_from(item)),
        ("ran" if item["finished_at"] else "began", _when(item)),
        *((name, str(value)) for name, value in item["params"].items()),
    ]
    is_charged = study["plan"].get("charged_search") is not None
    scored = [*item["scores"], *item["repeats"]]
    columns = ("B", "seed", "σ", "steps", "accuracy", "training loss", "clipped", "time")
    # All that is told of a private trial is its score.
    hidden = {"seed", "training loss", "clipped"} if is_charged else set[str]()
    if all(score["clipped_fraction"] is None for score in scored):
        hidden.add("clipped")
    shown = [name for name in columns if name not in hidden]
    notes = ["with a seed: repetitions of the final, whose draws had no part in choosing the trial"]
    notes *= bool(item["repeats"])
    clipping = settings(study["spec"], item["params"])["train"].get("clipping")
    on_clipped = text.on_clipped(clipping, is_told="clipped" in shown)
    if on_clipped and not is_charged:
        notes.append(f"clipped: {on_clipped}")
    of_what = "Private run of the trial" if is_charged else "Simulations"
    made = table(of_what, *shown, right=shown, notes=notes)
    for score in scored:
        cells = {
            "B": text.number(score["expected_batch_size"]),
            "seed": str(score["seed"] or ""),
            "σ": text.number(score["noise_multiplier"]),
            "steps": text.number(score["steps"]),
            "accuracy": text.percent(score["accuracy"]),
            "training loss": text.number(score["train_loss"]),
            "clipped": text.percent(score["clipped_fraction"]),
            "time": text.duration(score["seconds"]),
        }
        made.add_row(*(cells[name] for name in shown))
    title = f"Trial {item['number']} of {study['name']}"
    return Group(facts(title, rows), Text(), made if scored else Text("nothing was scored"))


def write_csv(items: Sequence[Json]) -> None:
    """The trials on standard output, one a line."""
    from service.text import in_cell
    from service.trial_table import columns, rows

    writer = csv.DictWriter(sys.stdout, columns(items), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: in_cell(value) for key, value in row.items()} for row in rows(items))


def _table(study: Json, items: Sequence[Json]) -> "RenderableType":
    from rich.text import Text

    from service import text
    from service.cli.progress import TERMINAL
    from service.cli.tables import FirstThatFits
    from service.trial_spec import is_searched
    from service.trial_table import clipped_fraction

    total = study["progress"]["trials_finished"] + study["progress"]["trials_running"]
    if not items:
        if not total and study["state"] in TERMINAL:
            return Text(f"{study['name']} has no trials: it was {study['state']} before one began")
        which = "such trials" if total else "trials yet"
        return Text(f"{study['name']} has no {which}; it is {study['state']}")
    notes = [f"{len(items)} of {total}; --limit shows more, --csv all"] * (len(items) < total)
    is_charged = study["plan"].get("charged_search") is not None
    # At one batch its accuracy is the trial's.
    with_rungs = (False,) if is_charged else (True, False)
    is_told = any(clipped_fraction(item) is not None for item in items)
    has_clipped = is_told and not is_charged and is_searched(study["spec"], "clip_norm")
    if has_clipped:
        notes.append(f"clipped: {text.CLIPPED}")
    laid_out = partial(_laid_out, study, items, notes, has_clipped=has_clipped)
    return FirstThatFits(
        *(
            laid_out(has_rungs=has_rungs, is_split=is_split)
            for has_rungs in with_rungs
            for is_split in (True, False)
        )
    )


def _laid_out(
    study: Json,
    items: Sequence[Json],
    notes: Sequence[str],
    *,
    has_rungs: bool,
    is_split: bool,
    has_clipped: bool,
) -> "FittingTable":
    """One trial a row: with its accuracy at each rung or without, its parameters in a column each or in one."""
    from service import text
    from service.cli.tables import table
    from service.trial_table import accuracies, clipped_fraction, parameter_names

    names = parameter_names(items)
    batches = {s["rung"]: s["expected_batch_size"] for item in items for s in item["scores"]}
    rungs = {rung: f"B = {text.number(batches[rung])}" for rung in sorted(batches) if has_rungs}
    clipped = ["clipped"] * has_clipped
    what = text.of_trials(study["privacy"]["search_accounting"], study["plan"])
    if text.is_balanced(study["spec"]["search"].get("metric")):
        what += "; balanced accuracies"
    made = table(
        f"Trials of {study['name']} ({what})",
        *("trial", "state", "accuracy", *(names if is_split else ["parameters"]), *rungs.values(), *clipped, ""),
        right=("trial", "accuracy", *(names if is_split else ()), *rungs.values(), *clipped),
        prose=("",),
        notes=notes,
    )  # fmt: skip
    for item in items:
        by_rung = accuracies(item)
        values = {name: _shown(item["params"].get(name)) for name in names}
        together = "\n".join(f"{name}={value}" for name, value in values.items())
        made.add_row(
            *(str(item["number"]), item["state"], text.percent(item["value"])),
            *(values.values() if is_split else [together]),
            *(text.percent(by_rung.get(rung)) for rung in rungs),
            *([text.percent(clipped_fraction(item))] * has_clipped),
            item["reason"] or _went_on(item) or "",
        )
    return made


def _when(item: Json) -> str:
    """How long it took, and when that was; of one that has no end when it began."""
    from service import text

    begin, end = (
        at and datetime.fromisoformat(at) for at in (item["started_at"], item["finished_at"])
    )
    began, ended = text.began_and_ended(begin, end)
    if end is None:
        return f"{began} UTC"
    return f"{text.duration((end - begin).total_seconds())}, {began} to {ended} UTC"


def _went_on(item: Json) -> str | None:
    start = _began_from(item)
    return start and f"on from {start}"


def _began_from(item: Json) -> str | None:
    from service import text

    start = item.get("began_from")
    return start and f"trial {start['trial']}, {text.rate_taken(start, item['params'])}"


def _shown(value: Any) -> str:
    from service import text

    if value is None:
        return text.MISSING
    return f"{value:.4g}" if isinstance(value, float) else str(value)
