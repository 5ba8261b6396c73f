"""A run that crashes and goes on: nothing that was drawn before is drawn again."""

# Shape legend: A = steps of all attempts, D = noise values of a step, N = records.
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tan_core.engine import Trainer
from tan_core.engine.randomness import KEY_BYTES
from tan_core.errors import ParameterError
from tan_core.mechanism import Mechanism
from tan_core.wire import Checkpoint
from worker.selftest.finding import Finding, by_chance, for_certain
from worker.selftest.rig import Lab
from worker.selftest.telltale import Reader, Telltale, from_zero

_STEPS, _CHECKPOINT, _CRASH = 8, 4, 6
_TELLTALE = Telltale(num_examples=400, num_blanks=5_000)
_MECHANISM = Mechanism(sampling_rate=0.4, noise_multiplier=0.01, clip_norm=0.3, steps=_STEPS)
_SETUP = _TELLTALE.setup(_MECHANISM, segment_steps=_CHECKPOINT)


def fresh_draws(lab: Lab) -> Iterator[Finding]:
    """Steps of all attempts, and of other runs, share neither noise nor draws.

    Attempt 1 crashes after step 6, and attempt 2 goes on from the checkpoint of step 4. Another run
    has an attempt 1 as well. In two more the second attempt is under the key of the first, as it
    never is: the number of the attempt alone must tell them apart.
    """
    readers = [Reader(_TELLTALE, _SETUP) for _ in range(5)]
    first, second, other, *same_key = readers
    saved: list[Checkpoint] = []

    def look(trainer: Trainer) -> None:
        first(trainer)
        if trainer.steps_done == _CHECKPOINT:
            saved.append(lab.saved(trainer))

    crashed = lab.run(_SETUP, look, start=from_zero, until=_CRASH).trainer
    lab.run(_SETUP, second, attempt=2, resumed=saved[0])
    lab.run(_SETUP, other, start=from_zero)
    secret = lab.random.bytes(KEY_BYTES)
    for attempt, reader in enumerate(same_key, 1):
        lab.run(_SETUP, reader, start=from_zero, attempt=attempt, secret=secret)
    yield _noise(np.concatenate([reader.noise for reader in readers]))
    yield _draws(np.concatenate([reader.is_drawn for reader in readers]).astype(np.float64))
    yield for_certain(
        "attempts.replay",
        "a trainer that goes back to a checkpoint refuses to draw a step again",
        "steps drawn again",
        _replayed(crashed),
        high=0,
        fault="the same stream on another gradient",
    )


def _noise(noise_AD: NDArray[np.float64]) -> Finding:
    lengths_A = np.linalg.norm(noise_AD, axis=1, keepdims=True)
    unit = noise_AD / np.maximum(
        lengths_A, np.finfo(np.float64).tiny
    )  # no noise is not repeated noise
    correlations = (unit @ unit.T)[np.tril_indices(len(unit), -1)] * noise_AD.shape[1] ** 0.5
    return by_chance(
        "attempts.noise",
        "no step of any attempt or run has the noise of another",
        f"largest correlation of {len(correlations)} pairs of steps, in standard deviations",
        float(correlations[np.abs(correlations).argmax()]),
        law=stats.norm(),
        repeats=len(correlations),
        fault="one noise in two steps",
        law_of_fault=stats.norm(noise_AD.shape[1] ** 0.5),
    )


def _draws(drawn_AN: NDArray[np.float64]) -> Finding:
    q, size = _MECHANISM.sampling_rate, drawn_AN.shape[1]
    shared = (drawn_AN @ drawn_AN.T)[np.tril_indices(len(drawn_AN), -1)]
    law = stats.binom(size, q**2)
    rarest = np.minimum(law.cdf(shared), law.sf(shared - 1)).argmin()
    return by_chance(
        "attempts.draws",
        "no step of any attempt or run has the batch of another",
        f"records in both of two batches of {size}, the most unlikely of {len(shared)} pairs",
        float(shared[rarest]),
        law=law,
        repeats=len(shared),
        fault="one draw in two steps",
        law_of_fault=stats.binom(size, q),
    )


def _replayed(trainer: Trainer) -> int:
    """1 if the trainer takes the step again that it has just taken."""
    state = trainer.state()
    trainer.load_state(replace(state, meta={**state.meta, "step": trainer.steps_done - 1}))
    try:
        trainer.step()
    except ParameterError:
        return 0
    return 1
