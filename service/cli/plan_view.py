"""A plan on one screen: the private run, what it promises, the simulations, what it all costs."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from service import text
from service.cli.views import NOT_PRIVATE, facts, table

Json = dict[str, Any]

ESTIMATE = "asymptotic estimate, not a guarantee"
ACCOUNTANTS = {"pld": "PLD", "rdp": "RDP", "prv": "PRV"}


def plan(document: Json) -> RenderableType:
    """The whole plan."""
    return Group(
        _reference(document["reference"]),
        Text(),
        _privacy(document["privacy"]),
        Text(),
        _simulations(document["simulations"]),
        *_cost(document.get("cost")),
        *(Text(f"warning: {warning}", style="yellow") for warning in _warnings(document)),
    )


def summary(document: Json) -> list[tuple[str, str | None]]:
    """The plan in a few lines, for the end of a report."""
    run, privacy = document["reference"], document["privacy"]
    return [
        (
            "plan",
            f"B = {text.number(run['expected_batch_size'])}, "
            f"σ = {text.number(run['noise_multiplier'])}, S = {text.number(run['steps'])}, "
            f"q = {text.number(run['sampling_rate'])}, C = {text.number(run['clip_norm'])}",
        ),
        ("planned ε", f"{_by_accountant(privacy)} at δ = {privacy['delta']:g}"),
    ]


def _reference(run: Json) -> RenderableType:
    return facts(
        "Private run",
        [
            ("expected batch size B", text.number(run["expected_batch_size"])),
            ("noise multiplier σ", text.number(run["noise_multiplier"])),
            ("steps S", text.number(run["steps"])),
            ("sampling rate q", text.number(run["sampling_rate"])),
            ("clipping norm C", text.number(run["clip_norm"])),
            ("examples N", text.number(run["num_examples"])),
        ],
    )


def _privacy(privacy: Json) -> RenderableType:
    made = table(f"Privacy at δ = {privacy['delta']:g}", "accountant", "ε", "", right=("ε",))
    chosen = privacy["accountant"]
    figures = {chosen: privacy["epsilon"], **privacy.get("epsilon_by_accountant", {})}
    for name, value in figures.items():
        promised = "promised" if name == chosen else "for comparison"
        made.add_row(ACCOUNTANTS.get(name, name), text.epsilon(value), promised)
    if privacy.get("epsilon_tan") is not None:
        made.add_row("ε_TAN", text.estimate(privacy["epsilon_tan"]), ESTIMATE)
    note = privacy.get("search_note")
    return Group(
        made,
        facts(
            None,
            [
                ("neighbours", privacy["neighboring_relation"]),
                ("search", note if isinstance(note, str) else None),
                ("reserved ε", _optional_epsilon(privacy.get("epsilon_reserved"))),
                ("signal to noise η", _optional_number(privacy.get("signal_to_noise"))),
                ("overcharge", _optional_number(privacy.get("overcharge"))),
            ],
        ),
    )


def _simulations(simulations: list[Json]) -> RenderableType:
    columns = ("batch size", "noise multiplier", "steps", "scale factor", "lr factor")
    made = table("Simulations (constant TAN)", *columns, "privacy", right=columns)
    for one in simulations:
        made.add_row(
            text.number(one["expected_batch_size"]),
            text.number(one["noise_multiplier"]),
            text.number(one["steps"]),
            text.number(one["scale_factor"]),
            text.number(one.get("learning_rate_factor", 1.0)),
            NOT_PRIVATE,
        )
    return made


def _cost(cost: Json | None) -> Iterator[RenderableType]:
    if not cost:
        return
    saving = cost.get("saving")
    yield Text()
    yield facts(
        "Cost, in examples processed",
        [
            ("private run", _optional_number(cost.get("private_run_examples"))),
            ("search", _optional_number(cost.get("search_examples"))),
            ("search at full batch", _optional_number(cost.get("full_search_examples"))),
            ("saving", None if saving is None else f"{saving:.1f} times"),
        ],
    )


def _warnings(document: Json) -> list[str]:
    found = document.get("warnings") or document["privacy"].get("warnings") or []
    return [w if isinstance(w, str) else str(w.get("message", w)) for w in found]


def _by_accountant(privacy: Json) -> str:
    figures = privacy.get("epsilon_by_accountant") or {privacy["accountant"]: privacy["epsilon"]}
    return ", ".join(
        f"{text.epsilon(value)} ({ACCOUNTANTS.get(name, name)})" for name, value in figures.items()
    )


def _optional_number(value: float | None) -> str | None:
    return None if value is None else text.number(value)


def _optional_epsilon(value: float | None) -> str | None:
    return None if value is None else text.epsilon(value)
