"""``GET /studies/{id}/trials``."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.access.guard import needs_study
from service.auth.scopes import Scope
from service.context import ContextDep
from service.errors import NotFoundError
from service.problems import described
from service.studies import repository as studies
from service.trials import repository
from service.trials.schemas import TrialPage, TrialQuery
from service.trials.service import view

router = APIRouter(tags=["studies"])


@router.get(
    "/studies/{study_id}/trials",
    dependencies=[needs_study(Scope.READ)],
    responses=described(404, 422),
)
async def list_trials(
    study_id: str, context: ContextDep, query: Annotated[TrialQuery, Query()]
) -> TrialPage:
    """The study's trials, in order of number unless ``sort`` says otherwise."""
    async with context.database.session() as session:
        if await studies.find(session, study_id) is None:
            raise NotFoundError(f"there is no study {study_id!r}")
        trials, next_cursor = await repository.page(
            session, study_id, query.listing(), limit=query.limit, cursor=query.cursor
        )
    return TrialPage(items=[view(trial) for trial in trials], next_cursor=next_cursor)
