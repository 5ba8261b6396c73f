"""What a study has used of its compute budget."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.tables import Study

# Hours of one device: a GPU where the cluster has them, else a core. What each simulation had, those of the finals
# too; every rank of a private run, for as long as its attempts, as many as each had, but while they waited for a place.
# One that has not said how many counts as all that the study asks for.
_DEVICE_HOURS = """
((SELECT coalesce(sum((score ->> 'seconds')::float8 * coalesce((score ->> 'devices')::float8, 1)), 0)
  FROM trial, jsonb_array_elements(trial.scores || trial.repeats) AS score
  WHERE trial.study_id = study.id)
 + (SELECT coalesce(sum(coalesce(attempt.ranks, (study.spec -> 'train' -> 'workers')::bigint) * greatest(0,
      extract(epoch FROM coalesce(attempt.finished_at, now()) - attempt.submitted_at)::float8 - attempt.waited_seconds)), 0)
  FROM attempt JOIN run ON run.id = attempt.run_id
  WHERE run.study_id = study.id AND run.kind = 'private')
) / 3600
"""
IS_USED_UP = f"""
CASE WHEN study.spec -> 'budget' ->> 'gpu_hours' IS NULL THEN false
ELSE {_DEVICE_HOURS} >= (study.spec -> 'budget' -> 'gpu_hours')::float8 END
"""
"""Of a row of the study's table: whether ``budget.gpu_hours`` is spent; false where none was set."""


async def is_used_up(session: AsyncSession, study: Study) -> bool:
    """Whether ``budget.gpu_hours`` is spent; False where none was set."""
    return bool(await session.scalar(_USED_UP, {"study": study.id}))


_USED_UP = text(f"SELECT {IS_USED_UP} FROM study WHERE id = :study")  # noqa: S608 - our own words
