r"""The mechanism: the one value that is both priced and executed.

A DP-SGD run is fixed, as far as privacy goes, by six things: the sampling rate :math:`q`, the noise
multiplier :math:`\sigma`, the clipping norm :math:`C`, the number of steps :math:`S`, the way a batch
is drawn (with the sizes that some ways need), and the neighbouring relation. :class:`Mechanism` holds
them and nothing else. The
accountant prices it, the ledger stores it, the engine's sampler draws with its very ``sampling_rate``
and the engine's noise has its very ``noise_multiplier``: there is no second copy to disagree with.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn, Self, TypeVar

from tan_core import _validate
from tan_core.choice import Choice
from tan_core.errors import ParameterError

CODEC_VERSION = 1
MAX_STEPS = 10**9


class Sampling(Choice):
    """How a batch is drawn. Only what an accountant here can price is listed."""

    POISSON = "poisson"
    """Each unit enters each batch independently with probability ``sampling_rate``; 1 is full batch."""
    TRUNCATED_POISSON = "truncated_poisson"
    """Poisson, and a batch above ``max_batch_size`` keeps a random part of that size."""
    FIXED_SIZE = "fixed_size"
    """A new uniformly random subset of ``sampling_rate * num_examples`` units in every step."""
    UNAMPLIFIED = "unamplified"
    """Any other order, shuffled epochs among them, priced without credit for randomness: no unit is in
    more than ``ceil(sampling_rate * steps)`` batches, in none of them twice, and what it holds has no
    influence on which batches that are. Where N is public; else a unit shifts the others."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        if value in ("shuffle", "shuffled", "shuffling"):
            raise ParameterError(
                f"sampling {value!r} has no price of its own: shuffled batches are not Poisson batches; "
                "'unamplified' prices what is proven",
                field="sampling",
            )
        super()._missing_(value)


class NeighboringRelation(Choice):
    """Which two datasets count as neighbours."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    """One has a unit more. A gradient of norm C comes or goes."""
    ZERO_OUT = "zero_out"
    """One unit's contribution is nothing instead of itself; the number of units is public."""
    REPLACE_ONE = "replace_one"
    """One unit differs: a sum of clipped gradients moves by up to 2C."""

    @property
    def sensitivity(self) -> int:
        """How far one unit moves a sum of clipped gradients, in clipping norms."""
        return 2 if self is NeighboringRelation.REPLACE_ONE else 1


class Accountant(Choice):
    """Who computes the epsilon that is promised."""

    PLD = "pld"
    """Privacy loss distributions: the tightest bound."""
    RDP = "rdp"
    """Rényi differential privacy: a looser bound that composes exactly."""
    PRV = "prv"
    """Privacy random variables, by Opacus: a third voice."""


_FLOATS = ("sampling_rate", "noise_multiplier", "clip_norm")
_NUMBERS = (*_FLOATS, "steps", "num_examples", "max_batch_size")
_SIZES: Mapping[Sampling, tuple[str, ...]] = {
    Sampling.TRUNCATED_POISSON: ("num_examples", "max_batch_size"),
    Sampling.FIXED_SIZE: ("num_examples",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    r"""A DP-SGD run as the accountant and the engine both see it.

    Formal guarantees:

    * Hashable and immutable; equal mechanisms have equal :attr:`fingerprint` on every machine.
    * ``Mechanism.from_json(m.to_json()) == m`` exactly: floats travel as hexadecimal strings.

    Args:
        sampling_rate: :math:`q` in (0, 1], probability per unit per step.
        noise_multiplier: :math:`\sigma > 0`, noise standard deviation over ``clip_norm``.
        clip_norm: :math:`C > 0`, gradient norm.
        steps: :math:`S \ge 1`, optimiser updates.
        sampling: how a batch is drawn.
        neighboring_relation: which datasets are neighbours.
        num_examples: :math:`N`, units in the data; for truncated Poisson and fixed size only.
        max_batch_size: the cap of truncated Poisson, units; for it only.

    Raises:
        ParameterError: an argument is outside the domain above.
    """

    sampling_rate: float
    noise_multiplier: float
    clip_norm: float
    steps: int
    sampling: Sampling = Sampling.POISSON
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    num_examples: int | None = None
    max_batch_size: int | None = None

    def __post_init__(self) -> None:
        # What is stored, hashed and written as JSON is a plain number, whatever was given.
        _validate.make_plain(self, *_NUMBERS)
        _validate.rate(sampling_rate=self.sampling_rate)
        _validate.positive(noise_multiplier=self.noise_multiplier, clip_norm=self.clip_norm)
        _validate.positive_integer(steps=self.steps)
        if self.steps > MAX_STEPS:
            raise ParameterError(f"steps must be <= {MAX_STEPS}, got {self.steps}", field="steps")
        for name in _FLOATS:
            object.__setattr__(self, name, float(getattr(self, name)))
        # A plain string is as good as the member; what is neither is refused by name.
        object.__setattr__(self, "sampling", Sampling(self.sampling))
        object.__setattr__(
            self, "neighboring_relation", NeighboringRelation(self.neighboring_relation)
        )
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Each way of drawing has the sizes that its price depends on, and no others."""
        needed = _SIZES.get(self.sampling, ())
        for name in ("num_examples", "max_batch_size"):
            value = getattr(self, name)
            if name in needed:
                _validate.positive_integer(**{name: value})
            elif value is not None:
                raise ParameterError(
                    f"{name} does not belong to {self.sampling.value} sampling, got {value!r}",
                    field=name,
                )
        if self.sampling is Sampling.FIXED_SIZE and self.num_examples is not None:
            size = self.sampling_rate * self.num_examples
            if not math.isclose(size, round(size), rel_tol=1e-9):
                raise ParameterError(
                    "fixed_size sampling needs a sampling_rate that is a whole number of units over "
                    f"num_examples = {self.num_examples}, got {self.sampling_rate!r}",
                    field="sampling_rate",
                )

    def with_steps(self, steps: int) -> Self:
        """The same mechanism run for another number of steps."""
        # What is no plain number is made one, or refused.
        return _with_steps(self, steps) if type(steps) is int else replace(self, steps=steps)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that any implementation can read; floats are hexadecimal and exact."""
        return {
            "codec": CODEC_VERSION,
            "kind": "dp_sgd",
            "sampling": self.sampling.value,
            "sampling_rate": float(self.sampling_rate).hex(),
            "noise_multiplier": float(self.noise_multiplier).hex(),
            "clip_norm": float(self.clip_norm).hex(),
            "steps": self.steps,
            "neighboring_relation": self.neighboring_relation.value,
            **{name: getattr(self, name) for name in _SIZES.get(self.sampling, ())},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The mechanism that :meth:`to_json` wrote; anything unknown is refused by name.

        Raises:
            ParameterError: it is none; ``field`` is what is missing or wrong in it.
        """
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] JSON may be anything
            raise ParameterError(
                f"an event must be a JSON object, got {type(data).__name__}", field="event"
            )
        if data.get("codec") != CODEC_VERSION or data.get("kind") != "dp_sgd":
            raise ParameterError(
                f"unknown event codec {data.get('codec')!r} or kind {data.get('kind')!r}; "
                f"this version reads codec {CODEC_VERSION}, kind 'dp_sgd'",
                field="codec",
            )
        unknown = set(data) - {
            "codec", "kind", "sampling", "sampling_rate", "noise_multiplier", "clip_norm", "steps",
            "neighboring_relation", "num_examples", "max_batch_size",
        }  # fmt: skip
        if unknown:
            raise ParameterError(
                f"unknown keys in event: {sorted(unknown, key=str)}", field="event"
            )
        try:
            return cls(
                **{name: _from_hex(data, name) for name in _FLOATS},
                steps=_written(data, "steps"),
                sampling=Sampling(_written(data, "sampling")),
                neighboring_relation=NeighboringRelation(_written(data, "neighboring_relation")),
                num_examples=data.get("num_examples"),
                max_batch_size=data.get("max_batch_size"),
            )
        except (TypeError, ValueError, OverflowError) as error:
            field = error.field if isinstance(error, ParameterError) else "event"
            raise ParameterError(f"malformed event {dict(data)!r}: {error}", field=field) from error

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON, as hex: what the ledger and the checkpoints compare."""
        return _fingerprint(self)


_Run = TypeVar("_Run", bound=Mechanism)
"""A ledger of hundreds of mechanisms asks for the same ones again and again: both answers are kept."""


@lru_cache(maxsize=8192)
def _with_steps(mechanism: _Run, steps: int) -> _Run:
    return replace(mechanism, steps=steps)


@lru_cache(maxsize=8192)
def _fingerprint(mechanism: Mechanism) -> str:
    text = json.dumps(mechanism.to_json(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _written(data: Mapping[str, Any], name: str) -> Any:
    if name not in data:
        raise ParameterError(f"it has no {name}", field=name)
    return data[name]


def _from_hex(data: Mapping[str, Any], name: str) -> float:
    """Python would read a decimal 10 as 16: what is not marked as hexadecimal is malformed."""
    written = _written(data, name)
    try:
        if isinstance(written, str) and written.startswith("0x"):
            return float.fromhex(written)
    except (ValueError, OverflowError):  # no number, or one beyond every float
        pass
    raise ParameterError(
        f"{name} {written!r:.40} is no hexadecimal number such as {(0.5).hex()!r}", field=name
    )
