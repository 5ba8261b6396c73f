"""What the pages show that no view of the API holds. Read only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import Double, case, cast, func, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH
from sqlalchemy.ext.asyncio import AsyncSession

from service.dashboard.charts.curves import MAX_CURVES, Curve
from service.dashboard.charts.noise import NoisePoint
from service.dashboard.charts.timeline import REPETITION, Span
from service.dashboard.charts.trial_point import TrialPoint
from service.db.tables import Attempt, Event, Run, Study, Trial
from service.studies.glance import progress_of
from service.studies.lifecycle import StudyState
from service.studies.schemas import Progress
from service.trials.repository import after_heat, is_whole
from service.trials.schemas import TrialView
from service.trials.service import view as trial_view
from tan_core.accounting import SearchAccounting, note_of_search
from tan_core.wire import RungScore, TrialState

UNDER_WAY = (StudyState.SIMULATING, StudyState.AWAITING_APPROVAL, StudyState.TRAINING)


@dataclass(frozen=True)
class Row:
    """What the list of studies adds to a summary."""

    progress: Progress | None
    """Of a study that is under way."""
    cancel_requested: bool
    awaits: Literal["approval", "choice"] | None
    """What somebody has to say before it goes on: that it may, or with which candidate; None: nothing."""


@dataclass(frozen=True)
class Flags:
    """What was asked of a study and has not happened yet, and where its events stand."""

    cancel_requested: bool
    promote_requested: bool
    promoted_trial: int | None
    has_statement: bool
    event_seq: int


async def list_rows(session: AsyncSession, study_ids: Sequence[str]) -> dict[str, Row]:
    """The additions for one page of the list."""
    found = await session.scalars(select(Study).where(Study.id.in_(study_ids)))
    return {
        study.id: Row(
            progress=await progress_of(session, study) if study.state in UNDER_WAY else None,
            cancel_requested=study.cancel_requested,
            awaits=_awaits(study),
        )
        for study in found.all()
    }


def _awaits(study: Study) -> Literal["approval", "choice"] | None:
    if study.state != StudyState.AWAITING_APPROVAL or study.cancel_requested:
        return None
    if study.promote_requested:
        return None
    return "choice" if study.promotion and study.promotion.get("standings") else "approval"


async def awaiting(session: AsyncSession, *, tenant: str | None) -> int:
    """How many studies of the tenant (None: of all) wait for somebody to approve them."""
    query = select(func.count()).where(
        Study.state == StudyState.AWAITING_APPROVAL,
        Study.cancel_requested.is_(False),
        Study.promote_requested.is_(False),
    )
    if tenant is not None:
        query = query.where(Study.tenant == tenant)
    return await session.scalar(query) or 0


async def flags(session: AsyncSession, study_id: str) -> Flags:
    """What the study's row says beside its view."""
    row = (
        await session.execute(
            select(
                Study.cancel_requested,
                Study.promote_requested,
                Study.promoted_trial,
                Study.statement.is_not(None),
                Study.event_seq,
            ).where(Study.id == study_id)
        )
    ).one()
    return Flags(*row)


async def test_reads(session: AsyncSession, dataset: str) -> int:
    """How many private runs, of whomever, have read the dataset's test split."""
    query = (
        select(func.count())
        .select_from(Run)
        .join(Study, Study.id == Run.study_id)
        .where(
            Study.dataset == dataset,
            Run.kind == "private",
            Run.result["test_accuracy"].astext.is_not(None),
        )
    )
    return await session.scalar(query) or 0


async def trial_points(
    session: AsyncSession, study_id: str, *, has_heat: bool = False
) -> list[TrialPoint]:
    """Every trial as a point, in order of number; at the first rung with its accuracy after the heat where there is one."""
    accuracies = func.jsonb_path_query_array(Trial.scores, cast("$[*].accuracy", JSONPATH))
    rows = await session.execute(
        select(
            Trial.number,
            Trial.state,
            Trial.value,
            Trial.params,
            type_coerce(accuracies, JSONB),
            after_heat(),
            Trial.began_from.is_not(None),
        )
        .where(Trial.study_id == study_id)
        .order_by(Trial.number)
    )
    return [_point(*row, has_heat=has_heat) for row in rows]


def _point(
    number: int,
    state: str,
    value: float | None,
    params: dict[str, Any],
    accuracies: list[float | None],
    heat: float | None,
    went_on: bool,
    *,
    has_heat: bool,
) -> TrialPoint:
    if has_heat and accuracies:
        accuracies = [heat, *accuracies[1:]]
    return TrialPoint(number, state, value, params, accuracies, went_on)


async def trial_spans(session: AsyncSession, study_id: str) -> list[Span]:
    """When each trial ran. One whose worker or driver was lost is one span from its first begin to its last end.

    What is not over has ended with its driver, if that has; else it goes on, or waits for another worker since it was last heard of.
    """
    driver = (
        select(Attempt.number, Attempt.finished_at)
        .join(Run, Run.id == Attempt.run_id)
        .where(Run.study_id == study_id, Run.kind == "search")
        .subquery()
    )
    rows = await session.execute(
        select(
            Trial.number,
            Trial.state,
            Trial.started_at,
            func.coalesce(
                Trial.finished_at,
                driver.c.finished_at,
                case((Trial.state != TrialState.RUNNING, Trial.updated_at)),
            ),
        )
        .outerjoin(driver, driver.c.number == Trial.attempt)
        .where(Trial.study_id == study_id)
    )
    return [Span(*row) for row in rows]


async def repeat_spans(session: AsyncSession, study_id: str) -> list[Span]:
    """When finalists were repeated: a span for each seed. As far as events are kept, which alone tell it."""
    repeats = Event.data["trial"]["repeats"]
    seeds, rungs, seconds = (
        type_coerce(func.jsonb_path_query_array(repeats, cast(f"$[*].{name}", JSONPATH)), JSONB)
        for name in ("seed", "rung", "seconds")
    )
    rows = await session.execute(
        select(Event.at, Event.data["trial"]["number"].as_integer(), seeds, rungs, seconds)
        .where(
            Event.study_id == study_id,
            Event.kind == "trial",
            func.jsonb_array_length(repeats) > 0,
        )
        .order_by(Event.seq)
    )
    known: set[tuple[int, int, int]] = set()
    spans: dict[tuple[int, int], Span] = {}
    for at, number, *scores in rows:
        for seed, rung, took in zip(*scores, strict=True):
            if (number, seed, rung) in known:
                continue
            known.add((number, seed, rung))
            begin = at - timedelta(seconds=took)
            if (first := spans.get((number, seed))) is not None:
                begin = min(first.begin, begin)
            spans[number, seed] = Span(number, REPETITION, begin, at)
    return list(spans.values())


async def curves(session: AsyncSession, study_id: str, rung: int) -> list[Curve]:
    """The trials that did best at a rung, the best first, with how they learnt there."""
    score = Trial.scores[rung]
    accuracy = score["accuracy"].astext.cast(Double)
    rows = await session.execute(
        select(Trial.number, score)
        .where(Trial.study_id == study_id, accuracy.is_not(None), is_whole(score))
        .order_by(accuracy.desc(), Trial.number)
        .limit(MAX_CURVES)
    )
    return [Curve(number, RungScore.model_validate(found)) for number, found in rows]


async def noise_points(
    session: AsyncSession, study_id: str, *, expected_batch_size: float
) -> list[NoisePoint]:
    """Every scored rung of every trial, with the noise of the private run that the trial would be."""
    scores = func.jsonb_array_elements(Trial.scores)
    score = type_coerce(scores.column_valued("score", joins_implicitly=True), JSONB)
    accuracy = score["accuracy"].astext.cast(Double)
    rows = await session.execute(
        select(
            score["rung"].as_integer(),
            score["expected_batch_size"].as_float(),
            score["noise_multiplier"].as_float(),
            score["steps"].as_integer(),
            accuracy,
        )
        .select_from(Trial)
        .where(Trial.study_id == study_id, accuracy.is_not(None), is_whole(score))
    )
    return [
        NoisePoint(
            rung=rung,
            batch_size=batch_size,
            noise_multiplier=noise * expected_batch_size / batch_size,
            steps=steps,
            accuracy=share,
        )
        for rung, batch_size, noise, steps, share in rows
    ]


async def trials_named(
    session: AsyncSession, study_id: str, numbers: Sequence[int]
) -> dict[int, TrialView]:
    """Some trials by their numbers."""
    found = await session.scalars(
        select(Trial).where(Trial.study_id == study_id, Trial.number.in_(numbers))
    )
    return {trial.number: trial_view(trial) for trial in found}


@dataclass(frozen=True)
class Holder:
    """A study that holds a part of a budget."""

    name: str
    search_accounting: str
    search_note: str


async def holders(
    session: AsyncSession, study_ids: Sequence[str], *, tenant: str | None
) -> dict[str, Holder]:
    """The studies behind a scope's reservations; of one tenant, or (None) of all."""
    learnt_from = Study.plan["learnt_from"].astext
    query = select(Study.id, Study.name, Study.search_accounting, learnt_from).where(
        Study.id.in_(study_ids)
    )
    if tenant is not None:
        query = query.where(Study.tenant == tenant)
    rows = await session.execute(query)
    return {id_: Holder(name, mode, note_of(mode, learnt)) for id_, name, mode, learnt in rows}


@dataclass(frozen=True)
class Terms:
    """What a study's epsilon means nothing without."""

    delta: float
    accountant: str
    neighboring_relation: str
    search_accounting: str
    search_note: str


async def terms(session: AsyncSession, study_ids: Sequence[str]) -> dict[str, Terms]:
    """The terms of some studies."""
    privacy = Study.plan["privacy"]
    rows = await session.execute(
        select(
            Study.id,
            privacy["delta"].as_float(),
            privacy["accountant"].as_string(),
            privacy["neighboring_relation"].as_string(),
            Study.search_accounting,
            Study.plan["learnt_from"].astext,
        ).where(Study.id.in_(study_ids))
    )
    return {
        id_: Terms(delta, accountant, relation, mode, note_of(mode, learnt_from))
        for id_, delta, accountant, relation, mode, learnt_from in rows
    }


def note_of(mode: str, learnt_from: str | None) -> str:
    """As of the study's row; of a mode that nobody knows any more its name."""
    if mode not in tuple(SearchAccounting):
        return mode
    return note_of_search(SearchAccounting(mode), learnt_from=learnt_from)


async def unaccounted_searches(session: AsyncSession) -> dict[str, int]:
    """How many studies searched each private dataset without accounting for it."""
    rows = await session.execute(
        select(Study.dataset, func.count())
        .where(Study.search_accounting == SearchAccounting.DECLARED_UNACCOUNTED)
        .group_by(Study.dataset)
    )
    return dict(iter(rows.all()))
