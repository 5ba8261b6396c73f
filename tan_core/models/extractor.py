"""Frozen extractors: the first part of a model, fixed before any record is seen.

What an extractor makes of a record is the same at every step, so it is computed once: the rest of the
model, the head, is trained on the features. :func:`split` takes the two apart, and parameters keep
their names, so the state of a trained head loads into the whole model.

Example:
    >>> import torch
    >>> from tan_core.models import build, extractor
    >>> from tan_core.spec.models import ScatterLinearModel
    >>> model = build(
    ...     ScatterLinearModel(), shape=[1, 8, 8], num_classes=10, generator=torch.Generator()
    ... )
    >>> frozen, head = extractor.split(model)
    >>> [key for key in head.state_dict()] == [key for key in model.state_dict()]
    True
"""

from abc import ABC, abstractmethod
from typing import cast

from torch import Tensor, nn


class Extractor(nn.Module, ABC):
    """A fixed function of one example; nothing in it is trained.

    Formal guarantees, which every subclass keeps:

    * Example i of the output depends on example i of the input and on nothing else: no statistic over
      examples, nothing that this study learnt. Datasets that differ in one record therefore have
      features that differ in one row. So training on features is DP-SGD on a dataset of as many
      records, the clipped sum has the same sensitivity, and the extractor costs no epsilon. What the
      weights of a pre-trained one were learnt from is declared, and covered by no figure here.
    * Equal fingerprints and equal inputs give equal outputs, up to float rounding.

    The features themselves are not private: they are kept like the records.
    """

    @property
    def records_at_once(self) -> int:
        """What one call should get: so few that what is computed on the way stays in the processor's cache."""
        return 8

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """What is computed, options and version: it names features that are kept."""

    def weights(self) -> dict[str, Tensor]:
        """By their names in the whole model; most extractors have none."""
        return dict(self.state_dict())

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W], floats as the trainer gives them to a model -> [N, ...]."""


def split(model: nn.Module) -> tuple[Extractor | None, nn.Module]:
    """The extractor that a model begins with, if any, and the head: what is left, sharing its weights."""
    first = model[0] if isinstance(model, nn.Sequential) and len(model) > 1 else None
    if not isinstance(first, Extractor):
        return None, model
    return first, cast("nn.Sequential", model)[1:]
