"""Canaries: what whole runs tell about who took part, against what their price allows."""

# Shape legend: M = canaries.
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tan_core.accounting import calibrate_noise_multiplier, price
from tan_core.mechanism import Mechanism
from worker.selftest import one_run
from worker.selftest.finding import FALSE_ALARM, Finding, by_chance
from worker.selftest.rig import Lab, weights
from worker.selftest.telltale import Telltale, from_zero

_NUM_CANARIES: Final = 2000
_NUM_GUESSES: Final = 200
_RATE, _STEPS, _CLIP_NORM = 0.5, 50, 0.3
_EPSILON, _DELTA = 1.5, 1e-8
_MORE: Final = 1.1
_WEAKER: Final = 0.1
_POWER_RUNS: Final = 200
_CANARIES: Final = Telltale(num_examples=_NUM_CANARIES, num_blanks=0)

Floats = NDArray[np.float64]


def canary_shift(lab: Lab) -> Iterator[Finding]:
    """Over a whole run, who took part is moved by q S C and nobody else, under noise of S steps."""
    mechanism = Mechanism(
        sampling_rate=_RATE, noise_multiplier=1.0, clip_norm=_CLIP_NORM, steps=_STEPS
    )
    scores_M, is_in_M = _scores(lab, mechanism)
    inside, outside = scores_M[is_in_M], scores_M[~is_in_M]
    spread = _spread(mechanism)
    deviation = (spread[True] ** 2 / len(inside) + spread[False] ** 2 / len(outside)) ** 0.5 / (
        _RATE * _STEPS
    )
    yield by_chance(
        "canaries.shift",
        f"{_STEPS} steps move who took part by q S C in the mean, and nobody else",
        f"mean shift of {len(inside)} canaries against {len(outside)} others, over q S C",
        float(inside.mean() - outside.mean()) / (_RATE * _STEPS),
        law=stats.norm(1, deviation),
        fault="a shift 10 % larger",
        law_of_fault=stats.norm(_MORE, deviation),
    )
    yield by_chance(
        "canaries.noise",
        f"the noise of {_STEPS} steps adds up as independent noise does",
        f"variance over S (sigma C)^2, of {len(outside)} canaries that took no part",
        float((outside**2).mean() / spread[False] ** 2),
        law=stats.chi2(len(outside), scale=1 / len(outside)),
        fault="one noise in all steps",
        law_of_fault=stats.chi2(len(outside), scale=_STEPS / len(outside)),
    )


def one_run_audit(lab: Lab) -> Iterator[Finding]:
    """The bound on epsilon that one run proves is not above the epsilon that is charged for it."""
    mechanism = Mechanism(
        sampling_rate=_RATE,
        noise_multiplier=calibrate_noise_multiplier(
            sampling_rate=_RATE, steps=_STEPS, epsilon=_EPSILON, delta=_DELTA
        ),
        clip_norm=_CLIP_NORM,
        steps=_STEPS,
    )
    epsilon = price([mechanism], delta=_DELTA).epsilon
    right = one_run.num_correct(*_scores(lab, mechanism), _NUM_GUESSES)
    yield Finding(
        check="audit.one_run",
        claim=f"a run charged epsilon {epsilon:.3f} at delta {_DELTA:g} gives no more away",
        statistic=f"lower bound on epsilon, {right} of {_NUM_GUESSES} guesses right",
        value=_bound(right),
        low=None,
        high=epsilon,
        p_value=_p_value(epsilon, right),
        false_alarm=FALSE_ALARM,
        fault=f"noise of {_WEAKER} sigma C",
        power=_power(epsilon, mechanism),
    )


def _scores(lab: Lab, mechanism: Mechanism) -> tuple[Floats, NDArray[np.bool_]]:
    """How far a run moved the weights of each canary, [M], in clipping norms; and who took part, [M]."""
    is_in_M = lab.random.random(_NUM_CANARIES) < 0.5
    everybody = _CANARIES.setup(mechanism)
    setup = replace(everybody, inputs=everybody.inputs[is_in_M], labels=everybody.labels[is_in_M])
    trainer = lab.run(setup, lambda _: None, start=from_zero).trainer
    before = from_zero(trainer).tensors["parameters"]
    scores_M, _ = _CANARIES.read(before, weights(trainer), expected=setup.expected_batch_size)
    return scores_M, is_in_M


def _spread(mechanism: Mechanism) -> dict[bool, float]:
    """Standard deviation of a score over a run, of canaries that took part and of others."""
    q, steps = mechanism.sampling_rate, mechanism.steps
    noise = steps * mechanism.noise_multiplier**2
    return {True: (noise + steps * q * (1 - q)) ** 0.5, False: noise**0.5}


def _p_value(epsilon: float, right: int) -> float:
    return one_run.p_value(
        epsilon=epsilon,
        delta=_DELTA,
        num_canaries=_NUM_CANARIES,
        num_guesses=_NUM_GUESSES,
        num_correct=right,
    )


def _bound(right: int) -> float:
    return one_run.epsilon_lower_bound(
        level=FALSE_ALARM,
        delta=_DELTA,
        num_canaries=_NUM_CANARIES,
        num_guesses=_NUM_GUESSES,
        num_correct=right,
    )


def _power(epsilon: float, mechanism: Mechanism) -> float:
    """Share of simulated audits that refute epsilon when the noise is too weak."""
    weaker = replace(mechanism, noise_multiplier=_WEAKER * mechanism.noise_multiplier)
    spread, random = _spread(weaker), np.random.default_rng(0)
    found = 0
    for _ in range(_POWER_RUNS):
        is_in_M = random.random(_NUM_CANARIES) < 0.5
        scores_M = random.standard_normal(_NUM_CANARIES) * np.where(
            is_in_M, spread[True], spread[False]
        ) + is_in_M * (_RATE * _STEPS)
        right = one_run.num_correct(scores_M, is_in_M, _NUM_GUESSES)
        found += _p_value(epsilon, right) < FALSE_ALARM
    return found / _POWER_RUNS
