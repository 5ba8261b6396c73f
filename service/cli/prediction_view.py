"""Who may be promoted, and how often predictions held."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from service import text
from service.cli.tables import table
from service.cli.views import approved, facts

Json = dict[str, Any]


def standings(study: Json) -> RenderableType:
    """The trials that may be promoted, the best prediction first."""
    promotion = study.get("promotion")
    if promotion is None:
        return Text(f"{study['name']} is {study['state']}: no trial can be promoted yet")
    rows = [("reason", promotion["reason"]), ("approved", approved(promotion))]
    if promotion["trial"] is None:
        return facts(study["name"], rows)
    # Of a trial that is charged there is one score, and no seed to repeat.
    seeds = () if study["plan"].get("charged_search") else ("seeds",)
    made = table(
        f"Candidates for the private run ({text.of_scores(study['privacy']['search_accounting'], study['plan'])})",
        "trial", "predicted", "interval", *seeds, "",
        right=("trial", "predicted", *seeds),
    )  # fmt: skip
    word = "proposed" if promotion["by"] is None else "promoted"
    for one in promotion["standings"]:
        made.add_row(
            str(one["trial"]),
            text.percent(one["accuracy"]),
            text.interval(one["low"], one["high"]),
            *(f"{one['seeds']}{'' if one['is_fresh'] else ', not fresh'}" for _ in seeds),
            word if one["trial"] == promotion["trial"] else "",
        )
    return Group(made, facts(None, rows))


def calibration(document: Json, *, is_filtered: bool = False) -> RenderableType:
    """Predictions beside what was reached, and how often their intervals held."""
    items = document["items"]
    if not items:
        which, rest = (
            ("of such a study ", "; without filters it shows all") if is_filtered else ("", "")
        )
        return Text(
            f"no prediction {which}has met its outcome yet: each study that completes a private run "
            f"adds one{rest}"
        )
    made = table(
        None, "study", "dataset", "model", "ε", "predicted", "interval", "reached", "error",
        "held", right=("ε", "predicted", "reached"),
    )  # fmt: skip
    for item in items:
        made.add_row(
            item["name"],
            item["dataset"],
            item["model"],
            text.epsilon(item["epsilon"]),
            text.percent(item["predicted"]),
            text.interval(item["low"], item["high"]),
            text.percent(item["reached"])
            + (" balanced" if text.is_balanced(item.get("metric")) else ""),
            text.deviation(item["error"]),
            "yes" if item["inside"] else "no",
        )
    rest = document["studies"] - len(items)
    return Group(
        made,
        *(
            [Text(f"the newest {len(items)} of {document['studies']:,}; --limit shows more")]
            if rest
            else []
        ),
        Text(_coverage(document)),
        Text("ε as stated; `tan-cli statement STUDY` has its δ, its accountant and its search"),
    )


def _coverage(document: Json) -> str:
    return text.coverage(
        document["inside"],
        document["studies"],
        level=document["level"],
        mean_error=document["mean_absolute_error"],
    )
