"""Records that each move weights of their own: the weights tell who was drawn, how far, under what noise.

Record i is the i-th unit vector, large, in front of a linear layer that starts at zero and is moved so
little that it stays there. Its gradient then never changes, is always clipped, and lies in the weights
of feature i alone. Features that no record has are blank: what moves there is noise.
"""

# Shape legend: N = records, D = noise values of a step, S = steps.
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tan_core.engine import Trainer, TrainerState
from tan_core.mechanism import Mechanism
from tan_core.spec.models import LinearModel
from worker.selftest.rig import Setup, weights

_LEARNING_RATE: Final = 1e-6
_LENGTH: Final = 1e3
"""Of a record: its gradient is 700 long, and the layer's shared bias has a thousandth of it."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Telltale:
    """The records, and how to read what became of them.

    Args:
        num_examples: N.
        num_blanks: features without a record; each has two weights.
    """

    num_examples: int
    num_blanks: int

    @property
    def labels(self) -> NDArray[np.int64]:
        """Of the records: 0 and 1 in turn."""
        return np.arange(self.num_examples, dtype=np.int64) % 2

    def setup(self, mechanism: Mechanism, **changes: Any) -> Setup:
        """A private run of ``mechanism`` on these records."""
        inputs = np.zeros((self.num_examples, self.num_examples + self.num_blanks), np.float32)
        np.fill_diagonal(inputs, _LENGTH)
        setup = Setup(
            mechanism=mechanism,
            model=LinearModel(),
            inputs=inputs,
            labels=self.labels,
            num_classes=2,
            trainer={"learning_rate": _LEARNING_RATE},
        )
        return replace(setup, **changes)

    def read(self, before_P: Tensor, after_P: Tensor, *, expected: float) -> tuple[Floats, Floats]:
        """What a step, or several, added to each record's weights, [N], and to the blank ones, [D].

        Both in clipping norms, as if the sum had been divided by C times ``expected``: a record that was
        drawn reads 1, and noise has the standard deviation of the noise multiplier.
        """
        moved = (before_P.double() - after_P.double()).numpy() * (expected / _LEARNING_RATE)
        per_class = moved[:-2].reshape(2, -1)
        records, blanks = np.split(per_class, [self.num_examples], axis=1)
        own = np.take_along_axis(records, self.labels[None], 0)[0]
        other = np.take_along_axis(records, 1 - self.labels[None], 0)[0]
        return (other - own) / 2**0.5, blanks.ravel()


class Reader:
    """Reads every step of a run; pass it as ``look``."""

    def __init__(self, telltale: Telltale, setup: Setup) -> None:
        self._telltale, self._expected = telltale, setup.expected_batch_size
        self._last: Tensor | None = None
        self._added: list[Floats] = []
        self._noise: list[Floats] = []

    def __call__(self, trainer: Trainer) -> None:
        """Read what has changed since the last call."""
        now = weights(trainer)
        if self._last is not None:
            added, noise = self._telltale.read(self._last, now, expected=self._expected)
            self._added.append(added)
            self._noise.append(noise)
        self._last = now

    @property
    def added(self) -> Floats:
        """[S, N]: what each step added to the weights of each record, in clipping norms."""
        return np.array(self._added)

    @property
    def noise(self) -> Floats:
        """[S, D]: noise of each step, in clipping norms."""
        return np.array(self._noise)

    @property
    def is_drawn(self) -> NDArray[np.bool_]:
        """[S, N]: who was in which batch; certain where the noise multiplier is far below 1."""
        return self.added > 0.5


def from_zero(trainer: Trainer) -> TrainerState:
    """The trainer's initial state, with all weights at zero."""
    state = trainer.state()
    return replace(
        state, tensors={name: torch.zeros_like(value) for name, value in state.tensors.items()}
    )
