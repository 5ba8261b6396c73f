"""``/healthz`` and ``/readyz``: is the process alive, can it serve."""

import asyncio
import logging

from fastapi import APIRouter, Request
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from starlette.responses import Response

from service.access.guard import open_to_all
from service.context import ContextDep
from service.db.migrate import SchemaError, expect_schema
from service.db.session import is_read_only
from service.health.schemas import Health, Readiness
from service.problems import described, problem_response
from service.publication.published import Published, RestoredBackupError

router = APIRouter(tags=["health"])
TIMEOUT_SECONDS = 3.0
_CHANGES_NOTHING = text("UPDATE study SET version = version WHERE false")
"""A server that takes no changes refuses this one too, and is then left for the one that does."""
_log = logging.getLogger(__name__)


@router.get("/healthz", dependencies=[open_to_all()])
async def healthz() -> Health:
    """The process answers."""
    return Health()


@router.get(
    "/readyz", dependencies=[open_to_all()], response_model=Readiness, responses=described(503)
)
async def readyz(request: Request, context: ContextDep) -> Readiness | Response:
    """The database answers, is at this version's schema, and takes changes.

    ``restored_backup`` is true where the database is older than what has left the service. That is still an answer of 200,
    so that the request which settles it is let through; the service refuses all others itself.
    """
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), context.database.session() as session:
            await expect_schema(session)
            await session.execute(_CHANGES_NOTHING)
    except SchemaError as error:
        return problem_response(503, str(error))
    except (SQLAlchemyError, TimeoutError, OSError) as error:
        _log.warning("not ready: %r", error)
        is_standby = isinstance(error, DBAPIError) and is_read_only(error)
        told = "takes no changes now, as in a failover" if is_standby else "does not answer"
        return problem_response(503, f"the database {told}")
    published: Published = request.app.state.published
    try:
        await published.check(context.database, believe=False)
    except RestoredBackupError as error:
        return Readiness(restored_backup=True, detail=str(error))
    return Readiness()
