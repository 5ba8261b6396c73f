"""``GET /studies/{id}/trials``."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.context import ContextDep
from service.errors import InvalidInputError, NotFoundError
from service.problems import described
from service.studies import repository as studies
from service.trials import repository
from service.trials.schemas import TrialPage
from service.trials.service import view

router = APIRouter(tags=["studies"])


@router.get("/studies/{study_id}/trials", responses=described(404, 422))
async def list_trials(
    study_id: str,
    context: ContextDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    cursor: str | None = None,
) -> TrialPage:
    """The study's trials in order of number."""
    after = _number(cursor)
    async with context.database.session() as session:
        if await studies.find(session, study_id) is None:
            raise NotFoundError(f"there is no study {study_id!r}")
        trials = await repository.page(session, study_id, after=after, limit=limit + 1)
    return TrialPage(
        items=[view(trial) for trial in trials[:limit]],
        next_cursor=str(trials[limit - 1].number) if len(trials) > limit else None,
    )


def _number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise InvalidInputError.at(
            "cursor", "not a cursor of this list: pass next_cursor of a page", cursor[:200]
        )
    return int(cursor)
