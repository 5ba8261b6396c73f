"""Epsilon of what several reservations came to, by dp-accounting alone."""

import json
from collections.abc import Iterable

from service.ledger.schemas import Scope
from service.statements.verify import MAX_STEPS, epsilon_of_events


def composed(reserved: Iterable[tuple[str, int]], scope: Scope) -> float:
    """Of so many steps of each event, at the scope's delta; those of one mechanism are joined, as far as one event holds them.

    Raises:
        EventError: an event cannot be priced.
        TooHardError: it takes longer than it was given.
    """
    steps: dict[str, int] = {}
    for event, count in reserved:
        alone = json.dumps({**json.loads(event), "steps": 1}, sort_keys=True)
        steps[alone] = steps.get(alone, 0) + count
    events = [
        {**json.loads(alone), "steps": part}
        for alone, count in steps.items()
        for part in (*[MAX_STEPS] * (count // MAX_STEPS), count % MAX_STEPS)
        if part
    ]
    if not events:
        return 0.0
    return epsilon_of_events(
        events, delta=scope.delta, neighboring_relation=scope.neighboring_relation.value
    )
