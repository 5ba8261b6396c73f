"""Rows that a test needs many of, as copies of one that the service made."""

import json
from typing import Any

from sqlalchemy import text

from service.db.session import Database

_CLONE = text(
    "INSERT INTO study SELECT (jsonb_populate_record(study, CAST(:changes AS jsonb))).* "
    "FROM study WHERE id = :id"
)


async def clone_study(database: Database, study_id: str, **changes: Any) -> None:
    """Store a copy of a study, of another id at least."""
    async with database.session() as session:
        await session.execute(_CLONE, {"id": study_id, "changes": json.dumps(changes)})
