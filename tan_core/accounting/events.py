r"""What a mechanism is in the words of an accountant.

Many a mechanism is, to whoever tells two neighbouring datasets apart, a Gaussian mechanism of
sensitivity 1 on Poisson-sampled data, run some number of times: :class:`SampledGaussian`. That is the
one form that every accountant here reads. What is not of this form (truncated batches, batches of fixed
size, a unit that is replaced in a sampled batch) is priced by the accountants that know it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from tan_core.errors import ParameterError, UnsupportedEventError
from tan_core.mechanism import MAX_STEPS, Mechanism, NeighboringRelation, Sampling

if TYPE_CHECKING:
    import dp_accounting

# NOTE: dp_accounting is imported where it is used. It brings all of scipy.stats, scipy.signal and
# scipy.optimize: half a second that whoever imports a Mechanism need not wait for.

_ROUND_OFF = Fraction(1, 2**50)
"""Of a sampling rate, relative: 1/13 as a number may be above 1/13, and 26 steps of it are in two batches all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussian:
    """Steps of the Poisson-sampled Gaussian mechanism, of sensitivity 1 between neighbours."""

    sampling_rate: float
    noise_multiplier: float
    steps: int


def sampled_gaussian(mechanism: Mechanism) -> SampledGaussian | None:
    r"""The mechanism as steps of a sampled Gaussian; None where it is not one.

    Without sampling (full batch, or no credit for it) a replaced unit moves the sum by 2C: the same as
    half the noise.

    Raises:
        UnsupportedEventError: unamplified sampling between datasets of unlike size. A unit that comes or
            goes shifts the others through the batches, so more than its own gradient moves.
    """
    _check_sizes_are_public(mechanism)
    replaced = mechanism.neighboring_relation is NeighboringRelation.REPLACE_ONE
    sigma = mechanism.noise_multiplier / mechanism.neighboring_relation.sensitivity
    if mechanism.sampling is Sampling.UNAMPLIFIED:
        steps = participations(mechanism)
        return SampledGaussian(sampling_rate=1.0, noise_multiplier=sigma, steps=steps)
    if mechanism.sampling is not Sampling.POISSON or (replaced and mechanism.sampling_rate < 1):
        return None
    return SampledGaussian(
        sampling_rate=mechanism.sampling_rate, noise_multiplier=sigma, steps=mechanism.steps
    )


def participations(mechanism: Mechanism) -> int:
    r"""Batches that one unit is in at most, :math:`\lceil qS \rceil`: for unamplified sampling."""
    least = Fraction(mechanism.sampling_rate) * (1 - _ROUND_OFF)
    return math.ceil(least * mechanism.steps)


def in_whole_batches(mechanism: Mechanism) -> Mechanism:
    r"""An unamplified run as what it is priced as: the :func:`participations` of one unit, without sampling. Others as they are.

    Its own price is not linear in its steps: two runs of S steps have a unit in :math:`2 \lceil qS \rceil` batches, and one
    of 2S steps in :math:`\lceil 2qS \rceil`, which may be half of that. What this gives adds up.

    Raises:
        UnsupportedEventError: unamplified sampling between datasets of unlike size.

    Example:
        >>> epochs = Mechanism(
        ...     sampling_rate=0.02,
        ...     noise_multiplier=40.0,
        ...     clip_norm=1.0,
        ...     steps=120,
        ...     sampling=Sampling.UNAMPLIFIED,
        ...     neighboring_relation=NeighboringRelation.ZERO_OUT,
        ... )
        >>> whole = in_whole_batches(epochs)
        >>> whole.sampling.value, whole.sampling_rate, whole.steps
        ('poisson', 1.0, 3)
    """
    if mechanism.sampling is not Sampling.UNAMPLIFIED:
        return mechanism
    _check_sizes_are_public(mechanism)
    return replace(
        mechanism,
        sampling=Sampling.POISSON,
        sampling_rate=1.0,
        steps=participations(mechanism),
    )


def loss_variance(sampling_rate: float, shift: float, *, is_replaced: bool = False) -> float:
    r"""A bound on the variance of one step's privacy loss, close for small steps: it sets the grids.

    The smaller of :math:`q^2 (e^{\mu^2} - 1)` and :math:`q (\mu^4/4 + \mu^2)`; exactly :math:`\mu^2`
    without sampling. Of a unit that is replaced, whose two values lie to either side of what there is
    without it, :math:`4 q^2 \sinh(\mu^2/4)` in the place of the first.

    Args:
        sampling_rate: :math:`q` in (0, 1].
        shift: :math:`\mu`, how far one unit moves the mean, in noise deviations.
        is_replaced: whether neighbours differ in what one unit is, and not in whether it is there.
    """
    if sampling_rate == 1:
        return shift**2
    squared = min(shift**2, 700)
    apart = 4 * math.sinh(squared / 4) if is_replaced else math.expm1(squared)
    second_moment = sampling_rate * (shift**4 / 4 + shift**2)
    return min(sampling_rate**2 * apart, second_moment)


def shared_relation(mechanisms: Sequence[Mechanism]) -> NeighboringRelation:
    """The one neighbouring relation of all; unlike ones do not compose.

    Raises:
        ParameterError: there is no mechanism, or they differ.
    """
    if not mechanisms:
        raise ParameterError("expected at least one mechanism, got none", field="mechanisms")
    relations = {mechanism.neighboring_relation for mechanism in mechanisms}
    if len(relations) > 1:
        names = ", ".join(sorted(relations))
        raise ParameterError(
            f"mechanisms of unlike neighboring_relation do not compose: {names}",
            field="neighboring_relation",
        )
    return relations.pop()


def relation_of(mechanisms: Sequence[Mechanism]) -> dp_accounting.NeighboringRelation:
    """The neighbouring relation of mechanisms that share one, as dp-accounting calls it."""
    from dp_accounting import NeighboringRelation as Theirs

    return {
        NeighboringRelation.ADD_OR_REMOVE_ONE: Theirs.ADD_OR_REMOVE_ONE,
        NeighboringRelation.ZERO_OUT: Theirs.REPLACE_SPECIAL,
        NeighboringRelation.REPLACE_ONE: Theirs.REPLACE_ONE,
    }[shared_relation(mechanisms)]


def pld_event(mechanism: Mechanism) -> tuple[dp_accounting.DpEvent, int]:
    """One step and how often, as dp-accounting's PLD accountant reads them.

    Raises:
        UnsupportedEventError: batches of fixed size; truncated or unamplified ones between datasets of
            unlike size.
    """
    import dp_accounting

    _check_sizes_are_public(mechanism)

    sigma, steps = mechanism.noise_multiplier, mechanism.steps
    match mechanism.sampling:
        case Sampling.POISSON if mechanism.sampling_rate < 1:
            step = dp_accounting.GaussianDpEvent(sigma)
            return dp_accounting.PoissonSampledDpEvent(mechanism.sampling_rate, step), steps
        case Sampling.POISSON:
            return dp_accounting.GaussianDpEvent(sigma), steps
        case Sampling.UNAMPLIFIED:
            return dp_accounting.GaussianDpEvent(sigma), participations(mechanism)
        case Sampling.TRUNCATED_POISSON:
            return dp_accounting.TruncatedSubsampledGaussianDpEvent(
                dataset_size=mechanism.num_examples or 0,  # the mechanism has checked both
                sampling_probability=mechanism.sampling_rate,
                truncated_batch_size=mechanism.max_batch_size or 0,
                noise_multiplier=sigma,
            ), steps
        case Sampling.FIXED_SIZE:
            raise _unsupported("pld", mechanism, "accountant rdp")


def rdp_event(mechanism: Mechanism) -> tuple[dp_accounting.DpEvent, int]:
    """One step and how often, as dp-accounting's RDP accountant reads them.

    NOTE: that accountant takes sensitivity 1 for every relation. Under replace-one a sum of clipped
    gradients moves by 2C, so it is given half the noise multiplier.

    Raises:
        UnsupportedEventError: no Rényi bound is known for this sampling and relation.
    """
    if mechanism.sampling is Sampling.FIXED_SIZE:
        return _fixed_size(mechanism), mechanism.steps
    same = sampled_gaussian(mechanism)
    if same is None:
        accepted = (
            "accountant pld"
            if mechanism.sampling is Sampling.TRUNCATED_POISSON
            else "add_or_remove_one, zero_out, or accountant pld"
        )
        raise _unsupported("rdp", mechanism, accepted)
    import dp_accounting

    step = dp_accounting.GaussianDpEvent(same.noise_multiplier)
    if same.sampling_rate < 1:
        step = dp_accounting.PoissonSampledDpEvent(same.sampling_rate, step)
    return step, same.steps


def sampled_gaussian_event(mechanism: Mechanism, accountant: str) -> SampledGaussian:
    """The mechanism as an accountant reads it that knows sampled Gaussians and nothing else.

    Raises:
        UnsupportedEventError: it is not one.
    """
    same = sampled_gaussian(mechanism)
    if same is None:
        knows = "rdp" if mechanism.sampling is Sampling.FIXED_SIZE else "pld"
        raise _unsupported(accountant, mechanism, f"accountant {knows}")
    return same


def _check_sizes_are_public(mechanism: Mechanism) -> None:
    """What one unit does to the others' batches is bounded only where the number of units is public."""
    depends = mechanism.sampling in (Sampling.TRUNCATED_POISSON, Sampling.UNAMPLIFIED)
    if depends and mechanism.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise UnsupportedEventError(
            f"no accountant prices {mechanism.sampling.value} sampling under neighboring_relation "
            f"{mechanism.neighboring_relation.value}: a unit more or less moves the others between "
            "batches; accepted: zero_out or replace_one, where the number of units is public"
        )


def _fixed_size(mechanism: Mechanism) -> dp_accounting.DpEvent:
    if mechanism.neighboring_relation is not NeighboringRelation.REPLACE_ONE:
        raise _unsupported("rdp", mechanism, "replace_one, where N is public")
    import dp_accounting

    num_examples = mechanism.num_examples or 0
    return dp_accounting.SampledWithoutReplacementDpEvent(
        source_dataset_size=num_examples,
        sample_size=round(mechanism.sampling_rate * num_examples),
        event=dp_accounting.GaussianDpEvent(
            mechanism.noise_multiplier / mechanism.neighboring_relation.sensitivity
        ),
    )


def _unsupported(accountant: str, mechanism: Mechanism, accepted: str) -> UnsupportedEventError:
    return UnsupportedEventError(
        f"accountant {accountant} cannot price {mechanism.sampling.value} sampling under "
        f"neighboring_relation {mechanism.neighboring_relation.value}; accepted: {accepted}"
    )


def joined(mechanisms: Iterable[Mechanism]) -> list[Mechanism]:
    """The same composition with equal mechanisms joined, in the order of their first; unamplified ones :func:`in_whole_batches`.

    Raises:
        UnsupportedEventError: unamplified sampling between datasets of unlike size.
    """
    steps: dict[Mechanism, int] = {}
    for mechanism in map(in_whole_batches, mechanisms):
        alone = mechanism.with_steps(1)
        steps[alone] = steps.get(alone, 0) + mechanism.steps
    return [part for alone, count in steps.items() for part in repeated(alone, count)]


def repeated(mechanism: Mechanism, steps: int) -> list[Mechanism]:
    """So many steps of it, 0 or more, in as many mechanisms as hold them.

    Example:
        >>> run = Mechanism(sampling_rate=1.0, noise_multiplier=9e4, clip_norm=1.0, steps=1)
        >>> [part.steps for part in repeated(run, 2_500_000_000)]
        [1000000000, 1000000000, 500000000]
    """
    whole, rest = divmod(steps, MAX_STEPS)
    return [mechanism.with_steps(part) for part in (*[MAX_STEPS] * whole, rest) if part]
