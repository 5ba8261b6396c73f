"""What a study has used of its compute budget."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study

# One device per simulation, those of the finals too; every rank of a private run, for as long as its attempts.
_DEVICE_HOURS = text("""
    SELECT (
        (SELECT coalesce(sum((score ->> 'seconds')::float8), 0)
         FROM trial, jsonb_array_elements(trial.scores || trial.repeats) AS score
         WHERE trial.study_id = :study)
        + :ranks *
        (SELECT coalesce(sum(greatest(0, extract(epoch FROM
             coalesce(attempt.finished_at, now()) - attempt.submitted_at)::float8)), 0)
         FROM attempt JOIN run ON run.id = attempt.run_id
         WHERE run.study_id = :study AND run.kind = 'private')
    ) / 3600
""")


async def is_used_up(session: AsyncSession, study: Study) -> bool:
    """Whether ``budget.gpu_hours`` is spent; False where none was set."""
    limit = study.spec["budget"]["gpu_hours"]
    return limit is not None and await device_hours(session, study) >= limit


async def device_hours(session: AsyncSession, study: Study) -> float:
    """Hours of one device: a GPU where the cluster has them, else a core."""
    ranks = float(study.spec["train"]["workers"])
    used = await session.scalar(_DEVICE_HOURS, {"study": study.id, "ranks": ranks})
    return float(used or 0.0)
