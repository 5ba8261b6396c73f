"""A ledger with one scope."""

from collections.abc import Awaitable, Callable

import pytest

from service.db.session import Database
from service.ledger.service import Ledger
from tan_core.mechanism import Mechanism, NeighboringRelation

SCOPE = "dataset:tiny"
OpenScope = Callable[..., Awaitable[str]]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def mechanism() -> Mechanism:
    """100 steps that cost an epsilon of about 0.6 at delta 1e-5."""
    return Mechanism(sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=100)


@pytest.fixture
async def scope(database: Database, ledger: Ledger) -> str:
    """A scope with room for a few such mechanisms."""
    async with database.session() as session:
        await ledger.open_scope(
            session,
            scope_id=SCOPE,
            unit="record",
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            epsilon=1.0,
            delta=1e-5,
            actor="test",
        )
    return SCOPE
