"""The noise of a step: how much there is when nobody was drawn, on any number of ranks."""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from tan_core.mechanism import Mechanism
from worker.selftest.finding import FALSE_ALARM, Finding, by_chance
from worker.selftest.rig import Lab
from worker.selftest.telltale import Reader, Telltale, from_zero

_MECHANISM = Mechanism(sampling_rate=1e-12, noise_multiplier=1.7, clip_norm=0.3, steps=5)
"""All draws are empty: with four records the chance of another one is 2e-11."""
_TELLTALE = Telltale(num_examples=4, num_blanks=50_000)
_SLIGHTLY_LESS = 0.98


def noise_of_empty_draws(lab: Lab) -> Iterator[Finding]:
    """Steps that drew nobody move the weights by N(0, (sigma C)^2), added once over all ranks."""
    for workers, name in ((1, "noise.one_rank"), (2, "noise.two_ranks")):
        values = _noise(lab, workers)
        size = len(values)
        yield by_chance(
            name,
            "a step that draws nobody adds noise of sigma C, once over all ranks"
            if workers > 1
            else "a step that draws nobody adds noise of sigma C",
            f"variance over (sigma C)^2, {size:,} values on {workers} rank{'s'[: workers - 1]}",
            float((values**2).mean()),
            law=stats.chi2(size, scale=1 / size),
            fault=f"noise of {_SLIGHTLY_LESS} sigma C",
            law_of_fault=stats.chi2(size, scale=_SLIGHTLY_LESS**2 / size),
        )
        if workers == 1:
            yield _normality(values)


def _noise(lab: Lab, workers: int) -> np.ndarray:
    setup = _TELLTALE.setup(_MECHANISM)
    reader = Reader(_TELLTALE, setup)
    lab.run(setup, reader, workers=workers, start=from_zero)
    return reader.noise.ravel() / _MECHANISM.noise_multiplier


def _normality(values: np.ndarray) -> Finding:
    """Kolmogorov and Smirnov's distance; a uniform law of the same variance is 0.057 away."""
    law = stats.kstwo(len(values))
    found = stats.kstest(values, "norm")
    high = float(law.isf(FALSE_ALARM))
    uniform = stats.uniform(-(3**0.5), 2 * 3**0.5)
    grid = np.linspace(-3, 3, 1001)
    apart = float(np.abs(uniform.cdf(grid) - stats.norm.cdf(grid)).max())
    return Finding(
        check="noise.normal",
        claim="the noise is normal",
        statistic=f"Kolmogorov-Smirnov distance, {len(values):,} values",
        value=float(found.statistic),
        low=None,
        high=high,
        p_value=float(found.pvalue),
        false_alarm=FALSE_ALARM,
        fault="uniform noise of the same variance",
        # Found is at least what lies between the laws less the distance under the null.
        power=float(law.cdf(apart - high)),
    )
