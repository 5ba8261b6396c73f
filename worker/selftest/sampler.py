"""The draws of a run, as its weights tell them: rate, members, sizes, pairs, and one step after another."""

# Shape legend: S = steps, N = records.
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tan_core.mechanism import Mechanism, NeighboringRelation, Sampling
from worker.selftest.finding import Finding, by_chance, for_certain
from worker.selftest.rig import Lab
from worker.selftest.telltale import Reader, Telltale, from_zero

STEPS = 1000
TELLTALE = Telltale(num_examples=200, num_blanks=100)
MECHANISM = Mechanism(sampling_rate=0.4, noise_multiplier=0.01, clip_norm=0.3, steps=STEPS)
"""N / B = 2.5: what rounds it to whole batches samples at 1/3. Noise far below a record: all can be read."""
_CAP = 80
CAPPED = replace(
    MECHANISM,
    sampling=Sampling.TRUNCATED_POISSON,
    neighboring_relation=NeighboringRelation.ZERO_OUT,
    num_examples=TELLTALE.num_examples,
    max_batch_size=_CAP,
)
"""Cut at the mean: half of the batches are."""


def poisson_draws(lab: Lab) -> Iterator[Finding]:
    """Each record is in each batch with probability q, whoever else is."""
    reader = read(lab, MECHANISM)
    drawn = reader.is_drawn.astype(np.float64)
    steps, size = drawn.shape
    q = MECHANISM.sampling_rate
    variance = q * (1 - q)
    batches_per_epoch = int(1 / q)
    yield by_chance(
        "sampler.rate",
        f"records are drawn with the rate that is priced, q = {q}",
        f"records drawn in {steps:,} steps, of {drawn.size:,}",
        drawn.sum(),
        law=stats.binom(drawn.size, q),
        fault="a rate of 1 / ceil(N / B)",
        law_of_fault=stats.binom(drawn.size, 1 / np.ceil(1 / q)),
    )
    yield by_chance(
        "sampler.members",
        "each record's own count is binomial",
        f"chi-square of {size} counts",
        float(((drawn.sum(0) - steps * q) ** 2).sum() / (steps * variance)),
        law=stats.chi2(size),
        fault="shuffled epochs: equal counts",
        law_of_fault=stats.chi2(size, scale=(1 - batches_per_epoch * q) / (1 - q)),
    )
    yield by_chance(
        "sampler.sizes",
        "the size of each batch is binomial",
        f"chi-square of {steps} sizes",
        float(((drawn.sum(1) - size * q) ** 2).sum() / (size * variance)),
        law=stats.chi2(steps),
        fault="sizes that vary a fifth less",
        law_of_fault=stats.chi2(steps, scale=0.8**2),
    )
    yield _pairs(drawn)
    centred = drawn - q
    products = (centred[1:] * centred[:-1]).sum()
    count = centred[1:].size
    in_one_epoch = (batches_per_epoch - 1) / batches_per_epoch
    yield by_chance(
        "sampler.steps",
        "a draw tells nothing about the next one",
        f"correlation of successive draws, in standard deviations, {count:,} pairs",
        float(products / (variance * count**0.5)),
        law=stats.norm(),
        fault="shuffled epochs: nobody twice",
        law_of_fault=stats.norm(-in_one_epoch * q / (1 - q) * count**0.5),
    )


def _pairs(drawn: NDArray[np.float64]) -> Finding:
    """How often two records were in one batch is binomial with q^2, for each two of them."""
    steps, size = drawn.shape
    q = MECHANISM.sampling_rate
    together = (drawn.T @ drawn)[np.triu_indices(size, 1)]
    law = stats.binom(steps, q**2)
    rarest = np.minimum(law.cdf(together), law.sf(together - 1)).argmin()
    return by_chance(
        "sampler.pairs",
        "two records are drawn independently of each other",
        f"batches with both of two records, the most unlikely of {len(together):,} pairs",
        float(together[rarest]),
        law=law,
        repeats=len(together),
        fault="two records always drawn together",
        law_of_fault=stats.binom(steps, q),
    )


def capped_draws(lab: Lab) -> Iterator[Finding]:
    """Truncated Poisson: a batch above the cap keeps any part of it with the same probability."""
    drawn = read(lab, CAPPED).is_drawn.astype(np.float64)
    steps, size = drawn.shape
    q = CAPPED.sampling_rate
    sizes = drawn.sum(1)
    law = stats.binom(size, q)
    yield for_certain(
        "sampler.cap.size",
        f"no batch is above the cap of {_CAP}",
        f"largest of {steps:,} batches",
        float(sizes.max()),
        high=_CAP,
        fault="no cap",
    )
    yield by_chance(
        "sampler.cap.full",
        "batches are cut where their draw is above the cap, and only there",
        f"full batches, of {steps:,}",
        float((sizes == _CAP).sum()),
        law=stats.binom(steps, law.sf(_CAP - 1)),
        fault="a draw at half the rate",
        law_of_fault=stats.binom(steps, stats.binom(size, q / 2).sf(_CAP - 1)),
    )
    kept = np.minimum(np.arange(size + 1), _CAP)
    weights = law.pmf(np.arange(size + 1))
    mean = float((weights * kept).sum() / size)
    both = float((weights * kept * (kept - 1)).sum() / (size * (size - 1)))
    # Counts are exchangeable: about their own mean they vary as independent ones of this variance.
    variance = steps * (mean - both)
    counts = drawn.sum(0)
    kept_first = q * np.asarray(stats.binom(np.arange(size), q).cdf(_CAP - 1))
    yield by_chance(
        "sampler.cap.members",
        "who is kept of a batch that is cut is left to chance",
        f"chi-square of {size} counts about their mean",
        float(((counts - counts.mean()) ** 2).sum() / variance),
        law=stats.chi2(size - 1),
        fault="a cut that keeps the first of the draw",
        law_of_fault=stats.ncx2(
            size - 1, steps**2 * ((kept_first - kept_first.mean()) ** 2).sum() / variance
        ),
    )


def read(lab: Lab, mechanism: Mechanism) -> Reader:
    """A whole run of the mechanism on the records that tell."""
    setup = TELLTALE.setup(mechanism)
    reader = Reader(TELLTALE, setup)
    lab.run(setup, reader, start=from_zero)
    return reader
