"""The price of a private selection against what the selection really reveals, computed exactly.

A mechanism here has finitely many outcomes, one for each score. The output of "draw K, run K times,
release the best" then has exact probabilities: P(best <= y) = E[F(y)^K], summed over the law of K that
scipy knows, with no formula of the library.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, special, stats

from tan_core.accounting.rdp import ORDERS, Conversion, RdpProfile
from tan_core.accounting.selection import SelectionBound, selected_epsilon, selected_rdp
from tan_core.accounting.trial_count import NegativeBinomialTrials, PoissonTrials, TrialCount

BUDGET = settings(max_examples=150, deadline=None, derandomize=True)
ROUND_OFF = 1e-12
LARGEST_EPSILON = 40.0  # nats: every delta of the pairs below is next to 0 there
MOST_TRIALS = 6000  # the laws below have less than 1e-15 beyond it

Floats = NDArray[np.float64]


@cache
def exact_masses(law: TrialCount) -> Floats:
    """P(K = 0), P(K = 1), ... by scipy, its halting probability solved from scipy's mean."""
    k = np.arange(MOST_TRIALS)
    if isinstance(law, PoissonTrials):
        return stats.poisson(law.mean).pmf(k)

    def halted(gamma: float) -> tuple[Floats, float]:
        if law.shape == 0:
            frozen = stats.logser(1 - gamma)
            return frozen.pmf(k), frozen.mean()
        frozen = stats.nbinom(law.shape, gamma)
        positive = -math.expm1(law.shape * math.log(gamma))
        return np.where(k > 0, frozen.pmf(k), 0.0) / positive, frozen.mean() / positive

    gamma = optimize.brentq(lambda g: halted(g)[1] - law.mean, 1e-3, 1 - 1e-6, xtol=1e-15)
    return halted(gamma)[0]


def hockey_stick(p: Floats, q: Floats, epsilon: float) -> float:
    """The delta of a pair at an epsilon, whichever of the two is the true dataset."""
    return max(float(np.sum(np.maximum(a - math.exp(epsilon) * b, 0))) for a, b in ((p, q), (q, p)))


@dataclass(frozen=True)
class ExactProfile:
    """The privacy profile of two distributions, by its definition."""

    p: Floats
    q: Floats

    def delta(self, epsilon: float) -> float:
        return hockey_stick(self.p, self.q, epsilon)

    def epsilon(self, delta: float) -> float:
        if self.delta(0.0) <= delta:
            return 0.0
        return float(optimize.brentq(lambda e: self.delta(e) - delta, 0.0, LARGEST_EPSILON))

    def renyi(self) -> RdpProfile:
        orders, log_p, log_q = np.array(ORDERS), np.log(self.p), np.log(self.q)
        moments = [
            special.logsumexp(np.outer(orders, a) - np.outer(orders - 1, b), axis=1)
            for a, b in ((log_p, log_q), (log_q, log_p))
        ]
        divergences = np.maximum(np.maximum(*moments) / (orders - 1), 0.0)
        return RdpProfile(orders, divergences, Conversion.IMPROVED)

    def best_of(self, law: TrialCount) -> "ExactProfile":
        """The profile of releasing the best; its first outcome is that there was no trial at all."""
        masses = exact_masses(law)
        return ExactProfile(_best(self.p, masses), _best(self.q, masses))


def _best(outcomes: Floats, masses: Floats) -> Floats:
    """The law of the best of K draws, outcomes in the order of their scores."""
    ranks_no_higher = np.concatenate([[0.0], np.minimum(np.cumsum(outcomes), 1.0)])
    ranks_no_higher[-1] = 1.0
    powers = ranks_no_higher[:, None] ** np.arange(MOST_TRIALS)
    return np.diff(powers @ masses, prepend=0.0)


laws = st.sampled_from(
    [
        *(
            NegativeBinomialTrials(mean=mean, shape=shape)
            for mean in (1.5, 4.0, 20.0)
            for shape in (0.0, 0.3, 1.0, 3.0)
        ),
        *(PoissonTrials(mean=mean) for mean in (1.0, 4.0, 20.0)),
    ]
)
deltas = st.floats(-9, -1).map(math.exp)
profile_bounds = st.sampled_from([SelectionBound.PROFILE, SelectionBound.SHARP_PROFILE])


@st.composite
def pairs(draw: st.DrawFn) -> ExactProfile:
    """Two distributions over a few scores, the higher ones rare: there selection moves most."""
    size = draw(st.integers(1, 4))
    rare = st.lists(st.floats(-10, 0), min_size=size, max_size=size)
    log_p = np.array(draw(rare))
    log_q = log_p + np.array(draw(st.lists(st.floats(-8, 8), min_size=size, max_size=size)))
    p, q = (np.concatenate([[1.0], np.exp(logs)]) for logs in (log_p, log_q))
    return ExactProfile(p / p.sum(), q / q.sum())


def gaussians(mu: float) -> ExactProfile:
    """Two normal distributions of distance mu, on a grid of scores."""
    edges = np.linspace(-7, 7 + mu, 300)
    cells = [np.diff(stats.norm.cdf(edges, loc=at)) + 1e-300 for at in (0.0, mu)]
    return ExactProfile(*(cell / cell.sum() for cell in cells))


class TestSelectedEpsilon:
    @BUDGET
    @given(pair=pairs(), law=laws, delta=deltas, bound=profile_bounds)
    def test_the_best_of_a_random_number_reveals_no_more_than_its_price(
        self, pair: ExactProfile, law: TrialCount, delta: float, bound: SelectionBound
    ) -> None:
        epsilon = selected_epsilon(pair, law, delta=delta, bound=bound)

        assert pair.best_of(law).delta(epsilon) <= delta + ROUND_OFF

    @BUDGET
    @given(pair=pairs(), law=laws, delta=deltas)
    def test_the_renyi_bound_holds_too(
        self, pair: ExactProfile, law: TrialCount, delta: float
    ) -> None:
        epsilon = selected_rdp(pair.renyi(), law).epsilon(delta)

        assert pair.best_of(law).delta(epsilon) <= delta + ROUND_OFF

    @BUDGET
    @given(pair=pairs(), law=laws, delta=deltas)
    def test_the_sharp_bound_never_exceeds_the_published_one_nor_undercuts_a_single_trial(
        self, pair: ExactProfile, law: TrialCount, delta: float
    ) -> None:
        published = selected_epsilon(pair, law, delta=delta, bound=SelectionBound.PROFILE)
        sharp = selected_epsilon(pair, law, delta=delta, bound=SelectionBound.SHARP_PROFILE)

        assert pair.epsilon(delta) - 1e-9 <= sharp <= published + 1e-9

    @BUDGET
    @given(pair=pairs(), shape=st.floats(0, 5), mean=st.floats(1, 50), more=st.floats(1, 3))
    def test_more_trials_never_cost_less(
        self, pair: ExactProfile, shape: float, mean: float, more: float
    ) -> None:
        def epsilon(expected: float) -> float:
            law = NegativeBinomialTrials(mean=expected, shape=shape)
            return selected_epsilon(pair, law, delta=1e-3, bound=SelectionBound.SHARP_PROFILE)

        assert epsilon(mean) <= epsilon(mean * more) + 1e-6

    @BUDGET
    @given(pair=pairs(), mean=st.floats(1, 20), e1=st.floats(0, 5))
    def test_no_exponent_improves_the_poisson_term(
        self, pair: ExactProfile, mean: float, e1: float
    ) -> None:
        """Koskela, Redberg and Wang (2024): m (e^e1 - 1) + m delta(e1), for any e1."""
        published = mean * math.expm1(e1) + mean * pair.delta(e1)

        assert mean * pair.delta(0.0) <= published + 1e-9


class TestTightness:
    @given(
        law=st.sampled_from(
            [NegativeBinomialTrials(mean=m, shape=h) for m in (4.0, 20.0) for h in (0.0, 1.0)]
        ),
        mu=st.sampled_from([0.3, 1.0]),
    )
    @settings(deadline=None, derandomize=True, max_examples=8)
    def test_the_sharp_bound_is_within_a_few_times_of_the_truth(
        self, law: TrialCount, mu: float
    ) -> None:
        """A bound that is violated by nothing could also be far too high."""
        pair = gaussians(mu)
        truth = pair.best_of(law).epsilon(1e-4)

        sharp = selected_epsilon(pair, law, delta=1e-4, bound=SelectionBound.SHARP_PROFILE)

        assert truth <= sharp <= 3 * truth
