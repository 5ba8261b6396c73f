"""How a private run is cut into segments, and how much slack is reserved for re-executed ones.

A segment is what lies between two checkpoints and what the ledger charges at once. A crash costs the
segment that was begun, and the one before it while its checkpoint is still on its way to storage: a slack
of two lets a run crash once at the worst moment, twice at any other, and still end with all its steps.
"""

import math
from dataclasses import dataclass

from tan_core import _validate
from tan_core.mechanism import Mechanism

SEGMENTS_PER_RUN = 50
SLACK_SEGMENTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Steps between two checkpoints, and steps reserved on top of the plan."""

    segment_steps: int
    slack_steps: int


def segment_rule(steps: int) -> Segments:
    """Segments of 2 % of the run, and two of them as slack.

    Example:
        >>> segment_rule(2500)
        Segments(segment_steps=50, slack_steps=100)
    """
    _validate.positive_integer(steps=steps)
    segment = max(1, math.ceil(steps / SEGMENTS_PER_RUN))
    return Segments(segment_steps=segment, slack_steps=SLACK_SEGMENTS * segment)


def reserved_mechanism(mechanism: Mechanism) -> Mechanism:
    """What the ledger reserves for a run: its steps and the slack.

    Example:
        >>> run = Mechanism(sampling_rate=0.1, noise_multiplier=2.0, clip_norm=1.0, steps=2500)
        >>> reserved_mechanism(run).steps
        2600
    """
    _validate.instance(Mechanism, mechanism=mechanism)
    return mechanism.with_steps(mechanism.steps + segment_rule(mechanism.steps).slack_steps)
