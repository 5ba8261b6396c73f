"""What a model reads of a draw: the records of its units, in pieces that fit into memory, with their views."""

# Shape legend: U = units of a piece, R = the most records that one of them has.
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from tan_core.engine.augment import Augmentation, Views
from tan_core.engine.inputs import ByIndex, Picked, as_floats
from tan_core.engine.transfer import sent
from tan_core.engine.users import Users

_Read = TypeVar("_Read", bound=Tensor | Picked)


@dataclass(frozen=True, slots=True)
class Draw:
    """A global draw, and the augmented views of its units' records; None where each is itself."""

    units: Tensor
    """Rising."""
    views: Views | None


@dataclass(frozen=True, slots=True)
class Shown(Generic[_Read]):
    """What a model reads of some units, as :func:`~tan_core.engine.gradients.clipped_sum` takes it."""

    inputs: _Read
    labels: Tensor
    views: int
    shares: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A training split, by units.

    Args:
        inputs: [N, ...], in memory or not.
        labels: [N], int64.
        users: whose each record is; None: each is a unit of its own.
        augmentation: of every record.
        microbatch_size: views in memory at once.
        device: where the model computes; the data stay in the processor's memory.
        dtype: that the model reads.
    """

    inputs: Tensor | ByIndex
    labels: Tensor
    users: Users | None
    augmentation: Augmentation
    microbatch_size: int
    device: torch.device
    dtype: torch.dtype

    @property
    def shape(self) -> torch.Size:
        """Of one record."""
        return self.inputs.shape[1:]

    def draw(self, units: Tensor, generator: Callable[[], torch.Generator]) -> Draw:
        """The views of every record that the units may have, drawn only where records are augmented.

        They are drawn for the global batch, so that a rank's are the same for any world size.
        """
        if self.augmentation.is_identity:
            return Draw(units, None)
        return Draw(units, self.augmentation.draw(len(units) * self._most_records, generator()))

    def pieces(self, share: Tensor) -> Generator[Tensor]:
        """Units whose views fit into memory at once; of users those with the most records come first."""
        if self.users is not None:
            share = self.users.largest_first(share)
        start = 0
        while start < len(share):
            records = 1 if self.users is None else self.users.num_records(share[start])
            end = start + max(1, self.microbatch_size // (records * self.augmentation.views))
            yield share[start:end]
            start = end

    def expect(self, units: Tensor) -> None:
        """Begin to read what is asked for next, while something else is computed."""
        if isinstance(self.inputs, ByIndex):
            self.inputs.expect(self._records(units)[0].flatten())

    def shown(self, units: Tensor, draw: Draw) -> Shown[Tensor] | Shown[Picked]:
        """What the model reads of these units of a draw, and their labels; not gathered where it need not be."""
        is_plain = self.users is None and self.augmentation.is_identity
        if is_plain and isinstance(self.inputs, Tensor) and self.device.type == "cpu":
            return Shown(Picked(self.inputs, units), self.labels[units], 1, None)
        return self.gathered(units, draw)

    def gathered(self, units: Tensor, draw: Draw) -> Shown[Tensor]:
        """The same, in a row."""
        records_UR, shares_UR = self._records(units)
        inputs = self.inputs.index_select(0, records_UR.flatten())
        views: Views | None = None
        if draw.views is not None:
            at_UR = torch.searchsorted(draw.units, units)[:, None] * self._most_records
            at_UR = at_UR + torch.arange(records_UR.shape[1])
            if shares_UR is not None:
                # What fills up is the first record over again: a view of its own might be left out, and its user with
                # it, for no other reason than how many records those beside it have.
                at_UR = at_UR.where(shares_UR > 0, at_UR[:, :1])
            views = draw.views[at_UR.flatten()]
        return self._shown(inputs, self.labels[records_UR], shares_UR, views)

    def made_up(self, num_drawn: int, generator: torch.Generator) -> Shown[Tensor]:
        """As much as a model may read at once of so many units drawn, of random records of class 0: nobody's."""
        at_once = max(1, self.microbatch_size // self.augmentation.views)
        if self.users is None:
            num_units, num_records = min(num_drawn, at_once), 1
        else:
            num_units, num_records = self.users.fullest(num_drawn, at_once)
        labels_UR = torch.zeros(num_units, num_records, dtype=torch.int64)
        views = None
        if not self.augmentation.is_identity:
            views = self.augmentation.draw(labels_UR.numel(), generator)
        shares_UR = None
        if self.users is not None:
            shares_UR = torch.full(labels_UR.shape, 1 / num_records, dtype=torch.float64)
        records = self.random_records(labels_UR.numel(), generator)
        return self._shown(records, labels_UR, shares_UR, views)

    def random_records(self, num: int, generator: torch.Generator) -> Tensor:
        """[num, ...], of the kind that are read: bytes, floats, or of other whole numbers, which may be indices, zeros."""
        size, dtype = (num, *self.shape), self.inputs.dtype
        if dtype.is_floating_point:
            return torch.randn(size, generator=generator).to(dtype)
        if dtype == torch.uint8:
            return torch.randint(0, 256, size, generator=generator, dtype=dtype)
        return torch.zeros(size, dtype=dtype)

    def _shown(
        self, inputs: Tensor, labels_UR: Tensor, shares_UR: Tensor | None, views_of: Views | None
    ) -> Shown[Tensor]:
        """Gathered records, where and as the model reads them."""
        inputs, labels_UR = sent(inputs, self.device), sent(labels_UR, self.device)
        inputs = self.as_read(inputs if views_of is None else views_of.of(inputs))
        num_records, views = labels_UR.shape[1], self.augmentation.views
        if shares_UR is None or num_records == 1:
            return Shown(inputs, labels_UR[:, 0], views, None)
        return Shown(
            inputs,
            labels_UR.repeat_interleave(views, 1),
            num_records * views,
            sent((shares_UR / views).to(self.dtype), self.device).repeat_interleave(views, 1),
        )

    def as_read(self, inputs: Tensor) -> Tensor:
        """Records of this split or of another, where and as the model reads them."""
        return as_floats(sent(inputs, self.device), self.dtype)

    @property
    def _most_records(self) -> int:
        return 1 if self.users is None else self.users.most

    def _records(self, units: Tensor) -> tuple[Tensor, Tensor | None]:
        """The records of these units, and each one's share in its unit, where those are users."""
        return (units[:, None], None) if self.users is None else self.users.records(units)
