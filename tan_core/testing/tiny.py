"""A model and images that a processor trains on in no time."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tan_core import models
from tan_core.spec.models import MlpModel

SHAPE = (1, 8, 8)
NUM_CLASSES = 3


def tiny_model(*, seed: int = 0) -> nn.Module:
    """A hidden layer of four units for :func:`tiny_images`: 275 parameters in float32.

    Example:
        >>> sum(p.numel() for p in tiny_model().parameters())
        275
    """
    return models.build(
        MlpModel(hidden=[4]),
        shape=SHAPE,
        num_classes=NUM_CLASSES,
        generator=torch.Generator().manual_seed(seed),
    )


def tiny_images(
    num_examples: int = 60, *, seed: int = 0
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Noise in [N, 1, 8, 8] and labels in 0, 1 and 2 that it says nothing of; the same for equal seeds.

    Example:
        >>> images, labels = tiny_images(5)
        >>> images.shape, images.dtype.name, labels.shape
        ((5, 1, 8, 8), 'uint8', (5,))
    """
    generator = np.random.default_rng(seed)
    inputs = generator.integers(0, 256, (num_examples, *SHAPE), dtype=np.uint8)
    return inputs, generator.integers(0, NUM_CLASSES, num_examples)
