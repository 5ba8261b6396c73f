"""A plan on one screen: the private run, what it promises, the simulations, what it all costs."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from service import text
from service.cli.tables import table
from service.cli.views import facts
from service.ledger.words import budget_verdict

Json = dict[str, Any]

ESTIMATE = "asymptotic estimate, not a guarantee"
ACCOUNTANTS = {"pld": "PLD", "rdp": "RDP", "prv": "PRV"}


def plan(document: Json) -> RenderableType:
    """The whole plan."""
    counts = text.counts_of(document)
    return Group(
        _reference(document["reference"], counts),
        Text(),
        _privacy(document),
        *_reservation(document),
        *_budget(document),
        *(
            _charged_trials(document["simulations"], charged)
            if (charged := document.get("charged_search"))
            else _simulations(document)
        ),
        *_steps(document.get("step_candidates") or [], counts),
        *_cost(document, counts, what="trials" if charged else "search"),
        *_search_privacy(document.get("search_privacy")),
        *([Text()] if _warnings(document) else []),
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


def _reference(run: Json, counts: str) -> RenderableType:
    return _pairs(
        "Private run",
        [
            ("expected batch size B", text.number(run["expected_batch_size"])),
            ("sampling rate q", text.number(run["sampling_rate"])),
            ("noise multiplier σ", text.number(run["noise_multiplier"])),
            ("clipping norm C", text.number(run["clip_norm"])),
            ("steps S", text.number(run["steps"])),
            (f"{counts} N", text.number(run["num_examples"])),
            ("largest batch", text.number(cap) if (cap := run.get("max_batch_size")) else None),
            ("precision", run.get("precision")),
        ],
    )


def _pairs(title: str | None, rows: list[tuple[str, str | None]]) -> RenderableType:
    """Facts, two a line: a plan has much to say on one screen."""
    known = [(name, value) for name, value in rows if value is not None]
    grid = Table.grid(padding=(0, 2))
    for style in ("dim", "", "dim", ""):
        grid.add_column(style=style, no_wrap=True)
    for i in range(0, len(known), 2):
        grid.add_row(*(cell for pair in known[i : i + 2] for cell in pair))
    return grid if title is None else Group(Text(title, style="bold"), grid)


def _compact(title: str, *columns: str, right: Sequence[str], prose: Sequence[str] = ()) -> Table:
    """A table without blank lines around it."""
    made = table(title, *columns, right=right, prose=prose)
    made.show_edge = False
    return made


def _is_charged(reservation: Json | None) -> bool:
    return reservation is None or reservation.get("charged", True)


def _privacy(document: Json) -> RenderableType:
    privacy, is_charged = document["privacy"], _is_charged(document.get("reservation"))
    of = " of run, trials and scores" if document.get("charged_search") else ""
    made = _compact(
        f"Privacy{of} at δ = {privacy['delta']:g}", "accountant", "ε", "", right=("ε",), prose=("",)
    )
    chosen = privacy["accountant"]
    figures = {chosen: privacy["epsilon"], **privacy.get("epsilon_by_accountant", {})}
    charged = document.get("charged_search")
    for name, value in figures.items():
        is_promised = name == chosen and value is not None
        standing = "promised" if is_promised else text.for_comparison(name, value, charged)
        made.add_row(ACCOUNTANTS.get(name, name), text.epsilon(value), standing)
    for name, value in text.parts_alone(charged or {}):
        made.add_row("", text.epsilon(value), f"{name} alone")
    if privacy.get("epsilon_tan") is not None:
        made.add_row("ε_TAN", text.estimate(privacy["epsilon_tan"]), ESTIMATE)
    note = privacy.get("search_note")
    return Group(
        made,
        _pairs(
            None,
            [
                ("neighbours", privacy["neighboring_relation"]),
                (
                    "reserved ε",
                    _optional_epsilon(privacy.get("epsilon_reserved")) if is_charged else None,
                ),
                ("signal to noise η", _optional_number(privacy.get("signal_to_noise"))),
                ("overcharge", _optional_number(privacy.get("overcharge"))),
            ],
        ),
        *([Text(f"search: {note}")] if isinstance(note, str) else []),
    )


def _reservation(document: Json) -> Iterator[RenderableType]:
    """Why more is reserved than is promised."""
    run, reservation = document["reference"], document.get("reservation")
    if not _is_charged(reservation):
        yield Text("nothing is reserved or charged: the data are public")
    elif reservation:
        words = text.reserved_steps(run["steps"], reservation["slack_steps"])
        yield Text(f"reserved in the ledger are {words}")
    if charged := document.get("charged_search"):
        yield Text(f"reserved are also {text.reserved_search(charged)}")
    if begins := text.begins_with(document):
        yield Text(begins)


def _budget(document: Json) -> Iterator[RenderableType]:
    """Whether the budget would admit it now."""
    if fit := document.get("budget"):
        words = budget_verdict(fit)
        yield Text(words) if fit["fits"] else Text(f"warning: {words}", style="yellow")


def _simulations(document: Json) -> Iterator[RenderableType]:
    """The rungs, how many trials are expected to climb to each, and where the best are simulated once more."""
    if not document["simulations"]:
        return
    columns = ("batch size", "noise σ", "B/b", "trials")
    made = _compact(
        "Simulations: same TAN, steps, learning rate",
        *columns, "privacy", right=columns,
    )  # fmt: skip
    for rung, steps, trials in text.simulated(document):
        made.add_row(
            f"{text.number(rung['expected_batch_size'])}{steps}",
            text.number(rung.get("noise_multiplier")),
            text.number(rung["scale_factor"]),
            "the best" if trials is None else text.number(trials),
            "not private",
        )
    yield Text()
    yield made


def _charged_trials(simulations: list[Json], charged: Json) -> Iterator[RenderableType]:
    """The one batch size of trials that are private runs, and what is seen of each."""
    yield Text()
    for rung in simulations:
        yield _pairs(
            "Private trials: same TAN, steps, learning rate",
            [
                ("batch size", text.number(rung["expected_batch_size"])),
                ("B/b", text.number(rung["scale_factor"])),
                ("noise multiplier σ", text.number(rung["noise_multiplier"])),
                ("noise on a score", text.score_noise(charged)),
                ("trials", text.number(charged["trials"])),
                ("to spare", text.number(charged["spare_trials"])),
            ],
        )


def _steps(candidates: list[Json], counts: str) -> Iterator[RenderableType]:
    """Steps to try at the same batch and epsilon; alone, the reference has nothing to say."""
    if len(candidates) < 2:
        return
    columns = ("steps", "noise σ", "η", "overcharge", "lr factor", counts)
    made = _compact("Steps to try at this batch and this ε", *columns, "", right=columns)
    for one in candidates:
        made.add_row(
            text.number(one["steps"]),
            text.number(one["noise_multiplier"]),
            text.number(one["signal_to_noise"]),
            text.MISSING if one["overcharge"] is None else f"{one['overcharge']:.3f}",
            text.number(one["learning_rate_factor"]),
            text.number(one["private_run_examples"]),
            "this plan" if one["reference"] else "",
        )
    yield Text()
    yield made


def _cost(document: Json, counts: str, *, what: str) -> Iterator[RenderableType]:
    cost = document.get("cost")
    if not cost:
        return
    memory = cost.get("memory_bytes")
    yield Text()
    yield facts(
        f"Cost, in {counts} processed",
        [
            ("private run", _work(cost["private_run_examples"], cost.get("private_run_seconds"))),
            *(_search_cost(cost, what) if cost["search_examples"] else ()),
            ("measured on", cost.get("rate_source")),
            ("memory", "not known" if memory is None else f"about {_bytes(memory)} per worker"),
            ("features", document.get("features_note")),
        ],
    )


def _search_cost(cost: Json, what: str) -> Iterator[tuple[str, str]]:
    """The trials as they are expected to be cut, and the finals; the time is that of both."""
    finals, seconds = cost.get("finals_examples"), cost.get("search_seconds")
    if finals:
        yield "search", f"{text.number(cost['search_examples'])} expected"
        took = "" if seconds is None else f"; search and finals about {text.duration(seconds)}"
        yield "finals", f"at most {text.number(finals)}{took}"
    else:
        yield what, _work(cost["search_examples"], seconds)
    yield f"{what} at full batch", text.number(cost["full_search_examples"])
    yield "saving", f"{text.times(cost['saving'])} times"


def _work(examples: int, seconds: float | None) -> str:
    """Examples, and how long they take where that was measured."""
    took = "" if seconds is None else f", about {text.duration(seconds)}"
    return f"{text.number(examples)}{took}"


def _bytes(count: int) -> str:
    """In the largest unit that leaves something before the point."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _search_privacy(found: Json | None) -> Iterator[RenderableType]:
    """What search and run cost together; the run's own epsilon stands above."""
    if not found:
        return
    yield Text()
    yield facts(
        "Privacy of search and run, spare steps included",
        [
            ("search.accounting", found["mode"]),
            ("ε in this mode", _optional_epsilon(found["epsilon"])),
            (
                "ε if every trial were charged",
                _optional_epsilon(found["epsilon_if_accounted"])
                if found["mode"] != "accounted"
                else None,
            ),
            ("note", found["note"]),
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
