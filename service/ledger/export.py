"""A ledger for somebody else's eyes: all of it, signed."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.clock import clock
from service.ledger import repository
from service.ledger.schemas import EXPORT_SCHEMA


async def document(session: AsyncSession, scope_id: str, dataset: str) -> dict[str, Any]:
    """The scope, its whole journal, and what it folds to; unsigned."""
    parts: dict[str, BaseModel | Sequence[BaseModel]] = {
        "scope": await repository.scope(session, scope_id),
        "head": await repository.head(session, scope_id),
        "caps": await repository.caps(session, scope_id),
        "reservations": await repository.reservations(session, scope_id),
        "entries": await repository.entries(session, scope_id),
        "evaluations": await repository.evaluations(session, scope_id),
    }
    beside = await repository.beside(session, scope_id)
    at = await clock(session)
    # A journal of a hundred thousand entries takes seconds: not of the loop that answers everybody.
    plain = await asyncio.to_thread(_plain, parts)
    return {
        "schema": EXPORT_SCHEMA,
        "dataset": dataset,
        "search": {"unaccounted": beside.unaccounted_searches, "note": beside.search_note},
        "baselines": {"unaccounted": beside.unaccounted_baselines, "note": beside.baseline_note},
        "restored": {"backups": beside.restored_backups, "note": beside.restored_note},
        "exported_at": at.isoformat(timespec="seconds"),
        **plain,
    }


def _plain(parts: Mapping[str, BaseModel | Sequence[BaseModel]]) -> dict[str, Any]:
    """As a reader of the JSON will have them."""
    plain = {
        name: part.model_dump(mode="json")
        if isinstance(part, BaseModel)
        else [one.model_dump(mode="json") for one in part]
        for name, part in parts.items()
    }
    return json.loads(json.dumps(plain))
