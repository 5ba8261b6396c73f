"""The models that a study may name: one file per family, built from a spec, a shape and a generator."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tan_core.models import linear, mlp, tanh_cnn, wide_resnet
from tan_core.models.initialise import initialise
from tan_core.spec.base import Frozen
from tan_core.spec.models import LinearModel, MlpModel, ModelSpec, TanhCnnModel, WideResNetModel

Builder = Callable[[Any, tuple[int, ...], int], nn.Module]

BUILDERS: Mapping[type[Frozen], Builder] = {
    LinearModel: linear.build,
    MlpModel: mlp.build,
    TanhCnnModel: tanh_cnn.build,
    WideResNetModel: wide_resnet.build,
}


def build(
    spec: ModelSpec, *, shape: Sequence[int], num_classes: int, generator: torch.Generator
) -> nn.Module:
    """The model of ``spec`` for inputs of ``shape``, initialised from ``generator`` alone.

    Formal guarantees:

    * Equal arguments and equal generator seeds give equal parameters on every machine.
    * The global generator of torch is neither read nor moved.

    Args:
        spec: family and options.
        shape: of one example, channels first; ``[F]`` for a table.
        num_classes: number of logits, at least 2.
        generator: source of the initial parameters, on the CPU.

    Raises:
        ParameterError: the family cannot read inputs of this shape, or an option does not fit it.
    """
    # Nothing is drawn while the layers are made: on the meta device they hold no values.
    with torch.device("meta"):
        model = BUILDERS[type(spec)](spec, tuple(shape), num_classes)
    model.to_empty(device="cpu")
    initialise(model, generator)
    return model


__all__ = ["build"]
