"""The query behind the calibration: completed studies with a prediction, and sums over all of them."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Double, RowMapping, and_, func, or_, select, true
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from service.db.tables import Run, Study
from tan_core.accounting import SearchAccounting
from tan_core.spec.study import Metric
from tan_core.tan import LawMethod

_NEWEST = 100
"""Studies that predictions learn from."""


async def predicted_and_reached(
    session: AsyncSession,
    *,
    dataset: str | None,
    model: str | None,
    limit: int,
    tenant: str | None,
) -> Sequence[RowMapping]:
    """The newest studies that were predicted and completed.

    Args:
        session: open.
        dataset: name of the dataset they trained on; None: any.
        model: name of their model; None: any.
        tenant: whose studies; None: anybody's.
        limit: rows returned. The columns ``studies``, ``num_inside`` and ``mean_absolute_error`` are the same
            in each of them, and over every study that the filters leave.
    """
    predicted, low, high = (
        Study.prediction[name].astext.cast(Double) for name in ("accuracy", "low", "high")
    )
    reached = Run.result["test_accuracy"].astext.cast(Double)
    model_name = Study.spec["model"]["name"].astext
    error, inside = reached - predicted, reached.between(low, high)
    query = (
        select(
            Study.id.label("study"),
            Study.name,
            Study.dataset,
            model_name.label("model"),
            _scored_by().label("metric"),
            Study.statement["privacy"]["epsilon"].astext.cast(Double).label("epsilon"),
            Study.prediction["trial"].as_integer().label("trial"),
            predicted.label("predicted"),
            low.label("low"),
            high.label("high"),
            reached.label("reached"),
            error.label("error"),
            inside.label("inside"),
            Study.finished_at,
            func.count().over().label("studies"),
            func.count().filter(inside).over().label("num_inside"),
            func.avg(func.abs(error)).over().label("mean_absolute_error"),
        )
        .join(Run, and_(Run.study_id == Study.id, Run.kind == "private"))
        .where(Study.state == "completed", Study.prediction.is_not(None), reached.is_not(None))
        .order_by(Study.finished_at.desc(), Study.id.desc())
        .limit(limit)
    )
    if tenant is not None:
        query = query.where(Study.tenant == tenant)
    if dataset is not None:
        query = query.where(Study.dataset == dataset)
    if model is not None:
        query = query.where(model_name == model)
    return (await session.execute(query)).mappings().all()


async def earlier_errors(session: AsyncSession, study: Study) -> Sequence[float]:
    """What the newest private runs of the tenant reached less what was predicted of them, the newest first.

    Of those that were searched and trained on the very datasets of ``study`` and scored as it is, which tell what simulations are
    scored on and what a private run is measured on differ by. What such a prediction had learnt itself is no
    part of it. Left out is what was wrong for another reason: predictions without fresh seeds, those that assume a
    slope, and those that ended at 0 or 1, where what they had learnt is unknown. And whatever ended after the
    search of ``study`` did: what was proposed then is what is promoted, however long a person thinks it over. Of a search that is
    charged only what charged ones were wrong by counts: what others were predicted by is of simulations that nobody paid for.
    """
    search = aliased(Run)
    ended = (
        select(search.finished_at)
        .where(search.study_id == study.id, search.kind == "search")
        .scalar_subquery()
    )
    own = func.coalesce(Study.prediction["shift"].astext.cast(Double), 0.0)
    accuracy = Study.prediction["accuracy"].astext.cast(Double)
    reached = Run.result["test_accuracy"].astext.cast(Double)
    scored_by = _scored_by()
    is_charged = SearchAccounting(study.search_accounting).is_charged
    is_paid = Study.search_accounting == SearchAccounting.ACCOUNTED.value
    query = (
        select(reached - (accuracy - own))
        .select_from(Study)
        .join(Run, and_(Run.study_id == Study.id, Run.kind == "private"))
        .where(
            Study.state == "completed",
            Study.prediction.is_not(None),
            reached.is_not(None),
            Study.tenant == study.tenant,
            Study.dataset == study.dataset,
            Study.search_dataset == study.search_dataset,
            is_paid if is_charged else true(),
            scored_by == study.spec["search"].get("metric", Metric.ACCURACY),
            Study.id != study.id,
            or_(ended.is_(None), Study.finished_at <= ended),
            Study.prediction["is_fresh"].as_boolean(),
            Study.prediction["method"].astext != LawMethod.LARGEST_RUNG.value,
            accuracy > 0,
            accuracy < 1,
        )
        .order_by(Study.finished_at.desc(), Study.id.desc())
        .limit(_NEWEST)
    )
    return (await session.scalars(query)).all()


def _scored_by() -> ColumnElement[str]:
    """The metric of a study, also of one from before there was a choice."""
    return func.coalesce(Study.spec["search"]["metric"].astext, Metric.ACCURACY.value)
