"""Epsilon of what several reservations came to, by dp-accounting alone."""

import json
from collections.abc import Iterable

from service.ledger.schemas import Scope
from service.statements.verify import epsilon_of_events


def composed(reserved: Iterable[tuple[str, int]], scope: Scope) -> float:
    """Of so many steps of each event, at the scope's delta; those of one mechanism are joined.

    Raises:
        EventError: an event cannot be priced.
        TooHardError: it takes longer than it was given.
    """
    steps: dict[str, int] = {}
    for event, count in reserved:
        alone = json.dumps({**json.loads(event), "steps": 1}, sort_keys=True)
        steps[alone] = steps.get(alone, 0) + count
    events = [{**json.loads(alone), "steps": count} for alone, count in steps.items() if count]
    if not events:
        return 0.0
    return epsilon_of_events(
        events, delta=scope.delta, neighboring_relation=scope.neighboring_relation.value
    )
