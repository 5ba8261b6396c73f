"""Whether the trials of a charged search run as the very mechanisms that are held for them."""

import json
from typing import Any

from service.ledger.schemas import Reservation
from tan_core.mechanism import Mechanism
from tan_core.planner.charged import score_mechanism


def differs(charged: dict[str, Any], *, trials: Reservation, scores: Reservation) -> str | None:
    """What is wrong; None where a trial and its score are what is reserved.

    Args:
        charged: of the search's assignment: what its workers are told to run.
        trials: held for the steps of all trials.
        scores: held for their scores.
    """
    trial = Mechanism.from_json(charged["mechanism"]["event"])
    score = score_mechanism(
        charged["score_noise_multiplier"],
        count=1,
        neighboring_relation=trial.neighboring_relation,
    )
    for held, told, what in ((trials, trial, "trial"), (scores, score, "score")):
        if Mechanism.from_json(json.loads(held.event)).with_steps(told.steps) != told:
            return f"a {what} of study {held.study_id!r} is another mechanism than the ledger holds"
    return None
