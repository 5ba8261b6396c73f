"""How a study stands, beside its own row: in one statement, because a study is what is asked for most.

Five queries through the session cost the API four times the processor time of one.
"""

import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from service.datasets.schemas import ApprovalRule
from service.db.tables import Study
from service.ledger.errors import UnknownReservationError
from service.ledger.repository import IS_RESTORED
from service.studies.lifecycle import StudyState
from service.studies.schemas import FeaturesProgress, Progress
from tan_core.wire import FeaturesMade, TrialRecord, TrialState

RUNS = """
(SELECT jsonb_object_agg(run.kind, jsonb_build_object(
    'state', run.state, 'reason', run.reason, 'step', run.step, 'steps', run.steps,
    'steps_per_second', run.steps_per_second, 'features', run.features, 'result', run.result,
    'began_from_trial', (run.assignment -> 'begin_from' -> 'trial')::bigint,
    'learning_rate', (run.assignment -> 'trainer' -> 'learning_rate')::float8,
    'attempt', (SELECT max(number) FROM attempt WHERE run_id = run.id)))
FROM run WHERE run.study_id = study.id) AS runs
"""
# A ladder of the finals has been climbed at the last rung, or was given up before it.
_COUNTED = f"""
SELECT jsonb_build_object(
    {", ".join(f"'{state}', count(*) FILTER (WHERE state = '{state}')" for state in TrialState)},
    'best', max(value) FILTER (WHERE state = 'completed'),
    'repeats', coalesce(sum((SELECT count(*) FROM jsonb_array_elements(repeats) AS score
        WHERE (score -> 'rung')::integer >= jsonb_array_length(study.plan -> 'simulations') - 1
        OR score ->> 'accuracy' IS NULL)), 0))
FROM trial WHERE study_id = study.id
"""  # noqa: S608 - names of an enum
_COUNTS = f"({_COUNTED}) AS counts"
COUNTS_BUT_ONE = f"({_COUNTED} AND number <> :number) AS counts"
"""For :func:`with_trial`."""
_OF_TRIAL = ", ".join(f"'{name}', trial.{name}" for name in TrialRecord.model_fields)
TRIAL = f"jsonb_build_object({_OF_TRIAL})"
"""A row of ``trial`` as TrialRecord. By its names: beside a newer version, which may have put other columns there, this one
answers until it is replaced."""
_BEST = f"""
(SELECT {TRIAL} FROM trial WHERE study_id = study.id AND number = coalesce(
    (study.promotion ->> 'trial')::integer,
    (SELECT number FROM trial WHERE study_id = study.id AND state = 'completed'
    AND value IS NOT NULL ORDER BY value DESC, number LIMIT 1))) AS best
"""  # noqa: S608 - names of our own fields
_HELD = f"""
(SELECT jsonb_build_object('scope', held.scope_id, 'charged_steps', held.charged_steps,
    'reserved_steps', held.reserved_steps, 'is_restored', {IS_RESTORED}, 'seq', entry.seq, 'hash', encode(entry.hash, 'hex'))
FROM ledger_reservation AS held CROSS JOIN LATERAL (
    SELECT seq, hash FROM ledger_entry WHERE reservation_id = held.reservation_id
    ORDER BY seq DESC LIMIT 1) AS entry
WHERE held.reservation_id = study.reservation_id) AS held
"""  # noqa: S608 - our own words
_APPROVAL = "(SELECT approval FROM dataset WHERE dataset.name = study.dataset) AS approval"
_OF_ONE = Study.id == bindparam("study")
_PROGRESS = select(text(RUNS), text(_COUNTS)).select_from(Study).where(_OF_ONE)
_GLANCE = select(Study, text(RUNS), text(_COUNTS), text(_BEST), text(_HELD), text(_APPROVAL)).where(
    _OF_ONE
)
"""Built once: building a statement takes longer than running it."""


@dataclass(frozen=True, slots=True)
class RunStanding:
    """One phase of a study, and the number of its newest attempt."""

    state: str
    reason: str | None
    step: int
    steps: int
    steps_per_second: float | None
    features: dict[str, Any] | None
    result: dict[str, Any] | None
    began_from_trial: int | None
    learning_rate: float | None
    attempt: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """The ledger's hold for the private run, and the newest entry about it."""

    scope: str
    charged_steps: int
    reserved_steps: int
    is_restored: bool
    """Whether steps that were charged may be lost."""
    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Glance:
    """What is shown of a study beside its own row."""

    runs: dict[str, RunStanding]
    """By kind: ``search``, ``private``."""
    progress: Progress
    best_trial: TrialRecord | None
    """The one of the promotion; before there is one, the completed one of the highest value."""
    held: Held | None
    """None on a public dataset."""
    approval: ApprovalRule
    """Of its dataset, now."""


async def glance(session: AsyncSession, study_id: str) -> tuple[Study, Glance] | None:
    """The study as the tables have it now, or None; what the session has changed is written first.

    Raises:
        UnknownReservationError: the study has one, and the ledger does not.
    """
    if "\x00" in study_id:  # PostgreSQL has no such text, so no such study
        return None
    row = (await session.execute(_GLANCE, {"study": study_id})).one_or_none()
    if row is None:
        return None
    study, runs, counts, best, held, approval = row
    if study.reservation_id is not None and held is None:
        raise UnknownReservationError(f"no reservation {study.reservation_id!r}")
    standing = standings(runs)
    return study, Glance(
        runs=standing,
        progress=progress(
            standing, counts, phase=study.state, trials=study.spec["search"]["trials"]
        ),
        best_trial=TrialRecord.model_validate(best) if best else None,
        held=Held(**held) if held else None,
        approval=approval,
    )


async def progress_of(session: AsyncSession, study: Study) -> Progress:
    """How far the study is, as the tables have it now."""
    runs, counts = (await session.execute(_PROGRESS, {"study": study.id})).one()
    return progress(
        standings(runs), counts, phase=study.state, trials=study.spec["search"]["trials"]
    )


def standings(found: dict[str, dict[str, Any]] | None) -> dict[str, RunStanding]:
    """``RUNS`` as the database answers it, by kind."""
    return {kind: RunStanding(**run) for kind, run in (found or {}).items()}


def with_trial(counts: dict[str, Any], record: TrialRecord, *, last_rung: int) -> dict[str, Any]:
    """The counts of a study's other trials with one more, counted as the database would."""
    repeats = sum(score.rung >= last_rung or score.accuracy is None for score in record.repeats)
    values = [counts["best"]]
    if record.state is TrialState.COMPLETED:
        values.append(record.value)
    return {
        **counts,
        record.state: counts[record.state] + 1,
        "best": max((value for value in values if value is not None), default=None),
        "repeats": counts["repeats"] + repeats,
    }


def progress(
    runs: dict[str, RunStanding], counts: dict[str, Any], *, phase: str, trials: int
) -> Progress:
    """What a study's runs and trials say of how far it is.

    Args:
        runs: by kind.
        counts: of its trials.
        phase: the study's state.
        trials: how many it is to have.
    """
    private = runs.get("private")
    newest = private or runs.get("search")
    return Progress(
        phase=StudyState(phase),
        trials_total=trials,
        trials_finished=sum(counts[state] for state in TrialState if state.is_finished),
        trials_running=counts[TrialState.RUNNING],
        trials_diverged=counts[TrialState.DIVERGED],
        trials_pruned=counts[TrialState.PRUNED],
        trials_failed=counts[TrialState.FAILED],
        repeats_finished=counts["repeats"],
        best_accuracy=counts["best"],
        step=private.step if private else None,
        steps=private.steps if private else None,
        steps_per_second=private.steps_per_second if private else None,
        attempt=newest.attempt if newest else None,
        features=_features(newest),
    )


def _features(run: RunStanding | None) -> FeaturesProgress | None:
    """Of a run that still computes some."""
    made = FeaturesMade.model_validate(run.features) if run and run.features else None
    if run is None or made is None or run.state != "active" or made.done >= made.number:
        return None
    left = (made.number - made.done) / made.per_second if made.per_second else math.inf
    return FeaturesProgress(
        done=made.done, number=made.number, seconds_left=left if math.isfinite(left) else None
    )
