"""Random views of images: a reflect-padded crop and a flip, for a whole batch in one gather."""

# Shape legend: B = examples, K = views of each, C, H, W = channels, rows, columns.
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from tan_core.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Augmentation:
    """Which views are taken of each example.

    Args:
        views: K >= 1 views per example.
        padding: pixels of reflect padding (the edge is not repeated) before the random crop.
        flip: whether a view is mirrored left to right with probability 1/2.
    """

    views: int = 1
    padding: int = 0
    flip: bool = False

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        *,
        multiplicity: int,
        crop_padding: int | Literal["auto"],
        horizontal_flip: bool,
    ) -> Self:
        """The augmentation that a trainer's configuration asks for on inputs of ``shape``.

        Raises:
            ParameterError: the inputs are no images, or the padding does not fit them.
        """
        padding = crop_padding
        if padding == "auto":
            padding = min(shape[-2:]) // 8 if multiplicity > 1 and len(shape) == 3 else 0
        wanted = cls(views=multiplicity, padding=padding, flip=horizontal_flip)
        if wanted == cls():
            return wanted
        if len(shape) != 3:
            raise ParameterError(
                "views, crops and flips are of images, the inputs have shape "
                f"{list(shape)}; set augmentation_multiplicity: 1, crop_padding: 0 "
                "and horizontal_flip: false",
                field="augmentation_multiplicity",
            )
        if padding >= min(shape[1:]):
            raise ParameterError(
                f"crop_padding must be below the image's side {min(shape[1:])}, got {padding}",
                field="crop_padding",
            )
        return wanted

    @property
    def is_identity(self) -> bool:
        """Whether every view is the example itself, once."""
        return self == Augmentation()

    def draw(self, num_examples: int, generator: torch.Generator) -> "Views":
        """Offsets and flips of every view of ``num_examples`` examples."""
        size = (num_examples, self.views)
        offsets = torch.randint(
            -self.padding, self.padding + 1, (*size, 2), generator=generator, dtype=torch.int64
        )
        flips = torch.zeros(size, dtype=torch.bool)
        if self.flip:
            flips = torch.randint(0, 2, size, generator=generator).bool()
        return Views(rows=offsets[..., 0], columns=offsets[..., 1], flips=flips)


@dataclass(frozen=True, slots=True)
class Views:
    """The drawn views, each field [B, K]."""

    rows: Tensor
    columns: Tensor
    flips: Tensor

    def __getitem__(self, which: slice) -> "Views":
        """The views of some of the examples."""
        return Views(rows=self.rows[which], columns=self.columns[which], flips=self.flips[which])

    def of(self, images_BCHW: Tensor) -> Tensor:
        """The views themselves, [B * K, C, H, W]; the K views of an example stand together."""
        num_examples, channels, height, width = images_BCHW.shape
        views = self.rows.shape[1]
        columns = _reflected(self.columns.reshape(-1, 1) + torch.arange(width), width)
        columns = torch.where(self.flips.reshape(-1, 1), columns.flip(1), columns)
        rows = _reflected(self.rows.reshape(-1, 1) + torch.arange(height), height)
        pixels = (rows[:, :, None] * width + columns[:, None, :]).reshape(
            num_examples, 1, views, height * width
        )
        pixels = pixels.expand(-1, channels, -1, -1).reshape(
            num_examples, channels, views * height * width
        )
        taken = images_BCHW.flatten(2).gather(2, pixels.to(images_BCHW.device))
        return (
            taken.view(num_examples, channels, views, height, width)
            .transpose(1, 2)
            .reshape(num_examples * views, channels, height, width)
        )


def _reflected(positions: Tensor, side: int) -> Tensor:
    """Positions outside [0, side) folded back without repeating the edge."""
    return (side - 1) - ((side - 1) - positions.abs()).abs()
