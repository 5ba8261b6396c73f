"""Queries over trials."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, TypeAdapter
from sqlalchemy import ColumnElement, Double, case, func, literal, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from service import paging
from service.db.tables import Trial
from service.ledger import names
from service.paging import Cursor
from service.studies.glance import (
    COUNTS_BUT_ONE,
    RUNS,
    TRIAL,
    RunStanding,
    progress,
    standings,
    with_trial,
)
from service.studies.schemas import Progress
from service.trials.schemas import TrialListing, TrialOrder
from tan_core.wire import TrialRecord

_Number = Annotated[int, Field(ge=0, le=2**53)]
_Rung = Annotated[int, Field(ge=-(2**31), lt=2**31)]
_BY_NUMBER = TypeAdapter(_Number)
_BY_VALUE = TypeAdapter(tuple[_Rung, FiniteFloat | None, _Number])
"""Where a page ended: the number, or what :func:`by_value` has of it."""
_UNSCORED = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A trial's place, as a report of it finds the tables: all that is asked of them to store it."""

    run_id: str
    attempt: int
    attempt_state: str
    kind: str
    """Of the run."""
    event_seq: int
    """Number of the study's last event. Trials, attempts and states change with an event, so while it
    is the same, so is all that was seen."""
    state: str
    """Of the study."""
    trials: int
    """How many the study is to have."""
    last_rung: int
    known: TrialRecord | None
    runs: dict[str, RunStanding]
    others: dict[str, Any]
    """Counts of the study's other trials."""
    untold_scores: int | None
    """Of those that were charged, how many no other trial has told. None: this search is not charged."""

    def progress(self, record: TrialRecord) -> Progress:
        """How far the study is with this trial."""
        counts = with_trial(self.others, record, last_rung=self.last_rung)
        return progress(self.runs, counts, phase=self.state, trials=self.trials)


async def see(session: AsyncSession, run_id: str, attempt: int, number: int) -> Seen | None:
    """Where a report finds the tables; None: there is no such attempt. Nothing is locked."""
    asked = {"run": run_id, "attempt": attempt, "number": number}
    row = (await session.execute(_SEE, asked)).one_or_none()
    if row is None:
        return None
    return Seen(
        run_id=run_id,
        attempt=attempt,
        attempt_state=row.attempt_state,
        kind=row.kind,
        event_seq=row.event_seq,
        state=row.state,
        trials=row.trials,
        last_rung=row.last_rung,
        known=TrialRecord.model_validate(row.known) if row.known else None,
        runs=standings(row.runs),
        others=row.counts,
        untold_scores=row.untold_scores,
    )


_SEE = text(f"""
SELECT study.event_seq, study.state, run.kind, attempt.state AS attempt_state,
    (study.spec -> 'search' -> 'trials')::integer AS trials,
    jsonb_array_length(study.plan -> 'simulations') - 1 AS last_rung,
    (SELECT {TRIAL} FROM trial WHERE study_id = study.id AND number = :number) AS known,
    {RUNS},
    {COUNTS_BUT_ONE},
    CASE WHEN run.assignment ->> 'charged' IS NOT NULL THEN
        (SELECT charged_steps FROM ledger_reservation WHERE reservation_id = study.id || '{names.of_scores("")}')
        - (SELECT count(*) FROM trial WHERE study_id = study.id AND number <> :number AND (value IS NOT NULL
            OR jsonb_path_exists(scores || repeats, '$[*].accuracy ? (@ <> null)')))
    END AS untold_scores
FROM study JOIN run ON run.study_id = study.id JOIN attempt ON attempt.run_id = run.id
WHERE run.id = :run AND attempt.number = :attempt
""")  # noqa: S608 - our own words


async def store(session: AsyncSession, seen: Seen, record: TrialRecord) -> bool:
    """Write the trial as it is now, its event, and that its driver lives: all in one statement.

    False: nothing was written, because the attempt is not live, or the study has had an event since it
    was seen. Then somebody else has written, so that who looks again and tries again comes to an end.
    """
    said = {
        "run": seen.run_id,
        "attempt": seen.attempt,
        "event_seq": seen.event_seq,
        "record": record.model_dump_json(),
        "progress": seen.progress(record).model_dump_json(),
        "is_finished": record.state.is_finished,
    }
    return (await session.execute(_STORE, said)).one_or_none() is not None


# The rows are locked in the house's order, and seen again as they are then.
_STORE = text("""
WITH scene AS (
    SELECT study.id FROM study
    JOIN run ON run.study_id = study.id JOIN attempt ON attempt.run_id = run.id
    WHERE run.id = :run AND attempt.number = :attempt AND attempt.state = 'live'
    AND study.event_seq = :event_seq
    FOR UPDATE OF study, run, attempt
), numbered AS (
    UPDATE study SET event_seq = study.event_seq + 1 FROM scene WHERE study.id = scene.id
    RETURNING study.id, study.event_seq
), progressed AS (
    UPDATE run SET progress_attempt = :attempt FROM numbered WHERE run.id = :run AND :is_finished
), heard AS (
    UPDATE attempt SET heartbeat_at = clock_timestamp() FROM numbered
    WHERE run_id = :run AND number = :attempt
), stored AS (
    INSERT INTO trial (study_id, number, state, params, scores, repeats, value, source, reason,
        weights_sha256, began_from, attempt, finished_at)
    SELECT numbered.id, told.*, :attempt, CASE WHEN :is_finished THEN now() END
    FROM numbered, jsonb_to_record(CAST(:record AS jsonb)) AS told(number bigint, state text,
        params jsonb, scores jsonb, repeats jsonb, value float8, source text, reason text,
        weights_sha256 text, began_from jsonb)
    ON CONFLICT (study_id, number) DO UPDATE SET
        state = excluded.state, params = excluded.params, scores = excluded.scores,
        repeats = excluded.repeats, value = excluded.value, source = excluded.source,
        reason = excluded.reason, weights_sha256 = excluded.weights_sha256, began_from = excluded.began_from, attempt = excluded.attempt, updated_at = now(),
        finished_at = coalesce(trial.finished_at, excluded.finished_at)
)
INSERT INTO event (study_id, seq, kind, data, at)
SELECT id, event_seq, 'trial', jsonb_build_object(
    'trial', CAST(:record AS jsonb), 'progress', CAST(:progress AS jsonb)), clock_timestamp()
FROM numbered RETURNING seq
""")


def is_whole(score: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether a stored score is of more than a heat."""
    return score["heat"].astext.is_(None)


def after_heat() -> ColumnElement[float]:
    """A trial's accuracy after its heat, whether it went on or not; only where the search begins with one."""
    return Trial.scores[0]["curve"][0]["accuracy"].astext.cast(Double)


def by_value(*, best_first: bool) -> tuple[ColumnElement[int], ColumnElement[float], Any]:
    """What puts trials in order, all of it rising: how far they came, accuracy, number; those without a value last.

    Accuracies at a smaller batch are higher: a trial that was cut there is no better than one that went on. Nor is
    one that its heat ended better than one that went on at the same batch.
    """
    sign = -1 if best_first else 1
    was_heat = case((is_whole(Trial.scores[-1]), 0), else_=1)
    reached = sign * (2 * func.jsonb_array_length(Trial.scores) - was_heat)
    value = func.coalesce(sign * Trial.value, literal(math.inf, Double))
    return case((Trial.value.is_(None), _UNSCORED), else_=reached), value, Trial.number.expression


async def page(
    session: AsyncSession, study_id: str, listing: TrialListing, *, limit: int, cursor: Cursor
) -> tuple[list[Trial], Cursor]:
    """Up to ``limit`` trials of the study after the cursor, and the cursor of those that follow."""
    is_by_value = listing.sort in (TrialOrder.VALUE, TrialOrder.BEST)
    is_falling = listing.sort is TrialOrder.NUMBER_BACKWARDS
    order: tuple[ColumnElement[Any], ...] = (Trial.number.expression,)
    if is_by_value:
        order = by_value(best_first=listing.sort is TrialOrder.BEST)
    query = select(Trial).add_columns(*order).where(Trial.study_id == study_id).limit(limit + 1)
    if listing.state:
        query = query.where(Trial.state.in_([state.value for state in listing.state]))
    if cursor is not None:
        if is_by_value:
            reached, value, number = paging.decode(cursor, _BY_VALUE, listing=listing)
            after: tuple[Any, ...] = (reached, math.inf if value is None else value, number)
        else:
            after = (paging.decode(cursor, _BY_NUMBER, listing=listing),)
        place = tuple_(*order)
        query = query.where(place < after if is_falling else place > after)
    query = query.order_by(*(each.desc() for each in order) if is_falling else order)
    found = [(trial, place) for trial, *place in await session.execute(query)]
    trials = [trial for trial, _ in found[:limit]]
    if len(found) <= limit:
        return trials, None
    _, place = found[limit - 1]
    ended = [None if each == math.inf else each for each in place] if is_by_value else place[0]
    return trials, paging.encode(ended, listing=listing)


async def every(session: AsyncSession, study_id: str) -> list[Trial]:
    """All trials of a study, in order of number."""
    query = select(Trial).where(Trial.study_id == study_id).order_by(Trial.number)
    return list((await session.scalars(query)).all())


async def running_before(session: AsyncSession, study_id: str, attempt: int) -> list[Trial]:
    """Trials that an earlier attempt was running, locked."""
    query = (
        select(Trial)
        .where(Trial.study_id == study_id, Trial.state == "running", Trial.attempt < attempt)
        .order_by(Trial.number)
        .with_for_update()
    )
    return list((await session.scalars(query)).all())
