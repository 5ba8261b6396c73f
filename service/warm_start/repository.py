"""Queries over the studies that a search may learn from."""

from collections.abc import Mapping, Sequence

from sqlalchemy import exists, func, or_, select
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study, Trial
from service.warm_start.points import SCALE_KEYS
from tan_core.spec import ModelSpec, Scalar
from tan_core.spec.features import feature_models
from tan_core.spec.space import Dimension


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
    space: Mapping[str, Dimension],
    other_than: str,
    limit: int,
) -> Sequence[Study]:
    """The newest studies of the tenant that searched the dataset for this model and have a completed trial.

    Where features are whitened, learning rates are on another scale: such studies learn from each other alone,
    and from those whose trials differ in it.
    """
    features = func.coalesce(Study.spec["model"]["normalization"].astext, "")
    possible = [each.is_whitened for each in feature_models(model, space)]
    query = (
        select(Study)
        .where(
            Study.tenant == tenant,
            Study.search_dataset == search_dataset,
            Study.spec["model"]["name"].astext == model.name,
            or_(
                (features == "whitened").in_(possible),
                Study.spec["search"]["space"].has_any(array(sorted(SCALE_KEYS))),
            ),
            Study.id != other_than,
            exists().where(Trial.study_id == Study.id, Trial.state == "completed"),
        )
        .order_by(Study.created_at.desc(), Study.id.desc())
        .limit(limit)
    )
    return (await session.scalars(query)).all()


async def best_trials(
    session: AsyncSession, study: Study, *, limit: int
) -> list[tuple[int, Mapping[str, Scalar]]]:
    """Completed trials with their parameters: as the study's standings rank them, else by value."""
    query = select(Trial.number, Trial.params).where(
        Trial.study_id == study.id, Trial.state == "completed"
    )
    if study.promotion is None:
        query = query.where(Trial.value.is_not(None)).order_by(Trial.value.desc(), Trial.number)
        return [(number, params) for number, params in await session.execute(query.limit(limit))]
    ranked = [standing["trial"] for standing in study.promotion["standings"][:limit]]
    rows = await session.execute(query.where(Trial.number.in_(ranked)))
    params_of = dict(rows.all())
    return [(number, params_of[number]) for number in ranked if number in params_of]
