"""Templates, and how they write numbers: as the command line does, from the same functions."""

import gzip
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from service import text
from service.auth.scopes import LOCAL, Principal, Scope
from service.dashboard.assets import assets
from service.dashboard.charts.table import Cell, Table
from service.ledger import words
from service.prefix import base_of
from service.studies.lifecycle import TERMINAL

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
"""No inline script and no inline style: nothing that got into a page by mistake can run.
A form's POST names its origin only where the referrer may be told to this very site."""
ACCOUNTANTS = {"pld": "PLD", "rdp": "RDP", "prv": "PRV"}
STATES = {"awaiting_approval": "awaiting approval"}
RELATIONS = {
    "add_or_remove_one": "add or remove one",
    "zero_out": "zero out one",
    "replace_one": "replace one",
}
_AGES = ((86_400, "d"), (3600, "h"), (60, "min"))


def page(request: Request, template: str, *, status: int = 200, **values: object) -> HTMLResponse:
    """The page. Links keep the prefix that a proxy puts before every path."""
    base = base_of(request)
    path = str(request.scope["path"]).removeprefix(base)
    state = request.scope.get("state", {})
    who: Principal | None = state.get("principal")
    html = _environment.get_template(template).render(
        base=base,
        path=path,
        csrf_token=state.get("csrf_token"),
        who=who,
        may=partial(may, who),
        awaiting=state.get("awaiting", 0),
        **values,
    )
    # A lone surrogate, which JSON that somebody pasted may hold, is no UTF-8.
    content = html.encode("utf-8", "replace")
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return HTMLResponse(content, status, headers=HEADERS)
    # What a page repeats of its address cannot be used to guess its CSRF token by the length: the cookie
    # is SameSite=Strict, so no other site can ask for a page that has one.
    packed = gzip.compress(content, compresslevel=5, mtime=0)
    return HTMLResponse(packed, status, headers={**HEADERS, "Content-Encoding": "gzip"})


def may(who: Principal | None, scope: str, tenant: str | None = None) -> bool:
    """Whether who looks at the page may do what this scope is for: anywhere, or to what is a tenant's."""
    if who is None or not who.may(Scope(scope)):
        return False
    return tenant is None or who.reaches in (None, tenant)


def csv_file(table: Table, name: str) -> Response:
    """The numbers of a chart or a table, to be kept under this name."""
    return Response(
        table.csv(),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )


@pass_context
def asset_address(context: Context, name: str) -> str:
    """Where a static file is; the address changes with what it holds."""
    return f"{context['base']}/ui/static/{name}?v={assets()[name].version}"


def age(then: datetime, now: datetime) -> str:
    """How long ago, in one unit.

    Example:
        >>> noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
        >>> age(datetime(2026, 1, 2, 11, 57, 1, tzinfo=UTC), noon), age(noon, noon)
        ('2 min ago', 'just now')
    """
    seconds = (now - then).total_seconds()
    for size, unit in _AGES:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def moment(at: datetime) -> str:
    """A time to the minute, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def figure(value: float | None, shown: str) -> str:
    """A number as shown, with the exact one that the API gives beside it."""
    if value is None:
        return Markup('<span class="none">–</span>')
    return Markup('<data value="{}">{}</data>').format(repr(value), shown)


def _epsilon(value: float | None) -> str:
    return figure(value, text.epsilon(value))


def _remaining(value: float) -> str:
    return figure(value, text.rounded_down(value))


def _estimate(value: float | None) -> str:
    return figure(value, text.estimate(value))


def _percent(value: float | None) -> str:
    return figure(value, text.percent(value))


def _correlation(value: float | None) -> str:
    return "–" if value is None else _signed(value, digits=2)


def _signed(value: float, *, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _number(value: float | None) -> str:
    return figure(value, text.number(value))


def _times(value: float | None) -> str:
    return figure(value, text.times(value))


def _cell(value: Cell) -> str:
    """A number of a table, short, with the exact one beside it; text as it is."""
    if isinstance(value, float):
        return figure(value, f"{value:.6g}")
    return "–" if value is None else str(value)


def to_yaml(value: Mapping[str, Any]) -> str:
    """A mapping as a person would write it, in its own order."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)


def _to_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _word(value: str, words: Mapping[str, str]) -> str:
    return words.get(value, value)


def _make_environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "age": age,
        "moment": moment,
        "duration": lambda seconds: text.duration(seconds).replace(text.MISSING, "–"),
        "epsilon": _epsilon,
        "epsilon_text": text.epsilon,
        "estimate": _estimate,
        "remaining": _remaining,
        "entry_what": words.what,
        "entry_when": words.when,
        "entry_by": words.by_whom,
        "percent": _percent,
        "correlation": _correlation,
        "points": lambda value: _signed(100 * value, digits=1),
        "number": _number,
        "number_text": text.number,
        "times": _times,
        "parameter": text.parameter,
        "cell": _cell,
        "to_yaml": to_yaml,
        "to_json": _to_json,
        "accountant": lambda name: _word(str(name), ACCOUNTANTS),
        "relation": lambda name: _word(str(name), RELATIONS),
        "state": lambda name: _word(str(name), STATES),
    }
    known: dict[str, Any] = {
        "asset": asset_address,
        "TERMINAL": TERMINAL,
        "LOCAL": LOCAL,
        "BALANCED": text.BALANCED,
        "OF_RATES": text.OF_RATES,
    }
    known |= {
        function.__name__: function
        for function in (
            text.basis,
            text.began_and_ended,
            text.beside_charged,
            text.counted,
            text.first_of,
            text.part_name,
            text.what_fits,
            text.coverage,
            text.deviation,
            text.for_comparison,
            text.got,
            text.interval,
            text.beside_the_law,
            text.why_beside,
            text.rate_taken,
            text.reserved_steps,
            text.counts_of,
            text.of_scores,
            text.stated_features,
            text.scored_by,
            text.is_balanced,
            text.shares_in_words,
            text.of_trials,
            text.on_clipped,
            text.reserved_search,
            text.begins_with,
            text.model_of,
            text.parts_alone,
            text.score_noise,
            text.simulated,
            words.budget_verdict,
        )
    }
    made.filters.update(filters)
    made.globals.update(known)
    return made


_environment = _make_environment()


def compile_templates() -> None:
    """All of them; else each is compiled for the first request that needs it."""
    for name in _environment.list_templates():
        _environment.get_template(name)
