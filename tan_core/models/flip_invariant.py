"""Features of an image that its mirror image shares."""

from torch import Tensor

from tan_core.models.extractor import Extractor


class FlipInvariant(Extractor):
    """The mean of what an extractor makes of an image and of its mirror image.

    No head can tell the two apart then: what it would have to learn of that is known, and private noise in
    the weights that could tell them apart does nothing. That costs no epsilon, as each record is
    mirrored by itself. For images whose label is their mirror image's: objects mostly, digits not.

    Args:
        extractor: whose features are averaged.
    """

    def __init__(self, extractor: Extractor) -> None:
        super().__init__()
        self._extractor = extractor

    @property
    def records_at_once(self) -> int:
        """As the extractor has it."""
        return self._extractor.records_at_once

    @property
    def fingerprint(self) -> str:
        """What is averaged, and over what."""
        return f"{self._extractor.fingerprint} flip-invariant"

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W] -> as the extractor has it, bit by bit the same for images mirrored in width."""
        return (self._extractor(images) + self._extractor(images.flip(-1))) / 2
