"""One small model of every family that has a name of its own, and layers that are made of others."""

import torch
from torch import nn

from tan_core.models.frozen_batch_norm import FrozenBatchNorm
from tan_core.spec.models import (
    LinearModel,
    MlpModel,
    ModelSpec,
    NfResNetModel,
    ScatterCnnModel,
    ScatterLinearModel,
    TanhCnnModel,
    VitModel,
    WideResNetModel,
)

SMALL_MODELS: dict[str, ModelSpec] = {
    "linear": LinearModel(),
    "mlp": MlpModel(),
    "tanh-cnn": TanhCnnModel(),
    "scatter-linear": ScatterLinearModel(),
    "scatter-cnn": ScatterCnnModel(),
    "wrn-16-4": WideResNetModel(),
    "nf-resnet-50": NfResNetModel(width=1),
    "vit-tiny": VitModel(depth=2, width=12),
}


def frozen_batch_norm(channels: int, *, seed: int = 0) -> FrozenBatchNorm:
    """With statistics, a scale and a shift of some run."""
    generator, layer = torch.Generator().manual_seed(seed), nn.BatchNorm2d(channels)
    for tensor in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
        assert tensor is not None
        nn.init.uniform_(tensor, 0.5, 2, generator=generator)
    return FrozenBatchNorm(layer)
