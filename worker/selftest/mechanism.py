"""What was executed against what was priced: noise, clipping norm, expected batch and steps of one run."""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from tan_core.errors import ParameterError
from worker.selftest.finding import Finding, by_chance, for_certain
from worker.selftest.rig import Lab, weights
from worker.selftest.sampler import MECHANISM, STEPS, TELLTALE
from worker.selftest.telltale import Reader, from_zero

_RANKS = 2
_SEGMENT = 90
"""Steps charged at once; the last segment is shorter."""
_SLIGHTLY_LESS, _SLIGHTLY_MORE = 0.98, 1.002


def executed_as_priced(lab: Lab) -> Iterator[Finding]:
    """A run of two ranks, charged in segments: every step has the noise, divisor and bound of its price."""
    setup = TELLTALE.setup(MECHANISM, segment_steps=_SEGMENT)
    reader = Reader(TELLTALE, setup)
    attempt = lab.run(setup, reader, workers=_RANKS, start=from_zero)
    sigma, added, drawn = MECHANISM.noise_multiplier, reader.added, reader.is_drawn
    noise = reader.noise / sigma
    yield by_chance(
        "mechanism.noise",
        "a step that draws a batch adds noise of sigma C, whatever the batch",
        f"variance over (sigma C)^2, {noise.size:,} values",
        float((noise**2).mean()),
        law=stats.chi2(noise.size, scale=1 / noise.size),
        fault=f"noise of {_SLIGHTLY_LESS} sigma C",
        law_of_fault=stats.chi2(noise.size, scale=_SLIGHTLY_LESS**2 / noise.size),
    )
    sizes = drawn.sum(1)
    offsets = np.where(drawn, added - 1, 0.0).sum(1) / np.sqrt(np.maximum(sizes, 1))
    yield by_chance(
        "mechanism.contribution",
        f"a clipped record adds C, once over {_RANKS} ranks, divided by the expected batch",
        f"chi-square of the mean contribution of {len(sizes):,} steps",
        float((offsets**2).sum() / sigma**2),
        law=stats.chi2(len(sizes)),
        fault="a clipping norm 0.2 % larger",
        law_of_fault=stats.ncx2(
            len(sizes),
            len(sizes) * setup.expected_batch_size * (_SLIGHTLY_MORE - 1) ** 2 / sigma**2,
        ),
    )
    yield for_certain(
        "mechanism.steps",
        f"{STEPS:,} steps are taken, and one more is refused",
        "steps that moved the weights",
        int((reader.noise != 0).any(1).sum()) + _further_steps(lab),
        low=STEPS,
        high=STEPS,
        fault="a step too many, or too few",
    )
    yield for_certain(
        "mechanism.charge",
        "every step is charged before it is taken",
        "steps taken less steps charged",
        len(reader.noise) - attempt.charged,
        high=0,
        fault="a step that is not charged",
    )


def _further_steps(lab: Lab) -> int:
    """1 if a trainer takes a step beyond those of its mechanism."""
    setup = TELLTALE.setup(MECHANISM.with_steps(1))
    trainer = lab.run(setup, lambda _: None, start=from_zero).trainer
    before = weights(trainer)
    try:
        trainer.step()
    except ParameterError:
        return 0
    return int((weights(trainer) != before).any())
