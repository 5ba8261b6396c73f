"""A lower bound on epsilon from one run in which each canary took part by the toss of a coin.

References:
    Steinke, Nasr and Jagielski (2023), "Privacy auditing with one (1) training run", arXiv:2305.08846,
    theorem 5.2 and appendix D.
"""

import numpy as np
from scipy import optimize, special, stats

_MOST_EPSILON = 100.0


def p_value(
    *, epsilon: float, delta: float, num_canaries: int, num_guesses: int, num_correct: int
) -> float:
    r"""How often guesses are as good as these if the mechanism is (epsilon, delta)-DP: at most.

    With :math:`r` guesses among :math:`m` canaries, of which :math:`v` are right,

    .. math::

        \Pr[V \ge v] \le \beta + 2 m \delta \max_{1 \le i \le v} \frac{1}{i} \Pr[v - i \le W < v],
        \qquad \beta = \Pr[W \ge v], \quad
        W \sim \operatorname{Bin}\big(r, \tfrac{e^\varepsilon}{1 + e^\varepsilon}\big).

    Args:
        epsilon: >= 0, nats.
        delta: in [0, 1].
        num_canaries: m, each in the data with probability 1/2, independently.
        num_guesses: r; the others are abstained from.
        num_correct: v.

    Returns:
        In [0, 1]; non-decreasing in epsilon and in delta.

    Example:
        >>> guesses = {"num_canaries": 1000, "num_guesses": 100, "num_correct": 100}
        >>> p_value(epsilon=0.0, delta=0.0, **guesses) == 2.0**-100
        True
        >>> round(p_value(epsilon=5.0, delta=0.0, **guesses), 2)
        0.51
    """
    law = stats.binom(num_guesses, special.expit(epsilon))
    below = law.pmf(np.arange(num_correct - 1, -1, -1))
    steepest = max((below.cumsum() / np.arange(1, num_correct + 1)).max(initial=0.0), 0.0)
    beta = float(law.sf(num_correct - 1))
    return min(1.0, beta + 2 * num_canaries * delta * float(steepest))


def epsilon_lower_bound(
    *, level: float, delta: float, num_canaries: int, num_guesses: int, num_correct: int
) -> float:
    """The largest epsilon that such guesses refute at ``level``; 0 where they refute none."""

    def excess(epsilon: float) -> float:
        found = p_value(
            epsilon=epsilon,
            delta=delta,
            num_canaries=num_canaries,
            num_guesses=num_guesses,
            num_correct=num_correct,
        )
        return found - level

    if excess(0.0) >= 0:
        return 0.0
    return float(optimize.brentq(excess, 0.0, _MOST_EPSILON))


def num_correct(scores: np.ndarray, is_in: np.ndarray, num_guesses: int) -> int:
    """Right guesses when the highest scores are called in and as many of the lowest out.

    Args:
        scores: [m], higher where a canary seems to have taken part.
        is_in: [m], whether it did.
        num_guesses: even, at most m.
    """
    order = np.argsort(scores)
    each = num_guesses // 2
    return int(is_in[order[-each:]].sum() + (~is_in[order[:each]]).sum())
