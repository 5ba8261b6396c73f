"""The noise of a step: how much there is when nobody was drawn, and how fine it is, on any number of ranks."""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from tan_core.engine import Trainer
from tan_core.mechanism import Mechanism
from tan_core.spec.models import LinearModel
from worker.selftest.finding import FALSE_ALARM, Finding, by_chance
from worker.selftest.rig import Lab, Setup, weights
from worker.selftest.telltale import Reader, Telltale, from_zero

_MECHANISM = Mechanism(sampling_rate=1e-12, noise_multiplier=1.7, clip_norm=0.3, steps=5)
"""All draws are empty: with four records the chance of another one is 2e-11."""
_TELLTALE = Telltale(num_examples=4, num_blanks=50_000)
_SLIGHTLY_LESS = 0.98

_FEATURES = 2**14
_ALIKE, _FEATURE = 4, 2.0**-8
"""Records of one label with the same features: too short to be clipped, each adds half a feature to every number."""
_SUM = _ALIKE * _FEATURE / 2
_FINE = Mechanism(sampling_rate=1.0, noise_multiplier=2.0**-6, clip_norm=1.0, steps=1)
_EXTRA_BITS = 4


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


def digits_of_noise(lab: Lab) -> Iterator[Finding]:
    """What a step tells is not such that only noise of as few digits as its own leads there from the sum."""
    for workers, name in ((1, "noise.low_bits.one_rank"), (2, "noise.low_bits.two_ranks")):
        told = _told(lab, workers)
        noise = told - _SUM
        # So far below its noise a number is told in some bits more than noise of its own type would have.
        small = noise[np.abs(told) < np.abs(noise) / 2**_EXTRA_BITS]
        value = int((small == small.astype(np.float32)).sum())
        law = stats.binom(len(small), 2.0**-_EXTRA_BITS)
        high = float(law.isf(FALSE_ALARM))
        if len(small) <= high:
            raise ValueError(f"{len(small)} numbers near 0 are too few to tell anything by")
        yield Finding(
            check=name,
            claim="noise has more digits than the noisy sum is told in",
            statistic=f"of {len(small):,} numbers near 0 those that noise in float32 leads to, on {workers} rank{'s'[: workers - 1]}",
            value=value,
            low=None,
            high=high,
            p_value=float(law.sf(value - 1)),
            false_alarm=FALSE_ALARM,
            fault="noise in float32",
            power=1.0,
        )


def _told(lab: Lab, workers: int) -> np.ndarray:
    """Twice 16,384 noisy sums, exactly: a step of length 1 from zero, over an expected batch that is a power of two."""
    setup = Setup(
        mechanism=_FINE,
        model=LinearModel(),
        inputs=np.full((_ALIKE, _FEATURES), _FEATURE, np.float32),
        labels=np.zeros(_ALIKE, np.int64),
        num_classes=2,
        trainer={"learning_rate": 1.0},
    )
    seen: list[np.ndarray] = []

    def look(trainer: Trainer) -> None:
        seen.append(weights(trainer).double().numpy())

    lab.run(setup, look, workers=workers, start=from_zero)
    of_label, of_other = np.split(seen[-1][:-2] * setup.expected_batch_size, 2)
    # The sum is below zero for their label and above it for the other; a step goes the other way.
    return np.concatenate([of_label, -of_other])
