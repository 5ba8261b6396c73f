"""The table of a study's trials, as its query asks for it."""

import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Double,
    Select,
    case,
    func,
    literal,
    literal_column,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from service.dashboard.charts.axis import ACCURACY
from service.dashboard.charts.table import Cell, Table
from service.dashboard.trials_query import TrialsQuery
from service.db.tables import Trial
from service.trial_table import row as trial_row
from service.trials.repository import after_heat, by_value, is_whole
from service.trials.schemas import TrialView
from service.trials.service import view as trial_view

TRIALS_PER_PAGE = 50
COLUMNS = ("state", "rungs", "seeds", "params", "clipped", "time")
"""What may be hidden."""
ROWS_AT_ONCE = 500
_STORED = (
    Trial.number,
    Trial.state,
    Trial.value,
    Trial.params,
    Trial.scores,
    Trial.repeats,
    Trial.source,
    Trial.reason,
    Trial.began_from,
    Trial.started_at,
    Trial.finished_at,
)
_SECONDS = literal_column(
    "(SELECT sum((score ->> 'seconds')::double precision)"
    " FROM jsonb_array_elements(trial.scores || trial.repeats) AS score)",
    Double,
)


@dataclass(frozen=True, slots=True)
class TrialsPage:
    """What the template shows."""

    trials: list[TrialView]
    total: int
    """Those that the filters leave."""
    number: int
    """Of this page, from 1; a page beyond the last is the last."""
    num_pages: int


async def trials_page(
    session: AsyncSession, study_id: str, query: TrialsQuery, *, has_heat: bool = False
) -> TrialsPage:
    """One page of the table; ``has_heat`` as of :func:`trials_table`."""
    chosen = _filtered(study_id, query, has_heat=has_heat)
    total = await session.scalar(select(func.count()).select_from(chosen.subquery())) or 0
    num_pages = max(1, -(-total // TRIALS_PER_PAGE))
    number = min(query.trials, num_pages)
    found = await session.scalars(
        chosen.order_by(*_order(query.order))
        .offset((number - 1) * TRIALS_PER_PAGE)
        .limit(TRIALS_PER_PAGE)
    )
    return TrialsPage([trial_view(trial) for trial in found], total, number, num_pages)


async def trials_table(
    session: AsyncSession,
    study_id: str,
    query: TrialsQuery,
    *,
    num_rungs: int,
    names: Sequence[str],
    has_heat: bool = False,
) -> Table:
    """Every trial that the filters leave, with every column; ``names`` are those of the parameters.

    Where the first rung begins with a heat, accuracies there are chosen by as its charts show them: after the heat.

    Others are served between its parts: ten thousand trials take a second.
    """
    chosen = (
        _filtered(study_id, query, has_heat=has_heat)
        .order_by(*_order(query.order))
        .with_only_columns(*_STORED)
    )
    rungs = range(num_rungs)
    rows: list[list[Cell]] = []
    found = await session.stream(chosen, execution_options={"yield_per": ROWS_AT_ONCE})
    fields = tuple(found.keys())
    async for part in found.partitions():
        trials = (dict(zip(fields, stored, strict=True)) for stored in part)
        rows += [list(trial_row(each, names=names, rungs=rungs).values()) for each in trials]
    return Table(columns_of(names, num_rungs), rows)


def columns_of(names: Sequence[str], num_rungs: int) -> tuple[str, ...]:
    """Headings of a file of trials, whose rows are those of :func:`service.trial_table.row`."""
    scores = (f"rung {rung}" for rung in range(num_rungs))
    rest = ("fresh seeds", "seconds", "source", "reason", "goes on from", "learning rate factor")
    last = ("clipped fraction", "started at", "finished at")
    return ("trial", "state", "accuracy", "batch", *names, *scores, *rest, *last)


def _filtered(study_id: str, query: TrialsQuery, *, has_heat: bool) -> Select[Trial]:
    chosen = select(Trial).where(Trial.study_id == study_id)
    if query.trial_state:
        chosen = chosen.where(Trial.state.in_([state.value for state in query.trial_state]))
    if query.rung is not None:
        chosen = chosen.where(_at_rung(query.rung, has_heat=has_heat).is_not(None))
    for name, least in query.low.items():
        chosen = chosen.where(_number(name, query.rung, has_heat=has_heat) >= least)
    for name, most in query.high.items():
        chosen = chosen.where(_number(name, query.rung, has_heat=has_heat) <= most)
    for name, texts in query.one_of.items():
        chosen = chosen.where(or_(*(_is_written(name, each) for each in texts)))
    return chosen


def _at_rung(rung: int, *, has_heat: bool) -> ColumnElement[Any]:
    """The accuracy at a rung as the charts show it."""
    if has_heat and rung == 0:
        return after_heat()
    return _place(f"rung.{rung}")


def _number(name: str, rung: int | None, *, has_heat: bool) -> ColumnElement[Any]:
    """The accuracy, at a rung where one is asked for, or a parameter where it is a number."""
    if name == ACCURACY:
        return Trial.value.expression if rung is None else _at_rung(rung, has_heat=has_heat)
    value = Trial.params[name]
    return case((func.jsonb_typeof(value) == "number", value.astext.cast(Double)))


def _is_written(name: str, written: str) -> ColumnElement[bool]:
    """Whether a parameter is this text, or the number or truth value that it says."""
    values: list[Any] = [written]
    with contextlib.suppress(ValueError):
        said = json.loads(written)
        values += [said] if isinstance(said, int | float) and math.isfinite(said) else []
    return or_(*(Trial.params[name] == literal(each, JSONB) for each in values))


def _order(order: str) -> list[ColumnElement[Any]]:
    key = order.removeprefix("-")
    if key == "number":
        number = Trial.number.expression
        return [number.desc() if order.startswith("-") else number.asc()]
    if key == "best":
        return list(by_value(best_first=not order.startswith("-")))
    place = _place(key)
    way = (place.desc() if order.startswith("-") else place.asc()).nulls_last()
    return [way, Trial.number.asc()]


def _place(key: str) -> ColumnElement[Any]:
    kind, _, name = key.partition(".")
    if kind == "rung":
        score = Trial.scores[int(name)]
        return case((is_whole(score), score["accuracy"].astext.cast(Double)))
    if kind == "param":
        return Trial.params[name]
    return _SECONDS
