"""A ledger for somebody else's eyes: all of it, signed."""

import json
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from service.db.clock import clock
from service.ledger import repository
from service.ledger.schemas import EXPORT_SCHEMA


async def document(session: AsyncSession, scope_id: str, dataset: str) -> dict[str, Any]:
    """The scope, its whole journal, and what it folds to; unsigned."""
    evaluations = await repository.evaluations(session, scope_id)
    parts = {
        "scope": await repository.scope(session, scope_id),
        "head": await repository.head(session, scope_id),
        "caps": await repository.caps(session, scope_id),
        "reservations": await repository.reservations(session, scope_id),
        "entries": await repository.entries(session, scope_id),
        "evaluations": list(evaluations),
    }
    plain = {
        name: [one.model_dump(mode="json") for one in part]
        if isinstance(part, list)
        else part.model_dump(mode="json")
        for name, part in parts.items()
    }
    beside = await repository.beside(session, scope_id)
    return {
        "schema": EXPORT_SCHEMA,
        "dataset": dataset,
        "search": {"unaccounted": beside.unaccounted_searches, "note": beside.search_note},
        "baselines": {"unaccounted": beside.unaccounted_baselines, "note": beside.baseline_note},
        "restored": {"backups": beside.restored_backups, "note": beside.restored_note},
        "exported_at": (await clock(session)).isoformat(timespec="seconds"),
        **json.loads(json.dumps(plain)),
    }
