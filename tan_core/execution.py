"""A private run and a simulation: the same loop, but never the same type.

A :class:`PrivateRun` spends what its mechanism costs. A :class:`Simulation` is the same training at a
``scale_factor``-th of the batch and of the noise: it keeps the total amount of noise and has no
privacy worth the name, so nothing turns it, or its score, into an epsilon.
"""

import math
from dataclasses import dataclass, replace
from typing import NoReturn, Self

from tan_core import _validate
from tan_core.errors import ParameterError, UnaccountedError
from tan_core.mechanism import Mechanism, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateRun:
    """One run that is charged to the ledger.

    Args:
        mechanism: what is priced and executed.
        num_examples: N, units in the training split.

    Raises:
        ParameterError: the mechanism's batches are neither Poisson nor truncated Poisson, it was
            priced for another N, or it cuts batches below the expected one.
    """

    mechanism: Mechanism
    num_examples: int

    def __post_init__(self) -> None:
        _validate.instance(Mechanism, mechanism=self.mechanism)
        _validate.make_plain(self, "num_examples")
        _check_draw(self.mechanism, self.num_examples)

    @property
    def expected_batch_size(self) -> float:
        """B = qN, of the batch before it may be cut: the fixed divisor of every noisy sum."""
        return self.mechanism.sampling_rate * self.num_examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    r"""One run at constant TAN: (B/k, sigma/k) at equal steps, learning rate and clipping norm.

    ``dynamics`` is what the engine executes. It is not a :class:`Mechanism` to price: at the usual
    scale factors its epsilon is in the hundreds. ``scale_factor`` is k > 0.

    NOTE: a simulation never cuts its batches. A cap bounds the size of a large batch, and a small one
    needs no bound. The run loses at most :math:`0.4/\sqrt{B}` of its sum to a cap, one at its very mean;
    a cap of B/k would take :math:`0.4/\sqrt{B/k}` of the simulation's, and at the usual distance it
    would cut often where the run never does.

    Raises:
        ParameterError: as for :class:`PrivateRun`.
    """

    dynamics: Mechanism
    num_examples: int
    scale_factor: float

    def __post_init__(self) -> None:
        _validate.instance(Mechanism, dynamics=self.dynamics)
        _validate.make_plain(self, "num_examples", "scale_factor")
        _validate.positive(scale_factor=self.scale_factor)
        _check_draw(self.dynamics, self.num_examples)

    @classmethod
    def of(cls, run: PrivateRun, *, expected_batch_size: float) -> Self:
        """The simulation of ``run`` at a smaller batch, sigma/q exactly as in the run."""
        _validate.instance(PrivateRun, run=run)
        expected_batch_size = _validate.plain(expected_batch_size)
        is_number = type(expected_batch_size) in (int, float)
        if not (is_number and 0 < expected_batch_size <= run.expected_batch_size):
            raise ParameterError(
                f"expected_batch_size must be in (0, {run.expected_batch_size:g}], "
                f"got {expected_batch_size!r}",
                field="expected_batch_size",
            )
        factor = run.expected_batch_size / expected_batch_size
        return cls(
            dynamics=replace(
                run.mechanism,
                sampling_rate=run.mechanism.sampling_rate / factor,
                noise_multiplier=run.mechanism.noise_multiplier / factor,
                sampling=Sampling.POISSON,
                num_examples=None,
                max_batch_size=None,
            ),
            num_examples=run.num_examples,
            scale_factor=factor,
        )

    @property
    def expected_batch_size(self) -> float:
        """B/k, examples."""
        return self.dynamics.sampling_rate * self.num_examples

    @property
    def epsilon(self) -> NoReturn:
        """Always raises: a simulation carries no guarantee."""
        raise UnaccountedError("a simulation is not private and has no epsilon")


def _check_draw(mechanism: Mechanism, num_examples: int) -> None:
    """Refuse what is priced and not drawn, and what is drawn otherwise than it was priced."""
    _validate.positive_integer(num_examples=num_examples)
    if mechanism.sampling not in (Sampling.POISSON, Sampling.TRUNCATED_POISSON):
        raise ParameterError(
            "the engine draws Poisson batches, with or without a cap; got sampling "
            f"{mechanism.sampling.value!r}",
            field="sampling",
        )
    if mechanism.num_examples not in (None, num_examples):
        raise ParameterError(
            f"the mechanism is priced for num_examples = {mechanism.num_examples}, the data hold "
            f"{num_examples}",
            field="num_examples",
        )
    expected = mechanism.sampling_rate * num_examples
    if mechanism.max_batch_size is not None and mechanism.max_batch_size < math.floor(expected):
        raise ParameterError(
            f"max_batch_size must be at least the expected batch of {expected:g}, by which every sum "
            f"is divided, got {mechanism.max_batch_size}",
            field="max_batch_size",
        )
