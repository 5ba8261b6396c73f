"""Queries over the studies that a search may learn from."""

from collections.abc import Mapping, Sequence, Set

from sqlalchemy import ColumnElement, exists, func, or_, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study, Trial
from tan_core.accounting import SearchAccounting
from tan_core.spec import ModelSpec, Scalar


async def named(
    session: AsyncSession, study_ids: Sequence[str], *, tenant: str | None
) -> dict[str, Study]:
    """Those of the studies that the tenant (None: any) has, by id."""
    query = select(Study).where(Study.id.in_(study_ids))
    if tenant is not None:
        query = query.where(Study.tenant == tenant)
    found = await session.scalars(query)
    return {study.id: study for study in found}


async def newest_alike(
    session: AsyncSession,
    *,
    tenant: str,
    search_dataset: str,
    model: ModelSpec,
    scales: Set[bool],
    accounting: SearchAccounting,
    other_than: str,
    limit: int,
) -> Sequence[Study]:
    """The newest studies of the tenant that searched the dataset for this model and have a completed trial.

    Where features are whitened, learning rates are on another scale: only trials of one of ``scales`` count.
    What a search that is charged learns from was charged too: what others found on private data was not paid for. And of
    ``accounting`` other than declared_unaccounted nothing counts that was told what such a search had found.
    """
    is_open = accounting is SearchAccounting.DECLARED_UNACCOUNTED
    is_charged = Study.search_accounting == SearchAccounting.ACCOUNTED.value
    is_free_of_unpaid = Study.plan["learnt_from"].astext.is_(None)
    query = (
        select(Study)
        .where(
            Study.tenant == tenant,
            Study.search_dataset == search_dataset,
            Study.spec["model"]["name"].astext == model.name,
            Study.id != other_than,
            is_charged if accounting.is_charged else true(),
            true() if is_open else is_free_of_unpaid,
            exists().where(Trial.study_id == Study.id, Trial.state == "completed", _is_of(scales)),
        )
        .order_by(Study.created_at.desc(), Study.id.desc())
        .limit(limit)
    )
    return (await session.scalars(query)).all()


async def unaccounted_trial(
    session: AsyncSession,
    *,
    dataset: str,
    tenant: str | None,
    model: ModelSpec,
    values: Sequence[Mapping[str, Scalar]],
) -> tuple[str, int] | None:
    """The study and the number of a trial whose every parameter is among those of one of ``values``; the best of those there are.

    Only trials that were scored, of searches of the dataset for this model that were not accounted; of the tenant, or
    (None) of any.
    """
    query = (
        select(Trial.study_id, Trial.number)
        .join(Study, Study.id == Trial.study_id)
        .where(
            Study.search_dataset == dataset,
            Study.search_accounting == SearchAccounting.DECLARED_UNACCOUNTED.value,
            Study.spec["model"]["name"].astext == model.name,
            true() if tenant is None else Study.tenant == tenant,
            func.jsonb_array_length(Trial.scores) > 0,
            Trial.params != {},
            or_(*(Trial.params.contained_by(dict(each)) for each in values)),
        )
        .order_by(Trial.value.desc().nulls_last(), Study.created_at, Trial.number)
        .limit(1)
    )
    found = (await session.execute(query)).one_or_none()
    return None if found is None else (found.study_id, found.number)


async def best_trials(
    session: AsyncSession, study: Study, *, scales: Set[bool], limit: int
) -> list[tuple[int, Mapping[str, Scalar]]]:
    """Completed trials with their parameters: as the study's standings rank them, else by value."""
    query = (
        select(Trial.number, Trial.params)
        .join(Study, Study.id == Trial.study_id)
        # One that went on is the better for what came before it, and has the parameters of one that began anew.
        .where(
            Trial.study_id == study.id,
            Trial.state == "completed",
            Trial.began_from.is_(None),
            _is_of(scales),
        )
    )
    if study.promotion is None:
        query = query.where(Trial.value.is_not(None)).order_by(Trial.value.desc(), Trial.number)
        return [(number, params) for number, params in await session.execute(query.limit(limit))]
    ranked = [standing["trial"] for standing in study.promotion["standings"]]
    rows = await session.execute(query.where(Trial.number.in_(ranked)))
    params_of: dict[int, Mapping[str, Scalar]] = dict(rows.all())
    return [(number, params_of[number]) for number in ranked if number in params_of][:limit]


def _is_of(scales: Set[bool]) -> ColumnElement[bool]:
    """Whether a trial's features are whitened, or are not, as asked for: by its own choice, else by its study's."""
    normalization = func.coalesce(
        Trial.params["normalization"].astext,
        Trial.params["model.normalization"].astext,
        Study.spec["model"]["normalization"].astext,
        "",
    )
    return (normalization == "whitened").in_(sorted(scales))
