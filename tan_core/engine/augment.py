"""Random views of images: a reflect-padded crop and a flip in one gather, and a change of colours.

A view is a function of one example and of what was drawn for it, so views cost no epsilon. What is drawn for it depends on how
many examples come before it in the draw: that tells nothing as long as nobody can know what was drawn.
"""

# Shape legend: B = examples, K = views of each, V = B * K, C, H, W = channels, rows, columns.
from dataclasses import dataclass
from typing import Final, Literal, Self

import torch
from torch import Tensor

from tan_core.engine.transfer import sent
from tan_core.errors import ParameterError

_LUMA: Final = (0.299, 0.587, 0.114)
"""How bright red, green and blue are to the eye (ITU-R BT.601)."""


@dataclass(frozen=True, slots=True)
class Augmentation:
    """Which views are taken of each example.

    Args:
        views: K >= 1 views per example.
        padding: pixels of reflect padding (the edge is not repeated) before the random crop.
        flip: whether a view is mirrored left to right with probability 1/2.
        jitter: j in [0, 1]; brightness, contrast and saturation are each multiplied by a factor that is
            uniform between 1 - j and 1 + j.
    """

    views: int = 1
    padding: int = 0
    flip: bool = False
    jitter: float = 0.0

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        *,
        multiplicity: int,
        crop_padding: int | Literal["auto"],
        horizontal_flip: bool,
        color_jitter: float,
        dtype: torch.dtype,
    ) -> Self:
        """The augmentation that a trainer's configuration asks for on inputs of ``shape`` and ``dtype``.

        Raises:
            ParameterError: the inputs are no images, or the padding or the jitter does not fit them.
        """
        padding = crop_padding
        if padding == "auto":
            padding = min(shape[-2:]) // 8 if multiplicity > 1 and len(shape) == 3 else 0
        wanted = cls(views=multiplicity, padding=padding, flip=horizontal_flip, jitter=color_jitter)
        if wanted == cls():
            return wanted
        if len(shape) != 3:
            raise ParameterError(
                "views, crops and flips are of images, the inputs have shape "
                f"{list(shape)}; set augmentation_multiplicity: 1, crop_padding: 0, "
                "horizontal_flip: false and color_jitter: 0",
                field="augmentation_multiplicity",
            )
        if padding >= min(shape[1:]):
            raise ParameterError(
                f"crop_padding must be below the image's side {min(shape[1:])}, got {padding}",
                field="crop_padding",
            )
        if color_jitter and dtype != torch.uint8:
            # What is black, and what is too bright, is known of bytes only.
            raise ParameterError(
                f"color_jitter is of images in uint8, the inputs are {dtype}; set color_jitter: 0",
                field="color_jitter",
            )
        return wanted

    @property
    def is_identity(self) -> bool:
        """Whether every view is the example itself, once."""
        return self == Augmentation()

    def draw(self, num_examples: int, generator: torch.Generator) -> "Views":
        """Offsets, flips and colour factors of every view of ``num_examples`` examples."""
        size = (num_examples, self.views)
        offsets = torch.randint(
            -self.padding, self.padding + 1, (*size, 2), generator=generator, dtype=torch.int64
        )
        flips = torch.zeros(size, dtype=torch.bool)
        if self.flip:
            flips = torch.randint(0, 2, size, generator=generator).bool()
        factors = None
        if self.jitter:
            uniform = torch.rand((*size, 3), generator=generator)
            factors = 1 + self.jitter * (2 * uniform - 1)
        return Views(rows=offsets[..., 0], columns=offsets[..., 1], flips=flips, factors=factors)


@dataclass(frozen=True, slots=True)
class Views:
    """The drawn views, each field [B, K] and more."""

    rows: Tensor
    columns: Tensor
    flips: Tensor
    factors: Tensor | None = None
    """[B, K, 3]: of brightness, contrast and saturation; None where colours stay."""

    def __getitem__(self, which: slice | Tensor) -> "Views":
        """The views of some of the examples."""
        return Views(
            rows=self.rows[which],
            columns=self.columns[which],
            flips=self.flips[which],
            factors=None if self.factors is None else self.factors[which],
        )

    def of(self, images_BCHW: Tensor) -> Tensor:
        """The views themselves, [B * K, C, H, W]; the K views of an example stand together."""
        views_VCHW = self._placed(images_BCHW)
        if self.factors is None:
            return views_VCHW
        return _jittered(views_VCHW, sent(self.factors.flatten(0, 1), views_VCHW.device))

    def _placed(self, images_BCHW: Tensor) -> Tensor:
        """Cropped and flipped, where the images are."""
        num_examples, channels, height, width = images_BCHW.shape
        views, device = self.rows.shape[1], images_BCHW.device
        of_rows, of_columns, flips = (
            sent(each.reshape(-1, 1), device) for each in (self.rows, self.columns, self.flips)
        )
        columns = _reflected(of_columns + torch.arange(width, device=device), width)
        columns = torch.where(flips, columns.flip(1), columns)
        rows = _reflected(of_rows + torch.arange(height, device=device), height)
        pixels = (rows[:, :, None] * width + columns[:, None, :]).reshape(
            num_examples, 1, views * height * width
        )
        taken = images_BCHW.flatten(2).gather(2, pixels.expand(-1, channels, -1))
        return (
            taken.view(num_examples, channels, views, height, width)
            .transpose(1, 2)
            .reshape(num_examples * views, channels, height, width)
        )


def _reflected(positions: Tensor, side: int) -> Tensor:
    """Positions outside [0, side) folded back without repeating the edge."""
    return (side - 1) - ((side - 1) - positions.abs()).abs()


def _jittered(images_VCHW: Tensor, factors_V3: Tensor) -> Tensor:
    """Brightness, then contrast, then saturation: away from black, the mean grey, the pixel's grey.

    Each is clamped to [0, 255], and the last one rounded to bytes again.
    """
    brightness, contrast, saturation = factors_V3[:, :, None, None, None].unbind(1)
    images = (images_VCHW.float() * brightness).clamp_(0, 255)
    # In float64 the mean does not depend on how many views are summed side by side.
    mean_V111 = _grey(images).double().mean((1, 2, 3), keepdim=True).float()
    images = _away_from(mean_V111, images, contrast)
    images = _away_from(_grey(images), images, saturation)
    return images.round_().to(torch.uint8)


def _away_from(base: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    return (images * factor + base * (1 - factor)).clamp_(0, 255)


def _grey(images_VCHW: Tensor) -> Tensor:
    """[V, 1, H, W]: luma of red, green and blue, else the mean over the channels."""
    if images_VCHW.shape[1] != len(_LUMA):
        return images_VCHW.mean(1, keepdim=True)
    red, green, blue = images_VCHW.split(1, dim=1)
    return red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2]
