"""A private run and a simulation: the same loop, but never the same type.

A :class:`PrivateRun` spends what its mechanism costs. A :class:`Simulation` is the same training at a
``scale_factor``-th of the batch and of the noise: it keeps the total amount of noise and has no
privacy worth the name, so nothing turns it, or its score, into an epsilon.
"""

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
        ParameterError: the mechanism's batches are not Poisson.
    """

    mechanism: Mechanism
    num_examples: int

    def __post_init__(self) -> None:
        _validate.positive_integer(num_examples=self.num_examples)
        if self.mechanism.sampling is not Sampling.POISSON:  # others are priced, not drawn
            raise ParameterError(
                f"the engine draws Poisson batches; got sampling {self.mechanism.sampling.value!r}",
                field="sampling",
            )

    @property
    def expected_batch_size(self) -> float:
        """B = qN, the fixed divisor of every noisy sum."""
        return self.mechanism.sampling_rate * self.num_examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One run at constant TAN: (B/k, sigma/k) at equal steps, learning rate and clipping norm.

    ``dynamics`` is what the engine executes. It is not a :class:`Mechanism` to price: at the usual
    scale factors its epsilon is in the hundreds.
    """

    dynamics: Mechanism
    num_examples: int
    scale_factor: float

    @classmethod
    def of(cls, run: PrivateRun, *, expected_batch_size: float) -> Self:
        """The simulation of ``run`` at a smaller batch, sigma/q exactly as in the run."""
        if not 0 < expected_batch_size <= run.expected_batch_size:
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
