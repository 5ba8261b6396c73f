"""Queries over finished work: what there is to measure a rate of a model on a dataset from, and whose model a file is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, null, select, true, type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from service import text
from service.db.tables import Attempt, Run, Study, Trial
from tan_core.spec import ModelSpec, StudySpec
from tan_core.wire import RungScore

_NEWEST_TRIALS = 200
_NEWEST_RUNS = 50


@dataclass(frozen=True)
class Work:
    """Something that ran to its end."""

    examples: float
    """Seen forward and backward, every view counted."""
    device_seconds: float
    devices: int | None = None
    """That a private run had, where it asked for more; None: as many as it asked for."""


async def simulated(
    session: AsyncSession, spec: StudySpec, dataset: str, *, tenant: str | None
) -> list[Work]:
    """The newest simulations of finished trials, of every study of this model on the dataset; of the tenant, or (None) of any."""
    rows = await session.execute(
        select(Trial.scores, Trial.repeats, Trial.params, Study.spec["train"])
        .join(Study, Study.id == Trial.study_id)
        .where(
            Study.search_dataset == dataset,
            _is_model_of(spec),
            _is_of(tenant),
            Trial.state.in_(("completed", "pruned")),
        )
        .order_by(Trial.finished_at.desc().nulls_last())
        .limit(_NEWEST_TRIALS)
    )
    return [
        _work({"views": _views(params, train), **score})
        for scores, repeats, params, train in rows
        for score in (*scores, *repeats)
    ]


def _work(stored: dict[str, Any]) -> Work:
    score = RungScore.model_validate(stored)
    return Work(examples=score.examples, device_seconds=score.seconds * score.devices)


async def trained(
    session: AsyncSession, spec: StudySpec, dataset: str, *, tenant: str | None
) -> list[Work]:
    """The newest private runs of this model on the dataset that succeeded at their first attempt; of the tenant, or (None) of any.

    A second attempt times only the steps that the first one left over.
    """
    result: ColumnElement[Any] = Run.__table__.c.result
    batch = Study.plan["reference"]["expected_batch_size"]
    rows = await session.execute(
        select(
            batch,
            result["steps"],
            result["train_seconds"],
            Trial.params,
            Study.spec["train"],
            Attempt.ranks,
        )
        .join_from(Run, Study, Study.id == Run.study_id)
        .join(Attempt, Attempt.run_id == Run.id)
        .outerjoin(Trial, (Trial.study_id == Study.id) & (Trial.number == Study.promoted_trial))
        .where(
            Study.dataset == dataset,
            _is_model_of(spec),
            _is_of(tenant),
            Run.kind == "private",
            Run.state == "succeeded",
            result["train_seconds"].is_not(None),
            Attempt.number == 1,
            Attempt.state == "succeeded",
        )
        .order_by(Run.finished_at.desc().nulls_last())
        .limit(_NEWEST_RUNS)
    )
    return [
        Work(
            examples=batch * steps * _views(params or {}, train),
            device_seconds=seconds * (ranks or train["workers"]),
            devices=ranks if ranks and ranks < train["workers"] else None,
        )
        for batch, steps, seconds, params, train, ranks in rows
    ]


def _is_of(tenant: str | None) -> ColumnElement[bool]:
    """What others train, how often and how fast, is theirs to tell."""
    return true() if tenant is None else Study.tenant == tenant


def _is_model_of(spec: StudySpec) -> ColumnElement[bool]:
    """Name and options: a wider network is another one, and so is one on features of several kinds."""
    model = spec.model.model_dump(mode="json")
    space = spec.model_dump(mode="json")["search"]["space"]
    is_it = type_coerce(Study.spec["model"], JSONB) == type_coerce(model, JSONB)
    for option in sorted(spec.model.feature_options):
        for key in (option, f"model.{option}"):
            searched = type_coerce(Study.spec["search"]["space"][key], JSONB)
            own = (
                searched.is_(null())
                if key not in space
                else searched == type_coerce(space[key], JSONB)
            )
            is_it = and_(is_it, own)
    return is_it


def _views(params: Mapping[str, Any], train: Mapping[str, Any]) -> int:
    """K of a trial: its own choice, else the study's."""
    name = "augmentation_multiplicity"
    return params.get(name, params.get(f"train.{name}", train[name]))


async def of_own_model(session: AsyncSession, model: ModelSpec) -> str | None:
    """What is known of the checkpoint that a study begins from, if it is a model of this service's."""
    if model.pretrained is None or model.pretrained.sha256 is None:
        return None
    made_by = await _trained_here(session, model.pretrained.sha256)
    return made_by and text.of_own_model(made_by.id, made_by.dataset, made_by.search_note)


async def _trained_here(session: AsyncSession, sha256: str) -> Study | None:
    """The study whose private run on private data made this very file; None: none of this service did."""
    query = (
        select(Study)
        .join(Run, (Run.study_id == Study.id) & (Run.kind == "private"))
        .where(Run.result["model_sha256"].astext == sha256, Study.reservation_id.is_not(None))
        .order_by(Study.created_at, Study.id)
        .limit(1)
    )
    return await session.scalar(query)
