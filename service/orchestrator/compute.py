"""What a study has used of its compute budget."""

from sqlalchemy import Float, cast, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Attempt, Run, Study, Trial

_HOUR_SECONDS = 3600.0


async def is_used_up(session: AsyncSession, study: Study) -> bool:
    """Whether ``budget.gpu_hours`` is spent; False where none was set."""
    limit = study.spec["budget"]["gpu_hours"]
    return limit is not None and await device_hours(session, study) >= limit


async def device_hours(session: AsyncSession, study: Study) -> float:
    """Hours of one device: a GPU where the cluster has them, else a core.

    A trial counts the time of its rungs; a private run counts each attempt with all its ranks.
    """
    score = func.jsonb_array_elements(Trial.scores).table_valued("value").lateral()
    simulated = select(func.coalesce(func.sum(cast(score.c.value["seconds"].astext, Float)), 0.0))
    trained = (
        select(
            func.coalesce(
                func.sum(
                    func.extract(
                        "epoch",
                        func.coalesce(Attempt.finished_at, func.now()) - Attempt.submitted_at,
                    )
                ),
                0.0,
            )
        )
        .join(Run, Run.id == Attempt.run_id)
        .where(Run.study_id == study.id, Run.kind == "private")
    )
    trial_seconds = await session.scalar(
        simulated.select_from(Trial)
        .join(score, onclause=func.true())
        .where(Trial.study_id == study.id)
    )
    run_seconds = await session.scalar(trained)
    ranks = int(study.spec["train"]["workers"])
    return (float(trial_seconds or 0) + ranks * float(run_seconds or 0)) / _HOUR_SECONDS
